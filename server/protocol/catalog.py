"""What a server offers: tools, resources, prompts and completions, registered by name and listed in a fixed order.

A tool is declared once, as a Struct for its arguments and one for its result. Validation, both schemas and the
documentation are derived from them.
"""

import asyncio
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aggregator.libraries import split_library, with_library
from auth.context import READ, LibraryAccess, Principal
from config.errors import (
    FlorilegiumError,
    Forbidden,
    InvalidParams,
    NotFound,
    ResourceNotFound,
    Unauthenticated,
    Unavailable,
)
from config.paths import UserId
from server.protocol.call import APP_MEDIA_TYPE, DEFAULT_PROFILE, Call, DispatcherOptions, Result
from server.protocol.messages import Era, notification_message, require_object, require_string, wrong_type
from server.protocol.schema import MirroredParameter, input_schema, mirrored_parameters, outline, output_schema

# -- changes -----------------------------------------------------------------------------------------------------------
# Change events for open streams: a list changed, or a resource was updated.
#
# A slow listener loses individual events, but never uses more than a bounded amount of memory.

LIST_KINDS = frozenset(("tools", "resources", "prompts"))
# Equal events collapse into one, so a listener rarely holds more than a handful.
BACKLOG_MAX = 256


class Change(Struct, frozen=True):
    """`kind` is tools, resources, prompts or updated. With `user_id`, only that user's listeners receive it, and with
    `source`, only those whose credential may use that source."""

    kind: str
    uri: str | None = None
    user_id: UserId | None = None
    source: str | None = None

    def as_notification(self) -> tuple[str, dict[str, str]]:
        if self.kind == "updated":
            return "notifications/resources/updated", {"uri": self.uri or ""}
        return f"notifications/{self.kind}/list_changed", {}


# Returns the principal with the libraries that it may use now. Raises Unauthenticated if it has lost access.
Recheck = Callable[[Principal], Awaitable[Principal]]
# Returns whether a caller can read an item in a library of someone else, which it has to read to find out.
CanRead = Callable[[Principal, LibraryAccess, str], Awaitable[bool]]


class ChangeListener:
    """The pending changes of one stream, limited to the kinds and URIs it subscribed to.

    A change in a library of someone else is delivered only if the caller may use that library at that moment. In one
    that is shared by a tag or a namespace, only changes of items are, if the rule covers the item after the change.
    """

    def __init__(
        self, principal: Principal, kinds: frozenset[str], uris: set[str] | frozenset[str], feed: "ChangeFeed"
    ) -> None:
        self._principal = principal
        self._feed = feed
        self._kinds = kinds
        self._uris = uris
        self._pending: dict[Change, None] = {}
        self._has_pending = asyncio.Event()

    def receive(self, change: Change) -> None:
        if change.source is not None and not self._principal.permits_source(change.source):
            return
        if change.user_id in (None, self._principal.user_id):
            is_subscribed = change.uri in self._uris if change.kind == "updated" else change.kind in self._kinds
        else:
            is_subscribed = bool(self._in_other_libraries(change))
        if is_subscribed and len(self._pending) < BACKLOG_MAX:
            self._pending[change] = None
            self._has_pending.set()

    async def next(self, timeout_s: float | None = None) -> Change | None:
        """Returns the oldest pending change, or None after the timeout, if there is one."""
        while True:
            if not self._pending:
                self._has_pending.clear()
                try:
                    await asyncio.wait_for(self._has_pending.wait(), timeout_s)
                except TimeoutError:
                    return None
            change = next(iter(self._pending))
            del self._pending[change]
            if change.user_id in (None, self._principal.user_id):
                return change
            if self._feed.recheck is not None:
                try:
                    self._principal = await self._feed.recheck(self._principal)
                except Unauthenticated:
                    continue  # the stream ends at its next check
            for access, delivered in self._in_other_libraries(change):
                if not _needs_reading(access):
                    return delivered
                can_read, uri = self._feed.can_read, change.uri or ""
                if can_read is not None and await can_read(self._principal, access, uri):
                    return delivered

    def _in_other_libraries(self, change: Change) -> list[tuple[LibraryAccess, Change]]:
        """Returns a change in a library of someone else as the caller may know it, for each way to that library."""
        found: list[tuple[LibraryAccess, Change]] = []
        for access in self._principal.libraries:
            if access.owner_id != change.user_id or not may_share(access, change.source):
                continue
            uri = with_library(change.uri or "", access.handle)
            if change.kind == "updated" and uri in self._uris:
                found.append((access, replace(change, uri=uri)))
            elif change.kind in self._kinds and not _needs_reading(access):
                found.append((access, change))
        return found


def may_share(access: LibraryAccess, source: str | None) -> bool:
    """Whether any item of a source can be part of what is shared."""
    return access.rule is None or access.rule.source in (None, source)


