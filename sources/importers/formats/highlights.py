"""Highlights from books and articles: a note for each, with its highlights in the order of the file."""

import re
from pathlib import Path

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.files import (
    FailedItem,
    ImportedNote,
    SkippedItem,
    decode_text,
    imported_note,
    is_text,
    read_bytes,
    stable_uuid,
)
from sources.importers.engine.importer import Events, FileProbe, Importer, ImportLimits, ProgressCallback, StartPosition
from sources.importers.engine.markdown_text import normalize_keys
from sources.importers.engine.table_reader import first_columns, table_rows
from sources.importers.engine.values import (
    clean_line,
    stored_date,
    written_date,
)


class Highlight(Struct, frozen=True):
    """`text` is quoted from the book; `note` is what the reader wrote."""

    text: str = ""
    note: str = ""
    location: str = ""
    created: str | None = None
    tags: tuple[str, ...] = ()


class HighlightedBook(Struct, frozen=True):
    title: str
    author: str
    key: str
    highlights: list[Highlight]
    tags: tuple[str, ...] = ()


def _book_note(importer: str, book: HighlightedBook) -> ImportedNote:
    dates = [highlight.created for highlight in book.highlights if highlight.created]
    tags = [tag for highlight in book.highlights for tag in highlight.tags]
    blocks = []
    for highlight in book.highlights:
        lines = [f"> {line}".rstrip() for line in highlight.text.split("\n")] if highlight.text else []
        lines += [f"Note: {highlight.note}"] if highlight.note else []
        lines += [f"({highlight.location})"] if highlight.location else []
        blocks.append("\n".join(lines))
    return imported_note(
        stable_uuid(importer, "notes", book.key),
        book.title,
        "\n\n".join(blocks),
        tags=[*book.tags, *tags],
        created=min(dates, default=None),
        author=book.author,
        highlights=len(book.highlights),
    )


# -- Kindle ------------------------------------------------------------------------------------------------------------
# Kindle's `My Clippings.txt`: the highlights and notes of all books on a reader. Every book becomes a note.

_SEPARATOR = "=========="
_START = re.compile(rb"(?:\xef\xbb\xbf)?[^\r\n]{1,1000}\r?\n- [^\r\n]{1,500}\r?\n\r?\n")
_AUTHOR = re.compile(r"\(([^()\n]{1,300})\)\Z")
# How the line about a clipping names a note, in the languages of the reader.
_NOTE_WORDS = re.compile(r"\b(?:note|notiz|nota|notitie|anteckning|заметка)\b|笔记|メモ|메모", re.IGNORECASE)
_DATE_FORMATS = (
    "%A, %B %d, %Y %I:%M:%S %p",
    "%A, %B %d, %Y, %I:%M %p",
    "%A, %d %B %Y %H:%M:%S",
    "%A, %d %B %y %H:%M:%S",
)


class KindleImporter(Importer):
    name = "kindle"
    title = "Kindle highlights (My Clippings.txt)"
    suffixes = (".txt",)

    def recognizes(self, probe: FileProbe) -> float:
        is_clippings = not probe.is_folder and _START.match(probe.head) and _SEPARATOR.encode() in probe.head
        return 0.9 if is_clippings else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        data = read_bytes(path, limits.line_max_bytes)
        books: dict[str, list[Highlight]] = {}
        for number, clipping in enumerate(decode_text(data, limits).split(f"\n{_SEPARATOR}"), 1):
            lines = clipping.strip("\n\ufeff ").split("\n")
            if len(lines) < 2 or not lines[1].startswith("- "):
                if clipping.strip():
                    yield FailedItem(f"clipping {number}", "expected a title and a line about the clipping")
                continue
            text = "\n".join(lines[2:]).strip()
            if not text:
                yield SkippedItem("bookmark without text")
                continue
            *location, added = [part.strip() for part in lines[1].removeprefix("- ").split("|")]
            # Such as `Added on Friday, January 5, 2024 10:30:00 AM`. Dates in other languages are left out.
            created = written_date(added.removeprefix("Added on ").strip(), _DATE_FORMATS)
            label = " | ".join(location if created or location else [added])
            is_note = _NOTE_WORDS.search(location[0] if location else added)
            highlight = Highlight("" if is_note else text, text if is_note else "", label, created)
            books.setdefault(clean_line(lines[0].lstrip("\ufeff")), []).append(highlight)
        if not books:
            raise InvalidParams("no highlights found")
        for line, highlights in books.items():
            author = _AUTHOR.search(line)
            title = line[: author.start()].strip() if author else line
            book = HighlightedBook(title or line, author[1] if author else "", line, highlights)
            yield _book_note("kindle", book)


# -- Readwise ----------------------------------------------------------------------------------------------------------
# Readwise's CSV export: a row for each highlight. Every book or article becomes a note.

_COLUMNS = frozenset(["highlight", "book title"])


class ReadwiseImporter(Importer):
    name = "readwise"
    title = "Readwise highlights (CSV)"
    suffixes = (".csv",)

    def recognizes(self, probe: FileProbe) -> float:
        is_table = not probe.is_folder and is_text(probe.head)
        return 0.95 if is_table and first_columns(probe.head) >= _COLUMNS else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        data = read_bytes(path, limits.file_max_bytes)
        books: dict[tuple[str, str], HighlightedBook] = {}
        for location, row in table_rows(decode_text(data, limits)):
            if isinstance(row, str):
                yield FailedItem(location, row)
                continue
            fields = normalize_keys(row)
            if not (fields.get("highlight") or fields.get("note")):
                yield SkippedItem("highlight without text")
                continue
            title, author = fields.line("book_title") or "Untitled", fields.line("book_author")
            tags = _split(fields.get("document_tags"))
            # The rows of a book need not follow each other.
            book = books.setdefault((title, author), HighlightedBook(title, author, f"{title}\0{author}", [], tags))
            kind, place = fields.line("location_type"), fields.line("location")
            label = f"{kind} {place}".strip() if place else ""
            created, own_tags = stored_date(fields.get("highlighted_at")), _split(fields.get("tags"))
            text, note = fields.text("highlight").strip(), fields.text("note").strip()
            book.highlights.append(Highlight(text, note, label, created, own_tags))
        if not books:
            raise InvalidParams("no highlights found")
        yield from (_book_note("readwise", book) for book in books.values())


def _split(tags: str | None) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in tags.split(",") if tag.strip()) if tags else ()
