"""The MCP tool `conversation_search`. By its contract, errors are returned as text that a model can act on, not as
failed calls.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from config.errors import FlorilegiumError, InvalidParams, NotFound, SourceTimeout
from config.numbers import clamp
from config.settings import Settings
from config.times import format_time, parse_time
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool, ToolResult
from server.protocol.schema import input_schema
from sources.items import semantic_note, uri_of
from sources.query import parse_literal
from sources.records import Message, MessageHit, MessageHits, SemanticStatus
from sources.search.arguments import LIMIT_MAX
from sources.storage.collections.chats import Chats
from sources.storage.contract import Libraries, MessageSearch, Search

# If hits are filtered out, each round searches this many times deeper.
_DEPTH_FACTOR = 4
_NAME_SEPARATORS = re.compile(r"__|[.:/]")
# Other servers have tools with these names, so they count as ours only with our server's name in front.
_COMMON_TOOL_NAMES = frozenset(("search", "fetch", "read", "get_observations"))
_SERVER_NAME = "florilegium"


async def search_history(chats: Chats, search: MessageSearch, own_tools: Collection[str], scan_max: int) -> MessageHits:
    """Returns the newest matching messages that are part of the history, scanning at most about `scan_max`."""
    depth = search.limit
    while True:
        results = await chats.find_messages(structs.replace(search, limit=depth))
        hits = tuple([hit for hit in results.hits if is_history(hit.message, own_tools)])
        is_exhausted = len(results.hits) < depth
        if len(hits) >= search.limit or is_exhausted or depth >= scan_max:
            is_complete = results.is_complete and (len(hits) >= search.limit or is_exhausted)
            return MessageHits(hits[: search.limit], is_complete)
        depth = min(depth * _DEPTH_FACTOR, max(scan_max, search.limit))


def is_history(message: Message, own_tools: Collection[str]) -> bool:
    """Whether a message belongs to the searched history. Alternate branches do not; neither does the output of our own
    tools, which repeats the words of every earlier search."""
    tool = message.tool if message.role == "tool" else None
    if not tool or not message.is_canonical:
        return message.is_canonical
    # Hosts prefix a tool's name with the server's: `mcp__florilegium__search`, `florilegium:search`.
    underscored, last_part = tool.replace(".", "_"), _NAME_SEPARATORS.split(tool)[-1]
    if underscored in own_tools and underscored not in _COMMON_TOOL_NAMES:
        return False
    return _SERVER_NAME not in tool.lower() if last_part in _COMMON_TOOL_NAMES else last_part not in own_tools


ROLES = ("user", "assistant", "tool")
DEFAULT_LIMIT = 50


class ConversationSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients send any value as `limit` and a plain string as `roles`; the listed schema is stricter."""

    query: Annotated[str | None, Meta(description="Text to match in messages and conversation titles.")] = None
    roles: tuple[str, ...] | str | None = None
    start_date: Annotated[str | None, Meta(description="First date or time, inclusive; ISO 8601, UTC.")] = None
    end_date: Annotated[str | None, Meta(description="Last date or time, inclusive; a date is its whole day.")] = None
    limit: Any = DEFAULT_LIMIT
    format: Annotated[Literal["text", "json"], Meta(description="json: Letta's result shape.")] = "text"


