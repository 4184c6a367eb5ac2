"""What a server offers: tools, resources, prompts and completions as registered values, listed in a fixed order.

A tool is declared once: a Struct in, a Struct out. Validation, both schemas and the documentation come from it.
"""

import re
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from auth.principal import READ
from server.protocol.call import Call
from server.protocol.changes import Change, Changes
from server.protocol.schema import MirroredParameter, input_schema, mirrored_parameters, outline, output_schema

ListKind = Literal["tools", "resources", "prompts"]
# The one alphabet every known client accepts (a dot makes some refuse the whole list), and the length that hosts leave
# of their 64 characters once they have put `mcp__florilegium__` in front.
_TOOL_NAME = re.compile(r"^[a-z][a-z0-9_]{0,45}\Z")
DESCRIPTION_MAX_CHARS = 1000


class Hints(Struct, frozen=True, rename="camel"):
    """All four are always sent: the protocol's defaults (destructive, open world) would be wrong for us."""

    read_only_hint: bool
    destructive_hint: bool = False
    idempotent_hint: bool = True
    open_world_hint: bool = False


READ_ONLY = Hints(read_only_hint=True)


class ToolResult(Struct, frozen=True):
    """For a tool whose answer is more than a Struct: content blocks, with or without structured content."""

    content: Sequence[Mapping[str, Any]]
    structured: Any = None
    is_error: bool = False


class Tool(Struct, frozen=True, kw_only=True):
    """`schema` replaces the derived input schema where a Struct cannot say it."""

    name: str
    title: str
    description: str
    input: type[Any]
    handler: Callable[[Call, Any], Awaitable[Any]]
    output: type[Any] | None = None
    scope: str = READ
    hints: Hints = READ_ONLY
    schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        assert _TOOL_NAME.match(self.name), f"tool name {self.name!r} would be refused by some clients"
        assert len(self.description) <= DESCRIPTION_MAX_CHARS, f"description of {self.name} is too long"

    def as_listed(self) -> dict[str, Any]:
        listed: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema or input_schema(self.input),
            "annotations": msgspec.to_builtins(self.hints),
        }
        if self.output is not None:
            listed["outputSchema"] = outline(output_schema(self.output))
        return listed


ResourceReader = Callable[[Call, str, Mapping[str, str]], Awaitable[Sequence[Mapping[str, Any]]]]
Completer = Callable[[Call, str, Mapping[str, str]], Awaitable[Sequence[str]]]


class Resource(Struct, frozen=True, kw_only=True):
    """A fixed URI."""

    uri: str
    name: str
    description: str
    read: ResourceReader
    title: str | None = None
    mime_type: str = "text/plain"
    scope: str = READ

    def as_listed(self) -> dict[str, Any]:
        title = {"title": self.title} if self.title else {}
        described = {"description": self.description, "mimeType": self.mime_type}
        return {"uri": self.uri, "name": self.name, **title, **described}


class ResourceTemplate(Struct, frozen=True, kw_only=True):
    """A family of URIs, RFC 6570 level 1: `{name}` stands for one percent-encoded path segment."""

    uri_template: str
    name: str
    description: str
    read: ResourceReader
    title: str | None = None
    mime_type: str = "text/plain"
    scope: str = READ
    completers: Mapping[str, Completer] = {}

    def as_listed(self) -> dict[str, Any]:
        title = {"title": self.title} if self.title else {}
        described = {"description": self.description, "mimeType": self.mime_type}
        return {"uriTemplate": self.uri_template, "name": self.name, **title, **described}

    def match(self, uri: str) -> dict[str, str] | None:
        parts = re.split(r"\{(\w+)\}", self.uri_template)
        pattern = "".join(f"(?P<{p}>[^/?#]+)" if i % 2 else re.escape(p) for i, p in enumerate(parts))
        found = re.fullmatch(pattern, uri)
        return {k: urllib.parse.unquote(v) for k, v in found.groupdict().items()} if found else None


class McpPromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False
    complete: Completer | None = None

    def as_listed(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "required": self.required}


class PromptResult(Struct, frozen=True):
    messages: Sequence[Mapping[str, Any]]
    description: str | None = None


class McpPrompt(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    get: Callable[[Call, Mapping[str, str]], Awaitable[PromptResult]]
    title: str | None = None
    arguments: tuple[McpPromptArgument, ...] = ()
    scope: str = READ

    def as_listed(self) -> dict[str, Any]:
        listed: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.title:
            listed["title"] = self.title
        if self.arguments:
            listed["arguments"] = [argument.as_listed() for argument in self.arguments]
        return listed


class Listing(Protocol):
    """Entries of a list that depend on who asks: they follow the registered ones, page by page."""

    @property
    def scope(self) -> str: ...

    async def page(self, call: Call, offset: int, limit: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """At most `limit` of the caller's entries as they are listed, and whether more follow."""
        ...


class PromptListing(Listing, Protocol):
    """Prompts that only the caller has."""

    async def find(self, call: Call, name: str) -> McpPrompt | None: ...


class Catalog:
    """Everything registered, by name. `version` rises with each change, so that what was derived can be kept."""

    def __init__(self, changes: Changes | None = None) -> None:
        self.changes = changes or Changes()
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        self.prompts: dict[str, McpPrompt] = {}
        self.resource_listings: list[Listing] = []
        self.prompt_listings: list[PromptListing] = []
        self.version = 0
        self._mirrored: dict[str, tuple[MirroredParameter, ...]] = {}

    def add_tool(self, tool: Tool) -> None:
        self.tools[tool.name] = tool
        self._mirrored[tool.name] = tuple(mirrored_parameters(tool.as_listed()["inputSchema"]))
        self._changed("tools")

    def remove_tool(self, name: str) -> None:
        del self.tools[name], self._mirrored[name]
        self._changed("tools")

    def add_resource(self, resource: Resource) -> None:
        self.resources[resource.uri] = resource
        self._changed("resources")

    def add_template(self, template: ResourceTemplate) -> None:
        self.templates[template.uri_template] = template
        self._changed("resources")

    def add_prompt(self, prompt: McpPrompt) -> None:
        self.prompts[prompt.name] = prompt
        self._changed("prompts")

    def remove_prompt(self, name: str) -> None:
        del self.prompts[name]
        self._changed("prompts")

    def add_resource_listing(self, listing: Listing) -> None:
        self.resource_listings.append(listing)
        self._changed("resources")

    def add_prompt_listing(self, listing: PromptListing) -> None:
        self.prompt_listings.append(listing)
        self._changed("prompts")

    def find_tool(self, name: str) -> Tool | None:
        """By its advertised name, or by the dotted one the seed documents use (`knowledge.search`)."""
        return self.tools.get(name) or self.tools.get(name.replace(".", "_"))

    def mirrored(self, tool_name: Any) -> tuple[MirroredParameter, ...]:
        tool = self.find_tool(tool_name) if isinstance(tool_name, str) else None
        return self._mirrored[tool.name] if tool is not None else ()

    def find_resource(self, uri: str) -> tuple[Resource | ResourceTemplate, dict[str, str]] | None:
        if resource := self.resources.get(uri):
            return resource, {}
        for template in self.templates.values():
            if (variables := template.match(uri)) is not None:
                return template, variables
        return None

    def _changed(self, kind: ListKind) -> None:
        self.version += 1
        self.changes.publish(Change(kind))
