"""Legacy sessions from `initialize` to their end, with the negotiated version, the profile and the session state.

A session is found only by its owner, and only at an address of its profile.
"""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Self

from auth.context import Owner, Principal, SessionId
from config.errors import FlorilegiumError, SessionNotFound, Unavailable
from server.protocol.call import read_initialize_params
from server.protocol.catalog import Profiles
from server.protocol.messages import RequestId, Response, negotiate, request_message
from sessions.state import SessionStates, handle_for
from sessions.store import Session, SessionStore, new_session_id

# Methods that change the session itself.
SESSION_METHODS = frozenset(("logging/setLevel", "resources/subscribe", "resources/unsubscribe"))


class LegacySessions:
    """The sessions of one server, over all transports."""

    def __init__(self, store: SessionStore, session_states: SessionStates, profiles: Profiles) -> None:
        self._store = store
        self._session_states = session_states
        self._profiles = profiles

    def __len__(self) -> int:
        return len(self._store)

    async def open(
        self,
        principal: Principal,
        params: Mapping[str, Any],
        address_profile: str | None = None,
        session_id: SessionId | None = None,
    ) -> Session:
        """Opens a session from the parameters of `initialize`.

        `address_profile` is the profile in the address, if any. A `config` in the parameters sets defaults for the
        session's calls, as `session_configure` does. `session_id` is for sessions that a client has named; the default
        is a random one.
        """
        initialize = read_initialize_params(params)
        session = Session(
            id=session_id or new_session_id(),
            owner=principal.owner(),
            version=negotiate(initialize.version),
            client_name=initialize.client.name,
            client_version=initialize.client.version,
            capabilities=initialize.client.capabilities,
            profile=self._profiles.choose(principal, address_profile, initialize.client.name),
        )
        await self._store.create(session)
        if initialize.config:
            handle = handle_for(session.id)
            await self._session_states.get_or_create(handle, session.owner)
            await self._session_states.set_defaults(handle, session.owner, initialize.config)
        return session

    async def find(self, session_id: str, principal: Principal, address_profile: str | None = None) -> Session:
        """Returns the caller's session.

        A credential that is restricted to a profile finds its session at every address. Other callers must use the
        address of the profile with which the session was opened.
        """
        session = await self._store.get(session_id, principal.owner())
        if principal.profile is None and address_profile not in (None, session.profile):
            raise SessionNotFound
        return session

    async def holds(self, session: Session) -> bool:
        return await self._store.holds(session)

    async def save(self, session: Session) -> None:
        """Makes a changed log level or changed subscriptions known to other processes."""
        await self._store.save(session)

    async def end(self, session: Session) -> None:
        """Ends a session and deletes its state.

        A session that expires leaves nothing behind: its state was idle for at least as long and has the same TTL.
        """
        await self._store.end(session)
        await self.delete_state(session.id, session.owner)

    async def delete_state(self, session_id: SessionId, owner: Owner) -> None:
        await self._session_states.delete(handle_for(session_id), owner)


# -- in flight ---------------------------------------------------------------------------------------------------------
# Requests in flight in both directions, so that a cancellation or a response reaches the right one.
#
# Every key starts with the connection, so two clients that use the same JSON-RPC id cannot interfere.

Key = tuple[Hashable, RequestId]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class RunningCall:
    """A client's request while it is processed by the current task: in the block, `calls` has it under its key.

    `is_cancelled` distinguishes a cancellation by the client from a task that ends for other reasons.
    """

    def __init__(self, calls: "dict[Key, RunningCall]", key: Key) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._calls = calls
        self._key = key
        self.is_cancelled = False

    def __enter__(self) -> Self:
        self._calls[self._key] = self
        return self

    def __exit__(self, *_: object) -> None:
        # A client may use an id again while its first call runs. The entry then belongs to the later one.
        if self._calls.get(self._key) is self:
            del self._calls[self._key]

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

    def running(self, connection: Hashable, request_id: RequestId) -> RunningCall:
        """In the block, `cancel` reaches the current task by that request id."""
        return RunningCall(self._running, (connection, request_id))

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
