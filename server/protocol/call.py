"""The context of one MCP request: the caller, the protocol era, and a way to talk to the client during the call."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from aggregator.contract import read_config
from auth.context import Owner, RequestContext
from auth.tickets import StateKeys
from config.errors import (
    FlorilegiumError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    Unavailable,
    UnsupportedVersion,
)
from server.protocol.messages import (
    LEGACY_VERSIONS,
    MODERN_VERSIONS,
    Era,
    Request,
    RequestId,
    json_type,
    log_failure,
    notification_message,
    require_object,
    require_string,
    wrong_type,
)
from sessions.store import Session

# -- deadline ----------------------------------------------------------------------------------------------------------
# The deadline of a call. Unlike `asyncio.timeout` it can be paused, and it costs half as much on every call.


class Deadline:
    """Cancels the task that entered it when time is up, and raises TimeoutError from the `with` block."""

    _is_over = _is_paused = False
    _loop: asyncio.AbstractEventLoop | None = None
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> "Deadline":
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._loop = asyncio.get_running_loop()
        if not self._is_paused:
            self._timer = self._loop.call_later(self._seconds, self._expire)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # If the task was also cancelled by someone else, CancelledError propagates to them.
        if self._is_over and self._task.uncancel() == 0 and exc_type is asyncio.CancelledError:
            raise TimeoutError from error

    def pause(self) -> None:
        """Stops the clock, for example while the client answers a request. It may not have started yet."""
        self._is_paused = True
        if self._loop is not None and self._timer is not None:
            self._seconds = self._timer.when() - self._loop.time()
            self._timer.cancel()

    def resume(self) -> None:
        self._is_paused = False
        if self._loop is not None:
            self._timer = self._loop.call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._is_over = True
        self._task.cancel()


# The profile of callers that did not choose one.
DEFAULT_PROFILE = "default"
# In `_meta` of a result that is an error: after how many seconds the same call may succeed.
RETRY_AFTER_KEY = "florilegium/retryAfterS"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_REQUIRED_CAPABILITIES = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
# The capabilities of clients that anything here depends on.
CAPABILITIES = tuple(_REQUIRED_CAPABILITIES.values())


# MCP Apps (specification 2026-01-26): clients with this extension show pages that belong to tools.
APPS_EXTENSION = "io.modelcontextprotocol/ui"
APP_MEDIA_TYPE = "text/html;profile=mcp-app"
# ChatGPT shows such pages, and says so by its name.
_CLIENTS_WITH_APPS = ("openai-mcp",)


def shows_apps(client: "ClientInfo") -> bool:
    extensions = client.capabilities.get("extensions")
    declared = extensions.get(APPS_EXTENSION) if isinstance(extensions, dict) else None
    media_types = declared.get("mimeTypes") if isinstance(declared, dict) else ()
    has_type = isinstance(media_types, list | tuple) and APP_MEDIA_TYPE in media_types
    return has_type or client.name in _CLIENTS_WITH_APPS


class Peer(Protocol):
    """The client at the other end of the transport."""

    async def notify(self, message: Mapping[str, Any]) -> None:
        """Sends a notification that belongs to the running call."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sends a request to the client and waits for its result (legacy era only)."""
        ...


class NullPeer:
    """A client that cannot be reached during the call. Notifications are dropped, which the protocol allows."""

    async def notify(self, message: Mapping[str, Any]) -> None:
        return

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise MissingCapability(required_capability(method))


class ClientInfo(Struct, frozen=True):
    """The client's own description of itself."""

    name: str = ""
    version: str = ""
    capabilities: Mapping[str, Any] = {}


class InputRequest(Struct, frozen=True):
    """A request that only the client can answer: sampling, elicitation or its roots."""

    method: str
    params: Mapping[str, Any]


class InputRequired(Exception):
    """Ends a modern call. The client answers the requests and repeats the call together with `state`."""

    def __init__(self, requests: Mapping[str, InputRequest], state: Any) -> None:
        super().__init__("input required")
        self.requests = requests
        self.state = state


