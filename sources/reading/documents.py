"""Reads items that are a single text in every retrieval mode: a note, or the fields of a character or prompt under
headings. The functions are pure, because the whole text is available.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from config.errors import InvalidParams
from config.settings import Settings
from sources.items import TAGS_MAX, Anchor, GetResponse, PageInfo, ResultItem, short_time, short_title, uri_of
from sources.kinds import Record
from sources.reading.cursors import Position, read_cursor, write_cursor
from sources.reading.retrieval import ContentBudget, Excerpt, ItemPassage, RetrievalPlan, take_around, take_forward
from sources.search.arguments import locate_match, read_query
from sources.search.snippets import Highlighter
from sources.source import GetArguments
from sources.text.chunking import split_into_chunks
from sources.text.segmentation import word_boundary_before

# -- responses ---------------------------------------------------------------------------------------------------------
# Builds the response of a get. The budget covers the whole response, not only its content.

# The share of a budget that content fills if there is enough of it.
CONTENT_SHARE = 0.8
# The smallest share of a budget for the content. The metadata of an item takes about 150 tokens; a smaller budget would
# otherwise return no content at all.
CONTENT_SHARE_MIN = 0.2
_WIDEST_NUMBER = 999_999
_WIDEST_POSITION = Position(_WIDEST_NUMBER, _WIDEST_NUMBER)


def item_meta(
    source: str, record: Record, item_id: str | int, title: str, cost_tokens: int | UnsetType = UNSET, **fields: Any
) -> ResultItem:
    """The metadata of an item that was requested by id, so its score is 1 and of no type."""
    return ResultItem(
        id=item_id,
        source=source,
        title=short_title(title),
        uri=uri_of(source, item_id),
        score=1.0,
        created_at=short_time(record.created_at),
        last_modified=short_time(record.last_modified),
        version=record.version,
        tags=record.tags[:TAGS_MAX],
        cost_tokens=cost_tokens,
        **fields,
    )


def content_budget(meta: ResultItem, plan: RetrievalPlan, pages: PageInfo | UnsetType = UNSET) -> ContentBudget:
    """Returns the budget for content and attachments together."""
    # The cost of everything but content and attachments, with the cursor and the token count at their widest.
    empty = GetResponse(
        meta=meta,
        content="",
        mode=plan.mode,
        anchor="beginning",
        tokens=_WIDEST_NUMBER,
        next_cursor=write_cursor(meta.uri, meta.version or 0, _WIDEST_POSITION),
        pages=pages,
    )
    left = plan.budget - plan.scale.weigh_json(empty)
    text_target = 0 if plan.attachments else math.ceil(plan.budget * CONTENT_SHARE)
    return ContentBudget(max(left, int(plan.budget * CONTENT_SHARE_MIN)), plan.scale, text_target)


def build_response(
    meta: ResultItem,
    plan: RetrievalPlan,
    anchor: Anchor,
    excerpt: Excerpt,
    *,
    more: bool,
    pages: PageInfo | UnsetType = UNSET,
) -> GetResponse:
    """`more` is true if the item continues after the excerpt."""
    if excerpt.truncated and not excerpt.text:
        raise InvalidParams(
            f"retrieval.max_tokens: expected 200 or more, got {plan.max_tokens}, which is too small for any content"
        )
    response = GetResponse(
        meta=meta,
        content=excerpt.text,
        attachments=excerpt.attachments,
        mode=plan.mode,
        anchor=anchor,
        tokens=_WIDEST_NUMBER,
        truncated=excerpt.truncated,
        next_cursor=write_cursor(meta.uri, meta.version or 0, excerpt.end) if more else None,
        pages=pages,
    )
    text_weight = plan.scale.weigh(excerpt.text)
    is_over = plan.scale.weigh_json(structs.replace(response, content="")) + text_weight > plan.budget
    # Only the content, so that reading a whole item reports the `cost_tokens` of its hit.
    return structs.replace(response, tokens=plan.scale.tokens(text_weight), over_budget=is_over or UNSET)


class Section(Struct, frozen=True):
    """The range of one field in a document's text."""

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
        raise InvalidParams(f"loc.field: expected a field of this item ({known}), got {field[:40]!r}")


def build_document(title_field: str, title: str, fields: Iterable[tuple[str, str]]) -> Document:
    """A title and the non-empty fields, each under a heading with its name."""
    text = f"# {title}"
    sections = [Section(title_field, 2, len(text))]
    for name, body in fields:
        if body:
            text += f"\n\n## {name.replace('_', ' ').capitalize()}\n\n"
            sections.append(Section(name, len(text), len(text) + len(body)))
            text += body
    return Document(text, tuple(sections))


