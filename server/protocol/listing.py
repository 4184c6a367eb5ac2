"""The list methods: `tools/list`, `resources/list`, `resources/templates/list` and `prompts/list`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from server.protocol.call import Call
from server.protocol.catalog import Tool, UserListing
from server.protocol.catalog_access import CatalogAccess, is_listing_visible, permits_source
from server.protocol.options import DispatcherOptions, Result
from server.protocol.paging import ListingErrors, read_page

# Why the entries of a source are missing from a list, by source.
SKIPPED_SOURCES_KEY = "florilegium/skippedSources"

_SOURCE_ARGUMENTS = frozenset(("source", "sources"))
# Kind, profile, version of the catalog, scopes, sources.
_ListKey = tuple[str, str, int, frozenset[str], frozenset[str] | None]
_Entry = tuple[Any, dict[str, Any]]  # a registered tool, resource or prompt, and its listed form


class ListMethods:
    """Lists what the caller's profile and scopes allow, page by page."""

    def __init__(self, access: CatalogAccess, options: DispatcherOptions) -> None:
        self._access = access
        self._options = options
        self._lists: dict[_ListKey, list[dict[str, Any]]] = {}

    async def tools(self, call: Call, params: Mapping[str, Any]) -> Result:
        entries = self._access.tools(call.profile).listed.items()
        listed = self._visible("tools", call, ((tool, self._listed_tool(name, tool)) for name, tool in entries))
        return await self._page("tools", listed, call, params)

    async def resources(self, call: Call, params: Mapping[str, Any]) -> Result:
        catalog = self._access.catalog
        listed = self._visible("resources", call, _with_listed_form(catalog.resources))
        return await self._page("resources", listed, call, params, catalog.resource_listings)

    async def templates(self, call: Call, params: Mapping[str, Any]) -> Result:
        listed = self._visible("templates", call, _with_listed_form(self._access.catalog.templates))
        return await self._page("resourceTemplates", listed, call, params)

    async def prompts(self, call: Call, params: Mapping[str, Any]) -> Result:
        catalog = self._access.catalog
        listed = self._visible("prompts", call, _with_listed_form(catalog.prompts))
        return await self._page("prompts", listed, call, params, catalog.prompt_listings)

    def _listed_tool(self, name: str, tool: Tool) -> dict[str, Any]:
        """A name that a profile assigns is listed as it is; only a tool's own name can be listed with a dot."""
        if self._options.has_dotted_names and name == tool.name:
            name = name.replace("_", ".", 1)
        return {**tool.as_listed(), "name": name}

    def _visible(self, kind: str, call: Call, entries: Iterator[_Entry]) -> list[dict[str, Any]]:
        """Returns the entries that this profile, these scopes and sources may see. Cached until the catalog
        changes."""
        if kind != "tools" and not self._access.permits_resources(call):
            return []
        version = self._access.catalog.version
        principal = call.context.principal
        key = (kind, call.profile, version, call.context.scopes, principal.sources)
        if key not in self._lists:
            self._lists = {cached: entries for cached, entries in self._lists.items() if cached[2] == version}
            self._lists[key] = [
                without_sources(listed, principal.sources)
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


def _with_enum(declared: Mapping[str, Any], sources: frozenset[str]) -> dict[str, Any]:
    if "items" in declared:
        return {**declared, "items": _with_enum(declared["items"], sources)}
    values = declared.get("enum")
    return {**declared, "enum": [value for value in values if value in sources]} if values else dict(declared)


def _with_listed_form(registered: Mapping[str, Any]) -> Iterator[_Entry]:
    return ((entry, entry.as_listed()) for entry in registered.values())
