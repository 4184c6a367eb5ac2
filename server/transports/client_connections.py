"""The open connections of all clients: how many there may be, and what the connections of one user hold in memory.

The protocol classes in `bounded_http` and `bounded_websocket` register each connection and add it to the ASGI scope.
Admission assigns it to a user, because only the credential tells who that is.
"""

import asyncio
import os
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from auth.authenticator import Authenticator
from auth.context import Principal
from config.errors import TooLarge, Unauthenticated, Unavailable
from config.paths import UserId
from config.settings import Settings
from server.local_socket import is_trusted_peer
from server.protocol.connection import TEXT_BYTES, decode_and_hold
from server.protocol.messages import decode

# -- pace --------------------------------------------------------------------------------------------------------------
# A rate that is enforced by waiting: events are counted after they happened, and the next one has to wait.


class Pace:
    """A token bucket of `burst` events, refilled with `per_s` events each second, that can be overdrawn."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._interval_s = 1 / per_s
        self._burst_s = burst / per_s
        self._full_at = time.monotonic()

    def count(self) -> None:
        self._full_at = max(self._full_at, time.monotonic()) + self._interval_s

    def wait_s(self) -> float:
        """Returns how long the next event has to wait; 0 if the rate is not exceeded."""
        return max(0.0, self._full_at - time.monotonic() - self._burst_s)


_EXTENSION = "florilegium.connection"
# Without `connections_max`: this many, or a share of the file descriptors if that is fewer.
_CONNECTIONS_MAX = 4096
# The other descriptors are left to the libraries.
_DESCRIPTOR_SHARE = 3
# What a request has besides its text: a few objects, names and numbers.
_ENVELOPE_BYTES = 4096


# One user can have a quarter of the memory for requests, and as many bytes of responses that were not read.
USER_SHARE = 4


class _UserShare:
    """What the connections of one user hold together."""

    def __init__(self, user_id: UserId, settings: Settings) -> None:
        self.user_id = user_id
        self.connections = 0
        self.request_bytes = 0
        self.unread_bytes = 0
        self.frames = Pace(settings.fixed.ws_frames_per_s, settings.fixed.ws_frames_burst)


class ClientConnections:
    """All open connections of a server. `on_change` is called with the number of those that stay open."""

    def __init__(self, settings: Settings, on_change: Callable[[int], None] = lambda total: None) -> None:
        self._settings = settings
        self._on_change = on_change
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # the soft limit, which the kernel enforces
        if descriptors == resource.RLIM_INFINITY:
            descriptors = _CONNECTIONS_MAX * _DESCRIPTOR_SHARE
        self._max = settings.connections_max or min(_CONNECTIONS_MAX, descriptors // _DESCRIPTOR_SHARE)
        # Neither one address nor one user can take all connections. A proxy's address stands for many clients, and so
        # does that of a hosted assistant: a connection counts for its address until it has shown a valid credential.
        half = max(1, self._max // 2)
        self._address_max = self.user_max = half
        self._proxies = [ip_network(network, strict=False) for network in settings.trusted_proxies]
        # A text that is allowed must fit, whatever the other limits are.
        text_bytes = TEXT_BYTES * settings.body_max_bytes + _ENVELOPE_BYTES
        self._request_max_bytes = max(settings.requests_max_bytes, text_bytes)
        self._user_request_max_bytes = max(settings.requests_max_bytes // USER_SHARE, text_bytes)
        self._one_request_max_bytes = min(self._request_max_bytes, self._user_request_max_bytes)
        self._total = self._closing = self._request_bytes = 0
        self._addresses: Counter[str] = Counter()
        self._users: dict[UserId, _UserShare] = {}

    def open(self, address: str, transport: asyncio.BaseTransport) -> "ClientConnection | None":
        """Registers a connection. Returns None if there are too many, of this address or altogether, or if another
        account connects to the socket of the data directory."""
        peer = transport.get_extra_info("socket")
        is_operator = False
        if peer is not None and peer.family == socket.AF_UNIX:
            is_operator = True
            # uvloop's object is not a whole socket.
            with socket.socket(fileno=os.dup(peer.fileno())) as connection:
                if not is_trusted_peer(connection, Path(self._settings.data_dir)):
                    return None
        # The operator gets in when others have taken all connections: that is when access has to be withdrawn.
        elif self._total >= self._max or (
            self._addresses[address] >= self._address_max and not self._is_proxy(address)
        ):
            return None
        self._total += 1
        self._on_change(self._total - self._closing)
        self._addresses[address] += 1
        return ClientConnection(self, address, is_operator=is_operator)

    def begin_closing(self) -> None:
        self._closing += 1
        self._on_change(self._total - self._closing)

    def close(self, *, is_closing: bool) -> None:
        self._total -= 1
        self._closing -= is_closing
        self._on_change(self._total - self._closing)

    def leave_address(self, address: str) -> None:
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def enter(self, user_id: UserId) -> _UserShare:
        share = self._users.get(user_id)
        if share is None:
            share = self._users[user_id] = _UserShare(user_id, self._settings)
        share.connections += 1
        return share

    def leave(self, share: _UserShare) -> None:
        share.connections -= 1
        self._forget_if_unused(share)

    def hold_request(self, share: _UserShare | None, size: int, held: int) -> None:
        """Counts the memory of requests that are being served. Raises Unavailable if there is too much, and TooLarge
        for a request that exceeds the limit alone, because sending it again cannot help."""
        if held + size > self._one_request_max_bytes:
            raise TooLarge("the decoded request", self._one_request_max_bytes)
        if self._request_bytes + size > self._request_max_bytes:
            raise Unavailable("too many bytes of requests are in flight")
        if share is not None and share.request_bytes + size > self._user_request_max_bytes:
            raise Unavailable(f"requests of this user have {self._user_request_max_bytes} bytes in flight")
        self._request_bytes += size
        if share is not None:
            share.request_bytes += size

    def release_request(self, share: _UserShare | None, size: int) -> None:
        self._request_bytes -= size
        if share is not None:
            share.request_bytes -= size
            self._forget_if_unused(share)

    def _forget_if_unused(self, share: _UserShare) -> None:
        # A request may run longer than its connection.
        if not share.connections and not share.request_bytes:
            self._users.pop(share.user_id, None)

    def _is_proxy(self, address: str) -> bool:
        """Whether the address is a reverse proxy, whose connections belong to many clients."""
        try:
            return any(ip_address(address) in network for network in self._proxies)
        except ValueError:
            return False


class ClientConnection:
    """One connection. A reverse proxy may send requests of several users over it, one after the other. `is_operator` is
    set for the socket of the data directory, whose callers may act for every user."""

    def __init__(self, connections: ClientConnections, address: str, *, is_operator: bool = False) -> None:
        self.is_operator = is_operator
        self._connections = connections
        self._address: str | None = address
        self._share: _UserShare | None = None
        self._request_share: _UserShare | None = None
        self._request_bytes = self._unread_bytes = 0
        # Whether the request that is being answered has arrived completely.
        self.has_whole_request = False
        self.is_over_limit = False
        self._is_closing = False

    @property
    def frames(self) -> Pace | None:
        """The rate of the user's WebSocket frames; None before the connection is assigned."""
        return self._share.frames if self._share else None

    def add_to(self, scope: Any) -> None:
        scope["extensions"] = {**scope.get("extensions", {}), _EXTENSION: self}

    def assign(self, user_id: UserId) -> None:
        """Counts the connection for the user whose credential it sent last. Raises Unavailable at the user's limit.
        That of the operator counts for none."""
        if self.is_operator or (self._share is not None and user_id == self._share.user_id):
            return
        self._leave_user()
        self._leave_address()
        share = self._share = self._connections.enter(user_id)
        if share.connections > self._connections.user_max:
            self._leave_user()
            self.is_over_limit = True
            raise Unavailable(f"this user has {self._connections.user_max} open connections, which is the limit")

    def close(self) -> None:
        self._leave_user()
        self._leave_address()
        self._connections.close(is_closing=self._is_closing)

    def begin_closing(self) -> None:
        """Says that the response closes this connection: the client's next one may come before this one has ended."""
        if not self._is_closing:
            self._is_closing = True
            self._connections.begin_closing()

    def hold_part(self, size: int) -> None:
        """Counts memory of the HTTP request that this connection is serving."""
        self.hold_request(size, self._request_bytes)

    def hold_request(self, size: int, held: int) -> None:
        """Counts memory of a request until it is answered. Raises Unavailable if too much is in use, and TooLarge if
        the request alone, of which `held` bytes are counted already, exceeds the limit."""
        if not self._request_bytes:
            self._request_share = self._share
        self._connections.hold_request(self._request_share, size, held)
        self._request_bytes += size

    def release_request(self, size: int | None = None) -> None:
        """Releases bytes of requests; by default all."""
        size = self._request_bytes if size is None else size
        if size:
            self._request_bytes -= size
            self._connections.release_request(self._request_share, size)

    def set_unread(self, size: int) -> int:
        """Sets how many bytes of responses the client has not read, and returns how many they are for the user."""
        if self._share is None:
            return size
        self._share.unread_bytes += size - self._unread_bytes
        self._unread_bytes = size
        return self._share.unread_bytes

    def _leave_address(self) -> None:
        if self._address is not None:
            self._connections.leave_address(self._address)
            self._address = None

    def _leave_user(self) -> None:
        self.set_unread(0)
        if self._share is not None:
            self._connections.leave(self._share)
            self._share = None