class LettaRelevance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a message was found. `fts_rank` is its rank by its text among the results, from 1; there is none without a
    query. `vector_rank` is its rank by meaning, in a hybrid search. `rrf_score` is Letta's: the reciprocal of the rank
    in a search with one ranking, and the reciprocal rank fusion of both ranks in a hybrid search."""

    rrf_score: float
    vector_rank: int | None = None
    fts_rank: int | None = None
    search_mode: Literal["hybrid", "fts", "timestamp"]


class LettaResult(Struct, frozen=True, kw_only=True):
    timestamp: str | None
    time_ago: str | None
    role: str
    relevance: LettaRelevance
    content: str


class LettaResponse(Struct, frozen=True, kw_only=True):
    """`note` is present only if something was not searched or compared."""

    message: str
    results: tuple[LettaResult, ...]
    note: str | UnsetType = UNSET


_TIMED_OUT = SemanticStatus("unavailable", reason="comparing meanings took too long")


async def find_nearest(
    chats: Chats, search: MessageSearch, own_tools: Collection[str], limit: int
) -> tuple[Sequence[MessageHit], str | None]:
    """Returns up to `limit` messages of the history that pass the filters."""
    query = parse_literal(search.text or "")
    if query.expression is None:
        return (), None
    request = Search(
        query=structs.replace(query, prose=search.text or ""),
        limit=LIMIT_MAX,
        deadline_ms=search.deadline_ms,
        ranking="meaning",
        by="message",
        # Senders are compared with roles too.
        senders=search.roles,
        date_from=search.date_from,
        date_to=search.date_to,
        is_strict=True,
    )
    try:
        page = await chats.search(request)
    except SourceTimeout:
        return (), semantic_note(_TIMED_OUT)
    hits: list[MessageHit] = []
    for hit in page.hits:
        if len(hits) == limit:
            break
        try:
            message = await chats.get_message(str(hit.message_id))
        except NotFound:  # deleted since the search
            continue
        if is_history(message, own_tools) and (not search.roles or message.role in search.roles):
            hits.append(MessageHit(message=message, title=hit.title))
    # Without a model the search is by text, which needs no note.
    has_problem = page.semantic.status in ("unavailable", "partial")
    return hits, semantic_note(page.semantic) if has_problem else None


# -- relevance ---------------------------------------------------------------------------------------------------------
# Ranks the messages of a result for Letta's `relevance`: by how well their text matches, and by their meaning.

# The usual parameters of BM25.
_K1 = 1.2
_B = 0.75
# Letta's reciprocal rank fusion: both rankings count the same.
_FUSION_CONSTANT = 60
_FUSION_WEIGHT = 0.5


def relevance_of(messages: Sequence[Message], text: str | None) -> list[LettaRelevance]:
    """Without a text, messages are ranked in their order, which is by time."""
    if not text:
        return [LettaRelevance(rrf_score=1 / rank, search_mode="timestamp") for rank in range(1, len(messages) + 1)]
    # The BM25 scores of a single term, without its rarity, which is the same for all messages. A message that was found
    # by its conversation's title scores 0.
    mean_chars = sum(len(message.content) for message in messages) / max(1, len(messages)) or 1
    term = text.casefold()
    counts = [message.content.casefold().count(term) for message in messages]
    scores = [
        count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * len(message.content) / mean_chars))
        for count, message in zip(counts, messages, strict=True)
    ]
    best_first = sorted(range(len(messages)), key=scores.__getitem__, reverse=True)
    ranks = {index: rank for rank, index in enumerate(best_first, start=1)}
    return [
        LettaRelevance(rrf_score=1 / ranks[index], fts_rank=ranks[index], search_mode="fts")
        for index in range(len(messages))
    ]


def fuse(
    hits: Sequence[MessageHit], near: Sequence[MessageHit], text: str, limit: int
) -> list[tuple[MessageHit, LettaRelevance]]:
    """Returns the best of the messages that contain a text and of those that are near to it, best first."""
    by_text = relevance_of([hit.message for hit in hits], text)
    text_ranks = {hit.message.id: one.fts_rank for hit, one in zip(hits, by_text, strict=True)}
    vector_ranks = {hit.message.id: rank for rank, hit in enumerate(near, start=1)}
    messages = {hit.message.id: hit for hit in (*hits, *near)}
    fused = []
    for message_id, hit in messages.items():
        fts_rank, vector_rank = text_ranks.get(message_id), vector_ranks.get(message_id)
        ranks = [rank for rank in (fts_rank, vector_rank) if rank is not None]
        score = sum(_FUSION_WEIGHT / (_FUSION_CONSTANT + rank) for rank in ranks)
        relevance = LettaRelevance(rrf_score=score, vector_rank=vector_rank, fts_rank=fts_rank, search_mode="hybrid")
        fused.append((hit, relevance))
    fused.sort(key=lambda pair: pair[1].rrf_score, reverse=True)
    return fused[:limit]


class InvalidSearchArgument(InvalidParams):
    """An invalid argument. Its message is returned as a normal result, in the wording that Letta's clients know."""