def _needs_reading(access: LibraryAccess) -> bool:
    """Whether an item has to be read to know if it is shared."""
    return access.rule is not None and access.rule.by != "source"


class ChangeFeed:
    """Publishes changes to every listener of this process, and to `relay`, which passes them on to other processes."""

    def __init__(self) -> None:
        self._listeners: set[ChangeListener] = set()
        self.relay: Callable[[Change], None] | None = None
        self.recheck: Recheck | None = None
        self.can_read: CanRead | None = None

    def publish(self, change: Change) -> None:
        self.deliver(change)
        if self.relay is not None:
            self.relay(change)

    def deliver(self, change: Change) -> None:
        """Publishes a change to the listeners of this process only."""
        for listener in self._listeners:
            listener.receive(change)

    @contextmanager
    def listen(
        self, principal: Principal, kinds: frozenset[str], uris: set[str] | frozenset[str]
    ) -> Iterator[ChangeListener]:
        listener = ChangeListener(principal, kinds, uris, self)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)


ListKind = Literal["tools", "resources", "prompts"]
# RFC 3986: a query or a fragment begins here.
_ENDS_PATH = re.compile("[?#]")
# The alphabet that every known client accepts: a dot makes some of them reject the whole list. Hosts allow 64
# characters and put `mcp__florilegium__` in front, which leaves 46.
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
    not exist for credentials that may not use that source."""

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
    # The URI of the page that shows its results, in clients that show pages.
    app: str = ""

    def __post_init__(self) -> None:
        assert _TOOL_NAME.match(self.name), f"some clients would reject the tool name {self.name!r}"
        assert len(self.description) <= DESCRIPTION_MAX_CHARS, f"the description of {self.name} is too long"

    def as_listed(self, *, has_app: bool = False) -> dict[str, Any]:
        listed: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema or input_schema(self.input),
            "annotations": msgspec.to_builtins(self.hints),
        }
        if self.output is not None:
            listed["outputSchema"] = outline(output_schema(self.output))
        if has_app and self.app:
            # The second one is ChatGPT's name for it.
            listed["_meta"] = {"ui": {"resourceUri": self.app}, "openai/outputTemplate": self.app}
        return listed


ResourceReader = Callable[[Call, str, Mapping[str, str]], Awaitable[Sequence[Mapping[str, Any]]]]
Completer = Callable[[Call, str, Mapping[str, str]], Awaitable[Sequence[str]]]


class _Readable(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    reader: ResourceReader
    title: str | None = None
    mime_type: str = "text/plain"
    scope: str = READ
    source: str | None = None

    def _listed_with(self, address: dict[str, Any]) -> dict[str, Any]:
        title = {"title": self.title} if self.title else {}
        return {**address, "name": self.name, **title, "description": self.description, "mimeType": self.mime_type}


class Resource(_Readable, frozen=True, kw_only=True):
    """A resource with a fixed URI, of one source or of none. An app is found through its tools, and has no data."""

    uri: str

    @property
    def is_app(self) -> bool:
        return self.mime_type == APP_MEDIA_TYPE

    def as_listed(self) -> dict[str, Any]:
        return self._listed_with({"uri": self.uri})


class ResourceTemplate(_Readable, frozen=True, kw_only=True):
    """A family of URIs, RFC 6570 level 1: `{name}` is one percent-encoded path segment."""

    uri_template: str
    completers: Mapping[str, Completer] = {}

    def as_listed(self) -> dict[str, Any]:
        return self._listed_with({"uriTemplate": self.uri_template})

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

    def within(self, access: LibraryAccess) -> "UserListing | None":
        """Returns the listing of the same entries of a library of someone else, if it has any."""
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
        # Those of the tools that have any, by name. Compared with the headers of every modern call, so found only once.
        self.mirrored_parameters: dict[str, tuple[MirroredParameter, ...]] = {}

    def add_tool(self, tool: Tool) -> None:
        """Registers a tool; one of the same name is replaced."""
        self.tools[tool.name] = tool
        self.mirrored_parameters.pop(tool.name, None)
        if mirrored := tuple(mirrored_parameters(tool.as_listed()["inputSchema"])):
            self.mirrored_parameters[tool.name] = mirrored
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


# -- profiles ----------------------------------------------------------------------------------------------------------
# Profiles: named lists of tools, chosen by the address of a request or by the credential.
#
# The profile of an address decides which tools are listed. A profile to which a credential is restricted also limits
# which tools may be called. Names of tools that are not registered are skipped.


class Profile(Struct, frozen=True, kw_only=True):
    """A profile. `entries` are pairs of listed name and tool name, in listing order.

    `includes_other_tools` appends the tools that no profile names, such as those of a third-party source.
    `has_resources` lets a credential restricted to this profile read resources and prompts.
    """

    name: str
    entries: tuple[tuple[str, str], ...] = ()
    instructions: str = ""
    includes_other_tools: bool = False
    has_resources: bool = False


EVERYTHING = Profile(name=DEFAULT_PROFILE, includes_other_tools=True, has_resources=True)


class UnknownProfile(NotFound):
    """Lists the known profiles; their names are public."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        FlorilegiumError.__init__(self, f"profile {name[:60]!r} not found; expected one of {', '.join(known)}")
        self.kind = "profile"
        self.identity = name


