"""The tools over all sources: `knowledge_search`, `knowledge_get` and the session tools."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from aggregator.defaults import Dedupe, SearchDefaults, Shape
from aggregator.filters import filter_names
from aggregator.responses import KnowledgeResponse, without_repetition
from aggregator.retrieval import KnowledgeGet
from aggregator.search import KnowledgeSearch, find_session_state
from config.errors import InvalidParams
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool, ToolResult
from server.protocol.schema import input_schema
from server.runtime import Knowledge
from server.tools.caps import with_caps
from server.tools.compact import CompactItem, Permalinks, compact_item, compact_response
from server.tools.markdown import search_text, text_format
from server.tools.research import ResearchTools
from sources.defaults import read_time_zone
from sources.items import GetResponse
from sources.reading.retrieval import applied_defaults
from sources.source import Source

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


class KnowledgeTools:
    """Handlers of the tools over all sources, and their declarations."""

    def __init__(self, knowledge: Knowledge, settings: Settings) -> None:
        self._knowledge = knowledge
        self._settings = settings
        self._links = Permalinks(settings.base_url)

    async def search(self, call: Call, arguments: ShapedSearch) -> KnowledgeResponse | ToolResult | Mapping[str, Any]:
        def is_compact(defaults: SearchDefaults) -> bool:
            return (arguments.shape or defaults.shape) == "compact"

        def extra_bytes(defaults: SearchDefaults) -> int:
            return self._links.hit_extra_bytes if is_compact(defaults) else 0

        wait_for_limits = call.limit_check.wait if call.limit_check is not None else None
        search = self._knowledge.aggregator.search_with_defaults
        response, defaults = await search(call.context, arguments, extra_bytes, wait_for_limits)
        if is_compact(defaults):
            return compact_response(without_repetition(response), self._links)
        shown = _complete(response) if defaults.hit_fields == "all" else without_repetition(response)
        if text_format(call, defaults) == "json":
            return shown
        return ToolResult([{"type": "text", "text": search_text(response)}], shown)

    async def get(self, call: Call, arguments: ShapedGet) -> GetResponse | CompactItem:
        response, defaults = await self._knowledge.retriever.get_with_defaults(call.context, arguments)
        is_compact = (arguments.shape or defaults.shape) == "compact"
        return compact_item(response, self._links) if is_compact else response

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
                output=KnowledgeResponse,
                schema=with_caps(_search_schema(self._knowledge.sources), self._settings),
                handler=self.search,
                waits_for_limits=True,
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


def _complete(response: KnowledgeResponse) -> Mapping[str, Any]:
    """The response with all its fields; tldw's clients expect a null where there is no next page."""
    page = {"next_offset": response.next_offset, "total_estimated": response.total_estimated}
    return {**msgspec.to_builtins(response), **page}


def _search_schema(sources: Sequence[Source]) -> dict[str, Any]:
    """Adds the names of the sources and their filters to the input schema, so that a model need not guess them.

    Each source's own search tool documents what its filters mean.
    """
    schema = input_schema(ShapedSearch)
    filters = (f"{source.name} ({', '.join(names)})" for source in sources if (names := filter_names(source)))
    schema["properties"]["sources"]["items"] = {"type": "string", "enum": [source.name for source in sources]}
    schema["properties"]["filters"] = {"type": "object", "description": f"By source: {', '.join(filters)}."}
    return schema