NO_MATCHES = "No matching messages."
SEPARATOR = "\n\n---\n\n"

_NO_TIME = "(no time)"
_NO_ROLE = "unknown"
# Shown of the id of a conversation without a title.
_ID_CHARS = 8
_TIME_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def render_text(hits: Sequence[MessageHit], message_max_chars: int, note: str | None) -> str:
    blocks = []
    for hit in hits:
        message = hit.message
        title = hit.title.strip() or message.conversation_id[:_ID_CHARS]
        minute = message.created_at[:16].replace("T", " ") or _NO_TIME
        blocks.append(f"[{minute}] {_role(message)} (conv: {title})\n{_content(message, message_max_chars)}")
    blocks = blocks or [NO_MATCHES]
    return SEPARATOR.join([*blocks, f"({note})"] if note else blocks)


def letta_response(
    hits: Sequence[MessageHit],
    text: str | None,
    message_max_chars: int,
    note: str | None,
    now: datetime,
    *,
    near: Sequence[MessageHit] = (),
    limit: int = DEFAULT_LIMIT,
) -> LettaResponse:
    """`text` is the text that was searched for, if any. With messages that are near to it in meaning, the result is
    that of a hybrid search."""
    if text and near:
        ranked = [(hit.message, relevance) for hit, relevance in fuse(hits, near, text, limit)]
    else:
        messages = [hit.message for hit in hits]
        ranked = list(zip(messages, relevance_of(messages, text), strict=True))
    results = []
    for message, relevance in ranked:
        created_at = parse_time(message.created_at) if message.created_at else None
        elapsed_s = max(0, int((now - created_at).total_seconds())) if created_at else 0
        unit, unit_s = next((one for one in _TIME_UNITS if elapsed_s >= one[1]), _TIME_UNITS[-1])
        results.append(
            LettaResult(
                timestamp=created_at.isoformat() if created_at else None,
                time_ago=f"{elapsed_s // unit_s}{unit} ago" if created_at else None,
                role=_role(message),
                relevance=relevance,
                content=_content(message, message_max_chars),
            )
        )
    heading = f"Showing {len(results)} results:" if results else "No results found."
    return LettaResponse(message=heading, results=tuple(results), note=note or UNSET)


def _role(message: Message) -> str:
    return message.role.strip() or _NO_ROLE


def _content(message: Message, max_chars: int) -> str:
    text = message.content.strip()
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."


# Text of each message that conversation_search returns, which the model can then request as a whole.
_CONVERSATION_SEARCH_MESSAGE_CHARS = 2000

# How much of an invalid value an error message quotes.
_QUOTED_CHARS = 60
_QUOTED_ROLES = 10
END_OF_DAY = time(23, 59, 59, 999_000)


def parse_limit(value: Any, limit_max: int) -> int:
    """Non-numeric values fall back to the default; others are clamped."""
    try:
        limit = int(value)
    except (TypeError, ValueError, OverflowError):
        limit = DEFAULT_LIMIT
    return clamp(limit, 1, limit_max)


def parse_roles(value: Sequence[str] | str | None) -> tuple[str, ...]:
    """A string is a single role. No role, or an empty string, means no filter."""
    roles = [value] if isinstance(value, str) else list(value or ())
    roles = [] if roles == [""] else roles
    if invalid := sorted({role for role in roles if role not in ROLES}):
        quoted = [role[:_QUOTED_CHARS] for role in invalid[:_QUOTED_ROLES]]
        raise InvalidSearchArgument(f"Invalid role(s): {quoted}. Allowed: {', '.join(ROLES)}.")
    return tuple(dict.fromkeys(roles))


def parse_date(field: str, text: str | None, time_of_day: time) -> str | None:
    """Returns the time in the stored format. A date without a time means `time_of_day`. Times without an offset are
    UTC."""
    value = (text or "").strip()
    if not value:
        return None
    try:
        try:
            moment = datetime.combine(date.fromisoformat(value), time_of_day, UTC)
        except ValueError:  # not a date alone
            moment = parse_time(value)
        return format_time(moment)
    except (ValueError, OverflowError) as error:
        raise InvalidSearchArgument(
            f"Invalid {field} format: {value[:_QUOTED_CHARS]}. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)"
        ) from error


