"""Declares an operation that needs the scope `admin`. Connected applications and restricted keys can only read."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from auth.context import RequestContext
from auth.principal import ADMIN
from server.rest.audit import ACCOUNT_TOOLS
from server.rest.operation import Caller, Method, Operation

_ERRORS = frozenset((404, 409))


def admin_operation(
    operation_id: str,
    method: Method,
    path: str,
    summary: str,
    description: str,
    *,
    request: type[Struct],
    response: type[Struct],
    handler: Callable[[RequestContext, Any], Awaitable[Any]],
    status: int = 200,
    caller: Caller | None = None,
) -> Operation:
    return Operation(
        id=operation_id,
        method=method,
        path=path,
        summary=summary,
        description=description,
        input=request,
        response=response,
        handler=handler,
        caller=caller or ("any" if method == "GET" else "unrestricted"),
        tools=ACCOUNT_TOOLS,
        scope=ADMIN,
        needs_all_sources=True,
        status=status,
        error_statuses=_ERRORS,
    )
