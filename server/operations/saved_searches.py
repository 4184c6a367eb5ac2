"""Searches that a person keeps under a name. They are stored in the library, so that its backups and exports have
them."""

from typing import Annotated

from msgspec import Meta, Struct

from auth.context import WRITE, RequestContext
from config.errors import NotFound
from server.operations.operation import CONFLICT, NOT_FOUND, NoArguments, account_operation
from server.services import Services
from sources.saved_searches import SAVED_SEARCHES, SavedSearch, checked, decode_searches, encode_searches, with_search


class SavedSearches(Struct, frozen=True):
    searches: tuple[SavedSearch, ...]


class SavedSearchName(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="name of a saved search.")]


@account_operation("GET /api/v1/searches")
async def list_saved_searches(context: RequestContext, services: Services, _request: NoArguments) -> SavedSearches:
    """List saved searches

    The searches that you have saved, by name. `/?saved=NAME` on the server's address opens one.
    """
    async with services.libraries.library(context) as library:
        return SavedSearches(decode_searches(await library.bookmarks.get(SAVED_SEARCHES)))


@account_operation("PUT /api/v1/searches/{name}", scope=WRITE, error_statuses=CONFLICT)
async def save_search(context: RequestContext, services: Services, request: SavedSearch) -> SavedSearch:
    """Save a search

    Save a search under a name, or replace the one of this name. At most 100 can be saved.
    """
    search = checked(request)
    async with services.libraries.library(context) as library:
        await library.bookmarks.change(SAVED_SEARCHES, lambda text: with_search(text, search))
    return search


@account_operation("DELETE /api/v1/searches/{name}", scope=WRITE, error_statuses=NOT_FOUND)
async def delete_saved_search(context: RequestContext, services: Services, request: SavedSearchName) -> SavedSearchName:
    """Delete a saved search

    Delete the saved search of this name. What it finds is not changed.
    """

    def remove(text: str | None) -> str:
        before = decode_searches(text)
        after = [one for one in before if one.name != request.name]
        if len(after) == len(before):
            raise NotFound("saved search", request.name)
        return encode_searches(after)

    async with services.libraries.library(context) as library:
        await library.bookmarks.change(SAVED_SEARCHES, remove)
    return request
