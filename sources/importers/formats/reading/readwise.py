"""Readwise's CSV export: a row for each highlight. Every book or article becomes a note."""

from collections.abc import Iterator
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, ImportedNote, SkippedItem, decode_text, is_text, read_bytes
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import normalize_keys
from sources.importers.engine.table_reader import first_columns, table_rows
from sources.importers.engine.values import clean_line, stored_date
from sources.importers.formats.reading.highlights import Highlight, HighlightedBook, book_draft

_COLUMNS = frozenset(["highlight", "book title"])


class ReadwiseImporter(Importer):
    name = "readwise"
    title = "Readwise highlights (CSV)"
    suffixes = (".csv",)

    def recognizes(self, probe: FileProbe) -> float:
        is_table = not probe.is_folder and is_text(probe.head)
        return 0.95 if is_table and first_columns(probe.head) >= _COLUMNS else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
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
            title, author = clean_line(fields.get("book_title")) or "Untitled", clean_line(fields.get("book_author"))
            tags = _split(fields.get("document_tags"))
            # The rows of a book need not follow each other.
            book = books.setdefault((title, author), HighlightedBook(title, author, f"{title}\0{author}", [], tags))
            kind, place = clean_line(fields.get("location_type")), clean_line(fields.get("location"))
            highlight = Highlight(
                text=fields.get("highlight", "").strip(),
                note=fields.get("note", "").strip(),
                location=f"{kind} {place}".strip() if place else "",
                created=stored_date(fields.get("highlighted_at")),
                tags=_split(fields.get("tags")),
            )
            book.highlights.append(highlight)
        if not books:
            raise InvalidParams("no highlights found")
        yield from (ImportedNote(book_draft("readwise", book)) for book in books.values())
        progress(len(data))


IMPORTER = ReadwiseImporter()


def _split(tags: str | None) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in tags.split(",") if tag.strip()) if tags else ()
