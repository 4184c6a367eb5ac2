"""Error responses of the bus: FastAPI's `detail`, with the sentences and codes that AgentChatBus clients match on."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from config.errors import FlorilegiumError, NotFound, RateLimited, Unauthenticated, retry_after_seconds
from server.error_responses import ErrorFormat, FieldError, field_errors
from server.rest.errors import Unprocessable

_NOT_FOUND = {"conversation": "Thread not found"}
_RATE_LIMITED = "Rate limit exceeded"


class BusErrorBody(Struct, frozen=True, kw_only=True):
    """`detail` is a sentence; a list if the input is invalid (422); an object with `error` and `action` if an agent is
    out of sync with its thread."""

    detail: str | tuple[FieldError, ...] | Mapping[str, Any]
    error: str | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET


class InvalidAgentToken(Unauthenticated):
    """The agent's token is missing or wrong."""


class OutOfSync(FlorilegiumError):
    """The agent's view of the thread is not current; `data` says how to recover."""

    status: ClassVar[int] = 400
    code: ClassVar[int] = 400

    def __init__(self, error: str, action: str = "CALL_SYNC_CONTEXT_THEN_RETRY", **details: Any) -> None:
        super().__init__(error, {"error": error, **details, "action": action})


class SeqMismatch(OutOfSync):
    """Others have posted since the message that the agent names as the last one."""

    status: ClassVar[int] = 409
    code: ClassVar[int] = 409


def _error_body(error: FlorilegiumError, _path: str) -> Mapping[str, Any]:
    match error:
        case RateLimited():
            body = BusErrorBody(
                detail=error.message, error=_RATE_LIMITED, retry_after=retry_after_seconds(error.retry_after_s)
            )
        case Unprocessable():
            body = BusErrorBody(detail=field_errors(error))
        case OutOfSync():
            body = BusErrorBody(detail=error.data or {})
        case NotFound():
            body = BusErrorBody(detail=_NOT_FOUND.get(error.kind, error.message))
        case _:
            body = BusErrorBody(detail=error.message)
    builtins: dict[str, Any] = msgspec.to_builtins(body)
    return builtins


BUS_ERROR_FORMAT = ErrorFormat(BusErrorBody, _error_body)
