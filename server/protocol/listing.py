"""The list methods: `tools/list`, `resources/list`, `resources/templates/list` and `prompts/list`."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loguru import logger

from auth.context import Principal
from config.errors import FlorilegiumError, InvalidParams, Overloaded
from server.protocol.call import Call, DispatcherOptions, Result, run_handler, shows_apps
from server.protocol.catalog import CatalogAccess, Completer, Tool, UserListing, is_listing_visible, permits_source
from server.protocol.messages import require_object, require_string

# -- paging ------------------------------------------------------------------------------------------------------------
# Pages of a list: first the registered entries, then the user's own.
#
# A cursor is a position in that sequence. It carries no rights: another user's cursor reads the caller's own list.

# Section and offset. Nine digits exceed the size of any library and still fit every engine's integers.
_CURSOR = re.compile(rb"1:(\d{1,3}):(\d{1,9})")
_INVALID_CURSOR = "cursor: expected the nextCursor of an earlier page"

ListedEntries = Sequence[Mapping[str, Any]]


class ListingErrors:
    """Reads listings and records those that fail, so that a source that cannot be read costs only its own entries."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._errors: dict[str, Exception] = {}
        self._has_answer = False
        self.messages: dict[str, str] = {}

    async def read(self, listing: UserListing, offset: int, limit: int) -> tuple[ListedEntries, bool]:
        try:
            entries = await listing.page(self._call, offset, limit)
        except Overloaded:  # the source has not been asked
            raise
        except Exception as error:
            self._errors[listing.name] = error
            if isinstance(error, FlorilegiumError):
                self.messages[listing.name] = error.message
            else:
                # The text of an unexpected error may quote content, so the caller does not get it.
                logger.opt(exception=error).error("source {} failed in a list", listing.name)
                self.messages[listing.name] = "failed unexpectedly"
            return (), False
        self._has_answer = True
        return entries

    def require_answer(self) -> None:
        """Raises the first error if no listing could be read: an empty list would mean that there is nothing."""
        if self._errors and not self._has_answer:
            raise next(iter(self._errors.values()))


async def read_page(
    registered: ListedEntries, listings: Sequence[UserListing], cursor: Any, size: int, errors: ListingErrors
) -> tuple[list[Mapping[str, Any]], str | None]:
    """Returns at most `size` entries from the cursor on, and the cursor of the next page, if there is one."""
    section, offset = _decode_cursor(cursor)
    if section > len(listings) or (section == 0 and offset > len(registered)):
        raise InvalidParams(_INVALID_CURSOR)
    page: list[Mapping[str, Any]] = []
    if section == 0:
        page += registered[offset : offset + size]
        if offset + size < len(registered):
            return page, _encode_cursor(0, offset + size)
        section, offset = 1, 0
    for number, listing in enumerate(listings[section - 1 :], start=section):
        room = size - len(page)
        # A full page still has to know whether entries follow, or its cursor could lead to an empty page.
        entries, has_more = await errors.read(listing, offset, max(room, 1))
        if room == 0 and entries:
            return page, _encode_cursor(number, offset)
        page += entries
        if has_more:
            return page, _encode_cursor(number, offset + len(entries))
        offset = 0
    return page, None


def _encode_cursor(section: int, offset: int) -> str:
    return base64.urlsafe_b64encode(f"1:{section}:{offset}".encode()).decode()