class ProfileTools(Struct, frozen=True):
    """The registered tools as one profile shows them: by listed name, and by every name that can be called."""

    listed: Mapping[str, Tool]
    callable: Mapping[str, Tool]


class Profiles:
    """The profiles of a server. `clients` maps names of legacy clients to profiles."""

    def __init__(self, profiles: Sequence[Profile] = (EVERYTHING,), clients: Mapping[str, str] | None = None) -> None:
        self._profiles = {profile.name: profile for profile in profiles}
        self._clients = {name.casefold(): profile for name, profile in (clients or {}).items()}
        self._named_tools = frozenset(tool for profile in profiles for _, tool in profile.entries)
        # An unknown profile fails here, at start-up, and not at the first request of that client.
        for profile_name in self._clients.values():
            self.get(profile_name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._profiles)

    def get(self, name: str) -> Profile:
        profile = self._profiles.get(name)
        if profile is None:
            raise UnknownProfile(name, self.names)
        return profile

    def choose(self, principal: Principal, address_profile: str | None, client_name: str = "") -> str:
        """Returns the profile of a request: the credential's own, else the address's, else the legacy client's."""
        if address_profile is not None:
            self.get(address_profile)
        name = principal.profile or address_profile or self._clients.get(client_name.casefold(), DEFAULT_PROFILE)
        if name not in self._profiles:
            raise UnknownProfile(name, self.names)
        return name

    def tools(self, name: str, catalog: Catalog) -> ProfileTools:
        profile = self.get(name)
        listed = {listed_as: catalog.tools[tool] for listed_as, tool in profile.entries if tool in catalog.tools}
        if profile.includes_other_tools:
            listed |= {name: tool for name, tool in catalog.tools.items() if name not in self._named_tools}
        return ProfileTools(listed, {**catalog.tools, **listed})

    def permits(self, principal: Principal, action: str) -> bool:
        """Returns whether a caller may use a tool or perform an action, over any transport.

        Only a profile to which the credential is restricted forbids anything.
        """
        if principal.profile is None:
            return True
        profile = self.get(principal.profile)
        is_named = any(action == tool for _, tool in profile.entries)
        return is_named or (profile.includes_other_tools and action not in self._named_tools)

    def permits_resources(self, principal: Principal) -> bool:
        """Returns whether a caller may read resources and prompts, which expose the same data as the tools."""
        return principal.profile is None or self.get(principal.profile).has_resources


# -- catalog access ----------------------------------------------------------------------------------------------------
# Finds registered tools, resources and prompts for a caller, within the caller's profile, sources and scopes.

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
        tools = self.tools(profile)
        if isinstance(name, str) and name in tools.callable:
            return tools.callable[name]
        # The dotted form, such as `knowledge.search`, is accepted everywhere.
        return tools.callable.get(name.replace(".", "_")) if isinstance(name, str) and "." in name else None

    def require_tool(self, principal: Principal, profile: str, name: Any) -> Tool:
        tool = self.find_tool(profile, name)
        if tool is None or (tool.source is not None and not principal.permits_source(tool.source)):
            raise (
                InvalidParams(f"Unknown tool: {name}")
                if isinstance(name, str)
                else wrong_type("name", "a string", name)
            )
        if principal.profile is not None and not self.profiles.permits(principal, tool.name):
            raise InvalidParams(f"tool {name!r} is not part of the profile {principal.profile!r} of this API key")
        if tool.scope not in principal.scopes:
            raise Forbidden(tool.scope)
        return tool

    def permits_resources(self, call: Call) -> bool:
        return self.profiles.permits_resources(call.context.principal)

    def find_resource(self, call: Call, uri: str) -> tuple[Resource | ResourceTemplate, dict[str, str]] | None:
        app = self.catalog.resources.get(uri)
        if app is not None and app.is_app:
            return app, {}
        match = self.catalog.find_resource(uri) if self.permits_resources(call) else None
        return match if match is not None and _is_visible(match[0], call.context.principal) else None

    def require_template(self, call: Call, uri_template: str) -> ResourceTemplate:
        template = self.catalog.templates.get(uri_template) if self.permits_resources(call) else None
        if template is None or not _is_visible(template, call.context.principal):
            raise InvalidParams(f"unknown resource template {uri_template!r}")
        return template

    async def require_prompt(self, call: Call, name: str) -> McpPrompt:
        """Returns a registered prompt, or one of the user's own."""
        principal, prompt = call.context.principal, None
        if self.permits_resources(call):
            prompt = self.catalog.prompts.get(name)
            for listing in self.catalog.prompt_listings:
                if prompt is None and is_listing_visible(listing, principal):
                    prompt = await listing.find(call, name)
        if prompt is None or not _is_visible(prompt, principal):
            raise InvalidParams(f"unknown prompt {name!r}")
        return prompt


