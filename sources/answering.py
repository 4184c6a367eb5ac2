"""Builds the answer of a get inside its budget. The budget pays for the whole answer: the content as characters, all
around it as JSON.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from config.errors import InvalidParams
from sources.cursors import write_cursor
from sources.items import TAGS_MAX, Anchor, GetResponse, Pages, ResultItem, short_title, uri_of
from sources.records import Row
from sources.retrieval import Plan, Taken, estimate_tokens, json_text

# The least share of a budget that is left to the content. What describes an item takes some 150 tokens; a budget
# below that would otherwise buy an answer without any content.
CONTENT_SHARE_MIN = 0.25
_LONGEST_CURSOR = "x" * 64
_WIDEST_NUMBER = 999_999


def meta_of(
    source: str, row: Row, identity: str | int, title: str, chars: int | None, plan: Plan, **particular: Any
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
        cost_tokens=estimate_tokens(chars, plan.chars_per_token) if chars is not None else UNSET,
        **particular,
    )


def content_room(meta: ResultItem, plan: Plan, pages: Pages | UnsetType = UNSET) -> int:
    """How many characters content and attachments may have together."""
    left = plan.budget_chars - _envelope_chars(meta, plan, pages)
    return max(left, int(plan.budget_chars * CONTENT_SHARE_MIN))


def compose(
    meta: ResultItem, plan: Plan, anchor: Anchor, taken: Taken, *, more: bool, pages: Pages | UnsetType = UNSET
) -> GetResponse:
    """The answer. `more` says whether the item goes on after what was taken."""
    if taken.truncated and not taken.text:
        raise InvalidParams(f"retrieval.max_tokens: got {plan.max_tokens}, in which nothing fits; expected 200 or more")
    chars = _envelope_chars(meta, plan, pages) + len(taken.text)
    if taken.attachments:
        chars += len(json_text(taken.attachments))
    return GetResponse(
        meta=meta,
        content=taken.text,
        attachments=taken.attachments,
        mode=plan.mode,
        anchor=anchor,
        tokens=estimate_tokens(chars, plan.chars_per_token),
        truncated=taken.truncated,
        over_budget=True if chars > plan.budget_chars else UNSET,
        next_cursor=write_cursor(meta.uri, meta.version or 0, taken.end) if more else None,
        pages=pages,
    )


def _envelope_chars(meta: ResultItem, plan: Plan, pages: Pages | UnsetType) -> int:
    """Of everything but content and attachments, with the cursor and the count of tokens at their widest."""
    empty = GetResponse(
        meta=meta,
        content="",
        mode=plan.mode,
        anchor="beginning",
        tokens=_WIDEST_NUMBER,
        over_budget=True,
        next_cursor=_LONGEST_CURSOR,
        pages=pages,
    )
    return len(json_text(empty))