def _decode_cursor(cursor: Any) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    try:
        match = _CURSOR.fullmatch(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (AttributeError, ValueError, binascii.Error):
        match = None
    if match is None:
        raise InvalidParams(_INVALID_CURSOR)
    return int(match[1]), int(match[2])


# Why the entries of a source are missing from a list, by source.
SKIPPED_SOURCES_KEY = "florilegium/skippedSources"

_SOURCE_ARGUMENTS = frozenset(("source", "sources"))
_LIBRARY_ARGUMENTS = frozenset(("library", "libraries"))
# Kind, profile, version of the catalog, scopes, sources, whether there are libraries of others.
_ListKey = tuple[str, str, int, frozenset[str], frozenset[str] | None, bool]
_Entry = tuple[Any, dict[str, Any]]  # a registered tool, resource or prompt, and its listed form


def as_tldw_tools(result: Result) -> Result:
    """Returns a page of tools as tldw lists it: under dotted names, and as tools that the caller may run, because
    others are not listed."""
    tools = [{**tool, "name": tool["name"].replace("_", ".", 1), "canExecute": True} for tool in result["tools"]]
    return {**result, "tools": tools}


class ListMethods:
    """Lists what the caller's profile and scopes allow, page by page."""

    def __init__(self, access: CatalogAccess, options: DispatcherOptions) -> None:
        self._access = access
        self._options = options
        self._lists: dict[_ListKey, list[dict[str, Any]]] = {}

    async def tools(self, call: Call, params: Mapping[str, Any]) -> Result:
        entries = self._access.tools(call.profile).listed.items()
        has_apps = shows_apps(call.client)
        tools = ((tool, self._listed_tool(name, tool, has_apps=has_apps)) for name, tool in entries)
        listed = self._visible("tools with apps" if has_apps else "tools", call, tools)
        return await self._page("tools", listed, call, params)

    async def resources(self, call: Call, params: Mapping[str, Any]) -> Result:
        catalog = self._access.catalog
        # Apps are named by their tools, and nobody chooses one from a list.
        resources = {uri: resource for uri, resource in catalog.resources.items() if not resource.is_app}
        listed = self._visible("resources", call, _with_listed_form(resources))
        return await self._page("resources", listed, call, params, catalog.resource_listings)

    async def templates(self, call: Call, params: Mapping[str, Any]) -> Result:
        listed = self._visible("templates", call, _with_listed_form(self._access.catalog.templates))
        return await self._page("resourceTemplates", listed, call, params)

    async def prompts(self, call: Call, params: Mapping[str, Any]) -> Result:
        catalog = self._access.catalog
        listed = self._visible("prompts", call, _with_listed_form(catalog.prompts))
        return await self._page("prompts", listed, call, params, catalog.prompt_listings)

    def _listed_tool(self, name: str, tool: Tool, *, has_apps: bool) -> dict[str, Any]:
        """A name that a profile assigns is listed as it is; only a tool's own name can be listed with a dot."""
        if self._options.has_dotted_names and name == tool.name:
            name = name.replace("_", ".", 1)
        return {**tool.as_listed(has_app=has_apps), "name": name}

    def _visible(self, kind: str, call: Call, entries: Iterator[_Entry]) -> list[dict[str, Any]]:
        """Returns the entries that this profile, these scopes and sources may see. Cached until the catalog
        changes."""
        if not kind.startswith("tools") and not self._access.permits_resources(call):
            return []
        version = self._access.catalog.version
        principal = call.context.principal
        key = (kind, call.profile, version, call.context.scopes, principal.sources, principal.libraries != ())
        if key not in self._lists:
            self._lists = {cached: entries for cached, entries in self._lists.items() if cached[2] == version}
            self._lists[key] = [
                without_libraries(without_sources(listed, principal.sources), principal)
                for entry, listed in entries
                if entry.scope in call.context.scopes and permits_source(principal, entry)
            ]
        return self._lists[key]

    async def _page(
        self,
        name: str,
        entries: Sequence[dict[str, Any]],
        call: Call,
        params: Mapping[str, Any],
        listings: Sequence[UserListing] = (),
    ) -> Result:
        permits = self._access.permits_resources(call)
        principal = call.context.principal
        visible = [listing for listing in listings if permits and is_listing_visible(listing, principal)]
        if principal.libraries:
            others = [listing.within(access) for access in principal.libraries for listing in visible]
            visible += [listing for listing in others if listing is not None]
        errors = ListingErrors(call)
        page, cursor = await read_page(entries, visible, params.get("cursor"), self._options.page_size, errors)
        if not page:
            errors.require_answer()
        result: Result = {name: page}
        if errors.messages:
            result["_meta"] = {SKIPPED_SOURCES_KEY: errors.messages}
        if cursor is not None:
            result["nextCursor"] = cursor
        return self._options.cacheable(result, call.era)


def without_sources(listed: dict[str, Any], sources: frozenset[str] | None) -> dict[str, Any]:
    """Removes other sources from the values of a tool's arguments `source` and `sources`."""
    properties = listed.get("inputSchema", {}).get("properties", {})
    if sources is None or properties.keys().isdisjoint(_SOURCE_ARGUMENTS):
        return listed
    permitted = {
        name: _with_enum(declared, sources) if name in _SOURCE_ARGUMENTS else declared
        for name, declared in properties.items()
    }
    return {**listed, "inputSchema": {**listed["inputSchema"], "properties": permitted}}


def without_libraries(listed: dict[str, Any], principal: Principal) -> dict[str, Any]:
    """Removes the arguments `library` and `libraries` of a tool for callers who have only their own library: clients
    send all schemas to a model on each turn."""
    properties = listed.get("inputSchema", {}).get("properties", {})
    if principal.libraries or properties.keys().isdisjoint(_LIBRARY_ARGUMENTS):
        return listed
    left = {name: declared for name, declared in properties.items() if name not in _LIBRARY_ARGUMENTS}
    return {**listed, "inputSchema": {**listed["inputSchema"], "properties": left}}


def _with_enum(declared: Mapping[str, Any], sources: frozenset[str]) -> dict[str, Any]:
    if "items" in declared:
        return {**declared, "items": _with_enum(declared["items"], sources)}
    values = declared.get("enum")
    return {**declared, "enum": [value for value in values if value in sources]} if values else dict(declared)


def _with_listed_form(registered: Mapping[str, Any]) -> Iterator[_Entry]:
    return ((entry, entry.as_listed()) for entry in registered.values())


# -- completion --------------------------------------------------------------------------------------------------------
# The method `completion/complete`: suggestions for the arguments of prompts and resource templates.

COMPLETIONS_MAX = 100


class CompletionMethod:
    """Returns at most COMPLETIONS_MAX values from the completer of the referenced argument."""

    def __init__(self, access: CatalogAccess, deadline_ms: int) -> None:
        self._access = access
        self._deadline_ms = deadline_ms

    async def complete(self, call: Call, params: Mapping[str, Any]) -> Result:
        argument = require_object(params, "argument")
        name, value = require_string(argument, "name"), require_string(argument, "value")
        completer: Completer | None
        match params.get("ref"):
            case {"type": "ref/prompt", "name": str(prompt_name)}:
                prompt = await self._access.require_prompt(call, prompt_name)
                completer = next((a.completer for a in prompt.arguments if a.name == name), None)
            case {"type": "ref/resource", "uri": str(uri)}:
                completer = self._access.require_template(call, uri).completers.get(name)
            case _:
                raise InvalidParams("ref: expected a prompt (ref/prompt) or a resource template (ref/resource)")
        values: Sequence[str] = []
        if completer is not None:
            # The arguments that the client has already filled in.
            context = params.get("context")
            arguments = context.get("arguments") if isinstance(context, dict) else None
            work = completer(call, value, arguments if isinstance(arguments, dict) else {})
            values = await run_handler(call, "completion", work, self._deadline_ms)
        first = list(values[:COMPLETIONS_MAX])
        return {"completion": {"values": first, "total": len(values), "hasMore": len(values) > len(first)}}
