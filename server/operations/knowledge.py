"""Searches a whole library, and reads an item of any source, as the tools `knowledge_search` and `knowledge_get` do."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, structs

from aggregator.contract import FacetedSearch, KnowledgeResponse, filter_names
from aggregator.facets import FacetedResponse
from aggregator.libraries import LibraryName
from aggregator.retrieval import KnowledgeGet
from aggregator.similar import ItemsSimilar
from auth.context import RequestContext
from server.operations.operation import NOT_FOUND, ToolBinding, operation
from server.protocol.schema import input_schema
from server.services import Services
from sources.items import GetResponse, Loc, RetrievalOptions, SearchResponse, uri_of

_RETRIEVAL_FIELDS = tuple(field.name for field in structs.fields(RetrievalOptions))
_LOC_FIELDS = tuple(field.name for field in structs.fields(Loc))
# The results of `fetch` contain permalinks, so a key for `fetch` may also read items.
_READ_TOOLS = ("knowledge_get", "fetch")


class ItemReadOptions(RetrievalOptions, frozen=True, kw_only=True):
    """The options of `knowledge_get` as flat query parameters: the fields of `retrieval`, of `loc`, and the others."""

    query: Annotated[str | None, Meta(description="Read the passage that matches this query.")] = None
    cursor: Annotated[str | None, Meta(description="next_cursor of a response.")] = None
    session: Annotated[str | None, Meta(description="session of an earlier response.")] = None
    library: LibraryName = None
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


def _search_schema(services: Services) -> Mapping[str, Any]:
    # Adds the names of the sources and the filters of each to the schema: they are known only at run time, because
    # sources can be switched off and installed.
    sources = services.knowledge.sources
    schema = input_schema(FacetedSearch)
    properties = schema["properties"]
    properties["sources"]["items"] = {"type": "string", "enum": [source.name for source in sources]}
    by_source = {}
    for source in sources:
        if names := filter_names(source):
            declared = input_schema(source.search_input)["properties"]
            by_source[source.name] = {
                "type": "object",
                "description": f"Filters for {source.name}.",
                "properties": {name: declared[name] for name in names},
                "additionalProperties": False,
            }
    properties["filters"] |= {"properties": by_source, "additionalProperties": False}
    return {"schema": schema}


def _item_schema(services: Services) -> Mapping[str, Any]:
    schema = input_schema(ItemRequest)
    schema["properties"]["source"]["enum"] = [source.name for source in services.knowledge.sources]
    return {"schema": schema}


@operation(
    "POST /api/v1/search",
    response=FacetedResponse,
    tools=("knowledge_search",),
    error_statuses=NOT_FOUND,
    make_fields=_search_schema,
)
async def search_knowledge(context: RequestContext, services: Services, request: FacetedSearch) -> KnowledgeResponse:
    """Search all sources

    Search the user's whole library at once: notes, media, chats, characters and prompts. The best hits come first, and
    scores are comparable across sources. cost_tokens of a hit is the size of the whole item; read it with read_item.
    Pass the session of a response to later searches to omit items that were already returned.
    """
    # Hits omit what another field says, unless the session of the caller asks for all fields.
    return (await services.knowledge.aggregator.search_with_defaults(context, request)).short_response


@operation(
    "GET /api/v1/items/{source}/{id:path}", tools=_READ_TOOLS, error_statuses=NOT_FOUND, make_fields=_item_schema
)
async def read_item(context: RequestContext, services: Services, request: ItemRequest) -> GetResponse:
    """Read an item

    Read an item of any source by the source and id of a hit: a snippet, the passage at a position or query with its
    neighbours, or the whole item, within a token budget.
    """
    return await services.knowledge.retriever.get(context, request.as_knowledge_get(item_address(request)))


@operation("GET /api/v1/items", tools=_READ_TOOLS, error_statuses=NOT_FOUND)
async def read_item_by_uri(context: RequestContext, services: Services, request: UriRequest) -> GetResponse:
    """Read an item by its URI

    Read an item like read_item, by the uri of a hit, such as notes://6f1c.
    """
    return await services.knowledge.retriever.get(context, request.as_knowledge_get({"uri": request.uri}))


@operation(
    "GET /api/v1/items/similar",
    error_statuses=NOT_FOUND,
    tool=ToolBinding(
        name="items_similar",
        title="Find similar items",
        description=(
            "Find items of any source that are similar in meaning to an item, nearest first. Needs an embedding "
            'model on the server. Example: {"uri": "notes://6f1c", "limit": 5}'
        ),
    ),
)
async def find_similar_items(context: RequestContext, services: Services, request: ItemsSimilar) -> SearchResponse:
    """Find similar items

    Find items of all sources that are similar in meaning to an item, nearest first, as items_similar does. Needs an
    embedding model.
    """
    return await services.knowledge.similar.find(context, request)
