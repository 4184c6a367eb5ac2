"""What goes over the wire, the same for every source: result items, the answers of search and get, and what a caller
may ask of a get. Fields the seed names are always there, null where a source has nothing to say; our additions are
left out where they would say nothing.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Struct, UnsetType

Mode = Literal["snippet", "chunk", "chunk_with_siblings", "full", "auto"]
Anchor = Literal["loc", "query", "cursor", "page", "beginning"]
# A title on the wire is a label: "best effort short title". The whole one is part of the item's text.
TITLE_MAX_CHARS = 200
TAGS_MAX = 32


class Loc(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A place inside an item. Which fields are set depends on the source; a get takes it back as its anchor."""

    media_id: int | None = None
    chunk_index: int | None = None
    chunk_uuid: str | None = None
    start_ms: int | None = None
    seconds: float | None = None
    conversation_id: str | None = None
    message_id: str | None = None
    message_index: int | None = None
    field: str | None = None
    approx_offset: int | None = None


class ResultItem(Struct, frozen=True, kw_only=True):
    """One item, or the passage of it that matched."""

    id: str | int
    source: str
    title: str | None
    snippet: str | None
    uri: str
    score: float
    score_type: str = "fts"
    created_at: str | None
    last_modified: str | None
    version: int | None
    tags: tuple[str, ...] | None
    media_type: str | None = None
    url: str | None = None
    conversation_id: str | None = None
    message_id: str | None = None
    sender: str | None = None
    loc: Loc | None = None
    highlights: tuple[tuple[int, ...], ...] | UnsetType = UNSET
    more_in_item: int | UnsetType = UNSET
    cost_tokens: int | UnsetType = UNSET


class SearchResponse(Struct, frozen=True, kw_only=True):
    results: tuple[ResultItem, ...]
    has_more: bool
    next_offset: int | None
    total_estimated: int | None
    read_as: Annotated[str, Meta(description="How the query was read, where not literally.")] | UnsetType = UNSET


class Pages(Struct, frozen=True, kw_only=True):
    """Where a page of a conversation stands."""

    page: int
    page_size: int
    total: int
    has_more: bool


class GetResponse(Struct, frozen=True, kw_only=True):
    meta: ResultItem
    content: str
    attachments: tuple[Mapping[str, Any], ...] | None = None
    mode: str
    anchor: Annotated[Anchor, Meta(description="What chose the passage.")]
    tokens: Annotated[int, Meta(description="Estimate for this whole answer.")]
    truncated: Annotated[bool, Meta(description="The passage was cut to fit the budget.")] = False
    over_budget: Annotated[bool, Meta(description="The budget is too small for meta.")] | UnsetType = UNSET
    next_cursor: Annotated[str | None, Meta(description="Pass as cursor to read on.")] = None
    pages: Pages | UnsetType = UNSET


class RetrievalOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of an item, and which part. Numbers out of range are moved to the nearest that is allowed."""

    mode: Annotated[Mode | None, Meta(description="auto: siblings if max_tokens is given, else snippet.")] = None
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000.")] = None
    max_tokens: Annotated[int | None, Meta(description="Budget of the whole answer.")] = None
    chars_per_token: Annotated[float | None, Meta(description="Else estimated by script.")] = None
    chunk_size_tokens: Annotated[int | None, Meta(description="Where the item has no stored chunks.")] = None
    chunk_overlap_tokens: Annotated[int | None, Meta(description="Between such chunks.")] = None
    sibling_window: Annotated[int | None, Meta(description="Chunks on each side.")] = None
    prefer_prechunked: Annotated[bool | None, Meta(description="Default true.")] = None


def uri_of(source: str, *segments: str | int) -> str:
    """The canonical pointer of an item: `notes://{id}`, or of a part of one: `chats://{id}/{message}`."""
    return f"{source}://" + "/".join([_quoted(str(segment)) for segment in segments])


def _quoted(segment: str) -> str:
    """Ids of ours are made of characters that every address may hold."""
    return segment if segment.isascii() and segment.replace("-", "").isalnum() else quote(segment, safe="")


def short_title(title: str) -> str | None:
    text = " ".join(title.split())
    if not text:
        return None
    return text if len(text) <= TITLE_MAX_CHARS else text[: TITLE_MAX_CHARS - 1].rstrip() + "…"
