"""Notes that an app or service exports as data: Evernote, Google Keep, Apple Notes and Joplin."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import PurePosixPath
from uuid import UUID

from msgspec import Struct, structs

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from sources.importers.engine.archives import is_tar, is_zip, tar_files
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.events import FailedItem, ImportEvent, SkippedItem, imported_note, stable_uuid
from sources.importers.engine.file_probe import HEAD_BYTES
from sources.importers.engine.files import decode_text, file_size
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.input_file import FileTree, FolderTree
from sources.importers.engine.markdown_text import inline_tags
from sources.importers.engine.table_reader import TableReader, TableSpec
from sources.importers.engine.values import Fields, clean_line, stored_date, stored_time, valid_uuid
from sources.importers.parsers.parsed_document import TextBuilder
from sources.importers.parsers.web_page import PageReader, html_text, read_page
from sources.importers.parsers.xml_events import XmlHandler, read_xml_blocks

# -- Evernote ----------------------------------------------------------------------------------------------------------
# Evernote's export, ENEX: an XML file with the notes of a notebook. Attachments are listed by name, not read.

_HEAD_BYTES = 4096
# The elements of a note whose text is kept. Those of tasks and of reminders have other names.
_TEXT_ELEMENTS = frozenset(
    ["title", "content", "created", "updated", "tag", "author", "source", "source-url", "file-name"]
)
_TEXTS_MAX = 1_000
# A `div` is a line and not a paragraph, so it ends like an element within a line.
_INLINE_ELEMENT = "span"
# Marks a note whose text was dropped; no element has this name.
_TOO_LARGE = "too large"
# What browsers and file managers append to the name of a file that exists already.
_COPY_NUMBER = re.compile(r" ?\(\d+\)$")


class EvernoteImporter(FileImporter):
    name = "evernote"
    title = "Evernote export (ENEX)"
    suffixes = (".enex",)
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        return 1.0 if probe.is_text and b"<en-export" in probe.head[:_HEAD_BYTES] else 0.0

    def read_file(self, file: InputFile) -> Events:
        # A copy of a note in another notebook has the same time and title, so the notebook is part of its key: Evernote
        # names the file after it.
        handler, notebook = _EnexHandler(file.limits), _COPY_NUMBER.sub("", file.stem)
        counts = Counter[str]()
        with file.open() as opened:
            # Once more at the end, when the last block was parsed.
            for _ in chain(read_xml_blocks(opened, handler), (None,)):
                notes, handler.notes = handler.notes, []
                for note in notes:
                    try:
                        yield _enex_note(note, notebook, counts, file.limits)
                    except (InvalidParams, TooLarge) as error:
                        yield FailedItem(f"note {_first(note, 'title')[:80]!r}", error.message)


class _EnexHandler(XmlHandler):
    """Collects complete notes in `notes`: the texts of their elements, by name."""

    def __init__(self, limits: ImportLimits) -> None:
        self.notes: list[dict[str, list[str]]] = []
        self._max_chars = limits.line_max_bytes
        self._note: dict[str, list[str]] | None = None
        self._element = ""
        self._parts: list[str] = []
        self._chars = 0

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "note":
            self._note, self._chars = {}, 0
        elif self._note is not None and name in _TEXT_ELEMENTS:
            self._element, self._parts = name, []

    def end(self, name: str) -> None:
        if self._note is None:
            return
        if name == "note":
            self.notes.append(self._note)
            self._note = None
        elif name == self._element:
            texts = self._note.setdefault(name, [])
            if len(texts) < _TEXTS_MAX:
                texts.append("".join(self._parts))
            self._element = ""

    def data(self, text: str) -> None:
        """Text outside these elements, above all the data of attachments, is dropped."""
        if not self._element or self._note is None:
            return
        self._chars += len(text)
        if self._chars <= self._max_chars:
            self._parts.append(text)
        else:
            # The note is given up, but the file is read on.
            self._parts.clear()
            self._note[_TOO_LARGE] = [""]


class _EnmlReader(PageReader):
    """Reads the content of a note: every line is a `div`, and to-dos and encrypted texts have elements of their own."""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        super().start(tag, attributes)
        if tag == "en-todo":
            self.text.write("[x] " if attributes.get("checked") == "true" else "[ ] ")
        elif tag == "en-crypt":
            self.text.write("[encrypted text]")
            self._hidden.append(tag)

    def end(self, tag: str) -> None:
        super().end(tag if tag != "div" or self._hidden else _INLINE_ELEMENT)
        if tag == "div":
            self.text.end_line()

    def _start_content(self, tag: str) -> None:
        if tag == "div":
            self.text.end_line()
        else:
            super()._start_content(tag)


def _enex_note(note: Mapping[str, list[str]], notebook: str, counts: Counter[str], limits: ImportLimits) -> ImportEvent:
    if _TOO_LARGE in note:
        raise TooLarge("the note", limits.line_max_bytes)
    content, title, created = (_first(note, name) for name in ("content", "title", "created"))
    text = read_page(content, TextBuilder(limits.item_max_chars), _EnmlReader).text.build()
    # Notes have no id in the export, but the second of their creation and a title. Equal notes are numbered.
    key = f"{created}\0{title}" if created else sha256(f"{title}\0{content}".encode()).hexdigest()
    counts[key] += 1
    if counts[key] > 1:
        key = f"{key}\0{counts[key]}"
    # The id of earlier versions, which did not know notebooks.
    former = stable_uuid("evernote", "notes", key)
    return imported_note(
        stable_uuid("evernote", "notes", f"{notebook}\0{key}") if created else former,
        replace_unstorable(title) or "Untitled",
        text,
        tags=[clean_line(tag) for tag in note.get("tag", ())],
        created=stored_time(created),
        modified=stored_time(_first(note, "updated")),
        former_uuid=former if created else "",
        url=clean_line(_first(note, "source-url")),
        source=clean_line(_first(note, "source")),
        author=clean_line(_first(note, "author")),
        attachments=[clean_line(name) for name in note.get("file-name", ())],
    )


def _first(note: Mapping[str, list[str]], name: str) -> str:
    return next(iter(note.get(name, ())), "").strip()


# -- Google Keep -------------------------------------------------------------------------------------------------------
# Google Keep, as Google Takeout exports it: one JSON file for each note, in a zip or unpacked.
#
# Takeout writes every note twice, as JSON and as a web page; the page is skipped.

_FIELDS = (rb'"isTrashed"', rb'"userEditedTimestampUsec"')
_ENTRY = re.compile(r"(?:^|/)Keep/[^/]{1,300}\.json$")
_PAGE_SUFFIX = ".html"


class GoogleKeepImporter(FileImporter):
    name = "google_keep"
    title = "Google Keep (Takeout)"
    suffixes = (".json", ".zip", _PAGE_SUFFIX)

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if probe.suffix == _PAGE_SUFFIX:
            head, note = b"", probe.path.with_suffix(".json")
            with suppress(OSError), open_file(note) as file:
                head = file.read(HEAD_BYTES) if note.is_file() else b""
            return 0.9 if _is_keep_note(head) else 0.0
        return 0.9 if _is_keep_note(probe.first_bytes(_is_keep_note_entry)) else 0.0

    def read_file(self, file: InputFile) -> Events:
        if file.is_zip:
            with file.open_tree() as tree:
                yield from tree.read_each(partial(_read_keep_entry, tree))
        elif file.suffix == _PAGE_SUFFIX:
            # Recognized so that it is not imported as a document.
            yield SkippedItem("web page of a note that is also there as JSON")
        else:
            yield _keep_note(file.json(), file.path.stem)


def _is_keep_note_entry(name: str) -> bool:
    return _ENTRY.search(name) is not None


def _is_keep_note(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and all(field in head for field in _FIELDS)


def _read_keep_entry(tree: FileTree, name: str) -> ImportEvent:
    if not _is_keep_note_entry(name):
        return SkippedItem("file in the archive not containing a Keep note")
    return _keep_note(tree.json(name), name.rpartition("/")[2].removesuffix(".json"))


def _keep_note(value: object, file_stem: str) -> ImportEvent:
    note = Fields.require(value, "expected a note, got JSON of another kind")
    if note.get("isTrashed") is True:
        return SkippedItem("note in the trash")
    title = note.line("title")
    # The text, the list and the links of a note.
    checklist = (
        f"- [{'x' if item.get('isChecked') is True else ' '}] {item.text('text')}"
        for item in note.objects("listContent")
    )
    annotations = ((one.line("title"), one.line("url")) for one in note.objects("annotations"))
    links = (f"[{name or url}]({url})" if url else name for name, url in annotations)
    parts = (note.text("textContent").strip("\n"), "\n".join(checklist), "\n".join(links))
    content = "\n\n".join(filter(None, parts))
    if not title and not content:
        return SkippedItem("empty note")
    created, edited = note.get("createdTimestampUsec"), _microseconds(note.get("userEditedTimestampUsec"))
    return imported_note(
        # Notes have no id, but the microsecond of their creation.
        stable_uuid("google_keep", "notes", str(created) if isinstance(created, int) else file_stem),
        title or content,
        content,
        tags=[label.line("name") for label in note.objects("labels")],
        created=_microseconds(created) or edited,
        modified=edited,
        pinned=note.get("isPinned") is True,
        archived=note.get("isArchived") is True,
        attachments=[file.line("filePath") for file in note.objects("attachments")],
    )


def _microseconds(value: object) -> str | None:
    return stored_time(value // 1000) if isinstance(value, int) and not isinstance(value, bool) else None


# -- Apple Notes -------------------------------------------------------------------------------------------------------
# Apple Notes, as common exporters write them: the database of apple-notes-to-sqlite, the JSON of
# apple_cloud_notes_parser, and the zip that Apple offers on its privacy page.
#
# Exporters that write Markdown need nothing of their own: their files are Markdown notes.

_NOTES = TableSpec("notes", ("id", "created", "updated", "folder", "title", "body"))
_FOLDERS = TableSpec("folders", ("id", "long_id", "name"))
_TABLES = (_NOTES, _FOLDERS)
_JSON_FIELDS = (b'"backup_type"', b'"cloudkit_participants"')
# The creation time that Apple adds to the name of a note in its zip.
_CREATED_SUFFIX = re.compile(r"-(\d{4}-\d\d-\d\dT\d\d_\d\d_\d\dZ)\Z")


class AppleNotesImporter(FileImporter):
    name = "apple_notes"
    title = "Apple Notes (apple-notes-to-sqlite, apple_cloud_notes_parser, Apple's zip)"
    suffixes = (".db", ".sqlite", ".sqlite3", ".json", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_database:
            return 0.9 if probe.has_tables(*_TABLES) else 0.0
        if probe.is_zip:
            return 0.8 if any(map(_is_apple_note_entry, probe.names)) else 0.0
        return 0.9 if probe.is_json(*_JSON_FIELDS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        head = file.head(16)
        if is_zip(head):
            with file.open_tree() as tree:
                yield from tree.read_each(partial(_text_note, tree))
        elif head == b"SQLite format 3\0":
            with file.open_database() as reader:
                reader.require(_TABLES, "a database of apple-notes-to-sqlite")
                reader.expect_rows(_NOTES)
                yield from reader.read_rows((_NOTES,), lambda _, row: _database_note(reader, row))
        else:
            notes = Fields.of(file.json()).get("notes")
            for key, note in Fields.require(notes, "notes: expected an object with notes").items():
                failed = FailedItem(f"note {key[:60]!r}", "expected an object")
                yield _json_note(key, Fields(note)) if isinstance(note, dict) else failed


def _database_note(reader: TableReader, row: Fields) -> Events:
    folders = reader.rows_where(_FOLDERS, "id", row["folder"])
    try:
        content = html_text(row.text("body"), reader.limits.item_max_chars)
    except TooLarge as error:
        raise InvalidParams(error.message) from error
    if not content:
        yield SkippedItem("empty note")
        return
    yield imported_note(
        # Such as x-coredata://…/ICNote/p123, which is unique to the Mac that exported it.
        stable_uuid("apple_notes", "notes", row.line("id")),
        row.line("title") or content,
        content,
        tags=inline_tags(content),
        created=row.time("created"),
        modified=row.time("updated"),
        folder=folders[0].line("name") if folders else "",
    )


def _json_note(key: str, note: Fields) -> ImportEvent:
    content = replace_unstorable(note.text("plaintext")).strip("\n")
    if not content:
        return SkippedItem("locked note" if note.get("is_password_protected") is True else "empty note")
    own_key = f"{note.get('note_id', key)}/{note.get('creation_time')}"
    return imported_note(
        valid_uuid(note.get("uuid")) or stable_uuid("apple_notes", "notes", own_key),
        note.line("title") or content,
        content,
        tags=inline_tags(content),
        created=_exported_time(note.get("creation_time")),
        modified=_exported_time(note.get("modify_time")),
        folder=note.line("folder"),
        account=note.line("account"),
        pinned=note.get("is_pinned") is True,
    )


def _exported_time(value: object) -> str | None:
    """Times are written as `2024-01-05 10:30:00 +0100`."""
    text = value.replace(" +", "+").replace(" -", "-").replace(" UTC", "Z") if isinstance(value, str) else value
    return stored_time(text) or stored_date(text)


def _is_apple_note_entry(name: str) -> bool:
    """A note is a folder, below `Notes`, with its text in a file of the same name."""
    *folders, folder, file = ["", *name.split("/")]
    return "Notes" in folders and file == f"{folder}.txt"


def _text_note(tree: FileTree, name: str) -> ImportEvent:
    """Apple's zip has plain text, the database HTML."""
    if not _is_apple_note_entry(name):
        return SkippedItem("file in the archive not containing a note")
    path, text = PurePosixPath(name), tree.text(name).strip("\n")
    if not text:
        return SkippedItem("empty note")
    dated = _CREATED_SUFFIX.search(path.stem)
    title = path.stem[: dated.start()] if dated else path.stem
    return imported_note(
        stable_uuid("apple_notes", "notes", str(path)),
        title,
        text,
        tags=inline_tags(text),
        created=(stored_time(dated[1].replace("_", ":")) if dated else None) or tree.modified_at(name),
        folder=str(path.parent.parent),
    )


