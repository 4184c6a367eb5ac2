"""The refusals of the message bus: FastAPI's `detail`, in the words and codes that agents on the bus know."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from config.errors import FlorilegiumError, NotFound, RateLimited, Unauthenticated
from server.rest.errors import ErrorFormat, FieldError, Unprocessable, field_errors, retry_after_s

_NOT_FOUND = {"conversation": "Thread not found"}
_RATE_LIMITED = "Rate limit exceeded"


class BusRefusal(Struct, frozen=True, kw_only=True):
    """The body of an answer that is not a success: a sentence; a list where the input could not be read (422); an
    object with `error` and `action` where an agent is out of step."""

    detail: str | tuple[FieldError, ...] | Mapping[str, Any]
    error: str | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET


class AgentRefused(Unauthenticated):
    """An agent that did not show the token it was given when it registered."""


class OutOfStep(FlorilegiumError):
    """An agent that writes after something else than it believes; `data` tells what it can do about it."""

    status: ClassVar[int] = 400
    code: ClassVar[int] = 400

    def __init__(self, error: str, action: str = "CALL_SYNC_CONTEXT_THEN_RETRY", **more: Any) -> None:
        super().__init__(error, {"error": error, **more, "action": action})


class SeqMismatch(OutOfStep):
    """Others have written meanwhile."""

    status: ClassVar[int] = 409
    code: ClassVar[int] = 409


def _write(error: FlorilegiumError, _path: str) -> Mapping[str, Any]:
    match error:
        case RateLimited():
            refusal = BusRefusal(detail=error.message, error=_RATE_LIMITED, retry_after=retry_after_s(error))
        case Unprocessable():
            refusal = BusRefusal(detail=field_errors(error))
        case OutOfStep():
            refusal = BusRefusal(detail=error.data or {})
        case NotFound():
            refusal = BusRefusal(detail=_NOT_FOUND.get(error.kind, error.message))
        case _:
            refusal = BusRefusal(detail=error.message)
    written: dict[str, Any] = msgspec.to_builtins(refusal)
    return written


BUS_ENVELOPE = ErrorFormat(BusRefusal, _write)
