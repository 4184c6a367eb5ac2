"""The tools over all sources: `knowledge_search`, `knowledge_get` and the session tools."""

from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from aggregator import contract
from aggregator.contract import Dedupe, KnowledgeSearch, Shape, filter_names
from aggregator.retrieval import KnowledgeGet
from aggregator.search import find_session_state
from config.errors import InvalidParams
from config.settings import Settings
from config.times import format_clock
from server.protocol.call import APP_MEDIA_TYPE, Call
from server.protocol.catalog import Catalog, Hints, Resource, Tool, ToolResult
from server.protocol.schema import input_schema
from server.services import Knowledge
from server.tools.research import CompactItem, Permalinks, ResearchTools, compact_item, compact_response
from sources.items import GetResponse, read_time_zone, semantic_note
from sources.reading.retrieval import applied_defaults

# -- markdown ----------------------------------------------------------------------------------------------------------
# The text of a search result that a model reads: Markdown, with about two thirds of the tokens of the same JSON.
#
# Programs read the structured content. One that parses the text instead gets JSON: if its protocol version has no
# structured content, or if it says so in its config (`result_text`), as tldw's addresses do for their clients.

# The first version with structured content.
_STRUCTURED_SINCE = "2025-06-18"
_via_of = attrgetter("via")
_REASONS = {"context": "matches by the messages before it", "meaning": "similar in meaning"}


def search_text(response: contract.KnowledgeResponse) -> str:
    """`response` has all fields of its results, because the order of passages depends on their positions."""
    results = []
    for number, item in enumerate(response.results, 1):
        # A title, what a model needs to read on, and the passages in the order of the item.
        lines = [f"{number}. **{item.title}**" if item.title else f"{number}.", " · ".join([item.uri, *_about(item)])]
        lead = contract.FurtherPassage(snippet=item.snippet or "", loc=item.loc, sender=item.sender)
        for passage in sorted([lead, *item.passages], key=_message_index) if item.passages else (lead,):
            text = f"{passage.sender}: {passage.snippet}" if passage.sender else passage.snippet
            # One line each, whatever a sender is called: another line could look like a result.
            lines.append(f"> {' '.join(text.split())}")
        results.append("\n".join(lines))
    notes = "\n".join(_notes(response))
    return "\n\n".join([*(results or ["No results."]), notes])


def _message_index(passage: contract.FurtherPassage) -> int:
    return (passage.loc.message_index if passage.loc is not None else None) or 0


def _about(item: contract.KnowledgeItem) -> list[str]:
    about = []
    if item.loc is not None and item.loc.seconds is not None:
        about.append(format_clock(item.loc.seconds))
    if date := item.created_at or item.last_modified:
        about.append(date[: len("2026-01-10")])
    # Otherwise the item is not much longer than its passage.
    if item.cost_tokens and item.cost_tokens > len(item.snippet or ""):
        about.append(f"{item.cost_tokens} tokens")
    if item.more_in_item:
        about.append(f"{item.more_in_item} more passage{'s' if item.more_in_item > 1 else ''}")
    if item.also_in:
        about.append(f"also {' '.join(item.also_in)}")
    if item.via:
        about.append(_REASONS[item.via])
    if item.library:
        about.append(f"library: {item.library}")
    return about


def _notes(response: contract.KnowledgeResponse) -> Iterator[str]:
    """What is not as expected, and how to go on."""
    if set(map(_via_of, response.results)) == {"meaning"}:
        yield "No result contains the words of the query. These are the nearest in meaning, and may be unrelated."
    if response.read_as:
        yield f"Query interpretation: {response.read_as}"
    for name, report in contract.failed_reports(response):
        yield f"{name} was not searched: {report.error or report.status}"
    if response.semantic:
        if response.semantic.status in ("partial", "unavailable"):
            yield semantic_note(response.semantic) or ""
        elif response.semantic.reason:
            yield response.semantic.reason
    if response.not_reranked:
        yield f"Not reranked: {response.not_reranked}"
    if response.session_error:
        yield f"Results may repeat: {response.session_error}"
    if response.exhausted:
        yield "All results were shown in this session before; try other words."
    elif response.suppressed:
        what = "1 result is" if response.suppressed == 1 else f"{response.suppressed} results are"
        yield f"{what} left out because this session has seen {'it' if response.suppressed == 1 else 'them'}."
    if response.next_offset is not None:
        yield f"More results: offset {response.next_offset}"
    yield f"session: {response.session}"


# -- caps --------------------------------------------------------------------------------------------------------------
# Caps in the help of arguments, so that a model need not find them by trial.
#
# Fixed caps are part of the declarations; those that are settings are added here.