# -- Joplin ------------------------------------------------------------------------------------------------------------
# Joplin's exports: JEX, which is a tar archive, or the same files in a folder ("RAW").
#
# Every file is an item: a note, a notebook, a tag, or a link between a tag and a note. Attachments are not read.

_ITEM_NAME = re.compile(r"(?:^|/)[0-9a-f]{32}\.md$")
_NAME_IN_TAR = re.compile(rb"(?:^|/|\0)[0-9a-f]{32}\.\w{1,8}\0")
_ID = re.compile(r"[0-9a-f]{32}")
_TYPE_IN_HEAD = re.compile(rb"^type_: \d", re.MULTILINE)
_PROPERTY = re.compile(r"(\w{1,60}): ?([^\n]*)")
_NOTE, _ATTACHMENT = "1", "4"
_HTML = "2"
_NOTEBOOKS_MAX = 50
_TAIL_BYTES = 4096


class JoplinImporter(FileImporter):
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

    def read_file(self, file: InputFile) -> Events:
        index, limits = _JoplinIndex(), file.limits
        # The first pass collects notebooks and tags. Its progress is not shown, but tells that the process works.
        for _, item in _items(structs.replace(file, progress=lambda bytes_read: file.progress(0))):
            if isinstance(item, _JoplinItem):
                index.add(item)
        for name, item in _items(file):
            if isinstance(item, str):
                yield FailedItem(name, item)
            # Notebooks, tags and their links are in the index; an item without a type is reported as damaged.
            elif item.type in (_NOTE, _ATTACHMENT, ""):
                yield _read_item(name, item, index, limits)


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


