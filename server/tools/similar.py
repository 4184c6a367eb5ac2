"""The tool `items_similar`."""

from aggregator.similar import ItemsSimilar, SimilarItems
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool
from server.protocol.schema import input_schema
from server.tools.caps import with_caps
from sources.items import SearchResponse


def add_similar_tool(catalog: Catalog, similar: SimilarItems, settings: Settings) -> None:
    async def find(call: Call, arguments: ItemsSimilar) -> SearchResponse:
        return await similar.find(call.context, arguments)

    catalog.add_tool(
        Tool(
            name="items_similar",
            title="Find similar items",
            description=(
                "Find items of any source that are similar in meaning to an item, nearest first. Needs an embedding "
                'model on the server. Example: {"uri": "notes://6f1c", "limit": 5}'
            ),
            input=ItemsSimilar,
            output=SearchResponse,
            schema=with_caps(input_schema(ItemsSimilar), settings),
            handler=find,
        )
    )
