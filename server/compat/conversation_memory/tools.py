"""The MCP tools of conversation-memory. They return Markdown, as their clients expect; JSON is returned as structured
content too. No argument is a file system path.
"""

# About this package: `memory_search` returns short rows, `memory_get_observations` returns observations in full, and
# `memory_read` returns the conversation they come from. `observations_record` stores new observations. Read `tools.py`
# first: it also has the rule when conversations are searched instead of observations.
# `conversation_search.py` searches, and `responses.py` reads conversations and renders results.

from uuid import uuid4

import msgspec
from msgspec import UNSET

from auth.context import WRITE, RequestContext
from config.errors import InvalidParams, NotFound
from config.settings import Settings
from server.compat.conversation_memory import arguments, conversation_search, responses
from server.compat.conversation_memory.arguments import MemoryQuery
from server.compat.conversation_memory.conversation_search import MatchingRows
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool, ToolResult
from sources.drafts import ObservationDraft
from sources.importers.engine.events import observation_id
from sources.items import request_defaults, uri_of
from sources.reading.retrieval import RetrievalPlan, plan_retrieval
from sources.storage.collections.chats import Chats
from sources.storage.contract import Libraries, Library
from sources.text.chunking import run_text_work

# If meanings could not be compared, the result says so unless mode `text` was requested.
_EXCHANGES_INSTEAD = "No observations found. These results are exchanges from conversations."
_OBSERVATIONS_ONLY = (
    "Conversations were not searched: the filters types, concepts and files apply to observations only."
)
# The other fields of an entry are stored as they are, under the same names.
_OTHER_IN_STORAGE = frozenset(("conversation_id", "time"))
# Observations in one call: what a model can write in one turn.
_OBSERVATIONS_BATCH_MAX = 50
# Repeating a call without a key records another observation.
_APPENDS = Hints(read_only_hint=False, idempotent_hint=False)


def add_conversation_memory_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    for tool in ConversationMemoryTools(libraries, settings).tools():
        catalog.add_tool(tool)


