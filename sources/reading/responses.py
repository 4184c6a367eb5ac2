"""Builds the answer of a get inside its budget, which pays for the whole answer."""

from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.items import TAGS_MAX, Anchor, GetResponse, Pages, ResultItem, short_title, uri_of
from sources.reading.cursors import Position, write_cursor
from sources.reading.retrieval import Plan, Room, Taken
from sources.records import Record

# The least share of a budget that is left to the content. What describes an item takes some 150 tokens; a budget
# below that would otherwise buy an answer without any content.
CONTENT_SHARE_MIN = 0.2
_WIDEST_NUMBER = 999_999
_FARTHEST = Position(_WIDEST_NUMBER, _WIDEST_NUMBER)


def meta_of(
    source: str, row: Record, identity: str | int, title: str, cost_tokens: int | UnsetType = UNSET, **particular: Any
) -> ResultItem:
    """What describes an item that was asked for by its id: the best match there is, so its score is 1."""
    return ResultItem(
        id=identity,
        source=source,
        title=short_title(title),
        snippet=None,
        uri=uri_of(source, identity),
        score=1.0,
        created_at=row.created_at,
        last_modified=row.last_modified,
        version=row.version,
        tags=row.tags[:TAGS_MAX],
        cost_tokens=cost_tokens,
        **particular,
    )


def content_room(meta: ResultItem, plan: Plan, pages: Pages | UnsetType = UNSET) -> Room:
    """What content and attachments may take together."""
    left = plan.budget - _envelope(meta, plan, pages)
    return Room(max(left, int(plan.budget * CONTENT_SHARE_MIN)), plan.scale)


def compose(
    meta: ResultItem, plan: Plan, anchor: Anchor, taken: Taken, *, more: bool, pages: Pages | UnsetType = UNSET
) -> GetResponse:
    """The answer. `more` says whether the item goes on after what was taken."""
    if taken.truncated and not taken.text:
        raise InvalidParams(f"retrieval.max_tokens: got {plan.max_tokens}, in which nothing fits; expected 200 or more")
    answer = GetResponse(
        meta=meta,
        content=taken.text,
        attachments=taken.attachments,
        mode=plan.mode,
        anchor=anchor,
        tokens=_WIDEST_NUMBER,
        truncated=taken.truncated,
        next_cursor=write_cursor(meta.uri, meta.version or 0, taken.end) if more else None,
        pages=pages,
    )
    weight = plan.scale.weigh_json(replace(answer, content="")) + plan.scale.weigh(taken.text)
    is_over = True if weight > plan.budget else UNSET
    return replace(answer, tokens=plan.scale.tokens(weight), over_budget=is_over)


def _envelope(meta: ResultItem, plan: Plan, pages: Pages | UnsetType) -> int:
    """The weight of everything but content and attachments, with the cursor and the count of tokens at their widest."""
    empty = GetResponse(
        meta=meta,
        content="",
        mode=plan.mode,
        anchor="beginning",
        tokens=_WIDEST_NUMBER,
        next_cursor=write_cursor(meta.uri, meta.version or 0, _FARTHEST),
        pages=pages,
    )
    return plan.scale.weigh_json(empty)
