"""The tools of layered memory: short rows first, then what was learned in full, then the conversation itself. They
answer in Markdown, as their clients expect; JSON comes as structured content too. None takes a path of a file system.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from auth.principal import WRITE
from config.errors import InvalidParams
from config.settings import Settings
from server.compat.conversation_memory import errors
from server.compat.conversation_memory.errors import refuse
from server.compat.conversation_memory.formats import observations_markdown, recalled_markdown, transcript_markdown
from server.compat.conversation_memory.questions import (
    CONCEPTS_MAX,
    CONCEPTS_MIN,
    IDS_MAX,
    QUERY_MIN_CHARS,
    ROWS_MAX,
    Mode,
    ResponseFormat,
    read_ids,
    read_lines,
    read_path,
    read_recall,
)
from server.compat.conversation_memory.recall import recall
from server.compat.conversation_memory.recording import ObservationEntry, Recorded, record
from server.compat.conversation_memory.rows import Recalled
from server.compat.conversation_memory.transcript import Budget, read_transcript
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool, ToolResult
from server.protocol.schema import input_schema
from sources.preferences import preferences_of
from sources.reading.retrieval import make_plan
from sources.storage.contract import Libraries

# Repeating it without a key makes another observation.
_ADDS = Hints(read_only_hint=False, idempotent_hint=False)


class MemorySearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values that this contract refuses in words of its own are taken as they come; `schema` lists what they may be."""

    query: Any
    mode: Annotated[Mode, Meta(description="The answer says what served it.")] = "both"
    limit: Annotated[int, Meta(description=f"1..{ROWS_MAX}.")] = 10
    after: Any = None
    before: Any = None
    projects: Annotated[tuple[str, ...], Meta(description="Any of these.")] = ()
    types: Annotated[tuple[str, ...], Meta(description="Any of these; single concept only.")] = ()
    concepts: Annotated[tuple[str, ...], Meta(description="Tagged with any of these; single concept only.")] = ()
    files: Annotated[tuple[str, ...], Meta(description="Read or modified any of these; single concept only.")] = ()
    response_format: Annotated[ResponseFormat, Meta(description="json for programs.")] = "markdown"


class ObservationIds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ids: Any


class TranscriptRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    path: Any
    start_line: Annotated[int, Meta(description="From 1.")] = 1
    end_line: Annotated[int | None, Meta(description="All that follows, if left out.")] = None


class ObservationsRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    observations: Annotated[tuple[ObservationEntry, ...], Meta(description="One or more.")]
    idempotency_key: Annotated[str | None, Meta(description="A call repeated with its key records nothing twice.")] = (
        None
    )