class AnchorPosition(Struct, frozen=True):
    """A position in an item's text, and which argument chose it."""

    offset: int
    by: Anchor
    chunk_index: int | None = None


def read_document(
    document: Document, meta: ResultItem, plan: RetrievalPlan, args: GetArguments, settings: Settings
) -> GetResponse:
    """The part of a document that the arguments select."""
    loc = args.parsed_loc
    if args.cursor is not None:
        position = read_cursor(args.cursor, meta.uri, meta.version or 0)
        return _read_text_from(document.text, meta, structs.replace(plan, mode="full"), position.offset, "cursor")
    if plan.mode == "full":
        return _read_text_from(document.text, meta, plan, 0, "beginning")
    highlighter = Highlighter(read_query(args.query or "", settings).terms)
    if loc is not None and (loc.chunk_index, loc.approx_offset, loc.field) != (None, None, None):
        start = document.start_of(loc.field) if loc.field is not None else 0
        offset = start + max(0, loc.approx_offset or 0)
        anchor = AnchorPosition(min(offset, len(document.text)), "loc", loc.chunk_index)
    else:
        match = locate_match(highlighter, document.text)
        anchor = AnchorPosition(0, "beginning") if match is None else AnchorPosition(match, "query")
    if plan.mode == "snippet":
        return read_snippet(document.text, meta, plan, anchor, highlighter)
    passages = chunk_passages(document.text, plan)
    index = passage_index_at(passages, anchor.offset) if anchor.chunk_index is None else anchor.chunk_index
    if not 0 <= index < len(passages):
        raise InvalidParams(f"loc.chunk_index: expected 0 to {len(passages) - 1}, got {index}")
    return read_passages(passages, index, len(document.text), meta, plan, anchor)


def _read_text_from(text: str, meta: ResultItem, plan: RetrievalPlan, offset: int, by: Anchor) -> GetResponse:
    return read_rest(ItemPassage(0, text[offset:], offset), len(text), meta, plan, by)


def read_rest(rest: ItemPassage, length: int, meta: ResultItem, plan: RetrievalPlan, by: Anchor) -> GetResponse:
    """As much of the rest of an item as fits; `length` is the length of the item's text."""
    excerpt = take_forward([rest], content_budget(meta, plan))
    more = excerpt.end.offset < length
    return build_response(meta, plan, by, structs.replace(excerpt, truncated=more), more=more)


def read_snippet(
    text: str, meta: ResultItem, plan: RetrievalPlan, anchor: AnchorPosition, highlighter: Highlighter
) -> GetResponse:
    """A snippet has its white space collapsed and is not a passage of the item, so there is no cursor to continue."""
    budget = content_budget(meta, plan)
    start = word_boundary_before(text, anchor.offset) if anchor.by == "loc" else 0
    snippet = highlighter.snippet(text[start:], plan.snippet_length).text
    fits = budget.count_fitting(snippet)
    # A shorter snippet is a different one, closer to the match, and not necessarily cheaper.
    shorter = highlighter.snippet(text[start:], max(1, fits)).text if fits < len(snippet) else snippet
    content = shorter[: word_boundary_before(shorter, max(1, budget.count_fitting(shorter)))]
    excerpt = Excerpt(text=content, end=Position(0, start), truncated=fits < len(snippet))
    return build_response(meta, plan, anchor.by, excerpt, more=False)


def read_passages(
    passages: Sequence[ItemPassage],
    index: int,
    length: int,
    meta: ResultItem,
    plan: RetrievalPlan,
    anchor: AnchorPosition,
) -> GetResponse:
    """The passage at `index`, with siblings if the mode asks for them; `length` is the length of the item's text."""
    start = passages[index].offset
    focus = max(0, anchor.offset - (start or 0)) if anchor.chunk_index is None else 0
    window = plan.window if plan.mode == "chunk_with_siblings" else 0
    excerpt = take_around(passages, index, content_budget(meta, plan), window, focus)
    # Importers may store passages that are not part of the item's text; there is nothing to continue from.
    more = start is not None and excerpt.end.offset < length
    return build_response(meta, plan, anchor.by, excerpt, more=more)


def chunk_passages(text: str, plan: RetrievalPlan, base: int = 0) -> list[ItemPassage]:
    """Splits a text into passages; `base` is the position of the text in the item's text."""
    chunks = split_into_chunks(text, plan.chunk_chars, plan.overlap_chars)
    passages = [ItemPassage(c.index, text[c.start : c.end], base + c.start) for c in chunks]
    return passages or [ItemPassage(0, text, base)]


def passage_index_at(passages: Sequence[ItemPassage], offset: int) -> int:
    """The index of the last passage that starts at or before an offset."""
    return max(0, bisect_right([passage.offset or 0 for passage in passages], offset) - 1)
