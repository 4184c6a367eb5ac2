"""Highlights from books and articles: a note for each, with its highlights in the order of the file."""

from msgspec import UNSET, Struct

from sources.drafts import NoteDraft
from sources.importers.engine.files import stable_uuid
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_tags, short_title


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


def book_draft(importer: str, book: HighlightedBook) -> NoteDraft:
    dates = [highlight.created for highlight in book.highlights if highlight.created]
    tags = [tag for highlight in book.highlights for tag in highlight.tags]
    blocks = []
    for highlight in book.highlights:
        lines = [f"> {line}".rstrip() for line in highlight.text.split("\n")] if highlight.text else []
        lines += [f"Note: {highlight.note}"] if highlight.note else []
        lines += [f"({highlight.location})"] if highlight.location else []
        blocks.append("\n".join(lines))
    return NoteDraft(
        title=short_title(book.title),
        content="\n\n".join(blocks),
        tags=clean_tags([*book.tags, *tags]),
        metadata=compact_metadata(author=book.author, highlights=len(book.highlights)),
        uuid=stable_uuid(importer, "notes", book.key),
        created_at=min(dates) if dates else UNSET,
    )
