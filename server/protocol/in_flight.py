"""Calls that are running and questions that are open, so that a cancellation or an answer finds its own.

Every key starts with the connection it belongs to: two clients that use the same JSON-RPC id never meet.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from config.errors import FlorilegiumError, Unavailable
from server.protocol.messages import RequestId, Response, request_message

Key = tuple[Hashable, RequestId]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class RunningCall:
    """One call under way. `cancelled` tells a wish of the client from a task that ends for other reasons."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self._task.cancel()

    def forgive(self) -> None:
        """The cancellation was the client's, and its call is over: the task itself goes on."""
        self._task.uncancel()


class InFlightRequests:
    """Entries live exactly as long as the call or question they stand for."""

    def __init__(self, elicitation_timeout_s: float) -> None:
        self._answer_timeout_s = elicitation_timeout_s
        self._running: dict[Key, RunningCall] = {}
        self._open: dict[Key, asyncio.Future[Mapping[str, Any]]] = {}
        self._ids = itertools.count(1)

    @contextmanager
    def running(self, connection: Hashable, request_id: RequestId) -> Iterator[RunningCall]:
        """Makes the current task the one that a cancellation of that id reaches."""
        task = asyncio.current_task()
        assert task is not None
        key, running = (connection, request_id), RunningCall(task)
        self._running[key] = running
        try:
            yield running
        finally:
            if self._running.get(key) is running:
                del self._running[key]

    def cancel(self, connection: Hashable, request_id: Any) -> None:
        """Unknown ids are ignored: the answer may have crossed the cancellation."""
        if isinstance(request_id, str | int) and (call := self._running.get((connection, request_id))):
            call.cancel()

    async def ask(self, connection: Hashable, send: Send, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sends a question and waits for its answer, for a bounded time."""
        key = (connection, f"florilegium-{next(self._ids)}")
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[key] = future
        try:
            await send(request_message(key[1], method, params))
            return await asyncio.wait_for(future, self._answer_timeout_s)
        except TimeoutError as error:
            raise Unavailable(f"the client did not answer {method} in {self._answer_timeout_s:.0f} s") from error
        finally:
            del self._open[key]

    def answer(self, connection: Hashable, response: Response) -> None:
        """Hands an answer to whoever asked; one that nobody waits for is dropped."""
        future = self._open.get((connection, response.id))
        if future is None or future.done():
            return
        if response.error is not None:
            future.set_exception(FlorilegiumError(f"the client refused: {response.error.get('message', '')!s:.200}"))
        else:
            future.set_result(response.result or {})
