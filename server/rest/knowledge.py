"""REST operations on a whole library: search it, and read an item. They return the same as the corresponding tools."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import fields

from aggregator.filters import filter_names
from aggregator.responses import KnowledgeResponse, without_repetition
from aggregator.retrieval import KnowledgeGet
from aggregator.search import KnowledgeSearch
from aggregator.similar import ItemsSimilar
from auth.context import RequestContext
from config.numbers import clamp
from config.times import format_timestamp
from server.protocol.schema import input_schema
from server.rest.audit import account_operation, client_names
from server.rest.operation import Operation
from server.runtime import Knowledge, Runtime
from sources.items import GetResponse, Loc, RetrievalOptions, SearchResponse, uri_of

_RETRIEVAL_FIELDS = tuple(field.name for field in fields(RetrievalOptions))
_LOC_FIELDS = tuple(field.name for field in fields(Loc))
# The results of `fetch` contain permalinks, so a key for `fetch` may also read items.
_READ_TOOLS = ("knowledge_get", "fetch")
_NOT_FOUND = frozenset((404,))


class ItemReadOptions(RetrievalOptions, frozen=True, kw_only=True):
    """The options of `knowledge_get` as flat query parameters: the fields of `retrieval`, of `loc`, and the others."""

    query: Annotated[str | None, Meta(description="Read the passage that matches this query.")] = None
    cursor: Annotated[str | None, Meta(description="next_cursor of a response.")] = None
    session: Annotated[str | None, Meta(description="session of an earlier response.")] = None
    chunk_index: Annotated[int | None, Meta(description="Read the chunk with this index.")] = None
    chunk_uuid: Annotated[str | None, Meta(description="Read the chunk with this id.")] = None
    seconds: Annotated[float | None, Meta(description="Read a transcript at this time, in seconds.")] = None
    start_ms: Annotated[int | None, Meta(description="Read a transcript at this time, in milliseconds.")] = None
    message_id: Annotated[str | None, Meta(description="Read a conversation at this message.")] = None
    message_index: Annotated[int | None, Meta(description="Read a conversation at the message with this index.")] = None
    field: Annotated[str | None, Meta(description="Read this field of a character or a prompt.")] = None
    approx_offset: Annotated[int | None, Meta(description="Read at this character offset.")] = None

    @property
    def has_position(self) -> bool:
        """Whether the request points to a passage of the item."""
        return bool(_set_fields(self, _LOC_FIELDS)) or self.query is not None

    def as_knowledge_get(self, address: Mapping[str, str]) -> KnowledgeGet:
        """Returns the equivalent `knowledge_get` call. If no option is set, the source's defaults apply."""
        options, loc = _set_fields(self, _RETRIEVAL_FIELDS), _set_fields(self, _LOC_FIELDS)
        return KnowledgeGet(
            **address,
            retrieval=RetrievalOptions(**options) if options else None,
            loc=loc or None,
            query=self.query,
            cursor=self.cursor,
            session=self.session,
        )


class ItemRequest(ItemReadOptions, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description="source of a hit.")]
    id: Annotated[str, Meta(description="id of a hit.")]


class UriRequest(ItemReadOptions, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(description="uri of a hit.")]


