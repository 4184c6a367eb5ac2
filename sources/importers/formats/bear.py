"""Bear's backups (`.bear2bk`, `.bearbk`) and TextBundles: a folder or zip per note, with `text.md` and `info.json`."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import NoteDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.export_files import is_zip_file
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import FileTree, FolderTree, open_tree
from sources.importers.engine.files import (
    FailedItem,
    ImportedNote,
    SkippedItem,
    file_key,
    item_text,
    stable_uuid,
    text_max_bytes,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import first_heading, inline_tags, link_targets, remove_code
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import (
    clean_tags,
    json_or_none,
    object_or_empty,
    short_title,
    stored_time,
    text_or_empty,
    valid_uuid,
)

_TEXTS = ("text.md", "text.markdown", "text.txt")
_INFO = "info.json"
_BUNDLE_SUFFIX = ".textbundle"
_PROGRAM = "net.shinyfrog.bear"
# A tag of several words ends with # too.
_WORDS_TAG = re.compile(r"(?<![^\s])#([^\s#/][^#\n]{0,98}[^\s#])#")


class BearImporter(Importer):
    name = "bear"
    title = "Bear backup, TextBundle, TextPack"
    suffixes = (".bear2bk", ".bearbk", ".textpack", ".zip", ".md", ".markdown", ".txt")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            is_bundle = _INFO in probe.names and any(name.lower() in _TEXTS for name in probe.names)
            return 0.9 if is_bundle and probe.path.suffix.lower() == _BUNDLE_SUFFIX else 0.0
        if is_zip(probe.head):
            return 0.9 if any(_bundles(probe.names)) else 0.0
        # A bundle inside a folder that is imported file by file.
        is_in_bundle = probe.path.parent.suffix.lower() == _BUNDLE_SUFFIX
        return 0.9 if is_in_bundle and probe.path.name.lower() in _TEXTS else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if path.is_dir() or not is_zip_file(path):
            folder = path if path.is_dir() else path.parent
            # A folder has no content to hash, but an uploaded one is always a zip.
            yield from _read_tree(
                FolderTree(folder, limits, progress), str(folder.resolve()) if limits.has_stable_path else "", limits
            )
            return
        with open_tree(path, limits, progress) as tree:
            yield from _read_tree(tree, file_key(path, limits), limits)


IMPORTER = BearImporter()


def _bundles(names: Sequence[str]) -> Iterator[str]:
    """Yields the texts of the bundles, which are next to their `info.json`."""
    known = frozenset(names)
    for name in names:
        folder, slash, text = name.rpartition("/")
        if text.lower() in _TEXTS and f"{folder}{slash}{_INFO}" in known:
            yield name


def _read_tree(tree: FileTree, key: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    texts = frozenset(_bundles(tree.names))
    for name in tree.names:
        if name in texts:
            yield _read_bundle(tree, name, key, limits)
        # The info of a bundle is read with its text.
        elif not name.endswith(_INFO):
            yield SkippedItem("attachment")


def _read_bundle(tree: FileTree, name: str, key: str, limits: ImportLimits) -> ImportEvent:
    folder = name.rpartition("/")[0]
    try:
        text = item_text(tree.read(name, text_max_bytes(limits)), limits, name).strip("\n")
        info = json_or_none(
            tree.read(f"{folder}/{_INFO}".lstrip("/"), limits.line_max_bytes).decode("utf-8", "replace"), limits
        )
    except InvalidParams as error:
        return FailedItem(name, error.message)
    bear = object_or_empty(object_or_empty(info).get(_PROGRAM))
    if bear.get("trashed") in (1, True):
        return SkippedItem("note in the trash")
    if not text:
        return SkippedItem("empty note")
    prose = remove_code(text)
    # Older versions of Bear add digits to the UUID.
    uuid = valid_uuid(text_or_empty(bear.get("uniqueIdentifier"))[:36])
    note_draft_name = folder.rpartition("/")[2].removesuffix(_BUNDLE_SUFFIX)
    modified = stored_time(bear.get("modificationDate"))
    note_draft = NoteDraft(
        title=short_title(first_heading(prose) or note_draft_name or text.partition("\n")[0]),
        content=text,
        tags=clean_tags([*_WORDS_TAG.findall(prose), *inline_tags(_WORDS_TAG.sub(" ", prose))]),
        metadata=compact_metadata(
            path=folder,
            links=link_targets(prose),
            updated=modified,
            pinned=bear.get("pinned") in (1, True) or None,
            archived=bear.get("archived") in (1, True) or None,
        ),
        uuid=uuid or stable_uuid("bear", "notes", f"{key}/{folder}"),
        created_at=stored_time(bear.get("creationDate")) or UNSET,
        last_modified=modified or UNSET,
    )
    return ImportedNote(note_draft)