def _items(source: InputFile) -> Iterator[tuple[str, _JoplinItem | str]]:
    """Yields the name of each file, and the item in it or the problem with it."""
    limits = source.limits
    if source.is_folder:
        tree = FolderTree(source)
        for name in filter(_ITEM_NAME.search, tree.names):
            try:
                yield name, _parse_item(tree.read(name, limits.line_max_bytes), limits)
            except InvalidParams as error:
                yield name, error.message
        return
    with open_file(source.path) as file:
        for name, size in tar_files(file, limits):
            if _ITEM_NAME.search(name) and size > limits.line_max_bytes:
                yield name, TooLarge("the item", limits.line_max_bytes).message
            elif _ITEM_NAME.search(name):
                data = file.read(size)
                yield name, _parse_item(data, limits) if len(data) == size else "the archive is truncated here"
            source.progress(file.tell())


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
    title, _, body = item.text.partition("\n")
    properties = item.properties
    try:
        is_html = properties.get("markup_language") == _HTML
        content = html_text(body, limits.item_max_chars) if is_html else body.strip("\n")
    except (InvalidParams, TooLarge) as error:
        return FailedItem(name, error.message)
    todo = "open" if properties.get("todo_completed", "0") in ("", "0") else "completed"
    return imported_note(
        str(UUID(note_id)),
        title.strip() or "Untitled",
        content,
        tags=index.tags(note_id),
        created=stored_time(properties.get("user_created_time") or properties.get("created_time")),
        modified=stored_time(properties.get("user_updated_time") or properties.get("updated_time")),
        notebook=index.notebook(properties.get("parent_id", "")),
        url=properties.get("source_url"),
        author=properties.get("author"),
        todo=todo if properties.get("is_todo") == "1" else None,
    )
