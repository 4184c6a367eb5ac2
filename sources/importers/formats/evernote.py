"""Evernote's export, ENEX: an XML file with the notes of a notebook. Attachments are listed by name, not read."""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from sources.drafts import NoteDraft
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, ImportedNote, printable_name, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, clean_tags, short_title, stored_time
from sources.importers.parsers.parsed_document import TextBuilder
from sources.importers.parsers.web_page import PageReader, read_page
from sources.importers.parsers.xml_events import XmlHandler, read_xml_blocks

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


class EvernoteImporter(Importer):
    name = "evernote"
    title = "Evernote export (ENEX)"
    suffixes = (".enex",)
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        return 0.0 if probe.is_folder or b"<en-export" not in probe.head[:_HEAD_BYTES] else 1.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        handler = _EnexHandler(limits)
        keys = _NoteKeys(_COPY_NUMBER.sub("", printable_name(path.stem)))
        with open_file(path) as file:
            for _ in read_xml_blocks(count_reads(file, limits, progress), handler):
                yield from _take_notes(handler, keys, limits)
        yield from _take_notes(handler, keys, limits)


IMPORTER = EvernoteImporter()


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


class _NoteKeys:
    """Notes have no id in the export, but the second of their creation and a title. A copy of a note in another
    notebook has both, so the notebook is part of the key: Evernote names the file after it. Equal notes of one notebook
    are numbered."""

    def __init__(self, notebook: str) -> None:
        self._notebook = notebook
        self._counts: dict[str, int] = {}

    def uuids_of(self, note: Mapping[str, list[str]]) -> tuple[str, str]:
        """Returns the id of a note, and the one of earlier versions, which did not know notebooks."""
        created, title = _first(note, "created"), _first(note, "title")
        key = f"{created}\0{title}" if created else sha256(f"{title}\0{_first(note, 'content')}".encode()).hexdigest()
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > 1:
            key = f"{key}\0{count}"
        former = stable_uuid("evernote", "notes", key)
        return (stable_uuid("evernote", "notes", f"{self._notebook}\0{key}"), former) if created else (former, "")


def _take_notes(handler: _EnexHandler, keys: _NoteKeys, limits: ImportLimits) -> Iterator[ImportEvent]:
    notes, handler.notes = handler.notes, []
    for note in notes:
        try:
            yield _imported_note(note, keys, limits)
        except (InvalidParams, TooLarge) as error:
            yield FailedItem(f"note {_first(note, 'title')[:80]!r}", error.message)


def _imported_note(note: Mapping[str, list[str]], keys: _NoteKeys, limits: ImportLimits) -> ImportedNote:
    if _TOO_LARGE in note:
        raise TooLarge("the note", limits.line_max_bytes)
    title = short_title(replace_unstorable(_first(note, "title")))
    text = read_page(_first(note, "content"), TextBuilder(limits.item_max_chars), _EnmlReader).text.build()
    uuid, former_uuid = keys.uuids_of(note)
    draft = NoteDraft(
        title=title or "Untitled",
        content=text,
        tags=clean_tags([clean_line(tag) for tag in note.get("tag", ())]),
        metadata=compact_metadata(
            updated=stored_time(_first(note, "updated")),
            url=clean_line(_first(note, "source-url")),
            source=clean_line(_first(note, "source")),
            author=clean_line(_first(note, "author")),
            attachments=[clean_line(name) for name in note.get("file-name", ())],
        ),
        uuid=uuid,
        created_at=stored_time(_first(note, "created")) or UNSET,
        last_modified=stored_time(_first(note, "updated")) or UNSET,
    )
    return ImportedNote(draft, former_uuid=former_uuid)


def _first(note: Mapping[str, list[str]], name: str) -> str:
    return next(iter(note.get(name, ())), "").strip()
