"""How the modes `vector` and `both` compare meanings."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from sources.records import Hit, HitPage, SemanticStatus
from sources.storage.contract import Search

# What is reported if nothing was searched.
NOT_SEARCHED = SemanticStatus("not_applicable")


async def search_by_mode(search: Callable[[Search], Awaitable[HitPage]], request: Search) -> HitPage:
    """Searches by words if only meanings are asked for and they cannot be compared."""
    page = await search(request)
    if request.ranking != "meaning" or is_compared(page.semantic):
        return page
    return replace(await search(replace(request, ranking="words")), semantic=page.semantic)


def is_compared(status: SemanticStatus) -> bool:
    return status.status in ("on", "partial")


def has_words(hit: Hit) -> bool:
    """Whether a hit was found by its words. Without meanings, there is no other way to find it."""
    return hit.lexical is None or hit.lexical > 0
