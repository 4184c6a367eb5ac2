"""Errors of the bus, with the codes that AgentChatBus clients match on."""

from typing import Any, ClassVar

from config.errors import FlorilegiumError, Unauthenticated

THREAD_NOT_FOUND = "Thread not found"


class InvalidAgentToken(Unauthenticated):
    """The agent's token is missing or wrong."""


class DetailedBusError(FlorilegiumError):
    """An error whose `data` is the detail of the response: a code in `error`, and what the client needs to recover."""

    status: ClassVar[int] = 400
    code: ClassVar[int] = 400

    def __init__(self, error: str, **details: Any) -> None:
        super().__init__(error, {"error": error, **details})


class OutOfSync(DetailedBusError):
    """The agent's view of the thread is not current; `action` says how to recover."""

    def __init__(self, error: str, action: str = "CALL_SYNC_CONTEXT_THEN_RETRY", **details: Any) -> None:
        super().__init__(error, **details, action=action)


class SeqMismatch(OutOfSync):
    """Others have posted since the message that the agent names as the last one."""

    status: ClassVar[int] = 409
    code: ClassVar[int] = 409


class BlockedContent(DetailedBusError):
    """The content filter found a secret; `pattern` is its kind."""
