"""A Logseq graph: the folder with `logseq/config.edn`, or a zip of it. Every page and journal becomes a note."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import NoteDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import FileTree, open_tree
from sources.importers.engine.files import (
    FailedItem,
    ImportedNote,
    SkippedItem,
    item_text,
    printable_name,
    stable_uuid,
    text_max_bytes,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import inline_tags, link_targets, read_org_header, remove_code
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_tags, short_title, stored_date

_SETTINGS = "logseq/config.edn"
_NOTE_FOLDERS = ("pages", "journals")
_SUFFIXES = (".md", ".org")
_JOURNAL = re.compile(r"(\d{4})[_-](\d\d)[_-](\d\d)")
_PROPERTY = re.compile(r"[ \t]*+(?:- )?([\w./-]{1,60})::([^\n]{0,2000})")
_PROPERTIES_MAX = 100
_WORDS_TAG = re.compile(r"#\[\[([^\[\]\n]{1,100})\]\]")


class LogseqImporter(Importer):
    name = "logseq"
    title = "Logseq graph (a folder, or a zip of it)"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            has_notes = any(name in probe.names for name in _NOTE_FOLDERS)
            return 0.95 if has_notes and (probe.path / "logseq" / "config.edn").is_file() else 0.0
        return 0.9 if is_zip(probe.head) and _graph_folder(probe.names) is not None else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_tree(path, limits, progress) as tree:
            folder = _graph_folder(tree.names)
            if folder is None:
                raise InvalidParams("not a Logseq graph: logseq/config.edn is missing")
            # Journals have the same names in every graph, so the graph's own name is part of their ids. A graph that is
            # not in a folder of the archive has the name of the archive.
            in_archive = PurePosixPath(folder).name or printable_name(path.stem)
            graph = printable_name(path.resolve().name) if path.is_dir() else in_archive
            for name in tree.names:
                yield _read_file(tree, name, folder, graph, limits)


IMPORTER = LogseqImporter()


def _graph_folder(names: Sequence[str]) -> str | None:
    """Returns the folder of the graph, with a trailing slash unless it is the top."""
    folders = [name.removesuffix(_SETTINGS) for name in names if f"/{name}".endswith(f"/{_SETTINGS}")]
    return min(folders, key=len, default=None)


def _read_file(tree: FileTree, name: str, folder: str, graph: str, limits: ImportLimits) -> ImportEvent:
    path = PurePosixPath(name.removeprefix(folder))
    is_page = name.startswith(folder) and path.parts[0] in _NOTE_FOLDERS and path.suffix.lower() in _SUFFIXES
    if not is_page:
        return SkippedItem("file in the graph not containing a page")
    try:
        text = item_text(tree.read(name, text_max_bytes(limits)), limits, name)
    except InvalidParams as error:
        return FailedItem(name, error.message)
    # A page is named like its file, in which a slash is written as three underscores or in percent notation. A journal
    # is named like its day.
    journal = _JOURNAL.fullmatch(path.stem) if path.parts[0] == "journals" else None
    day = "-".join(journal.groups()) if journal else ""
    page_name = day or short_title(unquote(path.stem.replace("___", "/")))
    is_org = path.suffix.lower() == ".org"
    draft = _org_draft(path, page_name, text) if is_org else _markdown_draft(path, page_name, text)
    if not draft.content:
        return SkippedItem("empty page")
    created_at = (stored_date(day) if day else None) or tree.modified_at(name)
    changes = {"uuid": stable_uuid("logseq", "notes", f"{graph}/{path}"), "created_at": created_at}
    return ImportedNote(replace(draft, **changes))


def _markdown_draft(path: PurePosixPath, page_name: str, text: str) -> NoteDraft:
    # The properties of the page: the lines with `::` at its top.
    properties: dict[str, str] = {}
    for line in text.lstrip("\n").split("\n", _PROPERTIES_MAX)[:_PROPERTIES_MAX]:
        match = _PROPERTY.fullmatch(line.rstrip())
        if match is None:
            break
        properties[match[1].lower()] = match[2].strip()
    prose = remove_code(text)
    tags = [
        tag.strip().removeprefix("#").removeprefix("[[").removesuffix("]]")
        for tag in properties.get("tags", "").split(",")
    ]
    return NoteDraft(
        title=short_title(properties.get("title", "")) or page_name,
        content=text.strip("\n"),
        tags=clean_tags([*tags, *inline_tags(prose), *_WORDS_TAG.findall(prose)]),
        metadata=compact_metadata(path=str(path), links=link_targets(prose), properties=properties),
    )


def _org_draft(path: PurePosixPath, page_name: str, text: str) -> NoteDraft:
    header = read_org_header(text)
    return NoteDraft(
        title=short_title(header.title) or page_name,
        content=text.strip("\n"),
        tags=clean_tags(header.tags),
        metadata=compact_metadata(path=str(path)),
    )
