"""Declare a kind of item. `sources.kinds` describes each name; the docstring of `Kind` is the place to begin.

    class Recipe(Item, frozen=True, kw_only=True):
        title: Annotated[str, Field("Title", is_required=True)]
        steps: Annotated[str, Field("Steps", is_long=True, is_searched=True, is_embedded=True)] = ""
        serves: Annotated[int | None, Field("Serves")] = None

    RECIPE = Kind(name="recipe", source="recipes", record=Recipe, content="steps")

Every field becomes a column of a table in the user's library, so it is part of backups, exports and quotas. Fields can
be added in a later version of a distribution; a field that is no longer declared keeps its column. Do not change the
type of a field: give the new one another name.

In a library, `library.collection("recipes")` returns the items: `get`, `list`, `create`, `update`, `delete`, `search`
and the other methods of `sources.storage.collections.collection.ItemCollection`, with `ItemDraft` for what is written.
"""

from sources.drafts import ItemDraft
from sources.kinds import Field, Item, Kind, NumberedItem, read_texts, title_of

__all__ = ["Field", "Item", "ItemDraft", "Kind", "NumberedItem", "read_texts", "title_of"]
