"""One lasting connection (a WebSocket, a pair of pipes): messages in, messages out, answers in any order.

It serves both eras: a request that carries the modern mark stands alone, `initialize` opens a legacy session that
ends with the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from auth.context import RequestContext
from auth.principal import Principal
from config.errors import FlorilegiumError, InvalidRequest, ParseError, Unavailable
from config.logging import REQUEST_ID, new_request_id
from server.protocol.call import Call
from server.protocol.dispatcher import Dispatcher
from server.protocol.failures import log_failure
from server.protocol.in_flight import InFlightRequests
from server.protocol.legacy_sessions import LegacySessions
from server.protocol.messages import (
    MalformedMessage,
    Message,
    Notification,
    Request,
    Response,
    decode,
    error_message,
    read_message,
    result_message,
)
from server.protocol.request_meta import (
    legacy_call,
    modern_call,
    names_modern_version,
    read_request_meta,
)
from server.protocol.versions import BATCH_VERSION
from sessions.session import Session

Send = Callable[[Mapping[str, Any] | list[Any]], Awaitable[None]]
# Checks, before each request, that the caller still has access and is within its rate.
Admit = Callable[[], Awaitable[None]]


class Connection:
    """Bound to one principal for its whole life. `send` writes one message; it is never called twice at once.

    `profile` is the one that its address names, if it names one.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sessions: LegacySessions,
        principal: Principal,
        context: Callable[[str, Session | None], RequestContext],
        send: Send,
        admit: Admit,
        in_flight_max: int,
        profile: str | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._principal = principal
        self._context = context
        self._send_raw = send
        self._admit = admit
        self._in_flight_max = in_flight_max
        self._profile = profile
        self._in_flight = InFlightRequests(dispatcher.offer.elicitation_timeout_s)
        self._session: Session | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()

    async def receive(self, text: str | bytes) -> None:
        """Takes one frame or line. Requests run beside each other; everything else is done on the spot."""
        try:
            value = decode(text)
        except ParseError as error:
            await self._send(error_message(None, error))
            return
        if isinstance(value, list) and self._session and self._session.version == BATCH_VERSION:
            await self._take_batch(value)
            return
        try:
            message = read_message(value)
        except MalformedMessage as error:
            await self._send(error_message(error.request_id, error))
            return
        await self._take(message)

    async def finish(self) -> None:
        """Waits for the running calls, for a graceful end."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Ends everything that still runs. The legacy session ends with its connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._sessions.end(self._session)

    async def notify(self, message: Mapping[str, Any]) -> None:
        await self._send(message)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._in_flight.ask(self, self._send, method, params)

    async def _send(self, message: Mapping[str, Any] | list[Any]) -> None:
        async with self._writing:
            await self._send_raw(message)

    async def _take(self, message: Message) -> None:
        match message:
            case Request() if len(self._tasks) >= self._in_flight_max:
                await self._send(error_message(message.id, self._busy()))
            case Request():
                self._start(self._serve(message))
            case Notification():
                self._note(message)
            case Response():
                self._in_flight.answer(self, message)

    async def _take_batch(self, values: list[Any]) -> None:
        """A batch runs as one call, its messages one after the other; refused, it gets one error for all of them."""
        if not 0 < len(values) <= self._in_flight_max:
            refusal = InvalidRequest(f"a batch holds 1 to {self._in_flight_max} messages")
            await self._send(error_message(None, refusal))
        elif len(self._tasks) >= self._in_flight_max:
            await self._send(error_message(None, self._busy()))
        else:
            self._start(self._serve_batch(values))

    def _busy(self) -> Unavailable:
        return Unavailable(f"{self._in_flight_max} calls are in flight on this connection")

    def _start(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _note(self, notification: Notification) -> None:
        if notification.method == "notifications/cancelled":
            self._in_flight.cancel(self, notification.params.get("requestId"))

    async def _serve(self, request: Request) -> None:
        """A cancelled call is owed no answer; every other one gets exactly one."""
        with self._in_flight.running(self, request.id):
            answer = await self._answer(request)
        await self._send(answer)

    async def _serve_batch(self, values: list[Any]) -> None:
        answers: list[Mapping[str, Any]] = []
        for value in values:
            try:
                message = read_message(value)
            except MalformedMessage as error:
                answers.append(error_message(error.request_id, error))
                continue
            if not isinstance(message, Request):
                await self._take(message)
            elif message.method == "initialize":
                refusal = InvalidRequest("initialize cannot be part of a batch")
                answers.append(error_message(message.id, refusal))
            else:
                answers.append(await self._answer(message))
        if answers:
            await self._send(answers)

    async def _answer(self, request: Request) -> Mapping[str, Any]:
        """The second of the two places where any exception is caught."""
        request_id = new_request_id()
        REQUEST_ID.set(request_id)
        try:
            await self._admit()
            return result_message(request.id, await self._result(request, request_id))
        except FlorilegiumError as error:
            return error_message(request.id, error)
        except Exception as error:
            log_failure(request.method, error)
            return error_message(request.id, FlorilegiumError(f"internal error (request {request_id})"))

    async def _result(self, request: Request, request_id: str) -> Mapping[str, Any]:
        if names_modern_version(request.params) or request.method == "server/discover":
            meta = read_request_meta(request.params)
            profile = self._dispatcher.profiles.choose(self._principal, self._profile)
            call = modern_call(meta, request, self._context(request_id, None), self, profile)
        elif request.method == "initialize":
            return await self._initialize(request)
        elif request.method == "ping":
            return {}  # the one request that may come before the handshake
        else:
            call = self._legacy_call(request, request_id)
        return await self._dispatcher.dispatch(call, request)

    def _legacy_call(self, request: Request, request_id: str) -> Call:
        if self._session is None:
            raise InvalidRequest("send initialize first, or name a protocol version in params._meta")
        return legacy_call(self._session, request, self._context(request_id, self._session), self)

    async def _initialize(self, request: Request) -> Mapping[str, Any]:
        opened = await self._sessions.open(self._principal, request.params, self._profile)
        # Exchanged in one step: of two handshakes at once, the earlier session must not be left behind.
        before, self._session = self._session, opened
        if before is not None:
            await self._sessions.end(before)
        return self._dispatcher.introduction(opened)
