"""Joplin's exports: JEX, which is a tar archive, or the same files in a folder ("RAW").

Every file is an item: a note, a notebook, a tag, or a link between a tag and a note. Attachments are not read.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from msgspec import UNSET, Struct

from config.errors import InvalidParams, TooLarge
from sources.drafts import NoteDraft
from sources.importers.engine.archives import is_tar, tar_files
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import FolderTree
from sources.importers.engine.files import FailedItem, ImportedNote, SkippedItem, decode_text, file_size
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_tags, short_title, stored_time
from sources.importers.parsers.web_page import html_text

_ITEM_NAME = re.compile(r"(?:^|/)[0-9a-f]{32}\.md$")
_NAME_IN_TAR = re.compile(rb"(?:^|/|\0)[0-9a-f]{32}\.\w{1,8}\0")
_ID = re.compile(r"[0-9a-f]{32}")
_TYPE_IN_HEAD = re.compile(rb"^type_: \d", re.MULTILINE)
_PROPERTY = re.compile(r"(\w{1,60}): ?([^\n]*)")
_NOTE, _ATTACHMENT = "1", "4"
_HTML = "2"
_NOTEBOOKS_MAX = 50
_TAIL_BYTES = 4096


class JoplinImporter(Importer):
    name = "joplin"
    title = "Joplin export (JEX or RAW)"
    suffixes = (".jex", ".tar")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            name = next(filter(_ITEM_NAME.search, probe.names), None)
            tail = b""
            if name:
                with suppress(OSError), open_file(probe.path / name) as file:
                    file.seek(max(0, file_size(probe.path / name) - _TAIL_BYTES))
                    tail = file.read(_TAIL_BYTES)
            return 0.9 if _TYPE_IN_HEAD.search(tail) else 0.0
        return 0.9 if is_tar(probe.head) and _NAME_IN_TAR.search(probe.head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        index = _JoplinIndex()
        # The first pass collects notebooks and tags. Its progress is not shown, but tells that the process works.
        for _, data in _files(path, limits, lambda bytes_read: progress(0)):
            if isinstance(data, bytes):
                index.add(_parse_item(data, limits))
        for name, data in _files(path, limits, progress):
            if isinstance(data, str):
                yield FailedItem(name, data)
                continue
            item = _parse_item(data, limits)
            # Notebooks, tags and their links are in the index; an item without a type is reported as damaged.
            if item.type in (_NOTE, _ATTACHMENT, ""):
                yield _read_item(name, item, index, limits)
        progress(file_size(path))


IMPORTER = JoplinImporter()


class _JoplinItem(Struct, frozen=True):
    """A file of the export: its text, and the properties below it."""

    text: str
    properties: Mapping[str, str]

    @property
    def type(self) -> str:
        return self.properties.get("type_", "")


class _JoplinIndex:
    """The notebooks and tags, which may come after the notes in the archive."""

    def __init__(self) -> None:
        self._notebooks: dict[str, tuple[str, str]] = {}
        self._tags: dict[str, str] = {}
        self._tags_of: dict[str, list[str]] = {}

    def add(self, item: _JoplinItem) -> None:
        properties = item.properties
        title = item.text.partition("\n")[0].strip()
        match item.type:
            case "2":  # a notebook
                self._notebooks[properties.get("id", "")] = (title, properties.get("parent_id", ""))
            case "5":  # a tag
                self._tags[properties.get("id", "")] = title
            case "6":  # a tag of a note
                self._tags_of.setdefault(properties.get("note_id", ""), []).append(properties.get("tag_id", ""))

    def tags(self, note_id: str) -> list[str]:
        return [self._tags[tag] for tag in self._tags_of.get(note_id, ()) if tag in self._tags]

    def notebook(self, notebook_id: str) -> str:
        """Returns the path of a notebook. A cycle, which only a damaged export has, ends it."""
        names: dict[str, str] = {}
        while notebook_id in self._notebooks and notebook_id not in names and len(names) < _NOTEBOOKS_MAX:
            title, parent = self._notebooks[notebook_id]
            names[notebook_id] = title
            notebook_id = parent
        return "/".join(reversed(names.values()))


def _files(path: Path, limits: ImportLimits, progress: ProgressCallback) -> Iterator[tuple[str, bytes | str]]:
    """Yields the name and bytes of each item, or the problem with it."""
    if path.is_dir():
        tree = FolderTree(path, limits, progress)
        for name in filter(_ITEM_NAME.search, tree.names):
            try:
                yield name, tree.read(name, limits.line_max_bytes)
            except InvalidParams as error:
                yield name, error.message
        return
    with open_file(path) as file:
        for name, size in tar_files(file, limits):
            if _ITEM_NAME.search(name) and size > limits.line_max_bytes:
                yield name, TooLarge("the item", limits.line_max_bytes).message
            elif _ITEM_NAME.search(name):
                data = file.read(size)
                yield name, data if len(data) == size else "the archive is truncated here"
            progress(file.tell())


def _parse_item(data: bytes, limits: ImportLimits) -> _JoplinItem:
    """The properties are the last paragraph; a value's line breaks are escaped."""
    try:
        text = decode_text(data, limits).rstrip("\n")
    except InvalidParams:
        return _JoplinItem("", {})
    body, _, block = text.rpartition("\n\n")
    matches = [_PROPERTY.fullmatch(line) for line in block.split("\n")]
    return _JoplinItem(body, {match[1]: match[2].strip() for match in matches if match})


def _read_item(name: str, item: _JoplinItem, index: _JoplinIndex, limits: ImportLimits) -> ImportEvent:
    note_id = item.properties.get("id", "")
    if item.type == _ATTACHMENT:
        return SkippedItem("attachment")
    if item.type != _NOTE or not _ID.fullmatch(note_id):
        return FailedItem(name, "not an item of a Joplin export")
    if item.properties.get("encryption_applied") == "1":
        return SkippedItem("encrypted note")
    if item.properties.get("deleted_time", "0") not in ("", "0"):
        return SkippedItem("note in the trash")
    try:
        title, _, body = item.text.partition("\n")
        properties = item.properties
        is_html = properties.get("markup_language") == _HTML
        updated = stored_time(properties.get("user_updated_time") or properties.get("updated_time"))
        todo = "open" if properties.get("todo_completed", "0") in ("", "0") else "completed"
        note_draft = NoteDraft(
            title=short_title(title) or "Untitled",
            content=html_text(body, limits.item_max_chars) if is_html else body.strip("\n"),
            tags=clean_tags(index.tags(note_id)),
            metadata=compact_metadata(
                notebook=index.notebook(properties.get("parent_id", "")),
                updated=updated,
                url=properties.get("source_url"),
                author=properties.get("author"),
                todo=todo if properties.get("is_todo") == "1" else None,
            ),
            uuid=str(UUID(note_id)),
            created_at=stored_time(properties.get("user_created_time") or properties.get("created_time")) or UNSET,
            last_modified=updated or UNSET,
        )
        return ImportedNote(note_draft)
    except (InvalidParams, TooLarge) as error:
        return FailedItem(name, error.message)