_INCOMPLETE = "older messages were not searched; narrow the search by dates or words, or try again"
_NEAREST_ONLY = "no message contains this text; these are the nearest by meaning"
# The default page of Letta's own tool. All messages are more or less near, so that more would be of little use.
_NEAREST_MAX = 5


def add_letta_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    catalog.add_tool(LettaTools(libraries, settings, catalog.tools).tool())


class LettaTools:
    """The handler of `conversation_search`, and its declaration."""

    def __init__(
        self,
        libraries: Libraries,
        settings: Settings,
        own_tools: Collection[str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._libraries = libraries
        self._settings = settings
        self._own_tools = own_tools
        self._now = now

    async def conversation_search(self, call: Call, arguments: ConversationSearch) -> ToolResult:
        settings = self._settings
        try:
            text = (arguments.query or "").strip()
            if len(text) > settings.fixed.query_max_chars:
                raise InvalidParams(
                    f"query: expected at most {settings.fixed.query_max_chars} characters, got {len(text)}"
                )
            request = MessageSearch(
                text=text or None,
                roles=parse_roles(arguments.roles),
                date_from=parse_date("start_date", arguments.start_date, time.min),
                date_to=parse_date("end_date", arguments.end_date, END_OF_DAY),
                limit=parse_limit(arguments.limit, settings.message_page_max),
                deadline_ms=settings.search_deadline_ms,
            )
            async with self._libraries.library(call.context) as library:
                hits = await search_history(
                    library.chats, request, self._own_tools, settings.fixed.conversation_search_scan_max
                )
                near: Sequence[MessageHit] = ()
                near_note: str | None = None
                if arguments.format == "json" or not hits.hits:
                    nearest_max = request.limit if arguments.format == "json" else min(request.limit, _NEAREST_MAX)
                    near, near_note = await find_nearest(library.chats, request, self._own_tools, nearest_max)
        except InvalidSearchArgument as error:
            return _text_result(error.message)
        except FlorilegiumError as error:
            return _text_result(f"Error: {error.message}")
        for hit in (*hits.hits, *near):
            call.context.record_read(uri_of("chats", hit.message.conversation_id, hit.message.id))
        is_text, max_chars = arguments.format == "text", _CONVERSATION_SEARCH_MESSAGE_CHARS
        nearest_only = _NEAREST_ONLY if is_text and near else None
        # Clients compare the text of an empty result, so it has a note only if messages were not searched.
        if is_text and not near and not hits.hits:
            near_note = None
        notes = filter(None, (nearest_only, None if hits.is_complete else _INCOMPLETE, near_note))
        note = "; ".join(notes) or None
        if is_text:
            return _text_result(render_text(hits.hits or near, max_chars, note))
        # In a thread, because the whole text of every message is ranked.
        response = await asyncio.to_thread(
            letta_response,
            hits.hits,
            request.text,
            max_chars,
            note,
            self._now(),
            near=near,
            limit=request.limit,
        )
        structured = msgspec.to_builtins(response)
        return ToolResult([{"type": "text", "text": msgspec.json.encode(structured).decode()}], structured)

    def tool(self) -> Tool:
        # The types that `roles` and `limit` should have.
        schema, limit_max = input_schema(ConversationSearch), self._settings.message_page_max
        schema["properties"] |= {
            "roles": {
                "type": "array",
                "items": {"type": "string", "enum": list(ROLES)},
                "description": "Only messages of these roles.",
            },
            "limit": {
                "type": "integer",
                "default": DEFAULT_LIMIT,
                "description": f"Messages, 1 to {limit_max}.",
            },
        }
        return Tool(
            name="conversation_search",
            source="chats",
            title="Search conversation history",
            description=(
                "Search prior conversation history (all stored conversations). Hybrid-style: text match on content "
                "and titles. Optional filters: roles (user/assistant/tool), start_date and end_date (ISO 8601 "
                "inclusive). Returns matching messages with timestamps and content, newest first. "
                'Example: {"query": "asyncio", "roles": ["user", "assistant"], "start_date": "2025-01-01", "limit": 20}'
            ),
            input=ConversationSearch,
            schema=schema,
            handler=self.conversation_search,
        )


def _text_result(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])
