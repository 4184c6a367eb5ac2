"""Runs the handlers of tools, resources, prompts and completions under the call's deadline."""

from collections.abc import Awaitable
from typing import TypeVar

from config.errors import FlorilegiumError, Unavailable
from server.protocol.call import Call, InputRequired
from server.protocol.deadline import Deadline
from server.protocol.failures import log_failure

T = TypeVar("T")


async def run_handler(call: Call, name: str, work: Awaitable[T], deadline_ms: int) -> T:
    """Awaits a handler. An unexpected exception is logged, and the caller learns only the id of the request."""
    try:
        with Deadline(deadline_ms / 1000) as deadline:
            call.deadline = deadline
            return await work
    except TimeoutError as error:
        raise Unavailable(f"{name} took longer than {deadline_ms} ms") from error
    except (FlorilegiumError, InputRequired):
        raise
    except Exception as error:
        log_failure(name, error)
        raise FlorilegiumError(f"internal error (request {call.context.request_id})") from error
