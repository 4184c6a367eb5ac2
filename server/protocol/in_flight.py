"""Requests in flight in both directions, so that a cancellation or a response reaches the right one.

Every key starts with the connection, so two clients that use the same JSON-RPC id cannot interfere.
"""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from config.errors import FlorilegiumError, Unavailable
from server.protocol.messages import RequestId, Response, request_message

Key = tuple[Hashable, RequestId]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class RunningCall:
    """A client's request while it is processed.

    `is_cancelled` distinguishes a cancellation by the client from a task that ends for other reasons.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._task.cancel()

    def uncancel(self) -> None:
        """Lets the task continue after its call was cancelled."""
        self._task.uncancel()


class InFlightRequests:
    """The calls of clients that are running, and the server's requests to clients that wait for a response."""

    def __init__(self, elicitation_timeout_s: float) -> None:
        self._elicitation_timeout_s = elicitation_timeout_s
        self._running: dict[Key, RunningCall] = {}
        self._waiting: dict[Key, asyncio.Future[Mapping[str, Any]]] = {}
        # Random, because requests of several processes can wait for responses of the same session.
        self._id_prefix = f"florilegium-{secrets.token_hex(4)}"
        self._ids = itertools.count(1)

    @contextmanager
    def running(self, connection: Hashable, request_id: RequestId) -> Iterator[RunningCall]:
        """Registers the current task, so that `cancel` reaches it by that request id."""
        task = asyncio.current_task()
        assert task is not None
        key, running = (connection, request_id), RunningCall(task)
        self._running[key] = running
        try:
            yield running
        finally:
            # A client may use an id again while its first call runs. The entry then belongs to the later one.
            if self._running.get(key) is running:
                del self._running[key]

    def cancel(self, connection: Hashable, request_id: Any) -> bool:
        """Cancels a running call. Returns whether there is one: the result may have crossed the cancellation, or
        another process serves the call."""
        call = self._running.get((connection, request_id)) if isinstance(request_id, str | int) else None
        if call is not None:
            call.cancel()
        return call is not None

    async def request(
        self, connection: Hashable, send: Send, method: str, params: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Sends a request to the client and returns its result. Raises Unavailable after the timeout."""
        key = (connection, f"{self._id_prefix}-{next(self._ids)}")
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[key] = future
        try:
            await send(request_message(key[1], method, params))
            return await asyncio.wait_for(future, self._elicitation_timeout_s)
        except TimeoutError as error:
            message = f"the client did not answer {method} within {self._elicitation_timeout_s:.0f} s"
            raise Unavailable(message) from error
        finally:
            del self._waiting[key]

    def resolve(self, connection: Hashable, response: Response) -> bool:
        """Delivers a client's response to the request that waits for it. Returns whether one does."""
        future = self._waiting.get((connection, response.id))
        if future is None or future.done():
            return False
        if response.error is not None:
            # What the client says becomes part of a result, so it is shortened.
            message = f"the client returned an error: {response.error.get('message', '')!s:.200}"
            future.set_exception(FlorilegiumError(message))
        else:
            future.set_result(response.result or {})
        return True
