"""What a handler is given: who calls, from which era, and a way to speak to the client while the call runs."""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from auth.context import RequestContext
from config.errors import MissingCapability
from server.protocol.deadline import Deadline
from server.protocol.messages import RequestId, notification_message
from server.protocol.versions import Era
from sessions.session import Session

# The profile of a caller who chose none.
DEFAULT = "default"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Peer(Protocol):
    """The client's end of the door the call came through."""

    async def notify(self, message: Mapping[str, Any]) -> None:
        """Sends a notification that belongs to the running call."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Asks the client and waits (legacy era only)."""
        ...


class NullPeer:
    """A peer that cannot be spoken to: notifications are dropped, as the protocol allows."""

    async def notify(self, message: Mapping[str, Any]) -> None:
        return

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise MissingCapability(required_capability(method))


class Client(Struct, frozen=True):
    """What the client said of itself."""

    name: str = ""
    version: str = ""
    capabilities: Mapping[str, Any] = {}


class InputRequest(Struct, frozen=True):
    """Something only the client can answer: a sampling, an elicitation, its roots."""

    method: str
    params: Mapping[str, Any]


class InputRequired(Exception):
    """Ends a modern call: the client answers the questions and sends the call again with `state`."""

    def __init__(self, questions: Mapping[str, InputRequest], state: Any) -> None:
        super().__init__("input required")
        self.questions = questions
        self.state = state


def required_capability(method: str) -> str:
    return {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}[method]


class Call(Struct, eq=False):
    """One request on its way through a handler."""

    context: RequestContext
    era: Era
    version: str
    client: Client
    peer: Peer
    request_id: RequestId
    session: Session | None = None
    profile: str = DEFAULT
    log_level: str | None = None
    progress_token: RequestId | None = None
    answers: Mapping[str, Mapping[str, Any]] = {}
    state: Any = None
    deadline: Deadline | None = None

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tells how far the call is, if the client asked to hear it."""
        if self.progress_token is None:
            return
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": done}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.peer.notify(notification_message("notifications/progress", params))

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """A log line for the client: in the modern era only where the request asked for a level."""
        threshold = self.log_level or ("debug" if self.era is Era.LEGACY else None)
        if threshold is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(threshold):
            return
        params = {"level": level, "data": data, **({"logger": logger} if logger else {})}
        await self.peer.notify(notification_message("notifications/message", params))

    async def ask(self, questions: Mapping[str, InputRequest], state: Any = None) -> Mapping[str, Any]:
        """The client's answers by key. The legacy era asks over the open call; the modern one ends it and is called
        again. The clock of the call stands still while a person thinks."""
        for question in questions.values():
            self.require_capability(required_capability(question.method))
        if self.era is Era.MODERN:
            missing = {key: question for key, question in questions.items() if key not in self.answers}
            if missing:
                raise InputRequired(missing, state)
            return {key: self.answers[key] for key in questions}
        return {key: await self._ask_now(question) for key, question in questions.items()}

    def require_capability(self, capability: str) -> None:
        if self.client.capabilities.get(capability) is None:
            raise MissingCapability(capability)

    async def _ask_now(self, question: InputRequest) -> Mapping[str, Any]:
        if self.deadline is None:
            return await self.peer.request(question.method, question.params)
        self.deadline.pause()
        try:
            return await self.peer.request(question.method, question.params)
        finally:
            self.deadline.resume()
