"""Types on the wire that all sources share: result items, the responses of search and get, and the options of a get.

The fields that tldw defines for every item are always present, with null if an item has no value. Those of single
sources, and those that we added, are omitted when they have no value. `knowledge_search` also omits what another field
of the same hit says.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from auth.context import RequestContext
from config.errors import InvalidParams
from config.numbers import clamp
from config.settings import Settings
from config.times import load_time_zone
from sources.records import SemanticStatus

Mode = Literal["snippet", "chunk", "chunk_with_siblings", "full", "auto"]
Anchor = Literal["loc", "query", "cursor", "page", "beginning"]
# A title on the wire is a short label; the full title is part of the item's text.
TITLE_MAX_CHARS = 200
TAGS_MAX = 32
SNIPPET_MAX_CHARS = 1000
CHARS_PER_TOKEN_MIN = 1.0
CHARS_PER_TOKEN_MAX = 8.0


class Loc(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A position inside an item. Which fields are set depends on the source; a get accepts it as its anchor."""

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

    @property
    def has_position(self) -> bool:
        """False if it only names the item, as that of a conversation found by its title does."""
        return self != Loc(media_id=self.media_id, conversation_id=self.conversation_id)


class ResultItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item, or the passage of it that matched."""

    id: str | int
    source: str
    title: str | None
    snippet: str | None = None
    uri: str
    score: float
    score_type: str | UnsetType = UNSET
    created_at: str | UnsetType | None = UNSET
    last_modified: str | None
    version: int | UnsetType | None = UNSET
    tags: tuple[str, ...] | None
    media_type: str | None = None
    url: str | None = None
    conversation_id: str | None = None
    message_id: str | None = None
    sender: str | None = None
    loc: Loc | None = None
    highlights: tuple[tuple[int, ...], ...] | UnsetType = UNSET
    via: Literal["context", "meaning"] | UnsetType = UNSET
    more_in_item: int | UnsetType = UNSET
    cost_tokens: int | UnsetType = UNSET
    library: Annotated[str, Meta(description="Whose library it is in, unless the caller's own.")] | UnsetType = UNSET


class SearchResponse(Struct, frozen=True, kw_only=True):
    results: tuple[ResultItem, ...]
    has_more: bool
    next_offset: int | None
    total_estimated: int | None
    read_as: Annotated[str, Meta(description="How the query was read, if not literally.")] | UnsetType = UNSET
    semantic: Annotated[SemanticStatus, Meta(description="Whether meanings were compared.")] | UnsetType = UNSET


class PageInfo(Struct, frozen=True, kw_only=True):
    """Which page of a conversation was read."""

    page: int
    page_size: int
    total: int
    has_more: bool


class GetResponse(Struct, frozen=True, kw_only=True):
    meta: ResultItem
    content: str
    attachments: tuple[Mapping[str, Any], ...] | None = None
    mode: str
    anchor: Annotated[Anchor, Meta(description="How the passage was chosen.")]
    tokens: Annotated[int, Meta(description="Estimated size of content.")]
    truncated: Annotated[bool, Meta(description="Content was cut to fit the budget.")] = False
    over_budget: Annotated[bool, Meta(description="meta alone exceeds the budget.")] | UnsetType = UNSET
    next_cursor: Annotated[str | None, Meta(description="Pass as cursor to continue.")] = None
    pages: PageInfo | UnsetType = UNSET


class RetrievalOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of an item to read. Numbers out of range are clamped."""

    mode: Annotated[Mode | None, Meta(description="auto: siblings if max_tokens is given, else snippet.")] = None
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000.")] = None
    max_tokens: Annotated[int | None, Meta(description="Budget of the response.")] = None
    chars_per_token: Annotated[float | None, Meta(description="1..8; default: estimated.")] = None
    chunk_size_tokens: Annotated[int | None, Meta(description="If there are no stored chunks, 16..4000.")] = None
    chunk_overlap_tokens: Annotated[int | None, Meta(description="Of these chunks.")] = None
    sibling_window: Annotated[int | None, Meta(description="Chunks on each side, 0..50.")] = None
    prefer_prechunked: Annotated[bool | None, Meta(description="Default true.")] = None
    attachments: Annotated[bool | None, Meta(description="Describe each message or chunk; default false.")] = None
    loc: Annotated[dict[str, Any] | None, Meta(description="Alias of the argument loc.")] = None