def permits_source(principal: Principal, entry: CatalogEntry) -> bool:
    """Returns whether an entry exists for a caller: those of other sources do not."""
    return entry.source is None or principal.permits_source(entry.source)


def is_listing_visible(listing: UserListing, principal: Principal) -> bool:
    return principal.has_scope(listing.scope) and principal.permits_source(listing.name)


def _is_visible(entry: CatalogEntry, principal: Principal) -> bool:
    return principal.has_scope(entry.scope) and permits_source(principal, entry)


# -- subscriptions -----------------------------------------------------------------------------------------------------
# Subscriptions to changes: `resources/subscribe` of the legacy era and `subscriptions/listen` of the modern one.

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
_LIST_KINDS = {"toolsListChanged": "tools", "resourcesListChanged": "resources", "promptsListChanged": "prompts"}


class StreamRegistry(Protocol):
    """Counts open streams, and knows when one has to end."""

    def enter(self, principal: Principal) -> AbstractContextManager[None]: ...

    async def is_open(self, principal: Principal) -> bool: ...


class SubscriptionMethods:
    def __init__(self, access: CatalogAccess, options: DispatcherOptions, streams: StreamRegistry) -> None:
        self._access = access
        self._options = options
        self._streams = streams

    async def subscribe(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = require_string(params, "uri")
        self._check_length("uri", uri)
        if not self._is_permitted(call, uri):
            raise resource_not_found(uri, call.era)
        if call.session is not None:
            subscriptions, limit = call.session.subscriptions, self._options.page_size
            if uri not in subscriptions and len(subscriptions) >= limit:
                raise Unavailable(f"a session can subscribe to at most {limit} resources")
            subscriptions.add(uri)
        return {}

    async def unsubscribe(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = require_string(params, "uri")
        if call.session is not None:
            call.session.subscriptions.discard(uri)
        return {}

    async def listen(self, call: Call, params: Mapping[str, Any]) -> Result:
        """Sends changes until the client closes the stream, loses access, or the server stops."""
        requested = require_object(params, "notifications")
        kinds = frozenset(kind for key, kind in _LIST_KINDS.items() if requested.get(key) is True)
        uris = requested.get("resourceSubscriptions") or []
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams("resourceSubscriptions: expected a list of URIs")
        for uri in uris:
            self._check_length("resourceSubscriptions", uri)
        # As many as are allowed; the acknowledgement names those that were accepted.
        uris = [uri for uri in uris if self._is_permitted(call, uri)][: self._options.page_size]
        accepted: dict[str, Any] = {key: True for key, kind in _LIST_KINDS.items() if kind in kinds}
        if uris:
            accepted["resourceSubscriptions"] = uris
        meta = {SUBSCRIPTION_KEY: call.request_id}
        principal, changes = call.context.principal, self._access.catalog.changes
        with self._streams.enter(principal), changes.listen(principal, kinds, frozenset(uris)) as listener:
            acknowledgement = {"_meta": meta, "notifications": accepted}
            await call.peer.notify(notification_message("notifications/subscriptions/acknowledged", acknowledgement))
            while await self._streams.is_open(principal):
                change = await listener.next(self._options.recheck_s)
                if change is not None:
                    method, body = change.as_notification()
                    await call.peer.notify(notification_message(method, {**body, "_meta": meta}))
        return {"_meta": meta}

    def _is_permitted(self, call: Call, uri: str) -> bool:
        """Whether the caller may read the resource, if it exists. The scheme of a URI is the name of its source."""
        source, principal = uri.partition("://")[0], call.context.principal
        handle = split_library(uri)[1]
        if handle is not None and not any(
            access.handle == handle and may_share(access, source) for access in principal.libraries
        ):
            return False
        return principal.permits_source(source) and self._access.permits_resources(call)

    def _check_length(self, name: str, uri: str) -> None:
        if len(uri) > self._options.uri_max_chars:
            raise InvalidParams(f"{name}: expected at most {self._options.uri_max_chars} characters, got {len(uri)}")


def resource_not_found(uri: str, era: Era) -> FlorilegiumError:
    """Each era has its own error for a resource that does not exist."""
    kind = InvalidParams if era is Era.MODERN else ResourceNotFound
    return kind("resource not found", {"uri": uri})
