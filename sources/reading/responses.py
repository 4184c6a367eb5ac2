"""Builds the response of a get. The budget covers the whole response, not only its content."""

import math
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.items import TAGS_MAX, Anchor, GetResponse, PageInfo, ResultItem, short_time, short_title, uri_of
from sources.kinds import Record
from sources.reading.cursors import Position, write_cursor
from sources.reading.retrieval import ContentBudget, Excerpt, RetrievalPlan

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
    is_over = plan.scale.weigh_json(replace(response, content="")) + text_weight > plan.budget
    # Only the content, so that reading a whole item reports the `cost_tokens` of its hit.
    return replace(response, tokens=plan.scale.tokens(text_weight), over_budget=is_over or UNSET)