def _set_fields(options: ItemReadOptions, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


def item_address(request: ItemRequest) -> dict[str, str]:
    """Returns source and id, or a URI for an id of several segments: `chats/9b2e/41f0` is `chats://9b2e/41f0`."""
    segments = request.id.split("/")
    if len(segments) == 1:
        return {"source": request.source, "id": request.id}
    return {"uri": uri_of(request.source, *segments)}


def knowledge_operations(knowledge: Knowledge) -> list[Operation]:
    operations = KnowledgeOperations(knowledge)
    return [
        operations.search_operation(),
        operations.read_item_operation(),
        operations.read_uri_operation(),
        operations.similar_operation(),
    ]


class KnowledgeOperations:
    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge

    async def search(self, context: RequestContext, request: KnowledgeSearch) -> KnowledgeResponse:
        # Hits omit what another field says, unless the session of the caller asks for all fields.
        response, defaults = await self._knowledge.aggregator.search_with_defaults(context, request)
        return response if defaults.hit_fields == "all" else without_repetition(response)

    async def read_item(self, context: RequestContext, request: ItemRequest) -> GetResponse:
        return await self._knowledge.retriever.get(context, request.as_knowledge_get(item_address(request)))

    async def read_uri(self, context: RequestContext, request: UriRequest) -> GetResponse:
        return await self._knowledge.retriever.get(context, request.as_knowledge_get({"uri": request.uri}))

    async def find_similar(self, context: RequestContext, request: ItemsSimilar) -> SearchResponse:
        return await self._knowledge.similar.find(context, request)

    def search_operation(self) -> Operation:
        # Adds the names of the sources and the filters of each to the schema: they are known only at run time, because
        # sources can be switched off and installed.
        schema = input_schema(KnowledgeSearch)
        properties = schema["properties"]
        properties["sources"]["items"] = {"type": "string", "enum": [source.name for source in self._knowledge.sources]}
        by_source = {}
        for source in self._knowledge.sources:
            if names := filter_names(source):
                declared = input_schema(source.search_input)["properties"]
                by_source[source.name] = {
                    "type": "object",
                    "description": f"Filters for {source.name}.",
                    "properties": {name: declared[name] for name in names},
                    "additionalProperties": False,
                }
        properties["filters"] |= {"properties": by_source, "additionalProperties": False}
        return Operation(
            id="search_knowledge",
            method="POST",
            path="/api/v1/search",
            summary="Search all sources",
            description=(
                "Search the user's whole library at once: notes, media, chats, characters and prompts. The best hits "
                "come first, and scores are comparable across sources. cost_tokens of a hit is the size of the whole "
                "item; read it with read_item. Pass the session of a response to later searches to omit items that "
                "were already returned."
            ),
            handler=self.search,
            tools=("knowledge_search",),
            error_statuses=_NOT_FOUND,
            schema=schema,
        )

    def similar_operation(self) -> Operation:
        return Operation(
            id="find_similar_items",
            method="GET",
            path="/api/v1/items/similar",
            summary="Find similar items",
            description=(
                "Find items of all sources that are similar in meaning to an item, nearest first, as items_similar "
                "does. Needs an embedding model."
            ),
            handler=self.find_similar,
            tools=("items_similar",),
            error_statuses=_NOT_FOUND,
        )

    def read_item_operation(self) -> Operation:
        schema = input_schema(ItemRequest)
        schema["properties"]["source"]["enum"] = [source.name for source in self._knowledge.sources]
        return Operation(
            id="read_item",
            method="GET",
            path="/api/v1/items/{source}/{id:path}",
            summary="Read an item",
            description=(
                "Read an item of any source by the source and id of a hit: a snippet, the passage at a position or "
                "query with its neighbours, or the whole item, within a token budget."
            ),
            handler=self.read_item,
            tools=_READ_TOOLS,
            error_statuses=_NOT_FOUND,
            schema=schema,
        )

    def read_uri_operation(self) -> Operation:
        return Operation(
            id="read_item_by_uri",
            method="GET",
            path="/api/v1/items",
            summary="Read an item by its URI",
            description="Read an item like read_item, by the uri of a hit, such as notes://6f1c.",
            handler=self.read_uri,
            tools=_READ_TOOLS,
            error_statuses=_NOT_FOUND,
        )


# -- calls -------------------------------------------------------------------------------------------------------------
# The caller's recent MCP calls over REST.

# Kept in memory, and shared by all workers through Redis if there are several.
_LIMIT_MAX = 1_000


class CallsRequest(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="How many calls, 1..1000.")] = 50


class RecordedCall(Struct, frozen=True, kw_only=True):
    """`client` is the id of an API key or of an application, `client_name` its name if it is known, `application` what
    the client calls itself. `outcome` is ok, failed, refused, unavailable, cancelled, error or input_required."""

    time: str
    method: str
    tool: str
    client: str
    client_name: str
    application: str
    outcome: str
    ms: float


class CallList(Struct, frozen=True):
    calls: Sequence[RecordedCall]


def calls_operation(runtime: Runtime) -> Operation:
    async def list_calls(context: RequestContext, request: CallsRequest) -> CallList:
        calls = await runtime.recent_calls.list(context.user_id, clamp(request.limit, 1, _LIMIT_MAX))
        names = await client_names(runtime.registry, runtime.oauth_grants, context.user_id)
        return CallList(
            [
                RecordedCall(
                    time=format_timestamp(call.time),
                    method=call.method,
                    tool=call.tool,
                    client=call.client,
                    client_name=names.get(call.client, ""),
                    application=call.application,
                    outcome=call.outcome,
                    ms=round(call.seconds * 1000, 1),
                )
                for call in calls
            ]
        )

    return account_operation(
        id="list_calls",
        method="GET",
        path="/api/v1/calls",
        summary="List your recent MCP calls",
        description=(
            "Which tools, resources and prompts your clients used, newest first, without arguments and results. They "
            "are kept for a day at most, and until the server is restarted."
        ),
        handler=list_calls,
    )