def required_capability(method: str) -> str:
    return _REQUIRED_CAPABILITIES[method]


class Call(Struct, eq=False):
    """One MCP request while a handler processes it."""

    context: RequestContext
    era: Era
    version: str
    client: ClientInfo
    peer: Peer
    request_id: RequestId
    session: Session | None = None
    profile: str = DEFAULT_PROFILE
    log_level: str | None = None
    progress_token: RequestId | None = None
    input_responses: Mapping[str, Mapping[str, Any]] = {}
    state: Any = None
    deadline: Deadline | None = None
    # The tool that is called, once it is known to be permitted.
    tool: str = ""
    # How metrics count the call. Before it ended, only set if it does not end like most.
    outcome: str = ""
    # For how long the same call would be refused again.
    refused_for_s: float = 0.0

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Reports progress if the client asked for it."""
        if self.progress_token is None:
            return
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": done}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.peer.notify(notification_message("notifications/progress", params))

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Sends a log message to the client. A modern client receives it only if its request set a log level."""
        threshold = self.log_level or ("debug" if self.era is Era.LEGACY else None)
        if threshold is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(threshold):
            return
        params = {"level": level, "data": data, **({"logger": logger} if logger else {})}
        await self.peer.notify(notification_message("notifications/message", params))

    async def request_input(self, requests: Mapping[str, InputRequest], state: Any = None) -> Mapping[str, Any]:
        """Returns the client's answers by key.

        A legacy client is asked while the call waits. A modern call ends with InputRequired, and the client repeats it
        with the answers. The deadline is paused while the client answers.
        """
        for request in requests.values():
            self.require_capability(required_capability(request.method))
        if self.era is Era.MODERN:
            missing = {key: request for key, request in requests.items() if key not in self.input_responses}
            if missing:
                raise InputRequired(missing, state)
            return {key: self.input_responses[key] for key in requests}
        answers: dict[str, Any] = {}
        for key, request in requests.items():
            if self.deadline is not None:
                self.deadline.pause()
            try:
                answers[key] = await self.peer.request(request.method, request.params)
            finally:
                if self.deadline is not None:
                    self.deadline.resume()
        return answers

    def require_capability(self, capability: str) -> None:
        if self.client.capabilities.get(capability) is None:
            raise MissingCapability(capability)


# -- handlers ----------------------------------------------------------------------------------------------------------
# Runs the handlers of tools, resources, prompts and completions under the call's deadline.

T = TypeVar("T")


class Started(Generic[T]):
    """A coroutine that has run until it waited for the first time. Most calls end without waiting for anything, so what
    only calls that wait need, such as timers, can be set up afterwards."""

    def __init__(self, work: Awaitable[T]) -> None:
        self._steps = work.__await__()
        self.is_done = False
        self.result: T
        try:
            self._waits_for = next(self._steps)
        except StopIteration as ended:
            self.is_done, self.result = True, ended.value

    def __await__(self) -> Generator[Any, Any, T]:
        """Runs the rest. What the coroutine waits for, and what it gets, a cancellation included, is passed on."""
        while True:
            try:
                yield self._waits_for
            except BaseException as error:
                try:
                    self._waits_for = self._steps.throw(error)
                except StopIteration as ended:
                    result: T = ended.value
                    return result
            else:
                # Event loops send nothing, and this begins by sending nothing, too.
                return (yield from self._steps)


async def run_handler(call: Call, name: str, work: Awaitable[T], deadline_ms: int) -> T:
    """Awaits a handler. An unexpected exception is logged, and the caller learns only the id of the request."""
    try:
        deadline = call.deadline = Deadline(deadline_ms / 1000)
        started = Started(work)
        if started.is_done:
            return started.result
        with deadline:
            return await started
    except TimeoutError as error:
        raise Unavailable(f"{name} took longer than {deadline_ms} ms") from error
    except (FlorilegiumError, InputRequired):
        raise
    except Exception as error:
        log_failure(name, error)
        raise FlorilegiumError(f"internal error (request {call.context.request_id})") from error


