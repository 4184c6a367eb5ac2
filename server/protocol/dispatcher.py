"""Maps an MCP method and its parameters to a result, for every transport and both eras.

Errors leave the dispatcher as FlorilegiumErrors. The exception is a tool that fails: its error is a result with
`isError`, because the model that called the tool is the one that can correct the call.
"""

# About this package: Start with `dispatcher`, which maps a method to a result, and `call`, what a handler gets. A
# transport builds the call from a message (`messages`) with `call`, too: from `_meta` in the modern era, from a
# session in the legacy one (`legacy_sessions`). Tools, resources, prompts and profiles are registered in `catalog` and
# listed by `listing`. Transports with a lasting connection share `connection`;
# `legacy_sessions` also finds the call that a message refers to.

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aggregator.libraries import enter, split_library
from auth.context import Principal
from config import errors
from config.logging import request_fields
from config.paths import UserId
from config.tracing import is_tracing, span
from server.protocol.call import (
    APPS_EXTENSION,
    LOG_LEVELS,
    RETRY_AFTER_KEY,
    Call,
    ClientInfo,
    DispatcherOptions,
    InputRequired,
    RequestStateSigner,
    Result,
    run_handler,
    shows_apps,
)
from server.protocol.catalog import (
    Catalog,
    CatalogAccess,
    Profiles,
    StreamRegistry,
    SubscriptionMethods,
    Tool,
    ToolResult,
    resource_not_found,
)
from server.protocol.listing import CompletionMethod, ListMethods
from server.protocol.messages import MODERN_VERSIONS, Era, Request, encode, require_string, short_message, wrong_type
from server.protocol.schema import read_arguments
from sessions.store import Session

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
# The headers of W3C Trace Context, which MCP carries in `_meta`.
_TRACE_HEADERS = ("traceparent", "tracestate")
# Errors that end a tool call as a protocol error, because a model cannot correct them.
_PROTOCOL_ERRORS = (errors.Forbidden, errors.Unauthenticated, errors.MissingCapability)
# Methods that read the user's library. They are refused at once if they would wait too long, as tools are.
_LIBRARY_METHODS = frozenset(("resources/list", "resources/read", "prompts/list", "prompts/get", "completion/complete"))

# Outcomes of calls that the server, not the caller, is to blame for.
_FAILED_OUTCOMES = frozenset(("error", "unavailable"))

Method = Callable[[Call, dict[str, Any]], Awaitable[Result]]


class CallObserver(Protocol):
    """Receives every call after it has ended."""

    def record_call(self, method: str, tool: str, outcome: str, seconds: float) -> None: ...


# -- recent calls ------------------------------------------------------------------------------------------------------
# The last MCP calls of each user, in memory or in Redis: what people see who ask what their assistants are doing.
#
# Arguments and results are not kept.

# Users whose calls are kept. The least recent caller is forgotten first.
_RECENT_CALLS_USERS_MAX = 1000

# What a page of the console shows.
RECENT_CALLS_MAX = 50

# Others only list what there is, or keep a connection alive.
_RECORDED_METHODS = frozenset(("tools/call", "resources/read", "prompts/get"))


class RecentCall(Struct, frozen=True, gc=False):
    """`client` is the id of the credential, `application` the name by which the client introduced itself."""

    time: float
    method: str
    tool: str
    client: str
    application: str
    outcome: str
    seconds: float


class RecentCalls(Protocol):
    def record(self, user_id: UserId, call: RecentCall) -> None: ...

    async def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        """Returns the newest calls first."""
        ...

    async def forget(self, user_id: UserId) -> None: ...


class InProcessRecentCalls:
    def __init__(self) -> None:
        # The least recent caller first. A lookup in a `cachetools.LRUCache` takes 1.6 times as long, in every call.
        self._calls: OrderedDict[UserId, deque[RecentCall]] = OrderedDict()

    def record(self, user_id: UserId, call: RecentCall) -> None:
        calls = self._calls.get(user_id)
        if calls is None:
            calls = self._calls[user_id] = deque(maxlen=RECENT_CALLS_MAX)
            if len(self._calls) > _RECENT_CALLS_USERS_MAX:
                self._calls.popitem(last=False)
        self._calls.move_to_end(user_id)
        calls.append(call)

    async def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        return list(reversed(self._calls.get(user_id, ())))[:limit]

    async def forget(self, user_id: UserId) -> None:
        self._calls.pop(user_id, None)


