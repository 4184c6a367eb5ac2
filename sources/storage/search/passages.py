"""Splits the text of an item into the passages that are embedded. Pure functions.

A passage is what a small model reads at once. Each starts with the title of its item, because a part of a long text
often does not say what it is about.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sources.text.chunking import split_into_chunks

# About 220 tokens of English. The models read 256, and longer passages mean less precise vectors.
PASSAGE_CHARS = 900
# A text that is only a little longer stays whole.
_WHOLE_MAX_CHARS = 1_200
# Further text of a single item is not embedded: about 900,000 characters.
PASSAGES_MAX = 1_000
_CONTEXT_CHARS = 200
_TITLE_CHARS = 200


class Passage(Struct, frozen=True):
    """The text to embed, and where its own part of the item's text starts and ends."""

    text: str
    start: int
    end: int


def split_text(title: str, text: str) -> list[Passage]:
    """Returns the passages of a text with a title; none if both are blank."""
    head = title.strip()[:_TITLE_CHARS]
    return [Passage(_join(head, text[start:end]), start, end) for start, end in _spans(text) if head or text.strip()]


def split_fields(title: str, fields: Sequence[str]) -> list[Passage]:
    """Returns the passages of several fields, whose offsets count in the fields joined by `join_fields`."""
    return split_text(title, join_fields(fields))


def join_fields(fields: Sequence[str]) -> str:
    """Empty fields are left out."""
    return "\n".join(field for field in fields if field)


def field_at(fields: Sequence[str], offset: int) -> tuple[int, int]:
    """Returns which of the joined fields an offset is in, and the offset there."""
    for index, field in enumerate(fields):
        if field and offset <= len(field):
            return index, max(0, offset)
        offset -= len(field) + 1 if field else 0
    return 0, 0


def split_message(sender: str, content: str, previous: str | None) -> list[Passage]:
    """Returns the passages of a message. The first one starts with the beginning of the message before it, for models
    that need this context to understand short replies."""
    if not content.strip():
        return []
    head = f"{sender}: " if sender else ""
    context = f"{previous[:_CONTEXT_CHARS].strip()} / " if previous and previous.strip() else ""
    return [
        Passage(f"{context if not index else ''}{head}{content[start:end]}", start, end)
        for index, (start, end) in enumerate(_spans(content))
    ]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    if len(text) <= _WHOLE_MAX_CHARS:
        yield 0, len(text)
        return
    # The limit comes first, so that splitting takes bounded time.
    for chunk in split_into_chunks(text[: PASSAGE_CHARS * PASSAGES_MAX], PASSAGE_CHARS, 0):
        yield chunk.start, chunk.end


def _join(title: str, text: str) -> str:
    return f"{title}\n{text}".strip() if title else text
