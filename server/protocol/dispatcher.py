"""The one dispatcher: a method and its parameters in, a result out, whichever door they came through.

It knows both eras and no transport. Failures leave it as errors of the tree; a tool's own failure is an answer with
`isError`, because the model that called is the one who can correct it.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from auth.principal import Owner, Principal
from config.errors import (
    FlorilegiumError,
    Forbidden,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    NotFound,
    RateLimited,
    ResourceNotFound,
    Unauthenticated,
    Unavailable,
)
from server.protocol.call import LOG_LEVELS, Call, InputRequired
from server.protocol.catalog import Catalog, Completer, Listing, McpPrompt, Tool, ToolResult
from server.protocol.deadline import Deadline
from server.protocol.failures import log_failure
from server.protocol.messages import Request, encode, notification_message
from server.protocol.paging import read_page
from server.protocol.profiles import Profiles, Surface
from server.protocol.request_state import RequestStateSigner
from server.protocol.schema import read_arguments
from server.protocol.versions import MODERN_VERSIONS, Era
from sessions.session import Session

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
COMPLETIONS_MAX = 100
# What ends a tool call as a protocol error instead of an answer a model could mend.
_NOT_THE_MODELS_FAULT = (Forbidden, Unauthenticated, MissingCapability)
_LISTEN_KINDS = {
    "toolsListChanged": "tools",
    "resourcesListChanged": "resources",
    "promptsListChanged": "prompts",
}

T = TypeVar("T")
Result = dict[str, Any]
Method = Callable[[Call, dict[str, Any]], Awaitable[Result]]
_Entry = tuple[Any, dict[str, Any]]  # what is registered, and as it is listed


class Observer(Protocol):
    """Told of every call after it ended."""

    def called(self, method: str, tool: str, outcome: str, seconds: float) -> None: ...


class Streams(Protocol):
    """Counts what stays open, and knows when it has to end."""

    def enter(self, principal: Principal) -> AbstractContextManager[None]: ...

    async def is_open(self, principal: Principal) -> bool: ...


class ToolLimit(Protocol):
    def take(self, key: Any) -> None: ...


class DispatcherOptions(Struct, frozen=True, kw_only=True):
    """How the server presents itself, and the limits the dispatcher keeps."""

    name: str
    title: str
    version: str
    page_size: int
    list_ttl_ms: int
    deadline_ms: int
    recheck_s: float
    elicitation_timeout_s: float
    has_dotted_names: bool = False

    def as_implementation(self) -> dict[str, str]:
        return {"name": self.name, "title": self.title, "version": self.version}


class Dispatcher:
    """Methods by era. Built once; handlers keep no state of a caller."""

    def __init__(
        self,
        catalog: Catalog,
        offer: DispatcherOptions,
        sealer: RequestStateSigner,
        tool_limit: ToolLimit,
        streams: Streams,
        observer: Observer | None = None,
        profiles: Profiles | None = None,
    ) -> None:
        self.catalog = catalog
        self.offer = offer
        self.profiles = profiles or Profiles()
        self._sealer = sealer
        self._tool_limit = tool_limit
        self._streams = streams
        self._observer = observer
        self._server_meta = {SERVER_INFO_KEY: offer.as_implementation()}
        self._lists: dict[tuple[str, str, int, frozenset[str]], list[dict[str, Any]]] = {}
        self._surfaces: dict[str, Surface] = {}
        self._surfaces_version = -1
        shared: dict[str, Method] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }
        legacy: dict[str, Method] = {
            "ping": self._ping,
            "logging/setLevel": self._set_log_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        modern: dict[str, Method] = {
            "server/discover": self._discover,
            "subscriptions/listen": self._listen,
        }
        self._methods = {Era.LEGACY: {**shared, **legacy}, Era.MODERN: {**shared, **modern}}

    async def dispatch(self, call: Call, request: Request) -> Result:
        """Serves one request. Observed whatever happens; decorated as its era wants it."""
        began, outcome = time.perf_counter(), "error"
        try:
            method = self._methods[call.era].get(request.method)
            if method is None:
                raise MethodNotFound(request.method)
            if call.era is Era.MODERN:
                self._unseal(call, request)
            result = await method(call, request.params)
            outcome = "failed" if result.get("isError") else "ok"
        except InputRequired as required:
            outcome, result = "input_required", self._ask_client(call, request, required)
        finally:
            if self._observer is not None:
                self._observer.called(*self._label(call, request), outcome, time.perf_counter() - began)
        return self._decorate(result) if call.era is Era.MODERN else result

    def _label(self, call: Call, request: Request) -> tuple[str, str]:
        """Method and tool as they are counted: what a stranger makes up must not make new counters."""
        called = request.params.get("name") if request.method == "tools/call" else None
        tool = self.find_tool(call.profile, called)
        return request.method if request.method in self._methods[call.era] else "unknown", tool.name if tool else ""

    def capabilities(self, era: Era) -> Result:
        """Prompts and resources are declared even while empty: some clients take -32601 on their lists as fatal."""
        declared: Result = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }
        if era is Era.MODERN:
            del declared["logging"]
        return declared

    def introduction(self, session: Session) -> Result:
        """The answer to a legacy `initialize`."""
        return {
            "protocolVersion": session.version,
            "capabilities": self.capabilities(Era.LEGACY),
            "serverInfo": self.offer.as_implementation(),
            **self._instructions(session.profile),
        }

    def find_tool(self, profile: str, name: Any) -> Tool | None:
        """By the names of the profile, then by everybody's."""
        return self._surface(profile).find(name) if isinstance(name, str) else None

    def _surface(self, profile: str) -> Surface:
        """Kept until the catalog changes: it is asked several times for each call."""
        if self._surfaces_version != self.catalog.version:
            self._surfaces, self._surfaces_version = {}, self.catalog.version
        surface = self._surfaces.get(profile)
        if surface is None:
            surface = self._surfaces[profile] = self.profiles.surface(profile, self.catalog)
        return surface

    def _instructions(self, profile: str) -> Result:
        text = self.profiles.get(profile).instructions
        return {"instructions": text} if text else {}

    def _decorate(self, result: Result) -> Result:
        meta = {**self._server_meta, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}

    # -- rounds of one modern call ------------------------------------------------------------------------------

    def _unseal(self, call: Call, request: Request) -> None:
        params = request.params
        answers, sealed = params.get("inputResponses"), params.get("requestState")
        if answers is not None:
            # Judged here and not where a tool reads them: a malformed answer is the client's mistake, not the model's.
            if not isinstance(answers, dict) or not all(isinstance(a, dict) for a in answers.values()):
                raise InvalidParams("inputResponses must be an object whose values are objects")
            call.answers = answers
        if sealed is not None:
            if not isinstance(sealed, str):
                raise InvalidParams("requestState must be a string")
            call.state = self._sealer.open(sealed, _owner(call), request.method, params)

    def _ask_client(self, call: Call, request: Request, required: InputRequired) -> Result:
        questions = {
            key: {"method": question.method, "params": question.params} for key, question in required.questions.items()
        }
        state = self._sealer.seal(required.state, _owner(call), request.method, request.params)
        return {"resultType": "input_required", "inputRequests": questions, "requestState": state}

    # -- discovery ----------------------------------------------------------------------------------------------

    async def _discover(self, call: Call, params: Mapping[str, Any]) -> Result:
        return self._cacheable(
            {
                "supportedVersions": list(MODERN_VERSIONS),
                "capabilities": self.capabilities(Era.MODERN),
                **self._instructions(call.profile),
            },
            call,
        )

    async def _ping(self, call: Call, params: Mapping[str, Any]) -> Result:
        return {}

    async def _set_log_level(self, call: Call, params: Mapping[str, Any]) -> Result:
        level = params.get("level")
        if level not in LOG_LEVELS:
            raise InvalidParams(f"level: got {level!r}, expected one of {', '.join(LOG_LEVELS)}")
        if call.session is not None:
            call.session.log_level = level
        return {}

    # -- tools --------------------------------------------------------------------------------------------------

    async def _list_tools(self, call: Call, params: Mapping[str, Any]) -> Result:
        shown = self._surface(call.profile).tools.items()
        listed = self._listed("tools", call, ((tool, self._advertised(name, tool)) for name, tool in shown))
        return await self._page("tools", listed, call, params)

    def _advertised(self, name: str, tool: Tool) -> dict[str, Any]:
        """A name that a profile gives is what its clients look for; only a tool's own can have a dot."""
        if self.offer.has_dotted_names and name == tool.name:
            name = name.replace("_", ".", 1)
        return {**tool.as_listed(), "name": name}

    async def _call_tool(self, call: Call, params: Mapping[str, Any]) -> Result:
        tool = self._tool(call, params)
        arguments = params.get("arguments")
        if arguments is not None and not isinstance(arguments, dict):
            raise InvalidParams("arguments must be an object")
        try:
            self._tool_limit.take((call.context.user_id, tool.name))
            given = read_arguments(arguments or {}, tool.input)
            return _as_result(await self._run(call, tool.name, tool.handler(call, given)), tool)
        except _NOT_THE_MODELS_FAULT:
            raise
        except InputRequired:
            raise
        except FlorilegiumError as error:
            return _failure(error)

    def _tool(self, call: Call, params: Mapping[str, Any]) -> Tool:
        name, principal = params.get("name"), call.context.principal
        tool = self.find_tool(call.profile, name)
        if tool is None:
            raise InvalidParams(f"unknown tool {name!r}" if isinstance(name, str) else "name must be a string")
        if not self.profiles.permits(principal, tool.name):
            raise InvalidParams(f"tool {name!r} is outside the profile {principal.profile!r} that this key is bound to")
        principal.require_scope(tool.scope)
        return tool

    async def _run(self, call: Call, name: str, work: Awaitable[T]) -> T:
        """Awaits a handler under the call's deadline. This is one of the two places where any exception is caught: what
        a handler did not foresee is logged, and told to the caller only by the request's id."""
        try:
            with Deadline(self.offer.deadline_ms / 1000) as deadline:
                call.deadline = deadline
                return await work
        except TimeoutError as error:
            raise Unavailable(f"{name} took longer than {self.offer.deadline_ms} ms") from error
        except (FlorilegiumError, InputRequired):
            raise
        except Exception as error:
            log_failure(name, error)
            raise FlorilegiumError(f"internal error (request {call.context.request_id})") from error

    # -- resources ----------------------------------------------------------------------------------------------

    async def _list_resources(self, call: Call, params: Mapping[str, Any]) -> Result:
        listed = self._listed("resources", call, _as_listed(self.catalog.resources))
        return await self._page("resources", listed, call, params, self.catalog.resource_listings)

    async def _list_templates(self, call: Call, params: Mapping[str, Any]) -> Result:
        listed = self._listed("templates", call, _as_listed(self.catalog.templates))
        return await self._page("resourceTemplates", listed, call, params)

    async def _read_resource(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = _text(params, "uri")
        found = self.catalog.find_resource(uri) if self._has_resources(call) else None
        if found is None or not call.context.principal.has_scope(found[0].scope):
            raise _absent_resource(uri, call.era)
        resource, variables = found
        try:
            contents = await self._run(call, resource.name, resource.read(call, uri, variables))
        except NotFound as error:
            raise _absent_resource(uri, call.era) from error
        return self._cacheable({"contents": list(contents)}, call)

    async def _subscribe(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = _text(params, "uri")
        if not self._has_resources(call):
            raise _absent_resource(uri, call.era)
        if call.session is not None:
            watched = call.session.subscriptions
            if uri not in watched and len(watched) >= self.offer.page_size:
                raise Unavailable(f"a session may watch {self.offer.page_size} resources at most")
            watched.add(uri)
        return {}

    async def _unsubscribe(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = _text(params, "uri")
        if call.session is not None:
            call.session.subscriptions.discard(uri)
        return {}

    async def _listen(self, call: Call, params: Mapping[str, Any]) -> Result:
        """Tells news until the client closes the stream, loses its access, or the server stops."""
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise InvalidParams("notifications must be an object")
        kinds = frozenset(kind for key, kind in _LISTEN_KINDS.items() if wanted.get(key) is True)
        uris = wanted.get("resourceSubscriptions") or []
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams("resourceSubscriptions must be a list of URIs")
        honoured: dict[str, Any] = {key: True for key, kind in _LISTEN_KINDS.items() if kind in kinds}
        uris = uris if self._has_resources(call) else []
        if uris:
            uris = uris[: self.offer.page_size]
            honoured["resourceSubscriptions"] = uris
        meta = {SUBSCRIPTION_KEY: call.request_id}
        principal = call.context.principal
        with (
            self._streams.enter(principal),
            self.catalog.changes.listen(principal.user_id, kinds, frozenset(uris)) as listener,
        ):
            acknowledged = {"_meta": meta, "notifications": honoured}
            await call.peer.notify(notification_message("notifications/subscriptions/acknowledged", acknowledged))
            while await self._streams.is_open(principal):
                change = await listener.next(self.offer.recheck_s)
                if change is not None:
                    method, body = change.as_notification()
                    await call.peer.notify(notification_message(method, {**body, "_meta": meta}))
        return {"_meta": meta}

    # -- prompts and completion ---------------------------------------------------------------------------------

    async def _list_prompts(self, call: Call, params: Mapping[str, Any]) -> Result:
        listed = self._listed("prompts", call, _as_listed(self.catalog.prompts))
        return await self._page("prompts", listed, call, params, self.catalog.prompt_listings)

    async def _get_prompt(self, call: Call, params: Mapping[str, Any]) -> Result:
        prompt = await self._prompt(call, _text(params, "name"))
        given = params.get("arguments") or {}
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise InvalidParams("arguments must be an object of strings")
        missing = [a.name for a in prompt.arguments if a.required and a.name not in given]
        if missing:
            raise InvalidParams(f"prompt {prompt.name!r} needs the argument {missing[0]!r}")
        rendered = await self._run(call, prompt.name, prompt.get(call, given))
        described = rendered.description or prompt.description
        return {"description": described, "messages": list(rendered.messages)}

    async def _prompt(self, call: Call, name: str) -> McpPrompt:
        has_any = self._has_resources(call)
        prompt = (self.catalog.prompts.get(name) or await self._own_prompt(call, name)) if has_any else None
        if prompt is None or not call.context.principal.has_scope(prompt.scope):
            raise InvalidParams(f"unknown prompt {name!r}")
        return prompt

    async def _own_prompt(self, call: Call, name: str) -> McpPrompt | None:
        for listing in self.catalog.prompt_listings:
            if call.context.principal.has_scope(listing.scope) and (prompt := await listing.find(call, name)):
                return prompt
        return None

    async def _complete(self, call: Call, params: Mapping[str, Any]) -> Result:
        argument = params.get("argument")
        if not isinstance(argument, dict):
            raise InvalidParams("argument must be an object with name and value")
        name, value = _text(argument, "name"), _text(argument, "value")
        completer = await self._completer(call, params.get("ref"), name)
        context = params.get("context")
        given = context.get("arguments") if isinstance(context, dict) else None
        values: Sequence[str] = []
        if completer is not None:
            chosen = given if isinstance(given, dict) else {}
            values = await self._run(call, "completion", completer(call, value, chosen))
        shown = list(values[:COMPLETIONS_MAX])
        more = len(values) > len(shown)
        return {"completion": {"values": shown, "total": len(values), "hasMore": more}}

    async def _completer(self, call: Call, ref: Any, argument: str) -> Completer | None:
        match ref:
            case {"type": "ref/prompt", "name": str(name)}:
                prompt = await self._prompt(call, name)
                return next((a.complete for a in prompt.arguments if a.name == argument), None)
            case {"type": "ref/resource", "uri": str(uri)}:
                template = self.catalog.templates.get(uri) if self._has_resources(call) else None
                if template is None or not call.context.principal.has_scope(template.scope):
                    raise InvalidParams(f"unknown resource template {uri!r}")
                return template.completers.get(argument)
        raise InvalidParams("ref must name a prompt (ref/prompt) or a resource template (ref/resource)")

    # -- lists --------------------------------------------------------------------------------------------------

    def _has_resources(self, call: Call) -> bool:
        return self.profiles.permits_resources(call.context.principal)

    def _listed(self, kind: str, call: Call, entries: Iterator[_Entry]) -> list[dict[str, Any]]:
        """What this profile and these scopes may see, kept until the catalog changes; `entries` are read only then."""
        if kind != "tools" and not self._has_resources(call):
            return []
        key = (kind, call.profile, self.catalog.version, call.context.scopes)
        if key not in self._lists:
            self._lists = {k: v for k, v in self._lists.items() if k[2] == self.catalog.version}
            self._lists[key] = [listed for entry, listed in entries if entry.scope in call.context.scopes]
        return self._lists[key]

    async def _page(
        self,
        name: str,
        entries: Sequence[dict[str, Any]],
        call: Call,
        params: Mapping[str, Any],
        listings: Sequence[Listing] = (),
    ) -> Result:
        has_any = self._has_resources(call)
        seen = [listing for listing in listings if has_any and listing.scope in call.context.scopes]
        page, cursor = await read_page(entries, seen, call, params.get("cursor"), self.offer.page_size)
        result: Result = {name: page}
        if cursor is not None:
            result["nextCursor"] = cursor
        return self._cacheable(result, call)

    def _cacheable(self, result: Result, call: Call) -> Result:
        """Lists and contents depend on the caller, so no shared cache may keep them."""
        if call.era is Era.MODERN:
            result["ttlMs"] = self.offer.list_ttl_ms
            result["cacheScope"] = "private"
        return result


def _as_listed(registered: Mapping[str, Any]) -> Iterator[_Entry]:
    return ((entry, entry.as_listed()) for entry in registered.values())


def _absent_resource(uri: str, era: Era) -> FlorilegiumError:
    kind = InvalidParams if era is Era.MODERN else ResourceNotFound
    return kind("resource not found", {"uri": uri})


def _owner(call: Call) -> Owner:
    return call.context.principal.owner()


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise InvalidParams(f"{name} must be a string")
    return value


def _as_result(answer: Any, tool: Tool) -> Result:
    """A Struct becomes structured content and, for clients that read only text, the same JSON as text."""
    if isinstance(answer, ToolResult):
        result: Result = {"content": list(answer.content)}
        if answer.structured is not None:
            result["structuredContent"] = answer.structured
        if answer.is_error:
            result["isError"] = True
        return result
    body = encode(answer)
    return {"content": [{"type": "text", "text": body.decode()}], "structuredContent": msgspec.Raw(body)}


def _failure(error: FlorilegiumError) -> Result:
    """The sentence, and what a machine could use of it, for a model to correct itself or to wait."""
    result: Result = {"content": [{"type": "text", "text": error.message}], "isError": True}
    if isinstance(error, RateLimited | Unavailable):
        result["_meta"] = {"florilegium/retryAfterS": error.retry_after_s}
    return result
