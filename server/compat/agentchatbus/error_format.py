"""Error responses of the bus's REST API: FastAPI's `detail`, with the sentences that AgentChatBus clients match on."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from config.errors import FlorilegiumError, NotFound, RateLimited, retry_after_seconds
from server.compat.agentchatbus.errors import THREAD_NOT_FOUND, DetailedBusError
from server.middleware import ErrorFormat, FieldError, field_errors
from server.rest.errors import Unprocessable

# AgentChatBus's clients compare these sentences.
_NOT_FOUND = {"conversation": THREAD_NOT_FOUND}
_RATE_LIMITED = "Rate limit exceeded"


class BusErrorBody(Struct, frozen=True, kw_only=True):
    """`detail` is a sentence; a list if the input is invalid (422); an object with `error` if an agent is out of sync
    with its thread or a text was rejected by the content filter."""

    detail: str | tuple[FieldError, ...] | Mapping[str, Any]
    error: str | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET


def _error_body(error: FlorilegiumError, _path: str) -> Mapping[str, Any]:
    match error:
        case RateLimited():
            body = BusErrorBody(
                detail=error.message, error=_RATE_LIMITED, retry_after=retry_after_seconds(error.retry_after_s)
            )
        case Unprocessable():
            body = BusErrorBody(detail=field_errors(error))
        case DetailedBusError():
            body = BusErrorBody(detail=error.data or {})
        case NotFound():
            body = BusErrorBody(detail=_NOT_FOUND.get(error.kind, error.message))
        case _:
            body = BusErrorBody(detail=error.message)
    builtins: dict[str, Any] = msgspec.to_builtins(body)
    return builtins


BUS_ERROR_FORMAT = ErrorFormat(BusErrorBody, _error_body)