def semantic_note(semantic: SemanticStatus) -> str | None:
    """What was not compared by meaning, and why, in a sentence for people and models."""
    match semantic.status:
        case "on":
            return None
        case "partial":
            percent = int((semantic.coverage or 0) * 100)
            reason = semantic.reason or "the others have no embeddings yet"
            return f"Only {percent}% of the texts were compared by meaning: {reason}."
        case "off":
            return "Searched by text: no embedding model is configured."
        case "unavailable":
            return f"Searched by text: {semantic.reason}."
        case "not_applicable":
            return "Searched by text: the query requires its words."


# Whether ids can be part of a URI as they are, as most can. Several ids can be checked as one text.
needs_no_escaping = re.compile("[0-9A-Za-z._-]*").fullmatch


def uri_of(source: str, *segments: str | int) -> str:
    """The URI of an item, `notes://{id}`, or of a part of it, `chats://{id}/{message}`."""
    names = [*map(str, segments)]
    if not needs_no_escaping("".join(names)):
        names = [quote(name, safe="") for name in names]
    return f"{source}://{'/'.join(names)}"


def short_time(timestamp: str) -> str:
    """A time without the fraction of its second, which no caller needs and every caller pays for."""
    whole, dot, _ = timestamp.partition(".")
    return f"{whole}Z" if dot and timestamp.endswith("Z") else timestamp


def short_title(title: str) -> str | None:
    text = " ".join(title.split())
    if not text:
        return None
    return text if len(text) <= TITLE_MAX_CHARS else text[: TITLE_MAX_CHARS - 1].rstrip() + "…"


# -- defaults ----------------------------------------------------------------------------------------------------------
# Request-level defaults: the keys of a request's `config` that apply when a call does not set an option itself.


class RequestDefaults(Struct, frozen=True, kw_only=True):
    """An argument of the call overrides them; they override the server's settings."""

    snippet_length: int | None = None
    max_tokens: int | None = None
    sibling_window: int | None = None
    chars_per_token: float | None = None
    order_by: Literal["relevance", "recent"] | None = None
    time_zone: str | None = None
    strict: bool | None = None


_UNSET_DEFAULTS = RequestDefaults()


def request_defaults(config: Mapping[str, Any]) -> RequestDefaults:
    """Raises InvalidParams if a known key has a wrong value; ignores unknown keys."""
    if not config:
        return _UNSET_DEFAULTS
    try:
        return msgspec.convert(dict(config), RequestDefaults, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config: {error}") from error


def local_time(context: RequestContext, settings: Settings) -> datetime:
    """Returns when a request was received, in the time zone of its user."""
    name = request_defaults(context.config).time_zone or settings.time_zone
    return context.received_at.astimezone(read_time_zone("config.time_zone", name))


def snippet_length(argument: int | None, defaults: RequestDefaults, settings: Settings) -> int:
    chars = argument if argument is not None else defaults.snippet_length
    return clamp(settings.fixed.search_snippet_chars if chars is None else chars, 1, SNIPPET_MAX_CHARS)


def chars_per_token(argument: float | None, defaults: RequestDefaults) -> float | None:
    """None if not set; tokens are then estimated from the characters of the text."""
    ratio = argument if argument is not None else defaults.chars_per_token
    # Comparisons with NaN are false, so it would pass any clamp.
    return None if ratio is None or math.isnan(ratio) else clamp(ratio, CHARS_PER_TOKEN_MIN, CHARS_PER_TOKEN_MAX)


def read_time_zone(field: str, name: str) -> tzinfo:
    try:
        return load_time_zone(name)
    except ValueError as error:
        raise InvalidParams(f"{field}: {error}") from None
