"""Finds registered tools, resources and prompts for a caller, within the caller's profile, sources and scopes."""

from typing import Any

from auth.principal import Principal
from config.errors import InvalidParams
from server.protocol.call import Call
from server.protocol.catalog import Catalog, McpPrompt, Resource, ResourceTemplate, Tool, UserListing
from server.protocol.params import wrong_type
from server.protocol.profiles import Profiles, ProfileTools

CatalogEntry = Tool | Resource | ResourceTemplate | McpPrompt


class CatalogAccess:
    """The catalog as callers may see it."""

    def __init__(self, catalog: Catalog, profiles: Profiles) -> None:
        self.catalog = catalog
        self.profiles = profiles
        self._tools: dict[str, ProfileTools] = {}
        self._tools_version = -1

    def tools(self, profile: str) -> ProfileTools:
        """Returns the tools of a profile. Cached until the catalog changes, because each call asks several times."""
        if self._tools_version != self.catalog.version:
            self._tools, self._tools_version = {}, self.catalog.version
        tools = self._tools.get(profile)
        if tools is None:
            tools = self._tools[profile] = self.profiles.tools(profile, self.catalog)
        return tools

    def find_tool(self, profile: str, name: Any) -> Tool | None:
        return self.tools(profile).find(name) if isinstance(name, str) else None

    def require_tool(self, principal: Principal, profile: str, name: Any) -> Tool:
        tool = self.find_tool(profile, name)
        if tool is None or not permits_source(principal, tool):
            raise (
                InvalidParams(f"Unknown tool: {name}")
                if isinstance(name, str)
                else wrong_type("name", "a string", name)
            )
        if not self.profiles.permits(principal, tool.name):
            raise InvalidParams(f"tool {name!r} is not part of the profile {principal.profile!r} of this API key")
        principal.require_scope(tool.scope)
        return tool

    def permits_resources(self, call: Call) -> bool:
        return self.profiles.permits_resources(call.context.principal)

    def find_resource(self, call: Call, uri: str) -> tuple[Resource | ResourceTemplate, dict[str, str]] | None:
        match = self.catalog.find_resource(uri) if self.permits_resources(call) else None
        return match if match is not None and _is_visible(match[0], call.context.principal) else None

    def require_template(self, call: Call, uri_template: str) -> ResourceTemplate:
        template = self.catalog.templates.get(uri_template) if self.permits_resources(call) else None
        if template is None or not _is_visible(template, call.context.principal):
            raise InvalidParams(f"unknown resource template {uri_template!r}")
        return template

    async def require_prompt(self, call: Call, name: str) -> McpPrompt:
        prompt = await self._find_prompt(call, name) if self.permits_resources(call) else None
        if prompt is None or not _is_visible(prompt, call.context.principal):
            raise InvalidParams(f"unknown prompt {name!r}")
        return prompt

    async def _find_prompt(self, call: Call, name: str) -> McpPrompt | None:
        """Finds a registered prompt, or one of the user's own."""
        if prompt := self.catalog.prompts.get(name):
            return prompt
        for listing in self.catalog.prompt_listings:
            if is_listing_visible(listing, call.context.principal) and (prompt := await listing.find(call, name)):
                return prompt
        return None


def permits_source(principal: Principal, entry: CatalogEntry) -> bool:
    """Returns whether an entry exists for a caller: those of other sources do not."""
    return entry.source is None or principal.permits_source(entry.source)


def is_listing_visible(listing: UserListing, principal: Principal) -> bool:
    return principal.has_scope(listing.scope) and principal.permits_source(listing.name)


def _is_visible(entry: CatalogEntry, principal: Principal) -> bool:
    return principal.has_scope(entry.scope) and permits_source(principal, entry)
