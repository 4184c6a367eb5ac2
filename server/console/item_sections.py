"""Splits an item into the parts that its page shows: messages, timed passages, or one text."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from server.console.markdown import TextRange, render_markdown, render_plain
from server.console.times import clock_time
from sources.items import GetResponse, Loc
from sources.query import Term
from sources.records import ALTERNATE_BRANCH_LABEL
from sources.search.snippets import Highlighter
from sources.text.chunking import split_into_chunks

# The size of the marked passage of a message: one or two sentences.
_PASSAGE_CHARS = 160
_MATCHES_MAX = 500

# The sources whose items are texts with a title.
_TITLED = frozenset(("characters", "prompts"))

Attachment = Mapping[str, Any]


class ItemSection(Struct, frozen=True, kw_only=True):
    """A part of an item's text as HTML. `fragment` is what a link can point at."""

    html: str
    kind: str = "text"
    fragment: str = ""
    speaker: str = ""
    role: str = ""
    time: str = ""
    seconds: int | None = None
    model: str = ""
    tool: str = ""
    is_alternate: bool = False
    is_human_only: bool = False
    number: int | None = None


class PassageMarks(Struct, frozen=True, kw_only=True):
    """What to mark on a page: the passage that a link points at, or else the words of a query. `links` are the
    addresses of wikilinks by target, `images` those of the item's own images by name."""

    text: str = ""
    offset: int | None = None
    terms: tuple[Term, ...] = ()
    links: Mapping[str, str] = {}
    images: Mapping[str, str] = {}


def sections_of(item: GetResponse, marks: PassageMarks) -> list[ItemSection]:
    """Splits the text by message or timed passage if the item has attachments for them."""
    item = _without_title(item)
    spans = [attachment for attachment in item.attachments or () if _fragment(attachment)]
    passage = _find_passage(item, marks.text)
    if not spans:
        ranges = _marks(item.content, passage, marks)
        return [ItemSection(html=render_markdown(item.content, ranges, marks.links, marks.images))]
    return [_span_section(item.content, span, passage, marks) for span in spans]


def _without_title(item: GetResponse) -> GetResponse:
    """Removes the heading with which the text of a character or prompt begins, because the page has it already."""
    heading = f"# {item.meta.title}\n"
    is_repeated = item.meta.source in _TITLED and not item.attachments and item.content.startswith(heading)
    return replace(item, content=item.content.removeprefix(heading).lstrip("\n")) if is_repeated else item


def _span_section(content: str, span: Attachment, passage: TextRange | None, marks: PassageMarks) -> ItemSection:
    is_message = "message_id" in span
    speaker = str(span.get("sender") or span.get("role") or span.get("speaker") or "")
    is_alternate = not span.get("is_canonical", True)
    text = content[span["start"] : span["end"]]
    if is_message:
        label = speaker + (ALTERNATE_BRANCH_LABEL if is_alternate else "")
        text = text.removeprefix(f"{label}: ")
    is_marked = passage is not None and passage.start == span["start"]
    own_passage = _sentences_at(text, marks.offset) if is_marked else None
    render = render_markdown if is_message else render_plain
    start_ms = span.get("start_ms")
    return ItemSection(
        html=render(text, _marks(text, own_passage, marks)),
        kind="message" if is_message else "line",
        fragment=_fragment(span),
        speaker=speaker,
        role=str(span.get("role") or ""),
        time=clock_time(start_ms) if start_ms is not None else str(span.get("created_at") or ""),
        seconds=start_ms // 1000 if start_ms is not None else None,
        model=str(span.get("model") or ""),
        tool=str(span.get("tool") or ""),
        is_alternate=is_alternate,
        is_human_only=bool(span.get("human_only")),
        number=span.get("message_index"),
    )


def _marks(text: str, passage: TextRange | None, marks: PassageMarks) -> list[TextRange]:
    """Returns the words to mark; of those in the passage, the first one. Without such words, the passage is
    marked as a whole."""
    ranges = Highlighter(marks.terms).ranges(text)[:_MATCHES_MAX] if marks.terms else []
    if passage is None:
        return [TextRange(*one) for one in ranges]
    inside = next((one for one in ranges if passage.start <= one[0] < passage.end), None)
    if inside is not None:
        return [TextRange(*one, is_passage=one == inside) for one in ranges]
    outside = [TextRange(*one) for one in ranges if one[1] <= passage.start or one[0] >= passage.end]
    return sorted([*outside, TextRange(passage.start, passage.end, is_passage=True)], key=lambda one: one.start)


def _sentences_at(text: str, offset: int | None) -> TextRange:
    """Returns the sentences around the offset, or all of the text if there is none."""
    if offset is not None:
        for chunk in split_into_chunks(text, _PASSAGE_CHARS, 0):
            if chunk.start <= offset < chunk.end:
                return TextRange(chunk.start, chunk.end)
    return TextRange(0, len(text))


def _find_passage(item: GetResponse, passage: str) -> TextRange | None:
    """Returns the range of the passage in the content, or None if the page was not opened for a passage."""
    if item.anchor not in ("loc", "query"):
        return None
    loc = item.meta.loc or Loc()
    for span in item.attachments or ():
        if (span.get("message_index"), span.get("chunk_index")) == (loc.message_index, loc.chunk_index):
            return TextRange(span["start"], span["end"])
    text = passage.strip()
    start = item.content.find(text) if text else -1
    return TextRange(start, start + len(text)) if start >= 0 else None


def _fragment(attachment: Attachment) -> str:
    if "message_id" in attachment:
        return str(attachment["message_id"])
    return f"t{attachment['start_ms'] // 1000}" if attachment.get("start_ms") is not None else ""
