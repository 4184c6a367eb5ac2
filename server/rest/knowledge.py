"""The operations over a whole library: search it, and read an item. What they answer is what the tools answer."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import fields

from aggregator.filters import filter_names
from aggregator.responses import KnowledgeResponse
from aggregator.retrieval import KnowledgeGet
from aggregator.search import KnowledgeSearch
from auth.context import RequestContext
from server.protocol.schema import input_schema
from server.rest.operation import Operation
from server.runtime import Knowledge
from sources.items import GetResponse, Loc, RetrievalOptions, uri_of
from sources.source import Source

_OPTIONS = tuple(field.name for field in fields(RetrievalOptions))
_PLACES = tuple(field.name for field in fields(Loc))
# An answer of `fetch` holds a permalink, which is then good for more than showing it.
_READING_TOOLS = ("knowledge_get", "fetch")


class ItemReading(RetrievalOptions, frozen=True, kw_only=True):
    """How an item is to be read, flat, as a query string is: the fields of `retrieval` and of `loc`, and the rest."""

    query: Annotated[str | None, Meta(description="Read where this matches.")] = None
    cursor: Annotated[str | None, Meta(description="next_cursor of an earlier answer.")] = None
    session: Annotated[str | None, Meta(description="session of an earlier answer.")] = None
    chunk_index: Annotated[int | None, Meta(description="Read at this chunk.")] = None
    chunk_uuid: Annotated[str | None, Meta(description="Read at this chunk.")] = None
    seconds: Annotated[float | None, Meta(description="Read what is said then, in a transcript.")] = None
    start_ms: Annotated[int | None, Meta(description="The same in milliseconds.")] = None
    message_id: Annotated[str | None, Meta(description="Read at this message of a conversation.")] = None
    message_index: Annotated[int | None, Meta(description="Read at the message with this number, from 0.")] = None
    field: Annotated[str | None, Meta(description="Read this field of a character or a prompt.")] = None
    approx_offset: Annotated[int | None, Meta(description="Read at this character.")] = None

    @property
    def names_place(self) -> bool:
        return bool(_given(self, _PLACES)) or self.query is not None

    def as_get(self, address: Mapping[str, str]) -> KnowledgeGet:
        """The call of `knowledge_get` that says the same. Without any option the source's own default decides."""
        options, loc = _given(self, _OPTIONS), _given(self, _PLACES)
        return KnowledgeGet(
            **address,
            retrieval=RetrievalOptions(**options) if options else None,
            loc=loc or None,
            query=self.query,
            cursor=self.cursor,
            session=self.session,
        )


class ItemRequest(ItemReading, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description="source of a hit.")]
    id: Annotated[str, Meta(description="id of a hit.")]


class UriRequest(ItemReading, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(description="uri of a hit.")]


def _given(reading: ItemReading, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(reading, name, None)) is not None}


def address_of(asked: ItemRequest) -> dict[str, str]:
    """An id of several segments is the path of a URI: `chats/9b2e/41f0` is `chats://9b2e/41f0`."""
    segments = asked.id.split("/")
    if len(segments) == 1:
        return {"source": asked.source, "id": asked.id}
    return {"uri": uri_of(asked.source, *segments)}


def knowledge_operations(knowledge: Knowledge) -> list[Operation]:
    return [_search(knowledge), read_item(knowledge), _read_uri(knowledge)]


def _search(knowledge: Knowledge) -> Operation:
    async def run(context: RequestContext, given: KnowledgeSearch) -> KnowledgeResponse:
        return await knowledge.aggregator.search(context, given)

    return Operation(
        id="search_knowledge",
        method="POST",
        path="/api/v1/search",
        summary="Search everything",
        description=(
            "Search the user's whole library at once: notes, media, chats, characters, prompts. Best hits first; "
            "scores are comparable across sources. Each hit tells what it costs to read (cost_tokens); open it with "
            "read_item. Pass the answer's session on, and later searches leave out what was seen."
        ),
        input=KnowledgeSearch,
        response=KnowledgeResponse,
        handler=run,
        tools=("knowledge_search",),
        error_statuses=frozenset((404,)),
        schema=_search_schema(knowledge.sources),
    )


def read_item(knowledge: Knowledge) -> Operation:
    async def run(context: RequestContext, given: ItemRequest) -> GetResponse:
        return await knowledge.retriever.get(context, given.as_get(address_of(given)))

    return Operation(
        id="read_item",
        method="GET",
        path="/api/v1/items/{source}/{id:path}",
        summary="Read an item",
        description=(
            "Read an item of any source by the source and id of a hit: a snippet, the passage at a place or query with "
            "its neighbours, or all of it, within a token budget."
        ),
        input=ItemRequest,
        response=GetResponse,
        handler=run,
        tools=_READING_TOOLS,
        error_statuses=frozenset((404,)),
        schema=_item_schema(knowledge.sources),
    )


def _read_uri(knowledge: Knowledge) -> Operation:
    async def run(context: RequestContext, given: UriRequest) -> GetResponse:
        return await knowledge.retriever.get(context, given.as_get({"uri": given.uri}))

    return Operation(
        id="read_item_by_uri",
        method="GET",
        path="/api/v1/items",
        summary="Read an item by its URI",
        description="Read an item as read_item does, by the uri of a hit, such as notes://6f1c.",
        input=UriRequest,
        response=GetResponse,
        handler=run,
        tools=_READING_TOOLS,
        error_statuses=frozenset((404,)),
    )


def _search_schema(sources: Sequence[Source]) -> Mapping[str, Any]:
    """With the sources there are and the filters of each, so that nobody need guess them."""
    schema = input_schema(KnowledgeSearch)
    properties = schema["properties"]
    properties["sources"]["items"] = {"type": "string", "enum": [source.name for source in sources]}
    properties["filters"] |= {
        "properties": {source.name: _filter_schema(source) for source in sources if filter_names(source)},
        "additionalProperties": False,
    }
    return schema


def _filter_schema(source: Source) -> Mapping[str, Any]:
    known = input_schema(source.search_input)["properties"]
    return {
        "type": "object",
        "description": f"Only {source.name} like this.",
        "properties": {name: known[name] for name in filter_names(source)},
        "additionalProperties": False,
    }


def _item_schema(sources: Sequence[Source]) -> Mapping[str, Any]:
    schema = input_schema(ItemRequest)
    schema["properties"]["source"]["enum"] = [source.name for source in sources]
    return schema