class ConversationMemoryTools:
    """Handlers of the memory tools, and their declarations."""

    def __init__(self, libraries: Libraries, settings: Settings) -> None:
        self._libraries = libraries
        self._settings = settings

    async def search(self, call: Call, request: arguments.MemorySearch) -> arguments.MemoryResults | ToolResult:
        query = arguments.parse_query(request)
        async with self._libraries.library(call.context) as library:
            kind, found, note = await self._search(library, call.context, query)
        notes = [note, *found.notes] if note else found.notes
        results = arguments.MemoryResults(
            kind=kind,
            results=found.rows,
            total=found.total,
            count=len(found.rows),
            mode=query.mode,
            served_by=query.mode if conversation_search.is_compared(found.semantic) else "text",
            semantic=UNSET if query.is_literal else found.semantic,
            concepts=UNSET if query.is_single_concept else query.concepts,
            note=" ".join(notes) or UNSET,
        )
        return results if request.response_format == "json" else _markdown(responses.render_results(results))

    async def _search(
        self, library: Library, context: RequestContext, query: MemoryQuery
    ) -> tuple[arguments.ResultKind, MatchingRows, str]:
        """Searches observations. If none match, it searches exchanges of conversations instead, with a note that says
        so. Several concepts are searched in conversations, which must match all of them."""
        searcher = conversation_search.ConversationSearcher(library.chats, context, self._settings, query)
        if not query.is_single_concept:
            return "conversations", await searcher.search_conversations(), ""
        observations = await conversation_search.search_observations(library, context, self._settings, query)
        if query.has_observation_filters:
            return "observations", observations, "" if observations.rows else _OBSERVATIONS_ONLY
        # Observations are always more or less near. In mode `both`, exchanges that contain the words are better.
        if observations.rows and (observations.has_matching_words or query.ranking == "meaning"):
            return "observations", observations, ""
        exchanges = await searcher.search_exchanges()
        if observations.rows and not exchanges.has_matching_words:
            return "observations", observations, ""
        return "exchanges", exchanges, _EXCHANGES_INSTEAD if exchanges.rows else ""

    async def get_observations(self, call: Call, request: arguments.GetObservations) -> ToolResult:
        ids = arguments.parse_ids(request.ids)
        async with self._libraries.library(call.context) as library:
            observations = await conversation_search.find_observations(library.observations, ids)
        for observation in observations:
            call.context.record_read(uri_of("observations", observation.id))
        chars = sum(len(row.narrative) + sum(map(len, row.facts)) for row in observations)
        return _markdown(await run_text_work(chars, responses.render_observations, observations, self._plan(call)))

    async def read(self, call: Call, request: arguments.ReadConversation) -> ToolResult:
        path, lines = arguments.parse_path(request.path), arguments.parse_lines(request.start_line, request.end_line)
        async with self._libraries.library(call.context) as library:
            transcript = await responses.read_transcript(
                library.chats, path, lines, self._plan(call), self._settings.message_page_max
            )
        call.context.record_read(uri_of("chats", transcript.conversation.id))
        chars = sum(len(message.text) for message in transcript.messages)
        return _markdown(await run_text_work(chars, responses.render_transcript, transcript))

    async def record(self, call: Call, request: arguments.RecordObservations) -> arguments.RecordedObservations:
        """Records all entries or none, as clients send them; only their origin is added. A retry with the same key
        returns what the first call recorded."""
        count, batch_max, key = len(request.observations), _OBSERVATIONS_BATCH_MAX, request.idempotency_key
        if not 1 <= count <= batch_max:
            raise InvalidParams(f"observations: expected 1 to {batch_max}, got {count}")
        async with self._libraries.library(call.context) as library:
            drafts = []
            for index, entry in enumerate(request.observations):
                # With a key the same entry gets the same id; otherwise a retry would be a different request.
                parts: tuple[str, ...] = (uuid4().hex,)
                if key is not None:
                    parts = ("client", key, str(index), msgspec.json.encode(entry).decode())
                fields = {
                    name: getattr(entry, name) for name in entry.__struct_fields__ if name not in _OTHER_IN_STORAGE
                }
                drafts.append(
                    ObservationDraft(
                        uuid=observation_id(*parts),
                        origin="client",
                        conversation_id=await _conversation_id(library.chats, entry, index),
                        created_at=UNSET if entry.time is None else entry.time,
                        **fields,
                    )
                )
            observations = await library.observations.create_many(drafts, idempotency_key=key)
        recorded = tuple(
            arguments.RecordedObservation(id=one.id, title=one.title, created_at=one.created_at) for one in observations
        )
        return arguments.RecordedObservations(observations=recorded, count=len(recorded))

    def _plan(self, call: Call) -> RetrievalPlan:
        """Returns the token budget of the caller."""
        return plan_retrieval(None, request_defaults(call.context.config), self._settings, "full")

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="memory_search",
                source="chats",
                title="Search memory",
                description=(
                    "Layer 1 of memory: search what was learned in earlier sessions. Returns short rows, best first; "
                    "get_observations returns them in full. If no observation matches, it returns exchanges of "
                    f"conversations, for read. An array of {arguments.CONCEPTS_MIN} to {arguments.CONCEPTS_MAX} "
                    "concepts finds conversations that match all of them. "
                    'Example: {"query": "authentication", "types": ["decision"], "after": "2025-09-01"}'
                ),
                input=arguments.MemorySearch,
                handler=self.search,
            ),
            Tool(
                name="memory_get_observations",
                source="chats",
                title="Read observations",
                description=(
                    f"Layer 2 of memory: observations in full, 1 to {arguments.IDS_MAX} by their ids from a search, "
                    'with the conversation and lines they come from. Example: {"ids": ["obs-104729003771625"]}'
                ),
                input=arguments.GetObservations,
                handler=self.get_observations,
            ),
            Tool(
                name="memory_read",
                source="chats",
                title="Read a conversation of memory",
                description=(
                    "Layer 3 of memory: a whole conversation, or some of its lines. Conversations are long: read one "
                    "only if the observations do not answer the question. "
                    'Example: {"path": "chats://9b2e", "startLine": 100, "endLine": 200}'
                ),
                input=arguments.ReadConversation,
                handler=self.read,
            ),
            Tool(
                name="observations_record",
                source="chats",
                title="Record observations",
                description=(
                    f"Record what was learned, 1 to {_OBSERVATIONS_BATCH_MAX} observations, so that "
                    "memory_search finds it in later sessions. "
                    'Example: {"observations": [{"type": "decision", "title": "JWT instead of sessions", "facts": '
                    '["Refresh tokens rotate"], "concepts": ["JWT"], "project": "my-api"}], "idempotency_key": "s1-3"}'
                ),
                input=arguments.RecordObservations,
                output=arguments.RecordedObservations,
                scope=WRITE,
                hints=_APPENDS,
                handler=self.record,
            ),
        )


def _markdown(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])


async def _conversation_id(chats: Chats, entry: arguments.ObservationEntry, index: int) -> str | None:
    """Raises the same error for a missing conversation and for one of another user."""
    name = entry.conversation_id
    if name is None:
        return None
    try:
        is_path = "/" in name or name.endswith(".jsonl")
        return (await responses.find_conversation(chats, name) if is_path else await chats.get(name)).id
    except (NotFound, InvalidParams):
        raise InvalidParams(
            f"observations[{index}].conversation_id: expected the id or path of one of your conversations, "
            f"got {name[:80]!r}"
        ) from None
