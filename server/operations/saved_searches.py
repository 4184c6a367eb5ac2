"""Searches that a person keeps under a name. They are stored in the library, so that its backups and exports have
them."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from auth.context import WRITE, RequestContext
from config.errors import Conflict, InvalidParams, NotFound
from server.operations.operation import CONFLICT, NOT_FOUND, NoArguments, account_operation
from server.services import Services
from sources.exporters.lines import SAVED_SEARCHES

# What a person can still choose from, and the longest name and value.
SAVED_MAX = 100
NAME_MAX_CHARS = 100
_VALUE_MAX_CHARS = 1000


class SearchRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A search as the address of the search page has it. Tags, types and senders are separated by commas."""

    q: Annotated[str, Meta(description="The query.")] = ""
    source: Annotated[str, Meta(description="Only this source.")] = ""
    tag: Annotated[str, Meta(description="Only items with all of these tags.")] = ""
    type: Annotated[str, Meta(description="Only media of these types.")] = ""
    when: Annotated[str, Meta(description="today, week, month or year: only what is no older.")] = ""
    since: Annotated[str, Meta(description="Created on this day or later.")] = ""
    until: Annotated[str, Meta(description="Created on this day or earlier.")] = ""
    sender: Annotated[str, Meta(description="Only messages of these senders.")] = ""
    namespace: Annotated[str, Meta(description="Only conversations in this namespace.")] = ""
    sort: Annotated[str, Meta(description="recent: newest first.")] = ""


class SavedSearch(SearchRequest, frozen=True, kw_only=True, omit_defaults=True):
    name: Annotated[str, Meta(description="The name, 1 to 100 characters.")]


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
        return _decode(await library.bookmarks.get(SAVED_SEARCHES))


@account_operation("PUT /api/v1/searches/{name}", scope=WRITE, error_statuses=CONFLICT)
async def save_search(context: RequestContext, services: Services, request: SavedSearch) -> SavedSearch:
    """Save a search

    Save a search under a name, or replace the one of this name. At most 100 can be saved.
    """
    search = replace(request, name=" ".join(request.name.split()))
    if not 1 <= len(search.name) <= NAME_MAX_CHARS:
        raise InvalidParams(f"name: expected 1 to {NAME_MAX_CHARS} characters, got {len(search.name)}")
    for field in SearchRequest.__struct_fields__:
        if len(getattr(search, field)) > _VALUE_MAX_CHARS:
            raise InvalidParams(f"{field}: expected at most {_VALUE_MAX_CHARS} characters")
    if replace(search, name="", source="", sort="") == SavedSearch(name=""):
        raise InvalidParams("q: expected a query or a filter, got nothing")

    def add(text: str | None) -> str:
        others = [one for one in _decode(text).searches if one.name != search.name]
        if len(others) >= SAVED_MAX:
            raise Conflict(f"{SAVED_MAX} searches are saved; delete one first")
        return _encode([*others, search])

    async with services.libraries.library(context) as library:
        await library.bookmarks.change(SAVED_SEARCHES, add)
    return search


@account_operation("DELETE /api/v1/searches/{name}", scope=WRITE, error_statuses=NOT_FOUND)
async def delete_saved_search(context: RequestContext, services: Services, request: SavedSearchName) -> SavedSearchName:
    """Delete a saved search

    Delete the saved search of this name. What it finds is not changed.
    """

    def remove(text: str | None) -> str:
        before = _decode(text).searches
        after = [one for one in before if one.name != request.name]
        if len(after) == len(before):
            raise NotFound("saved search", request.name)
        return _encode(after)

    async with services.libraries.library(context) as library:
        await library.bookmarks.change(SAVED_SEARCHES, remove)
    return request


def _decode(text: str | None) -> SavedSearches:
    return SavedSearches(msgspec.json.decode(text, type=tuple[SavedSearch, ...]) if text else ())


def _encode(searches: list[SavedSearch]) -> str:
    return msgspec.json.encode(sorted(searches, key=lambda one: one.name.casefold())).decode()
