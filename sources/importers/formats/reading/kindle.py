"""Kindle's `My Clippings.txt`: the highlights and notes of all books on a reader. Every book becomes a note."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from config.errors import InvalidParams
from config.times import format_time
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, ImportedNote, SkippedItem, decode_text, read_bytes
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.values import clean_line
from sources.importers.formats.reading.highlights import Highlight, HighlightedBook, book_draft

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

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        data = read_bytes(path, limits.line_max_bytes)
        books: dict[str, list[Highlight]] = {}
        for number, clipping in enumerate(decode_text(data, limits).split(f"\n{_SEPARATOR}"), 1):
            lines = clipping.strip("\n\ufeff ").split("\n")
            if len(lines) < 2 or not lines[1].startswith("- "):
                if clipping.strip():
                    yield FailedItem(f"clipping {number}", "expected a title and a line about the clipping")
                continue
            highlight = _highlight(lines[1].removeprefix("- "), "\n".join(lines[2:]).strip())
            if highlight is None:
                yield SkippedItem("bookmark without text")
            else:
                books.setdefault(clean_line(lines[0].lstrip("\ufeff")), []).append(highlight)
        if not books:
            raise InvalidParams("no highlights found")
        for line, highlights in books.items():
            author = _AUTHOR.search(line)
            title = line[: author.start()].strip() if author else line
            book = HighlightedBook(title or line, author[1] if author else "", line, highlights)
            yield ImportedNote(book_draft("kindle", book))
        progress(len(data))


IMPORTER = KindleImporter()


def _highlight(description: str, text: str) -> Highlight | None:
    if not text:
        return None
    *location, added = [part.strip() for part in description.split("|")]
    created = _added_at(added)
    label = " | ".join(location if created or location else [added])
    if _NOTE_WORDS.search(location[0] if location else added):
        return Highlight(note=text, location=label, created=created)
    return Highlight(text=text, location=label, created=created)


def _added_at(text: str) -> str | None:
    """Parses `Added on Friday, January 5, 2024 10:30:00 AM`. Dates in other languages are left out."""
    written = text.removeprefix("Added on ").strip()
    for date_format in _DATE_FORMATS:
        try:
            return format_time(datetime.strptime(written, date_format).replace(tzinfo=UTC))
        except ValueError:
            continue
    return None
