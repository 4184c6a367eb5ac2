"""What the protocol layer stands on in its own tests: a dispatcher without a server, principals and peers."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from config.errors import RateLimited
from config.paths import DataRoot, new_user_id
from server.protocol.call import Call, NullPeer, Peer
from server.protocol.catalog import Catalog
from server.protocol.dispatcher import Dispatcher, DispatcherOptions
from server.protocol.messages import Request
from server.protocol.profiles import EVERYTHING, Profiles
from server.protocol.request_meta import legacy_call, modern_call, read_request_meta
from server.protocol.request_state import RequestStateSigner
from server.protocol.versions import LATEST_LEGACY
from sessions.session import Session, new_session_id
from tests.server.clients import modern_params

# Paths are computed from it and never touched: nothing in the protocol layer opens a file.
NOWHERE = DataRoot(Path("nowhere"))


def make_principal(name: str, scopes: tuple[str, ...] = SCOPES, client: str = "client", epoch: int = 0) -> Principal:
    return Principal(new_user_id(), name, ClientId(client), frozenset(scopes), "jwt", f"token of {name}", epoch)


class FakeStreams:
    """Streams that stay open until the test closes them."""

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
    """Lets each key through a given number of times."""

    def __init__(self, allowed: int = 1_000_000) -> None:
        self.allowed = allowed
        self.taken: list[Any] = []

    def take(self, key: Any) -> None:
        if self.taken.count(key) >= self.allowed:
            raise RateLimited("this tool", 7.5)
        self.taken.append(key)


class RecordingObserver:
    """An observer that remembers what it was told, without the time it took."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def called(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append((method, tool, outcome))


class RecordingPeer:
    """A peer that hears everything and answers questions from a list."""

    def __init__(self, answers: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.heard: list[Mapping[str, Any]] = []
        self.answers = answers or {}
        self.spoken = asyncio.Event()

    async def notify(self, message: Mapping[str, Any]) -> None:
        self.heard.append(message)
        self.spoken.set()

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.answers[method]


def make_dispatcher(
    catalog: Catalog,
    *,
    streams: FakeStreams | None = None,
    limit: CountingLimit | None = None,
    observer: RecordingObserver | None = None,
    clock: Callable[[], float] = time.time,
    profiles: Profiles | None = None,
    **offer: Any,
) -> Dispatcher:
    described = {
        "name": "specimen",
        "title": "Specimen",
        "version": "1",
        "page_size": 100,
        "list_ttl_ms": 1000,
        "deadline_ms": 10_000,
        "recheck_s": 0.01,
        "elicitation_timeout_s": 5.0,
    }
    return Dispatcher(
        catalog,
        DispatcherOptions(**{**described, **offer}),
        RequestStateSigner(clock),
        limit or CountingLimit(),
        streams or FakeStreams(),
        observer,
        profiles or Profiles((replace(EVERYTHING, instructions="Look."),)),
    )


def make_session(principal: Principal, **changes: Any) -> Session:
    session = Session(new_session_id(), principal.owner(), LATEST_LEGACY, "specimen", "1", {}, 0.0)
    for name, value in changes.items():
        setattr(session, name, value)
    return session


class DispatcherClient:
    """Sends requests of one principal straight to a dispatcher."""

    def __init__(self, dispatcher: Dispatcher, principal: Principal, peer: Peer | None = None) -> None:
        self._dispatcher = dispatcher
        self._context = build_context(principal, NOWHERE, "request")
        self._peer = peer or NullPeer()
        self.session = make_session(principal)

    async def legacy(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = Request(1, method, dict(params or {}))
        return await self._run(legacy_call(self.session, request, self._context, self._peer), request)

    async def modern(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        request = Request(1, method, modern_params(params, **meta))
        call = modern_call(read_request_meta(request.params), request, self._context, self._peer, self.session.profile)
        return await self._run(call, request)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return await self.legacy("tools/call", {"name": tool, "arguments": arguments or {}})

    async def _run(self, call: Call, request: Request) -> dict[str, Any]:
        return await self._dispatcher.dispatch(call, request)