def connection_of(scope: Mapping[str, Any]) -> ClientConnection | None:
    """Returns the connection of a request; None if it did not come from a socket of ours."""
    try:
        connection: ClientConnection = scope["extensions"][_EXTENSION]
    except KeyError:
        return None
    return connection


def decode_body(body: bytes, connection: ClientConnection | None) -> Any:
    """Decodes the body of an HTTP request. Its memory counts until the request is answered."""
    return decode(body) if connection is None else decode_and_hold(body, connection.hold_part)


# -- unread output -----------------------------------------------------------------------------------------------------
# Responses that a client does not read: limited in size per user, and in time.

# What a client has to send or read within each timeout. A slow link manages that; a stalled client does not.
PROGRESS_BYTES = 64 * 1024


class UnreadOutput:
    """Watches one connection from the time its write buffer is full until the client has read it.

    The application writes nothing in the meantime, so the buffer only shrinks.
    """

    def __init__(self, transport: asyncio.Transport, client: ClientConnection, settings: Settings) -> None:
        self._transport = transport
        self._client = client
        self._timeout_s = settings.client_timeout_s
        self._max_bytes = settings.requests_max_bytes // USER_SHARE
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._size = self._transport.get_write_buffer_size()
        if self._client.set_unread(self._size) > self._max_bytes:
            self._transport.abort()
        else:
            self._start_timer()

    def stop(self) -> None:
        self._client.set_unread(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._check)

    def _check(self) -> None:
        size = self._transport.get_write_buffer_size()
        if self._size - size < PROGRESS_BYTES:
            self._transport.abort()
            return
        self._size = size
        self._client.set_unread(size)
        self._start_timer()


