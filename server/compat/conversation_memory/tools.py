"""The MCP tools of conversation-memory. They return Markdown, as their clients expect; JSON is returned as structured
content too. No argument is a file system path."""

from auth.context import WRITE
from config.errors import InvalidParams
from config.settings import Settings
from server.compat.conversation_memory import schemas
from server.compat.conversation_memory.arguments import parse_ids, parse_lines, parse_path, parse_query
from server.compat.conversation_memory.observation_search import find_observations
from server.compat.conversation_memory.responses import render_observations, render_results, render_transcript
from server.compat.conversation_memory.service import record_observations, search_memory
from server.compat.conversation_memory.transcript import TextBudget, read_transcript
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool, ToolResult
from sources.items import request_defaults, uri_of
from sources.reading.retrieval import plan_retrieval
from sources.storage.contract import Libraries
from sources.text.chunking import run_text_work

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

    async def search(self, call: Call, arguments: schemas.MemorySearch) -> schemas.MemoryResults | ToolResult:
        query = parse_query(arguments)
        async with self._libraries.library(call.context) as library:
            results = await search_memory(library, call.context, self._settings, query)
        return results if arguments.response_format == "json" else _markdown(render_results(results))

    async def get_observations(self, call: Call, arguments: schemas.GetObservations) -> ToolResult:
        ids = parse_ids(arguments.ids)
        async with self._libraries.library(call.context) as library:
            observations = await find_observations(library.observations, ids)
        for observation in observations:
            call.context.record_read(uri_of("observations", observation.id))
        chars = sum(len(row.narrative) + sum(map(len, row.facts)) for row in observations)
        return _markdown(await run_text_work(chars, render_observations, observations, self._budget(call)))

    async def read(self, call: Call, arguments: schemas.ReadConversation) -> ToolResult:
        path, lines = parse_path(arguments.path), parse_lines(arguments.start_line, arguments.end_line)
        async with self._libraries.library(call.context) as library:
            transcript = await read_transcript(
                library.chats, path, lines, self._budget(call), self._settings.message_page_max
            )
        call.context.record_read(uri_of("chats", transcript.conversation.id))
        chars = sum(len(message.text) for message in transcript.messages)
        return _markdown(await run_text_work(chars, render_transcript, transcript))

    async def record(self, call: Call, arguments: schemas.RecordObservations) -> schemas.RecordedObservations:
        count, batch_max = len(arguments.observations), _OBSERVATIONS_BATCH_MAX
        if not 1 <= count <= batch_max:
            raise InvalidParams(f"observations: expected 1 to {batch_max}, got {count}")
        async with self._libraries.library(call.context) as library:
            return await record_observations(library, arguments.observations, arguments.idempotency_key)

    def _budget(self, call: Call) -> TextBudget:
        plan = plan_retrieval(None, request_defaults(call.context.config), self._settings, "full")
        return TextBudget(plan.scale, plan.budget)

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="memory_search",
                source="chats",
                title="Search memory",
                description=(
                    "Layer 1 of memory: search what was learned in earlier sessions. Returns short rows, best first; "
                    "get_observations returns them in full. If no observation matches, it returns exchanges of "
                    f"conversations, for read. An array of {schemas.CONCEPTS_MIN} to {schemas.CONCEPTS_MAX} concepts "
                    "finds conversations that match all of them. "
                    'Example: {"query": "authentication", "types": ["decision"], "after": "2025-09-01"}'
                ),
                input=schemas.MemorySearch,
                schema=schemas.memory_search_schema(),
                handler=self.search,
            ),
            Tool(
                name="memory_get_observations",
                source="chats",
                title="Read observations",
                description=(
                    f"Layer 2 of memory: observations in full, 1 to {schemas.IDS_MAX} by their ids from a search, with "
                    'the conversation and lines they come from. Example: {"ids": ["obs-104729003771625"]}'
                ),
                input=schemas.GetObservations,
                schema=schemas.get_observations_schema(),
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
                input=schemas.ReadConversation,
                schema=schemas.read_conversation_schema(),
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
                input=schemas.RecordObservations,
                output=schemas.RecordedObservations,
                scope=WRITE,
                hints=_APPENDS,
                handler=self.record,
            ),
        )


def _markdown(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])