# -- options -----------------------------------------------------------------------------------------------------------
# How a server presents itself to MCP clients, and the limits that its dispatcher enforces.

Result = dict[str, Any]


class DispatcherOptions(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    version: str
    deadline_ms: int
    recheck_s: float
    # Tools, resources or prompts per page of a list: all tools fit into one page.
    page_size: int = 100
    # URIs to subscribe to are kept in memory. Browsers and proxies accept URLs of about this length.
    uri_max_chars: int = 2_000
    # How long clients may cache a list; those that are connected are told about changes.
    list_ttl_ms: int = 60_000
    # Time for a person to answer a question from a tool (legacy protocol versions).
    elicitation_timeout_s: float = 300.0
    has_dotted_names: bool = False
    # The optional members of `Implementation`: description, icons and website.
    presentation: Mapping[str, Any] = {}

    def as_implementation(self, *, is_complete: bool = False) -> dict[str, Any]:
        """Without the presentation unless `is_complete`: `_meta` of every modern result has it."""
        identity = {"name": self.name, "title": self.title, "version": self.version}
        return {**identity, **self.presentation} if is_complete else identity

    def cacheable(self, result: Result, era: Era) -> Result:
        """Adds the modern era's cache hints. Results depend on the caller, so no shared cache may keep them."""
        if era is Era.MODERN:
            result["ttlMs"] = self.list_ttl_ms
            result["cacheScope"] = "private"
        return result


# -- request state -----------------------------------------------------------------------------------------------------
# Signs the state that a modern client carries between two rounds of one call.
#
# The client cannot change the state: it is authenticated, it expires, and it is bound to one principal, one method and
# one set of arguments. State that does not verify is rejected.

LIFETIME_S = 600.0
_DIGEST_BYTES = hashlib.sha256().digest_size
_INVALID = "requestState: expected the value of the last result; call again without it"


class RequestStateSigner:
    """Uses random keys: state signed before a restart of all processes is rejected, and the client starts over."""

    def __init__(self, keys: StateKeys | None = None, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys or StateKeys()
        self._clock = clock

    def sign(self, state: Any, owner: Owner, method: str, params: Mapping[str, Any]) -> str:
        body = msgspec.json.encode([self._clock() + LIFETIME_S, state])
        return base64.urlsafe_b64encode(self._digests(body, owner, method, params)[0] + body).decode()

    def verify(self, signed: str, owner: Owner, method: str, params: Mapping[str, Any]) -> Any:
        """Returns the state, or raises InvalidParams."""
        try:
            raw = base64.b64decode(signed.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise InvalidParams(_INVALID) from error
        digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        accepted = self._digests(body, owner, method, params)
        if not any(hmac.compare_digest(digest, one) for one in accepted):
            raise InvalidParams(_INVALID)
        expires_at, state = msgspec.json.decode(body)
        if self._clock() >= expires_at:
            raise InvalidParams("requestState: expired; call again without it")
        return state

    def _digests(self, body: bytes, owner: Owner, method: str, params: Mapping[str, Any]) -> list[bytes]:
        target = {key: params.get(key) for key in ("name", "uri", "arguments")}
        binding = msgspec.json.encode([owner, method, target], order="sorted")
        message = len(binding).to_bytes(8, "big") + binding + body
        return [hmac.digest(key, message, "sha256") for key in self._keys.for_purpose("request state")]


# -- request meta ------------------------------------------------------------------------------------------------------
# Builds a `Call` from a request: from the modern era's `_meta`, or from the legacy era's session.

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


class RequestMeta(Struct, frozen=True):
    """The `_meta` of a modern request. `version` and `progress_token` have not been checked yet."""

    version: Any
    client: ClientInfo
    log_level: str | None
    progress_token: Any


def has_modern_meta(params: Mapping[str, Any]) -> bool:
    """Returns whether a request names its protocol version in `_meta`, which only the modern era does."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def read_request_meta(params: Mapping[str, Any]) -> RequestMeta:
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        raise wrong_type("params._meta", f"an object with {VERSION_KEY} and {CAPABILITIES_KEY}", meta)
    try:
        protocol_version, capabilities = meta[VERSION_KEY], meta[CAPABILITIES_KEY]
    except KeyError as missing:
        raise InvalidParams(f"params._meta: {missing.args[0]} is missing") from missing
    if not isinstance(capabilities, dict):
        raise wrong_type(CAPABILITIES_KEY, "an object", capabilities)
    log_level = meta.get(LOG_LEVEL_KEY)
    if log_level is not None and log_level not in LOG_LEVELS:
        raise InvalidParams(f"{LOG_LEVEL_KEY}: expected one of {', '.join(LOG_LEVELS)}, got {log_level!r}")
    name, version = read_implementation(meta.get(CLIENT_KEY))
    client = ClientInfo(name, version, capabilities)
    return RequestMeta(protocol_version, client, log_level, meta.get("progressToken"))


def read_implementation(value: Any) -> tuple[str, str]:
    """Returns a client's name and version. Malformed values become "": no decision depends on them."""
    if not isinstance(value, dict):
        return "", ""
    # Sessions and log lines keep both.
    name, version = value.get("name"), value.get("version")
    return (name[:128] if isinstance(name, str) else ""), (version[:64] if isinstance(version, str) else "")


def modern_call(
    meta: RequestMeta, request: Request, context: RequestContext, peer: Peer, profile: str = DEFAULT_PROFILE
) -> Call:
    """Raises UnsupportedVersion if the version of a request is not a modern one."""
    if not isinstance(meta.version, str):
        raise wrong_type(VERSION_KEY, "a string", meta.version)
    if meta.version not in MODERN_VERSIONS:
        raise UnsupportedVersion(meta.version, MODERN_VERSIONS)
    return Call(
        context=context,
        era=Era.MODERN,
        version=meta.version,
        client=meta.client,
        peer=peer,
        request_id=request.id,
        profile=profile,
        log_level=meta.log_level,
        progress_token=None if meta.progress_token is None else _check_progress_token(meta.progress_token),
    )


def legacy_call(session: Session, request: Request, context: RequestContext, peer: Peer) -> Call:
    meta = request.params.get("_meta")
    return Call(
        context=context,
        era=Era.LEGACY,
        version=session.version,
        client=ClientInfo(session.client_name, session.client_version, session.capabilities),
        peer=peer,
        request_id=request.id,
        session=session,
        profile=session.profile,
        log_level=session.log_level,
        progress_token=_check_progress_token(meta.get("progressToken")) if isinstance(meta, dict) else None,
    )


class InitializeParams(Struct, frozen=True):
    """The parameters of a legacy `initialize`. `config` is our extension: defaults for the session's calls."""

    version: str
    client: ClientInfo
    config: Mapping[str, Any]


def with_handshake_defaults(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parameters of `initialize` for clients of tldw, which may leave out all of them."""
    return {"protocolVersion": LEGACY_VERSIONS[0], "capabilities": {}, "clientInfo": {}, **params}


def read_initialize_params(params: Mapping[str, Any]) -> InitializeParams:
    version = require_string(params, "protocolVersion")
    # Only names decide anything, and a session keeps them for a long time.
    declared = require_object(params, "capabilities")
    capabilities: dict[str, Any] = {name: {} for name in CAPABILITIES if declared.get(name) is not None}
    name, client_version = read_implementation(require_object(params, "clientInfo"))
    if shows_apps(ClientInfo(capabilities=declared)):
        capabilities["extensions"] = {APPS_EXTENSION: {"mimeTypes": [APP_MEDIA_TYPE]}}
    config = params.get("config")
    client = ClientInfo(name, client_version, capabilities)
    return InitializeParams(version, client, read_config({} if config is None else config))


def _check_progress_token(token: Any) -> RequestId | None:
    if token is None or (isinstance(token, (str, int)) and not isinstance(token, bool)):
        return token
    raise InvalidRequest(f"progressToken: expected a string or an integer, got {json_type(token)}")
