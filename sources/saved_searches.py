"""Searches that a person keeps under a name: a bookmark of the library, which is an array of JSON objects."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from config.errors import Conflict, InvalidParams

SAVED_SEARCHES = "saved searches"  # the name of the bookmark
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


def checked(search: SavedSearch) -> SavedSearch:
    """Returns the search with white space in its name collapsed. Raises InvalidParams if it is too long or empty."""
    search = structs.replace(search, name=" ".join(search.name.split()))
    if not 1 <= len(search.name) <= NAME_MAX_CHARS:
        raise InvalidParams(f"name: expected 1 to {NAME_MAX_CHARS} characters, got {len(search.name)}")
    for field in SearchRequest.__struct_fields__:
        if len(getattr(search, field)) > _VALUE_MAX_CHARS:
            raise InvalidParams(f"{field}: expected at most {_VALUE_MAX_CHARS} characters")
    if structs.replace(search, name="", source="", sort="") == SavedSearch(name=""):
        raise InvalidParams("q: expected a query or a filter, got nothing")
    return search


def decode_searches(text: str | None) -> tuple[SavedSearch, ...]:
    return msgspec.json.decode(text, type=tuple[SavedSearch, ...]) if text else ()


def encode_searches(searches: Sequence[SavedSearch]) -> str:
    return msgspec.json.encode(sorted(searches, key=lambda one: one.name.casefold())).decode()


def with_search(text: str | None, search: SavedSearch) -> str:
    """Adds a search to an encoded list, or replaces the one of its name."""
    others = [one for one in decode_searches(text) if one.name != search.name]
    if len(others) >= SAVED_MAX:
        raise Conflict(f"{SAVED_MAX} searches are saved; delete one first")
    return encode_searches([*others, search])
