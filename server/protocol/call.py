"""The context of one MCP request: the caller, the protocol era, and a way to talk to the client during the call."""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from auth.context import RequestContext
from config.errors import MissingCapability
from server.call_limits import LimitCheck
from server.protocol.deadline import Deadline
from server.protocol.messages import RequestId, notification_message
from server.protocol.versions import Era
from sessions.session import Session

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
    # How metrics count the call, if it did not end like most.
    outcome: str = ""
    # For how long the same call would be refused again.
    refused_for_s: float = 0.0
    # Set if the call has started before the rate limits have answered.
    limit_check: LimitCheck | None = None

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
        return {key: await self._request_now(request) for key, request in requests.items()}

    def require_capability(self, capability: str) -> None:
        if self.client.capabilities.get(capability) is None:
            raise MissingCapability(capability)

    async def _request_now(self, request: InputRequest) -> Mapping[str, Any]:
        if self.deadline is None:
            return await self.peer.request(request.method, request.params)
        self.deadline.pause()
        try:
            return await self.peer.request(request.method, request.params)
        finally:
            self.deadline.resume()