# -- open streams ------------------------------------------------------------------------------------------------------
# Open WebSockets and event streams: limited per user, and closed when access is revoked or the server stops.


class OpenStreams:
    """Counts open streams, and decides whether a stream may stay open."""

    def __init__(self, authenticator: Authenticator, max_per_user: int, recheck_s: float) -> None:
        self._authenticator = authenticator
        self._max_per_user = max_per_user
        self._recheck_s = recheck_s
        self._open: Counter[UserId] = Counter()
        self._is_draining = False
        self._stopping = asyncio.Event()
        # Set while no stream is open. A shutdown waits for it.
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return self._open.total()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_draining(self) -> bool:
        """Whether the server stops soon or is stopping: callers should go elsewhere."""
        return self._is_draining

    def drain(self) -> None:
        self._is_draining = True

    def stop(self) -> None:
        self._is_draining = True
        self._stopping.set()

    @contextmanager
    def enter(self, principal: Principal) -> Iterator[None]:
        """Counts a stream for the duration of the block. Raises Unavailable at the user's limit, which the operator
        does not have."""
        user_id = principal.user_id
        if self._open[user_id] >= self._max_per_user and principal.kind != "operator":
            raise Unavailable(f"this user has {self._max_per_user} open streams, which is the limit")
        self._open[user_id] += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._open[user_id] -= 1
            # Otherwise everyone who ever had a stream would stay in memory.
            if not self._open[user_id]:
                del self._open[user_id]
            if not self._open:
                self._empty.set()

    async def wait_until_empty(self, timeout_s: float) -> None:
        """Returns when no stream is open, or after the timeout."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout_s)

    async def is_open(self, principal: Principal) -> bool:
        """Returns False if the server is stopping or the principal has lost access."""
        if self._stopping.is_set():
            return False
        try:
            await self._authenticator.recheck(principal)
        except Unauthenticated:
            return False
        return True

    async def wait_while_open(self, principal: Principal) -> None:
        """Returns when the stream has to end. Access is rechecked every `recheck_s` seconds."""
        while await self.is_open(principal):
            try:
                await asyncio.wait_for(self._stopping.wait(), self._recheck_s)
            except TimeoutError:
                continue