# -- dispatcher --------------------------------------------------------------------------------------------------------


class Limits(Protocol):
    """Refuses calls by raising. A tool takes from its own limit, which includes the capacity."""

    def require_capacity(self, user_id: UserId) -> None: ...

    async def take(self, principal: Principal, tool: str) -> None: ...


class Dispatcher:
    """The table of methods by era. Handlers keep no state of a caller."""

    def __init__(
        self,
        catalog: Catalog,
        options: DispatcherOptions,
        signer: RequestStateSigner,
        limits: Limits,
        streams: StreamRegistry,
        observer: CallObserver | None = None,
        profiles: Profiles | None = None,
        recent_calls: RecentCalls | None = None,
    ) -> None:
        self._recent_calls = recent_calls
        self.catalog = catalog
        self.options = options
        self.profiles = profiles or Profiles()
        self._access = CatalogAccess(catalog, self.profiles)
        self._signer = signer
        self._limits = limits
        self._observer = observer
        self._server_meta = {SERVER_INFO_KEY: options.as_implementation()}
        lists = ListMethods(self._access, self.options)
        completion = CompletionMethod(self._access, self.options.deadline_ms)
        subscriptions = SubscriptionMethods(self._access, self.options, streams)
        shared: dict[str, Method] = {
            "tools/list": lists.tools,
            "tools/call": self._call_tool,
            "resources/list": lists.resources,
            "resources/templates/list": lists.templates,
            "resources/read": self._read_resource,
            "prompts/list": lists.prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": completion.complete,
        }
        legacy: dict[str, Method] = {
            "ping": self._ping,
            "logging/setLevel": self._set_log_level,
            "resources/subscribe": subscriptions.subscribe,
            "resources/unsubscribe": subscriptions.unsubscribe,
        }
        modern: dict[str, Method] = {"server/discover": self._discover, "subscriptions/listen": subscriptions.listen}
        self._methods = {Era.LEGACY: {**shared, **legacy}, Era.MODERN: {**shared, **modern}}

    def add_legacy_method(self, name: str, method: Method) -> None:
        """Adds a method that is not part of MCP, for clients of another system."""
        self._methods[Era.LEGACY].setdefault(name, method)

    def dispatch(self, call: Call, request: Request) -> Coroutine[Any, Any, Result]:
        """Serves one request. The log line, metrics and the log of the user's calls get its outcome, whatever it is."""
        return self._dispatch_traced(call, request) if is_tracing() else self._dispatch(call, request)

    async def _dispatch_traced(self, call: Call, request: Request) -> Result:
        # A client can make the span part of its own trace (MCP: `_meta` with `traceparent`).
        meta = request.params.get("_meta")
        headers = meta if isinstance(meta, dict) else {}
        parent = {name: value for name in _TRACE_HEADERS if isinstance(value := headers.get(name), str)}
        method, tool = self._metric_labels(call, request)
        attributes = {"mcp.method.name": method, "mcp.protocol.version": call.version, "gen_ai.tool.name": tool}
        call_span, fields = span(f"{method} {tool}".rstrip(), attributes, parent=parent), request_fields()
        fields.trace_id = fields.trace_id or call_span.trace_id
        with call_span:
            try:
                return await self._dispatch(call, request)
            finally:
                context = call.context
                known = {"florilegium.outcome": call.outcome, "enduser.id": context.principal.user_name}
                known["florilegium.client"] = context.client_id
                call_span.update(known, is_failed=call.outcome in _FAILED_OUTCOMES)

    async def _dispatch(self, call: Call, request: Request) -> Result:
        started_at, outcome, params, fields = time.perf_counter(), "error", request.params, request_fields()
        is_modern = call.era is Era.MODERN
        try:
            method = self._methods[call.era].get(request.method)
            if method is None:
                raise errors.MethodNotFound(request.method)
            if is_modern and ("inputResponses" in params or "requestState" in params):
                self._read_round(call, request)
            if request.method in _LIBRARY_METHODS:
                self._limits.require_capacity(call.context.user_id)
            result = await method(call, params)
            outcome = call.outcome or ("failed" if result.get("isError") else "ok")
        except InputRequired as required:
            inputs = {key: {"method": one.method, "params": one.params} for key, one in required.requests.items()}
            state = self._signer.sign(required.state, call.context.principal.owner(), request.method, params)
            outcome, result = "input_required", {"resultType": "input_required", "inputRequests": inputs}
            result["requestState"] = state
        except errors.Unavailable as error:
            outcome = _outcome(error)
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            seconds, context, client_name = time.perf_counter() - started_at, call.context, call.client.name
            label, tool = (request.method, call.tool) if call.tool else self._metric_labels(call, request)
            # Of a batch, the log line describes the last call.
            fields.method, fields.tool, fields.client_name, fields.outcome = label, tool, client_name, outcome
            call.outcome = outcome
            if self._observer is not None:
                self._observer.record_call(label, tool, outcome, seconds)
            if self._recent_calls is not None and label in _RECORDED_METHODS:
                recent = RecentCall(time.time(), label, tool, context.client_id, client_name, outcome, seconds)
                self._recent_calls.record(context.user_id, recent)
        if not is_modern:
            return result
        meta = {**self._server_meta, **result["_meta"]} if "_meta" in result else self._server_meta
        return {"resultType": "complete", **result, "_meta": meta}

    def find_tool(self, profile: str, name: Any) -> Tool | None:
        """Finds a tool by a name of the profile, or by its own name."""
        return self._access.find_tool(profile, name)

    def initialize_result(self, session: Session) -> Result:
        """Returns the result of a legacy `initialize`."""
        fields = request_fields()
        fields.method, fields.tool, fields.client_name, fields.outcome = "initialize", "", session.client_name, "ok"
        return {
            "protocolVersion": session.version,
            "capabilities": self.capabilities(Era.LEGACY, ClientInfo(session.client_name, "", session.capabilities)),
            "serverInfo": self.options.as_implementation(is_complete=True),
            **self._instructions(session.profile),
        }

    def capabilities(self, era: Era, client: ClientInfo) -> Result:
        """Prompts and resources are declared even while empty: some clients treat -32601 on their lists as fatal."""
        capabilities: Result = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }
        # In the modern era a request sets its own log level, in `_meta`.
        if era is Era.MODERN:
            del capabilities["logging"]
        if shows_apps(client):
            capabilities["extensions"] = {APPS_EXTENSION: {}}
        return capabilities

    def _metric_labels(self, call: Call, request: Request) -> tuple[str, str]:
        """Returns method and tool as metrics count them. Invented names must not create new counters."""
        name = call.tool
        if not name and request.method == "tools/call":
            tool = self.find_tool(call.profile, request.params.get("name"))
            name = tool.name if tool is not None else ""
        return request.method if request.method in self._methods[call.era] else "unknown", name

    def _instructions(self, profile: str) -> Result:
        text = self.profiles.get(profile).instructions
        return {"instructions": text} if text else {}

    def _read_round(self, call: Call, request: Request) -> None:
        """Reads the client's answers and the signed state of an earlier round."""
        params = request.params
        responses, signed = params.get("inputResponses"), params.get("requestState")
        if responses is not None:
            # Checked here and not by the tool: a malformed response is the client's mistake, not the model's.
            if not isinstance(responses, dict) or not all(isinstance(value, dict) for value in responses.values()):
                raise errors.InvalidParams("inputResponses: expected an object whose values are objects")
            call.input_responses = responses
        if signed is not None:
            if not isinstance(signed, str):
                raise wrong_type("requestState", "a string", signed)
            call.state = self._signer.verify(signed, call.context.principal.owner(), request.method, params)

    # -- methods ------------------------------------------------------------------------------------------------

    async def _discover(self, call: Call, params: Mapping[str, Any]) -> Result:
        result = {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": self.capabilities(Era.MODERN, call.client),
            **self._instructions(call.profile),
            "_meta": {SERVER_INFO_KEY: self.options.as_implementation(is_complete=True)},
        }
        return self.options.cacheable(result, call.era)

    async def _ping(self, call: Call, params: Mapping[str, Any]) -> Result:
        return {}

    async def _set_log_level(self, call: Call, params: Mapping[str, Any]) -> Result:
        level = params.get("level")
        if level not in LOG_LEVELS:
            raise errors.InvalidParams(f"level: expected one of {', '.join(LOG_LEVELS)}, got {level!r}")
        if call.session is not None:
            call.session.log_level = level
        return {}

    async def _call_tool(self, call: Call, params: Mapping[str, Any]) -> Result:
        tool = self._access.require_tool(call.context.principal, call.profile, params.get("name"))
        call.tool = tool.name
        arguments = params.get("arguments")
        if arguments is not None and not isinstance(arguments, dict):
            raise wrong_type("arguments", "an object", arguments)
        result: Result
        try:
            # Before the arguments are read, so that wrong calls are charged, too.
            await self._limits.take(call.context.principal, tool.name)
            args = read_arguments(arguments or {}, tool.input)
            output = await run_handler(call, tool.name, tool.handler(call, args), self.options.deadline_ms)
        except _PROTOCOL_ERRORS:
            raise
        except errors.FlorilegiumError as error:
            call.outcome = _outcome(error)
            if isinstance(error, errors.Overloaded) and error.is_repeatable:
                call.refused_for_s = error.retry_after_s
            # The message is for the model, which can correct its call. `_meta` says when to retry, if that may help.
            result = {"content": [{"type": "text", "text": short_message(error)}], "isError": True}
            if (wait_s := errors.wait_before_retry(error)) is not None:
                result["_meta"] = {RETRY_AFTER_KEY: wait_s}
            return result
        # A Struct becomes structured content and, for clients that read only text, the same JSON as text.
        if isinstance(output, ToolResult):
            result = {"content": list(output.content)}
            if output.structured is not None:
                result["structuredContent"] = output.structured
            if output.is_error:
                result["isError"] = True
            return result
        body = encode(output)
        return {"content": [{"type": "text", "text": body.decode()}], "structuredContent": msgspec.Raw(body)}

    async def _read_resource(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = require_string(params, "uri")
        plain, library = split_library(uri)
        match = self._access.find_resource(call, plain)
        if match is None:
            raise resource_not_found(uri, call.era)
        resource, variables = match
        try:
            # The call itself stays the caller's: logs and limits are those of the caller.
            reading = call if library is None else replace(call, context=enter(call.context, library, plain))
            work = resource.reader(reading, plain, variables)
            contents = await run_handler(call, resource.name, work, self.options.deadline_ms)
        except errors.NotFound as error:
            raise resource_not_found(uri, call.era) from error
        if library is not None:
            contents = [{**content, "uri": uri} for content in contents]
        return self.options.cacheable({"contents": list(contents)}, call.era)

    async def _get_prompt(self, call: Call, params: Mapping[str, Any]) -> Result:
        prompt = await self._access.require_prompt(call, require_string(params, "name"))
        arguments = params.get("arguments") or {}
        if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
            raise errors.InvalidParams("arguments: expected an object of strings")
        missing = [a.name for a in prompt.arguments if a.required and a.name not in arguments]
        if missing:
            raise errors.InvalidParams(f"prompt {prompt.name!r} requires the argument {missing[0]!r}")
        work = prompt.handler(call, arguments)
        result = await run_handler(call, prompt.name, work, self.options.deadline_ms)
        return {"description": result.description or prompt.description, "messages": list(result.messages)}


def _outcome(error: errors.FlorilegiumError) -> str:
    """Returns how metrics count an error: `refused` because of load, `unavailable` if the server could not do the work,
    and `failed` if the call was wrong."""
    match error:
        case errors.Overloaded() | errors.RateLimited():
            return "refused"
        case errors.Unavailable() | errors.SourceTimeout():
            return "unavailable"
        case _:
            return "failed"
