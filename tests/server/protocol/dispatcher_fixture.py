"""A dispatcher without a server, with principals and peers, for tests of the protocol layer."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from auth.context import SCOPES, ClientId, Principal, build_context
from config.errors import RateLimited
from config.paths import DataRoot, UserId, new_user_id
from server.protocol.call import (
    Call,
    DispatcherOptions,
    NullPeer,
    Peer,
    RequestStateSigner,
    legacy_call,
    modern_call,
    read_request_meta,
)
from server.protocol.catalog import EVERYTHING, Catalog, Profiles
from server.protocol.dispatcher import Dispatcher
from server.protocol.messages import LATEST_LEGACY, Request
from sessions.store import Session, new_session_id
from tests.server.clients import modern_params
from tests.server.http_client import WAIT_MAX_S

# Only used to compute paths: the protocol layer opens no files.
NOWHERE = DataRoot(Path("nowhere"))


def make_principal(name: str, scopes: tuple[str, ...] = SCOPES, client: str = "client", epoch: int = 0) -> Principal:
    return Principal(new_user_id(), name, ClientId(client), frozenset(scopes), "jwt", f"token of {name}", epoch)


class FakeStreams:
    """Streams that stay open until the test sets `closed`."""

    def __init__(self) -> None:
        self.entered: list[Principal] = []
        self.closed = False

    @contextmanager
    def enter(self, principal: Principal) -> Iterator[None]:
        self.entered.append(principal)
        try:
            yield
        finally:
            self.entered.remove(principal)

    async def is_open(self, principal: Principal) -> bool:
        return not self.closed


class CountingLimit:
    """Allows each key a fixed number of times."""

    def __init__(self, allowed: int = 1_000_000) -> None:
        self.allowed = allowed
        self.taken: list[Any] = []

    def require_capacity(self, user_id: UserId) -> None:
        pass

    async def take(self, principal: Principal, tool: str) -> None:
        key = (principal.user_id, tool)
        if self.taken.count(key) >= self.allowed:
            raise RateLimited("this tool", 7.5)
        self.taken.append(key)


class RecordingObserver:
    """Records calls without their duration."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def record_call(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append((method, tool, outcome))


class RecordingPeer:
    """Records notifications, and answers requests from a table."""

    def __init__(self, results: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.messages: list[Mapping[str, Any]] = []
        self._results = results or {}
        self._received = asyncio.Event()

    async def notify(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)
        self._received.set()

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._results[method]

    async def wait_for(self, count: int) -> None:
        """Waits until that many notifications were received."""
        async with asyncio.timeout(WAIT_MAX_S):
            while len(self.messages) < count:
                self._received.clear()
                await self._received.wait()


def make_dispatcher(
    catalog: Catalog,
    *,
    streams: FakeStreams | None = None,
    limit: CountingLimit | None = None,
    observer: RecordingObserver | None = None,
    clock: Callable[[], float] = time.time,
    profiles: Profiles | None = None,
    **options: Any,
) -> Dispatcher:
    defaults = {
        "name": "sample",
        "title": "Sample",
        "version": "1",
        "page_size": 100,
        "list_ttl_ms": 1000,
        "deadline_ms": 10_000,
        "recheck_s": 0.01,
        "elicitation_timeout_s": 5.0,
    }
    return Dispatcher(
        catalog,
        DispatcherOptions(**{**defaults, **options}),
        RequestStateSigner(clock=clock),
        limit or CountingLimit(),
        streams or FakeStreams(),
        observer,
        profiles or Profiles((replace(EVERYTHING, instructions="Look."),)),
    )


def make_session(principal: Principal, **changes: Any) -> Session:
    session = Session(new_session_id(), principal.owner(), LATEST_LEGACY, "sample-client", "1", {}, 0.0)
    for name, value in changes.items():
        setattr(session, name, value)
    return session


class DispatcherClient:
    """Sends requests of one principal directly to a dispatcher."""

    def __init__(self, dispatcher: Dispatcher, principal: Principal, peer: Peer | None = None) -> None:
        self._dispatcher = dispatcher
        self._context = build_context(principal, NOWHERE, "request")
        self._peer = peer or NullPeer()
        self.session = make_session(principal)

    async def legacy(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = Request(1, method, dict(params or {}))
        return await self._dispatch(legacy_call(self.session, request, self._context, self._peer), request)

    async def modern(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        request = Request(1, method, modern_params(params, **meta))
        call = modern_call(read_request_meta(request.params), request, self._context, self._peer, self.session.profile)
        return await self._dispatch(call, request)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return await self.legacy("tools/call", {"name": tool, "arguments": arguments or {}})

    async def _dispatch(self, call: Call, request: Request) -> dict[str, Any]:
        return await self._dispatcher.dispatch(call, request)
