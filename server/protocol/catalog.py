"""What a server offers: tools, resources, prompts and completions, registered by name and listed in a fixed order.

A tool is declared once, as a Struct for its arguments and one for its result. Validation, both schemas and the
documentation are derived from them.
"""

import re
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from auth.principal import READ
from server.protocol.call import Call
from server.protocol.changes import Change, ChangeFeed
from server.protocol.schema import MirroredParameter, input_schema, mirrored_parameters, outline, output_schema

ListKind = Literal["tools", "resources", "prompts"]
# The alphabet that every known client accepts: a dot makes some of them reject the whole list. Hosts allow 64
# characters and put `mcp__florilegium__` in front, which leaves 46.
# RFC 3986: a query or a fragment begins here.
_ENDS_PATH = re.compile("[?#]")
_TOOL_NAME = re.compile(r"^[a-z][a-z0-9_]{0,45}\Z")
DESCRIPTION_MAX_CHARS = 1000


class Hints(Struct, frozen=True, rename="camel"):
    """A tool's annotations. All four are always sent: the protocol's defaults (destructive, open world) do not fit."""

    read_only_hint: bool
    destructive_hint: bool = False
    idempotent_hint: bool = True
    open_world_hint: bool = False


READ_ONLY = Hints(read_only_hint=True)


class ToolResult(Struct, frozen=True):
    """The result of a tool that returns content blocks, with or without structured content."""

    content: Sequence[Mapping[str, Any]]
    structured: Any = None
    is_error: bool = False


class Tool(Struct, frozen=True, kw_only=True):
    """A tool. `schema` replaces the derived input schema where a Struct cannot express it. A tool of one source does
    not exist for credentials that may not use that source.

    A tool with `waits_for_limits` may be called before the rate limits have answered. It waits for `Call.limit_check`
    before it changes anything, and only then uses what the session has stored."""

    name: str
    title: str
    description: str
    input: type[Any]
    handler: Callable[[Call, Any], Awaitable[Any]]
    output: type[Any] | None = None
    scope: str = READ
    hints: Hints = READ_ONLY
    source: str | None = None
    schema: Mapping[str, Any] | None = None
    waits_for_limits: bool = False

    def __post_init__(self) -> None:
        assert _TOOL_NAME.match(self.name), f"some clients would reject the tool name {self.name!r}"
        assert len(self.description) <= DESCRIPTION_MAX_CHARS, f"the description of {self.name} is too long"

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
    """A resource with a fixed URI, of one source or of none."""

    uri: str
    name: str
    description: str
    reader: ResourceReader
    title: str | None = None
    mime_type: str = "text/plain"
    scope: str = READ
    source: str | None = None

    def as_listed(self) -> dict[str, Any]:
        title = {"title": self.title} if self.title else {}
        about = {"description": self.description, "mimeType": self.mime_type}
        return {"uri": self.uri, "name": self.name, **title, **about}


class ResourceTemplate(Struct, frozen=True, kw_only=True):
    """A family of URIs, RFC 6570 level 1: `{name}` is one percent-encoded path segment."""

    uri_template: str
    name: str
    description: str
    reader: ResourceReader
    title: str | None = None
    mime_type: str = "text/plain"
    scope: str = READ
    source: str | None = None
    completers: Mapping[str, Completer] = {}

    def as_listed(self) -> dict[str, Any]:
        title = {"title": self.title} if self.title else {}
        about = {"description": self.description, "mimeType": self.mime_type}
        return {"uriTemplate": self.uri_template, "name": self.name, **title, **about}

    def match(self, uri: str) -> dict[str, str] | None:
        """Returns the decoded variables of a matching URI, or None."""
        steps, segments = self.uri_template.split("/"), uri.split("/")
        if len(steps) != len(segments):
            return None
        variables: dict[str, str] = {}
        for step, segment in zip(steps, segments, strict=True):
            if step.startswith("{") and step.endswith("}") and segment and not _ENDS_PATH.search(segment):
                variables[step[1:-1]] = urllib.parse.unquote(segment)
            elif step != segment:
                return None
        return variables


class McpPromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False
    completer: Completer | None = None

    def as_listed(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "required": self.required}


class PromptResult(Struct, frozen=True):
    messages: Sequence[Mapping[str, Any]]
    description: str | None = None


class McpPrompt(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    handler: Callable[[Call, Mapping[str, str]], Awaitable[PromptResult]]
    title: str | None = None
    arguments: tuple[McpPromptArgument, ...] = ()
    scope: str = READ
    source: str | None = None

    def as_listed(self) -> dict[str, Any]:
        listed: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.title:
            listed["title"] = self.title
        if self.arguments:
            listed["arguments"] = [argument.as_listed() for argument in self.arguments]
        return listed


class UserListing(Protocol):
    """Entries of a list that depend on the user. They follow the registered entries, page by page."""

    @property
    def name(self) -> str:
        """The source of the entries."""
        ...

    @property
    def scope(self) -> str: ...

    async def page(self, call: Call, offset: int, limit: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """Returns at most `limit` of the user's entries in their listed form, and whether more follow."""
        ...


class UserPromptListing(UserListing, Protocol):
    """The user's own prompts."""

    async def find(self, call: Call, name: str) -> McpPrompt | None: ...


class Catalog:
    """All registered tools, resources and prompts. `version` increases with each change and invalidates caches."""

    def __init__(self, changes: ChangeFeed | None = None) -> None:
        self.changes = changes or ChangeFeed()
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        self.prompts: dict[str, McpPrompt] = {}
        self.resource_listings: list[UserListing] = []
        self.prompt_listings: list[UserPromptListing] = []
        self.version = 0
        self._mirrored: dict[str, tuple[MirroredParameter, ...]] = {}

    def add_tool(self, tool: Tool) -> None:
        """Registers a tool; one of the same name is replaced."""
        self.tools[tool.name] = tool
        self._mirrored[tool.name] = tuple(mirrored_parameters(tool.as_listed()["inputSchema"]))
        self._publish("tools")

    def remove_tools_of(self, names: Collection[str]) -> None:
        """Removes the tools that use one source only, if it is one of these."""
        if names:
            self.tools = {name: tool for name, tool in self.tools.items() if tool.source not in names}
            self._publish("tools")

    def add_resource(self, resource: Resource) -> None:
        self.resources[resource.uri] = resource
        self._publish("resources")

    def add_template(self, template: ResourceTemplate) -> None:
        self.templates[template.uri_template] = template
        self._publish("resources")

    def add_prompt(self, prompt: McpPrompt) -> None:
        self.prompts[prompt.name] = prompt
        self._publish("prompts")

    def add_resource_listing(self, listing: UserListing) -> None:
        self.resource_listings.append(listing)
        self._publish("resources")

    def add_prompt_listing(self, listing: UserPromptListing) -> None:
        self.prompt_listings.append(listing)
        self._publish("prompts")

    def mirrored_parameters(self, tool: Tool) -> tuple[MirroredParameter, ...]:
        return self._mirrored[tool.name]

    def find_resource(self, uri: str) -> tuple[Resource | ResourceTemplate, dict[str, str]] | None:
        """Returns the resource or template that serves a URI, with the template's variables."""
        if resource := self.resources.get(uri):
            return resource, {}
        for template in self.templates.values():
            if (variables := template.match(uri)) is not None:
                return template, variables
        return None

    def _publish(self, kind: ListKind) -> None:
        self.version += 1
        self.changes.publish(Change(kind))