def add_memory(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    catalog.add_tool(_search(libraries, settings))
    catalog.add_tool(_get_observations(libraries, settings))
    catalog.add_tool(_read(libraries, settings))
    catalog.add_tool(_record(libraries, settings))


def _search(libraries: Libraries, settings: Settings) -> Tool:
    async def run(call: Call, given: MemorySearch) -> Recalled | ToolResult:
        asked = read_recall(
            query=given.query,
            mode=given.mode,
            limit=given.limit,
            after=given.after,
            before=given.before,
            projects=given.projects,
            types=given.types,
            concepts=given.concepts,
            files=given.files,
        )
        async with libraries.library(call.context) as library:
            found = await recall(library, call.context, settings, asked)
        return found if given.response_format == "json" else _markdown(recalled_markdown(found))

    return Tool(
        name="memory_search",
        title="Search memory",
        description=(
            "Layer 1 of memory: search what was learned in earlier sessions; short rows, best first. Read rows in full "
            "with get_observations. Where nothing was learned, exchanges of conversations are found, for read. "
            f"An array of {CONCEPTS_MIN} to {CONCEPTS_MAX} concepts finds conversations that hold all of them. "
            'Example: {"query": "authentication", "types": ["decision"], "after": "2025-09-01"}'
        ),
        input=MemorySearch,
        schema=_search_schema(),
        handler=run,
    )


def _get_observations(libraries: Libraries, settings: Settings) -> Tool:
    async def run(call: Call, given: ObservationIds) -> ToolResult:
        ids = read_ids(given.ids)
        async with libraries.library(call.context) as library:
            found = await library.observations.get_many(ids)
        missing = [one for one in ids if one not in {row.id for row in found}]
        if missing:
            raise refuse(errors.BAD_ID, ", ".join(missing))
        return _markdown(observations_markdown(found, _budget(call, settings)))

    return Tool(
        name="memory_get_observations",
        title="Read observations",
        description=(
            f"Layer 2 of memory: observations in full, 1 to {IDS_MAX} by the ids of a search, with the conversation "
            'and lines they come from. Example: {"ids": ["obs-104729003771625"]}'
        ),
        input=ObservationIds,
        schema=_with(ObservationIds, ids=_strings("ids of a search.", 1, IDS_MAX)),
        handler=run,
    )


def _read(libraries: Libraries, settings: Settings) -> Tool:
    async def run(call: Call, given: TranscriptRequest) -> ToolResult:
        path, lines = read_path(given.path), read_lines(given.start_line, given.end_line)
        async with libraries.library(call.context) as library:
            budget = _budget(call, settings)
            read = await read_transcript(library.chats, path, lines, budget, settings.message_page_max)
        return _markdown(transcript_markdown(read))

    return Tool(
        name="memory_read",
        title="Read a conversation of memory",
        description=(
            "Layer 3 of memory: a conversation as it was, or some lines of it. It is long: read it only when the "
            'observations do not answer. Example: {"path": "chats://9b2e", "startLine": 100, "endLine": 200}'
        ),
        input=TranscriptRequest,
        schema=_with(TranscriptRequest, path={"type": "string", "description": "path of a search."}),
        handler=run,
    )


def _record(libraries: Libraries, settings: Settings) -> Tool:
    limit = settings.observations_batch_max

    async def run(call: Call, given: ObservationsRecord) -> Recorded:
        if not 1 <= len(given.observations) <= limit:
            raise InvalidParams(f"observations: got {len(given.observations)}, expected 1 to {limit}")
        async with libraries.library(call.context) as library:
            return await record(library, given.observations, given.idempotency_key)

    return Tool(
        name="observations_record",
        title="Record observations",
        description=(
            f"Write down what was learned, 1 to {limit} observations, so that memory_search finds it in later "
            'sessions. Example: {"observations": [{"type": "decision", "title": "JWT instead of sessions", '
            '"facts": ["Refresh tokens rotate"], "concepts": ["JWT"], "project": "my-api"}], "idempotency_key": "s1-3"}'
        ),
        input=ObservationsRecord,
        output=Recorded,
        scope=WRITE,
        hints=_ADDS,
        handler=run,
    )


def _markdown(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])


def _budget(call: Call, settings: Settings) -> Budget:
    plan = make_plan(None, preferences_of(call.context.config), settings, "full")
    return Budget(plan.scale, plan.budget)


def _search_schema() -> Mapping[str, Any]:
    query = {
        "anyOf": [
            {"type": "string", "minLength": QUERY_MIN_CHARS},
            {"type": "array", "items": {"type": "string"}, "minItems": CONCEPTS_MIN, "maxItems": CONCEPTS_MAX},
        ],
        "description": "One concept, or several that all have to be there.",
    }
    after = {"type": "string", "description": "YYYY-MM-DD, that day included."}
    before = {"type": "string", "description": "YYYY-MM-DD, that day not included."}
    return _with(MemorySearch, query=query, after=after, before=before)


def _with(declared: type[Any], **described: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of arguments of which some are described as a Struct cannot say it."""
    schema = input_schema(declared)
    return {**schema, "properties": schema["properties"] | described}


def _strings(description: str, least: int, most: int) -> Mapping[str, Any]:
    return {
        "type": "array",
        "items": {"type": "string"},
        "minItems": least,
        "maxItems": most,
        "description": description,
    }
