"""Items that are one text: a note, or the fields of a character or a prompt under headings. Reads them in every
retrieval mode; pure, as the whole text is at hand.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from config.settings import Settings
from sources.items import Anchor, GetResponse, Loc, ResultItem
from sources.reading.cursors import Position, read_cursor
from sources.reading.responses import compose, content_room
from sources.reading.retrieval import Passage, Plan, Taken, take_around, take_forward
from sources.search.arguments import locate, read_query
from sources.search.snippets import Highlighter
from sources.source import Reading
from sources.text.chunking import split_into_chunks
from sources.text.word_boundaries import word_boundary_before


class Section(Struct, frozen=True):
    """Where one field stands in a document."""

    field: str
    start: int
    end: int


class Document(Struct, frozen=True):
    text: str
    sections: tuple[Section, ...] = ()

    def start_of(self, field: str) -> int:
        for section in self.sections:
            if section.field == field:
                return section.start
        known = ", ".join(section.field for section in self.sections) or "none"
        raise InvalidParams(f"loc.field: got {field[:40]!r}, expected a field this item has: {known}")


def document_of(title_field: str, title: str, fields: Iterable[tuple[str, str]]) -> Document:
    """A title and the fields that are not empty, each under its name."""
    text = f"# {title}"
    sections = [Section(title_field, 2, len(text))]
    for name, body in fields:
        if body:
            text += f"\n\n## {name.replace('_', ' ').capitalize()}\n\n"
            sections.append(Section(name, len(text), len(text) + len(body)))
            text += body
    return Document(text, tuple(sections))


class Anchored(Struct, frozen=True):
    """A place in the text, and what chose it."""

    offset: int
    by: Anchor
    chunk_index: int | None = None


def read_document(
    document: Document, meta: ResultItem, plan: Plan, reading: Reading, settings: Settings
) -> GetResponse:
    """The document, as much of it as `reading` asks for."""
    loc = reading.place
    if reading.cursor is not None:
        position = read_cursor(reading.cursor, meta.uri, meta.version or 0)
        return _read_on(document.text, meta, replace(plan, mode="full"), position.offset, "cursor")
    if plan.mode == "full":
        return _read_on(document.text, meta, plan, 0, "beginning")
    highlighter = Highlighter(read_query(reading.query or "", settings).terms)
    at = _anchor(document, loc, highlighter)
    if plan.mode == "snippet":
        return read_snippet(document.text, meta, plan, at, highlighter)
    passages = chunk_passages(document.text, plan)
    return read_passages(passages, _chunk_at(passages, at), len(document.text), meta, plan, at)


def _anchor(document: Document, loc: Loc | None, highlighter: Highlighter) -> Anchored:
    if loc is not None and (loc.chunk_index, loc.approx_offset, loc.field) != (None, None, None):
        start = document.start_of(loc.field) if loc.field is not None else 0
        offset = start + max(0, loc.approx_offset or 0)
        return Anchored(min(offset, len(document.text)), "loc", loc.chunk_index)
    found = locate(highlighter, document.text)
    return Anchored(0, "beginning") if found is None else Anchored(found, "query")


def _read_on(text: str, meta: ResultItem, plan: Plan, offset: int, by: Anchor) -> GetResponse:
    return read_on(Passage(0, text[offset:], offset), len(text), meta, plan, by)


def read_on(rest: Passage, length: int, meta: ResultItem, plan: Plan, by: Anchor) -> GetResponse:
    """As much of the rest of an item as fits; the item is `length` characters long."""
    taken = take_forward([rest], content_room(meta, plan))
    more = taken.end.offset < length
    return compose(meta, plan, by, replace(taken, truncated=more), more=more)


def read_snippet(text: str, meta: ResultItem, plan: Plan, at: Anchored, highlighter: Highlighter) -> GetResponse:
    """The snippet is plain text and not a passage of the item, so there is nothing to read on from."""
    room = content_room(meta, plan)
    start = word_boundary_before(text, at.offset) if at.by == "loc" else 0
    wanted = highlighter.snippet(text[start:], plan.snippet_length).text
    fits = room.fitting(wanted)
    # A shorter snippet is another one, nearer to the match; it need not be lighter.
    short = highlighter.snippet(text[start:], max(1, fits)).text if fits < len(wanted) else wanted
    shown = short[: word_boundary_before(short, max(1, room.fitting(short)))]
    taken = Taken(text=shown, end=Position(0, start), truncated=fits < len(wanted))
    return compose(meta, plan, at.by, taken, more=False)


def read_passages(
    passages: Sequence[Passage], index: int, length: int, meta: ResultItem, plan: Plan, at: Anchored
) -> GetResponse:
    """The passage at `index`, with its siblings where the mode asks for them. The item is `length` characters long."""
    start = passages[index].offset
    focus = max(0, at.offset - (start or 0)) if at.chunk_index is None else 0
    window = plan.window if plan.mode == "chunk_with_siblings" else 0
    taken = take_around(passages, index, content_room(meta, plan), window, focus)
    # A passage that stands nowhere in the item's text, as importers make them, leads nowhere either.
    return compose(meta, plan, at.by, taken, more=start is not None and taken.end.offset < length)


def chunk_passages(text: str, plan: Plan, base: int = 0) -> list[Passage]:
    """A text cut into passages; `base` is where it stands in the item's text."""
    made = split_into_chunks(text, plan.chunk_chars, plan.overlap_chars)
    return [Passage(c.index, text[c.start : c.end], base + c.start) for c in made] or [Passage(0, text, base)]


def passage_at(passages: Sequence[Passage], offset: int) -> int:
    """Which of the passages of one text holds a character: the last that begins by then."""
    return max(0, bisect_right([passage.offset or 0 for passage in passages], offset) - 1)


def _chunk_at(passages: Sequence[Passage], at: Anchored) -> int:
    if at.chunk_index is None:
        return passage_at(passages, at.offset)
    if not 0 <= at.chunk_index < len(passages):
        raise InvalidParams(f"loc.chunk_index: got {at.chunk_index}, expected 0 to {len(passages) - 1}")
    return at.chunk_index