def with_caps(schema: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Adds the caps from the settings to the descriptions of a tool's arguments. Changes the schema in place."""
    _add_caps(
        schema,
        {
            "max_tokens": f"1..{settings.retrieval_max_tokens}",
            "page_size": f"1..{settings.message_page_max}",
            "deadline_ms": f"1..{settings.fanout_deadline_ms}",
        },
    )
    return schema


def _add_caps(schema: Mapping[str, Any], caps: Mapping[str, str]) -> None:
    for name, declared in schema.get("properties", {}).items():
        if name in caps:
            declared["description"] = f"{declared['description'].removesuffix('.')}, {caps[name]}."
        _add_caps(declared, caps)


# The page that clients with MCP Apps show for the two tools.
_APP = "ui://florilegium/results.html"


@cache
def _app_text() -> str:
    return Path(__file__).with_name("results_app.html").read_text("utf-8")


# These tools change only the session state, and repeating a call changes nothing further.
_SESSION_HINTS = Hints(read_only_hint=False)
_SHAPE_HELP = "compact: {id, title, text, url, metadata}."
_SESSION_HELP = "session of an earlier response."


class ShapedSearch(KnowledgeSearch, frozen=True, kw_only=True):
    shape: Annotated[Shape | UnsetType, Meta(description=_SHAPE_HELP)] = UNSET


class ShapedGet(KnowledgeGet, frozen=True, kw_only=True):
    shape: Annotated[Shape | UnsetType, Meta(description=_SHAPE_HELP)] = UNSET


class SessionConfigure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults for the calls of a session. Omitted fields keep their value."""

    session: Annotated[str | None, Meta(description=_SESSION_HELP)] = None
    snippet_length: Annotated[int | UnsetType, Meta(description="Characters, 1..1000.")] = UNSET
    max_tokens: Annotated[int | UnsetType, Meta(description="Token budget of get responses.")] = UNSET
    sibling_window: Annotated[int | UnsetType, Meta(description="Chunks on each side, 0..50.")] = UNSET
    chars_per_token: Annotated[float | UnsetType, Meta(description="1..8; default: estimated from the text.")] = UNSET
    order_by: Annotated[Literal["relevance", "recent"] | UnsetType, Meta(description="Order of hits.")] = UNSET
    dedupe: Annotated[Dedupe | UnsetType, Meta(description="What to do with hits already seen.")] = UNSET
    time_zone: Annotated[str | UnsetType, Meta(description="IANA name, such as Europe/Berlin.")] = UNSET


class SessionReset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: Annotated[str | None, Meta(description=_SESSION_HELP)] = None


class SessionResult(Struct, frozen=True, kw_only=True):
    session: Annotated[str, Meta(description="Pass as session in later calls.")]
    defaults: Annotated[Mapping[str, Any], Meta(description="Defaults of the session, as calls apply them.")]
    forgotten: Annotated[int, Meta(description="Number of seen hits that were forgotten.")] | UnsetType = UNSET


def add_knowledge_tools(catalog: Catalog, knowledge: Knowledge, settings: Settings) -> None:
    tools = KnowledgeTools(knowledge, settings)
    research = ResearchTools(knowledge, settings)
    for tool in (*tools.search_tools(), *research.tools(), *tools.session_tools()):
        catalog.add_tool(tool)
    catalog.add_resource(
        Resource(
            uri=_APP,
            name="results",
            title="Results",
            description="The page that shows what a search found, and the items that are read.",
            mime_type=APP_MEDIA_TYPE,
            reader=tools.read_app,
        )
    )


class KnowledgeTools:
    """Handlers of the tools over all sources, and their declarations."""

    def __init__(self, knowledge: Knowledge, settings: Settings) -> None:
        self._knowledge = knowledge
        self._settings = settings
        self._links = Permalinks(settings.base_url)
        self._compact_extra_bytes = self._links.hit_extra_bytes

    async def search(
        self, call: Call, arguments: ShapedSearch
    ) -> contract.KnowledgeResponse | ToolResult | Mapping[str, Any]:
        result = await self._knowledge.aggregator.search_with_defaults(
            call.context, arguments, arguments.shape, self._compact_extra_bytes
        )
        response, defaults = result.response, result.defaults
        if (arguments.shape or defaults.shape) == "compact":
            return compact_response(contract.without_repetition(response), self._links)
        shown: contract.KnowledgeResponse | Mapping[str, Any] = result.short_response
        if defaults.hit_fields == "all":
            # tldw's clients expect a null where there is no next page.
            page = {"next_offset": response.next_offset, "total_estimated": response.total_estimated}
            shown = {**msgspec.to_builtins(response), **page}
        has_structured_content = call.version >= _STRUCTURED_SINCE
        if (defaults.result_text or ("markdown" if has_structured_content else "json")) == "json":
            return shown
        return ToolResult([{"type": "text", "text": search_text(response)}], shown)

    async def get(self, call: Call, arguments: ShapedGet) -> GetResponse | CompactItem:
        response, defaults = await self._knowledge.retriever.get_with_defaults(call.context, arguments)
        is_compact = (arguments.shape or defaults.shape) == "compact"
        return compact_item(response, self._links) if is_compact else response

    async def read_app(self, _call: Call, uri: str, _variables: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Returns the page of the search tools. It loads nothing, and asks the host for everything."""
        # The address of the server, with which the page builds permalinks; quoted for an attribute.
        text = _app_text().replace("{base_url}", escape(self._settings.base_url))
        meta = {
            "ui": {"csp": {"connectDomains": [], "resourceDomains": []}, "prefersBorder": True},
            "openai/widgetCSP": {"connect_domains": [], "resource_domains": []},
            "openai/widgetPrefersBorder": True,
        }
        return [{"uri": uri, "mimeType": APP_MEDIA_TYPE, "text": text, "_meta": meta}]

    async def configure_session(self, call: Call, arguments: SessionConfigure) -> SessionResult:
        defaults = {name: value for name, value in msgspec.to_builtins(arguments).items() if name != "session"}
        if "time_zone" in defaults:
            read_time_zone("time_zone", defaults["time_zone"])
        states, owner = self._knowledge.session_states, call.context.principal.owner()
        state = await find_session_state(states, call.context, arguments.session)
        state = await states.set_defaults(state.handle, owner, defaults)
        return SessionResult(session=state.handle, defaults=applied_defaults(state.defaults, self._settings))

    async def reset_session(self, call: Call, arguments: SessionReset) -> SessionResult:
        if arguments.session is None and call.context.session is None:
            raise InvalidParams("session: expected the session of an earlier response, got nothing")
        states, owner = self._knowledge.session_states, call.context.principal.owner()
        state = await find_session_state(states, call.context, arguments.session)
        previous = await states.reset(state.handle, owner)
        return SessionResult(session=previous.handle, defaults={}, forgotten=len(previous.seen))

    def search_tools(self) -> tuple[Tool, ...]:
        # The names of the sources and their filters are listed, so that a model need not guess them. Each source's own
        # search tool documents what its filters mean.
        sources = self._knowledge.sources
        schema = input_schema(ShapedSearch)
        filters = (f"{source.name} ({', '.join(names)})" for source in sources if (names := filter_names(source)))
        schema["properties"]["sources"]["items"] = {"type": "string", "enum": [source.name for source in sources]}
        schema["properties"]["filters"] = {"type": "object", "description": f"By source: {', '.join(filters)}."}
        return (
            Tool(
                name="knowledge_search",
                title="Search everything",
                description=(
                    "Search the user's whole library: notes, media, chats, characters, prompts. Each result is an item "
                    "with its best passages; read on with knowledge_get. Pass session from the response to later "
                    'searches to skip what was already shown. Example: {"query": "battery chemistry", '
                    '"filters": {"media": {"media_types": ["video"]}}}'
                ),
                input=ShapedSearch,
                output=contract.KnowledgeResponse,
                schema=with_caps(schema, self._settings),
                handler=self.search,
                app=_APP,
            ),
            Tool(
                name="knowledge_get",
                title="Read any item",
                description=(
                    "Read an item of any source within a token budget: a snippet, the passage at loc or query with its "
                    'neighbours, or the whole item. Example: {"uri": "notes://6f1c", "query": "rollback", '
                    '"retrieval": {"mode": "chunk_with_siblings", "max_tokens": 1500}}'
                ),
                input=ShapedGet,
                output=GetResponse,
                schema=with_caps(input_schema(ShapedGet), self._settings),
                handler=self.get,
                app=_APP,
            ),
        )

    def session_tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="session_configure",
                title="Set session defaults",
                description=(
                    "Set the defaults that knowledge_search and knowledge_get use in this session when a call does "
                    'not set them. Returns them as applied. Example: {"order_by": "recent", "snippet_length": 150}'
                ),
                input=SessionConfigure,
                output=SessionResult,
                schema=with_caps(input_schema(SessionConfigure), self._settings),
                hints=_SESSION_HINTS,
                handler=self.configure_session,
            ),
            Tool(
                name="session_reset",
                title="Reset a session",
                description=(
                    "Clear the seen hits, recent queries and defaults of this session; all hits can appear again. "
                    'Example: {"session": "Zk3v"}'
                ),
                input=SessionReset,
                output=SessionResult,
                hints=_SESSION_HINTS,
                handler=self.reset_session,
            ),
        )
