"""A long-lived MCP connection (WebSocket, HTTP+SSE or stdio): messages in, messages out, responses in any order.

It serves both eras. `initialize` opens a legacy session that ends with the connection. Modern requests are
self-contained, except that a connection can be one session for them too: MCP defines stdio as stateless, but WebSocket
is our own transport.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol

from auth.context import Principal, RequestContext, SessionId
from config.errors import FlorilegiumError, InvalidRequest, ParseError, SharedStateUnavailable, TooLarge, Unavailable
from config.logging import begin_request, log_request
from server.protocol import messages
from server.protocol.call import (
    has_modern_meta,
    legacy_call,
    modern_call,
    read_request_meta,
    with_handshake_defaults,
)
from server.protocol.catalog import LIST_KINDS
from server.protocol.dispatcher import Dispatcher
from server.protocol.legacy_sessions import InFlightRequests, LegacySessions
from server.protocol.listing import as_tldw_tools
from sessions.store import Session

Send = Callable[[Mapping[str, Any] | list[Any]], Awaitable[None]]
# Checks, before each request, that the caller still has access and is within its rate limit. Returns the principal
# with what it may use now.
Admit = Callable[[], Awaitable[Principal]]
BuildContext = Callable[[Principal, str, SessionId | None], RequestContext]


class MessageBudget(Protocol):
    """Limits the memory of messages that are being served. `hold_request` raises Unavailable, and TooLarge if the
    message alone, of which `held` bytes are counted already, exceeds the limit."""

    def hold_request(self, size: int, held: int) -> None: ...

    def release_request(self, size: int) -> None: ...


class Connection:
    """One connection of one principal. `send` writes one message and is never called concurrently.

    `profile` is the profile that the address names, if any. `session_id` is the session of modern requests; without it
    they have none. `log_label` starts the log line of every request; without it, requests are not logged. `budget`
    counts the bytes of messages until they are served. `is_for_tldw` is for clients of tldw, which may leave out
    `initialize` or its parameters, and list tools as tldw does.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sessions: LegacySessions,
        principal: Principal,
        build_context: BuildContext,
        send: Send,
        admit: Admit,
        in_flight_max: int,
        profile: str | None = None,
        session_id: SessionId | None = None,
        log_label: str | None = None,
        budget: MessageBudget | None = None,
        *,
        is_for_tldw: bool = False,
    ) -> None:
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._principal = principal
        self._build_context = build_context
        self._send_unlocked = send
        self._admit = admit
        self._in_flight_max = in_flight_max
        self._profile = profile
        self._session_id = session_id
        self._log_label = log_label
        self._budget = budget
        self._is_for_tldw = is_for_tldw
        # The size of the message that is being received, until a task takes it over.
        self._message_bytes = 0
        self._in_flight = InFlightRequests(dispatcher.options.elicitation_timeout_s)
        self._session: Session | None = None
        self._notifying: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._send_lock = asyncio.Lock()

    async def receive(self, text: str | bytes) -> None:
        """Processes one frame or line."""
        try:
            # The text counts before it is decoded, and its objects before they are used.
            self._hold(messages.TEXT_BYTES * len(text))
            await self.receive_value(messages.decode(text, self._hold))
        except (ParseError, TooLarge, Unavailable) as error:
            await self._send(messages.error_message(messages.read_id(text), error))
        finally:
            self._release(self._message_bytes)
            self._message_bytes = 0

    async def receive_value(self, value: Any, request_id: str | None = None) -> None:
        """Processes one decoded message or batch. Requests run concurrently; everything else is handled at once.

        `request_id` is the id of the HTTP request that carried the message. Without it, each request gets its own.
        """
        if isinstance(value, list) and self._session and self._session.version == messages.BATCH_VERSION:
            # Runs a batch as one call, its messages one after the other. A rejected batch gets a single error.
            if not 0 < len(value) <= self._in_flight_max:
                refusal = InvalidRequest(f"batch: expected 1 to {self._in_flight_max} messages, got {len(value)}")
                await self._send(messages.error_message(None, refusal))
            elif len(self._tasks) >= self._in_flight_max:
                await self._send(messages.error_message(None, self._too_many_calls()))
            else:
                self._start(self._serve_batch(value, request_id))
            return
        try:
            message = messages.read_message(value)
        except messages.MalformedMessage as error:
            await self._send(messages.error_message(error.request_id, error))
            return
        await self._receive_message(message, request_id)

    async def finish(self) -> None:
        """Waits for the running calls, for a graceful shutdown."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancels running calls, ends the legacy session and deletes the session state."""
        tasks = [*self._tasks, *([self._notifying] if self._notifying else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            with suppress(SharedStateUnavailable):  # it expires by itself
                await self._sessions.end(self._session)
        if self._session_id is not None:
            await self._sessions.delete_state(self._session_id, self._principal.owner())

    async def notify(self, message: Mapping[str, Any]) -> None:
        await self._send(message)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._in_flight.request(self, self._send, method, params)

    async def _send(self, message: Mapping[str, Any] | list[Any]) -> None:
        async with self._send_lock:
            await self._send_unlocked(message)

    async def _receive_message(self, message: messages.Message, request_id: str | None) -> None:
        match message:
            case messages.Request() if len(self._tasks) >= self._in_flight_max:
                await self._send(messages.error_message(message.id, self._too_many_calls()))
            case messages.Request():
                task = self._start(self._serve(message, request_id))
                if message.method == "initialize":
                    # What a client sends without waiting for the response needs the session, too.
                    await asyncio.wait([task])
                else:
                    # Lets the task begin. Before, a cancellation that is already in the buffer would not find the call.
                    await asyncio.sleep(0)
            case messages.Notification("notifications/cancelled"):
                self._in_flight.cancel(self, message.params.get("requestId"))
            case messages.Notification():
                pass
            case messages.Response():
                self._in_flight.resolve(self, message)

    def _too_many_calls(self) -> Unavailable:
        return Unavailable(f"{self._in_flight_max} calls are in flight on this connection")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        size, self._message_bytes = self._message_bytes, 0
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._release(size))
        return task

    def _hold(self, size: int) -> None:
        """Counts memory of the message that is being received."""
        if self._budget is not None:
            self._budget.hold_request(size, self._message_bytes)
            self._message_bytes += size

    def _release(self, size: int) -> None:
        if self._budget is not None and size:
            self._budget.release_request(size)

    async def _serve(self, request: messages.Request, request_id: str | None) -> None:
        """Sends exactly one response, or none if the client cancelled the request."""
        with self._in_flight.running(self, request.id):
            response = await self._logged_response(request, request_id)
        await self._send(response)

    async def _serve_batch(self, values: list[Any], request_id: str | None) -> None:
        responses: list[Mapping[str, Any]] = []
        for value in values:
            try:
                message = messages.read_message(value)
            except messages.MalformedMessage as error:
                responses.append(messages.error_message(error.request_id, error))
                continue
            if not isinstance(message, messages.Request):
                await self._receive_message(message, request_id)
            elif message.method == "initialize":
                responses.append(
                    messages.error_message(message.id, InvalidRequest("initialize cannot be part of a batch"))
                )
            else:
                responses.append(await self._logged_response(message, request_id))
        if responses:
            await self._send(responses)

    async def _logged_response(self, request: messages.Request, request_id: str | None) -> Mapping[str, Any]:
        started_at, fields = time.perf_counter(), begin_request(request_id or "")
        fields.user, fields.client = self._principal.user_name, self._principal.client_id
        try:
            response = await self._response(request, fields.request_id)
            fields.outcome = fields.outcome or ("error" if "error" in response else "ok")
            return response
        finally:
            if self._log_label is not None:
                log_request(self._log_label, fields, (time.perf_counter() - started_at) * 1000)

    async def _response(self, request: messages.Request, request_id: str) -> Mapping[str, Any]:
        """Returns a result or an error. Unexpected exceptions are logged and become an internal error."""
        try:
            principal = await self._admit()
            if has_modern_meta(request.params) or request.method == "server/discover":
                meta = read_request_meta(request.params)
                profile = self._dispatcher.profiles.choose(self._principal, self._profile)
                # After a handshake it is the legacy session, so that both eras share one.
                session_id = self._session.id if self._session_id and self._session else self._session_id
                call = modern_call(meta, request, self._build_context(principal, request_id, session_id), self, profile)
            elif request.method == "initialize":
                session = await self._open_session(request.params)
                return messages.result_message(request.id, self._dispatcher.initialize_result(session))
            elif request.method == "ping":
                return messages.result_message(request.id, {})  # the only request that may come before the handshake
            else:
                if self._session is None and self._is_for_tldw:
                    await self._open_session({})
                if self._session is None:
                    raise InvalidRequest("send initialize first, or name a protocol version in params._meta")
                context = self._build_context(principal, request_id, self._session.id)
                call = legacy_call(self._session, request, context, self)
            result = await self._dispatcher.dispatch(call, request)
            if self._is_for_tldw and request.method == "tools/list":
                result = as_tldw_tools(result)
            return messages.result_message(request.id, result)
        except FlorilegiumError as error:
            return messages.error_message(request.id, error)
        except Exception as error:
            messages.log_failure(request.method, error)
            return messages.error_message(request.id, FlorilegiumError(f"internal error (request {request_id})"))

    async def _open_session(self, params: Mapping[str, Any]) -> Session:
        if self._is_for_tldw:
            params = with_handshake_defaults(params)
        session = await self._sessions.open(self._principal, params, self._profile)
        # Swapped in one step, so that two concurrent handshakes cannot leave the earlier session behind.
        previous, self._session = self._session, session
        if self._notifying is not None:
            self._notifying.cancel()
        self._notifying = asyncio.create_task(self._send_changes(session))
        if previous is not None:
            await self._sessions.end(previous)
        return session

    async def _send_changes(self, session: Session) -> None:
        """Notifies a legacy client of changed lists and of changes to the resources it has subscribed to."""
        changes = self._dispatcher.catalog.changes
        with changes.listen(self._principal, LIST_KINDS, session.subscriptions) as listener:
            while (change := await listener.next()) is not None:
                await self._send(messages.notification_message(*change.as_notification()))
