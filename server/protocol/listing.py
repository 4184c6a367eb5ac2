"""The list methods: `tools/list`, `resources/list`, `resources/templates/list` and `prompts/list`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from server.protocol.call import Call
from server.protocol.catalog import Tool, UserListing
from server.protocol.catalog_access import CatalogAccess
from server.protocol.options import DispatcherOptions, Result
from server.protocol.paging import ListingErrors, read_page

# Why the entries of a source are missing from a list, by source.
SKIPPED_SOURCES_KEY = "florilegium/skippedSources"

_Entry = tuple[Any, dict[str, Any]]  # a registered tool, resource or prompt, and its listed form


class ListMethods:
    """Lists what the caller's profile and scopes allow, page by page."""

    def __init__(self, access: CatalogAccess, options: DispatcherOptions) -> None:
        self._access = access
        self._options = options
        self._lists: dict[tuple[str, str, int, frozenset[str]], list[dict[str, Any]]] = {}

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
        """Returns the entries that this profile and these scopes may see. Cached until the catalog changes."""
        if kind != "tools" and not self._access.permits_resources(call):
            return []
        version = self._access.catalog.version
        key = (kind, call.profile, version, call.context.scopes)
        if key not in self._lists:
            self._lists = {cached: entries for cached, entries in self._lists.items() if cached[2] == version}
            self._lists[key] = [listed for entry, listed in entries if entry.scope in call.context.scopes]
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
        visible = [listing for listing in listings if permits and listing.scope in call.context.scopes]
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


def _with_listed_form(registered: Mapping[str, Any]) -> Iterator[_Entry]:
    return ((entry, entry.as_listed()) for entry in registered.values())
