"""The tools over all sources: search them at once, open any hit, and say what a session is to remember."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from aggregator.defaults import Dedupe
from aggregator.filters import filter_names
from aggregator.responses import KnowledgeAnswer
from aggregator.retrieval import KnowledgeGet, Retriever
from aggregator.search import Aggregator, KnowledgeSearch, find_session_state
from config.errors import InvalidParams
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool
from server.protocol.schema import input_schema
from server.runtime import Knowledge
from server.tools.compact import CompactItem, Permalinks, Shape, compact_answer, compact_item
from server.tools.research import fetch_tool, search_tool
from sessions.state import SessionStates
from sources.items import GetResponse
from sources.source import Source

# They change what the session remembers and nothing else; doing it twice is doing it once.
_SESSION_ONLY = Hints(read_only_hint=False)


class ShapedSearch(KnowledgeSearch, frozen=True, kw_only=True):
    shape: Annotated[Shape, Meta(description="compact: {id, title, text, url, metadata}.")] = "canonical"


class ShapedGet(KnowledgeGet, frozen=True, kw_only=True):
    shape: Annotated[Shape, Meta(description="compact: {id, title, text, url, metadata}.")] = "canonical"


class SessionConfigure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults for the calls of a session; what is left out stays as it is."""

    session: Annotated[str | None, Meta(description="session of an earlier answer.")] = None
    snippet_length: Annotated[int | UnsetType, Meta(description="Characters, 1..1000.")] = UNSET
    max_tokens: Annotated[int | UnsetType, Meta(description="Budget of an answer of a get.")] = UNSET
    sibling_window: Annotated[int | UnsetType, Meta(description="Chunks on each side.")] = UNSET
    chars_per_token: Annotated[float | UnsetType, Meta(description="For estimates of tokens.")] = UNSET
    order_by: Annotated[Literal["relevance", "recent"] | UnsetType, Meta(description="Of searches.")] = UNSET
    dedupe: Annotated[Dedupe | UnsetType, Meta(description="Hits the session has seen.")] = UNSET


class SessionReset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: Annotated[str | None, Meta(description="session of an earlier answer.")] = None


class SessionResult(Struct, frozen=True, kw_only=True):
    session: Annotated[str, Meta(description="Pass as session in later calls.")]
    defaults: Annotated[Mapping[str, Any], Meta(description="What calls of the session go by.")]
    forgotten: Annotated[int, Meta(description="Seen hits that were forgotten.")] | UnsetType = UNSET


def add_aggregate(catalog: Catalog, knowledge: Knowledge, settings: Settings) -> None:
    links = Permalinks(settings.base_url)
    catalog.add_tool(_search(knowledge.aggregator, knowledge.sources, links))
    catalog.add_tool(_get(knowledge.retriever, links))
    catalog.add_tool(search_tool(knowledge, settings))
    catalog.add_tool(fetch_tool(knowledge, settings))
    catalog.add_tool(_configure(knowledge.session_states))
    catalog.add_tool(_reset(knowledge.session_states))


def _search(aggregator: Aggregator, sources: Sequence[Source], links: Permalinks) -> Tool:
    async def run(call: Call, given: ShapedSearch) -> KnowledgeAnswer | Mapping[str, Any]:
        answer = await aggregator.search(call.context, given)
        return compact_answer(answer, links) if given.shape == "compact" else answer

    return Tool(
        name="knowledge_search",
        title="Search everything",
        description=(
            "Search the user's whole library at once: notes, media, chats, characters, prompts; best hits first. "
            "Open a hit with knowledge_get; cost_tokens tells what all of it costs. Pass the answer's session on, and "
            'later searches leave out what you have seen. Example: {"query": "battery chemistry", '
            '"filters": {"media": {"media_types": ["video"]}}}'
        ),
        input=ShapedSearch,
        output=KnowledgeAnswer,
        schema=_search_schema(sources),
        handler=run,
    )


def _search_schema(sources: Sequence[Source]) -> Mapping[str, Any]:
    """The schema of the arguments with the sources there are and the names of their filters, so that a model need not
    guess them; what each filter means is said by the source's own search."""
    schema = input_schema(ShapedSearch)
    filters = (f"{source.name} ({', '.join(names)})" for source in sources if (names := filter_names(source)))
    schema["properties"]["sources"]["items"] = {"type": "string", "enum": [source.name for source in sources]}
    schema["properties"]["filters"] = {"type": "object", "description": f"By source: {', '.join(filters)}."}
    return schema


def _get(retriever: Retriever, links: Permalinks) -> Tool:
    async def run(call: Call, given: ShapedGet) -> GetResponse | CompactItem:
        read = await retriever.get(call.context, given)
        return compact_item(read, links) if given.shape == "compact" else read

    return Tool(
        name="knowledge_get",
        title="Read any item",
        description=(
            "Read an item of any source: a snippet, the passage at loc or query with its neighbours, or all of it, "
            'within a token budget. Example: {"uri": "notes://6f1c", "query": "rollback", '
            '"retrieval": {"mode": "chunk_with_siblings", "max_tokens": 1500}}'
        ),
        input=ShapedGet,
        output=GetResponse,
        handler=run,
    )


def _configure(session_states: SessionStates) -> Tool:
    async def run(call: Call, given: SessionConfigure) -> SessionResult:
        defaults = {name: value for name, value in msgspec.to_builtins(given).items() if name != "session"}
        state = await find_session_state(session_states, call.context, given.session)
        kept = await session_states.set_defaults(state.handle, call.context.principal.owner(), defaults)
        return SessionResult(session=kept.handle, defaults=dict(kept.defaults))

    return Tool(
        name="session_configure",
        title="Set a session's defaults",
        description=(
            "Set what knowledge_search and knowledge_get go by in this session where a call does not say. "
            'Example: {"order_by": "recent", "snippet_length": 150}'
        ),
        input=SessionConfigure,
        output=SessionResult,
        hints=_SESSION_ONLY,
        handler=run,
    )


def _reset(session_states: SessionStates) -> Tool:
    async def run(call: Call, given: SessionReset) -> SessionResult:
        if given.session is None and call.context.session is None:
            raise InvalidParams("session: got nothing, expected the session of an earlier answer")
        state = await find_session_state(session_states, call.context, given.session)
        forgotten = await session_states.reset(state.handle, call.context.principal.owner())
        return SessionResult(session=forgotten.handle, defaults={}, forgotten=len(forgotten.seen))

    return Tool(
        name="session_reset",
        title="Forget what was seen",
        description=(
            "Forget what this session has seen, its recent queries and its defaults; all hits may come again. "
            'Example: {"session": "Zk3v"}'
        ),
        input=SessionReset,
        output=SessionResult,
        hints=_SESSION_ONLY,
        handler=run,
    )
