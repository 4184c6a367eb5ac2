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

from msgspec import Struct

from auth.authenticator import Authenticator
from auth.context import Principal
from auth.rate_limits import network_of
from config.errors import TooLarge, Unauthenticated, Unavailable
from config.paths import UserId
from config.settings import Settings
from server.directory_lock import is_trusted_peer
from server.protocol.messages import TEXT_BYTES, decode

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


# The extension of ASGI by which a request leads to its connection.
CONNECTION = "florilegium.connection"
# Without `connections_max`: this many, or a share of the file descriptors if that is fewer.
_CONNECTIONS_MAX = 4096
# The other descriptors are left to the libraries.
_DESCRIPTOR_SHARE = 3
# What a request has besides its text: a few objects, names and numbers.
_ENVELOPE_BYTES = 4096


# One user can have a quarter of the memory for requests, and as many bytes of responses that were not read.
USER_SHARE = 4


class _UserShare(Struct):
    """What the connections of one user hold together. `frames` is the rate of the user's WebSocket frames."""

    user_id: UserId
    connections: int = 0
    request_bytes: int = 0
    unread_bytes: int = 0
    frames: Pace | None = None


class ClientConnections:
    """All open connections of a server, with the limits of each of them and of all together. The connections themselves
    keep the counts up to date. `on_change` is called with the number of those that stay open."""

    def __init__(self, settings: Settings, on_change: Callable[[int], None] | None = None) -> None:
        self.settings = settings
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
        self.request_max_bytes = max(settings.requests_max_bytes, text_bytes)
        self.user_request_max_bytes = max(settings.requests_max_bytes // USER_SHARE, text_bytes)
        self.one_request_max_bytes = min(self.request_max_bytes, self.user_request_max_bytes)
        self._total = self._closing = self.request_bytes = 0
        self.networks: Counter[str] = Counter()
        self.users: dict[UserId, _UserShare] = {}

    def open(self, address: str, transport: asyncio.Transport) -> "ClientConnection | None":
        """Registers a connection. Returns None if there are too many, of this address or altogether, or if another
        account connects to the socket of the data directory."""
        peer, network = transport.get_extra_info("socket"), network_of(address)
        is_operator = False
        if peer is not None and peer.family == socket.AF_UNIX:
            is_operator = True
            # uvloop's object is not a whole socket.
            with socket.socket(fileno=os.dup(peer.fileno())) as connection:
                if not is_trusted_peer(connection, Path(self.settings.data_dir)):
                    return None
        # The operator gets in when others have taken all connections: that is when access has to be withdrawn.
        elif self._total >= self._max or (self.networks[network] >= self._address_max and not self._is_proxy(address)):
            return None
        self.count(opened=1)
        self.networks[network] += 1
        return ClientConnection(self, transport, network, is_operator=is_operator)

    def count(self, opened: int = 0, closing: int = 0) -> None:
        self._total += opened
        self._closing += closing
        if self._on_change is not None:
            self._on_change(self._total - self._closing)

    def _is_proxy(self, address: str) -> bool:
        """Whether the address is a reverse proxy, whose connections belong to many clients."""
        try:
            return any(ip_address(address) in network for network in self._proxies)
        except ValueError:
            return False


# What a client has to send or read within each timeout. A slow link manages that; a stalled client does not.
PROGRESS_BYTES = 64 * 1024


class ClientConnection:
    """One connection. A reverse proxy may send requests of several users over it, one after the other. `is_operator` is
    set for the socket of the data directory, whose callers may act for every user."""

    def __init__(
        self, connections: ClientConnections, transport: asyncio.Transport, network: str, *, is_operator: bool = False
    ) -> None:
        self.is_operator = is_operator
        self._connections = connections
        self._transport = transport
        self._network: str | None = network
        self._share: _UserShare | None = None
        self._request_share: _UserShare | None = None
        self._request_bytes = self._unread_bytes = 0
        self._unread_timer: asyncio.TimerHandle | None = None
        # Whether the request that is being answered has arrived completely.
        self.has_whole_request = False
        self.is_over_limit = False
        self._is_closing = False

    @property
    def frames(self) -> Pace | None:
        """The rate of the user's WebSocket frames; None before the connection is assigned."""
        share, fixed = self._share, self._connections.settings.fixed
        if share is not None and share.frames is None:
            share.frames = Pace(fixed.ws_frames_per_s, fixed.ws_frames_burst)
        return None if share is None else share.frames

    def assign(self, user_id: UserId) -> None:
        """Counts the connection for the user whose credential it sent last. Raises Unavailable at the user's limit.
        That of the operator counts for none."""
        if self.is_operator or (self._share is not None and user_id == self._share.user_id):
            return
        self._leave()
        share = self._connections.users.get(user_id)
        if share is None:
            share = self._connections.users[user_id] = _UserShare(user_id)
        if share.connections >= self._connections.user_max:
            self.is_over_limit = True
            raise Unavailable(f"this user has {self._connections.user_max} open connections, which is the limit")
        share.connections += 1
        self._share = share

    def close(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self._leave()
        self._connections.count(opened=-1, closing=-self._is_closing)

    def _leave(self) -> None:
        """Counts the connection for no user and no address any more."""
        connections, share = self._connections, self._share
        if share is not None:
            share.unread_bytes -= self._unread_bytes
            share.connections -= 1
            # A request may run longer than its connection.
            if not share.connections and not share.request_bytes:
                connections.users.pop(share.user_id, None)
            self._share, self._unread_bytes = None, 0
        if self._network is not None:
            connections.networks[self._network] -= 1
            if not connections.networks[self._network]:
                del connections.networks[self._network]
            self._network = None

    def begin_closing(self) -> None:
        """Says that the response closes this connection: the client's next one may come before this one has ended."""
        if not self._is_closing:
            self._is_closing = True
            self._connections.count(closing=1)

    # -- requests --------------------------------------------------------------------------------------------------

    def hold_request(self, size: int, held: int | None = None) -> None:
        """Counts memory of a request until it is answered. Raises Unavailable if too much is in use, and TooLarge for a
        request that exceeds the limit alone, because sending it again cannot help. Of the same request, `held` bytes
        are counted already; by default all of this connection."""
        if not self._request_bytes:
            self._request_share = self._share
        connections, share = self._connections, self._request_share
        if (self._request_bytes if held is None else held) + size > connections.one_request_max_bytes:
            raise TooLarge("the decoded request", connections.one_request_max_bytes)
        if connections.request_bytes + size > connections.request_max_bytes:
            raise Unavailable("too many bytes of requests are in flight")
        if share is not None:
            if share.request_bytes + size > connections.user_request_max_bytes:
                raise Unavailable(f"requests of this user have {connections.user_request_max_bytes} bytes in flight")
            share.request_bytes += size
        connections.request_bytes += size
        self._request_bytes += size

    def release_request(self, size: int | None = None) -> None:
        """Releases bytes of requests; by default all."""
        size = self._request_bytes if size is None else size
        if not size:
            return
        self._request_bytes -= size
        self._connections.request_bytes -= size
        share = self._request_share
        if share is not None:
            share.request_bytes -= size
            if not share.connections and not share.request_bytes:
                self._connections.users.pop(share.user_id, None)

    # -- unread output ---------------------------------------------------------------------------------------------
    # Responses that a client does not read: limited in size per user, and in time. The connection is watched from the
    # time its write buffer is full until the client has read it. The application writes nothing in the meantime, so
    # the buffer only shrinks.

    def begin_unread(self) -> None:
        size = self._transport.get_write_buffer_size()
        if self._set_unread(size) > self._connections.settings.requests_max_bytes // USER_SHARE:
            self._transport.abort()
        else:
            self._watch_unread(size)

    def end_unread(self) -> None:
        if self._unread_bytes:
            self._set_unread(0)
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _set_unread(self, size: int) -> int:
        """Sets how many bytes of responses the client has not read, and returns how many they are for the user."""
        if self._share is None:
            return size
        self._share.unread_bytes += size - self._unread_bytes
        self._unread_bytes = size
        return self._share.unread_bytes

    def _watch_unread(self, size: int) -> None:
        timeout_s = self._connections.settings.client_timeout_s
        self._unread_timer = asyncio.get_running_loop().call_later(timeout_s, self._check_unread, size)

    def _check_unread(self, size_before: int) -> None:
        size = self._transport.get_write_buffer_size()
        if size_before - size < PROGRESS_BYTES:
            self._transport.abort()
            return
        self._set_unread(size)
        self._watch_unread(size)


def connection_of(scope: Mapping[str, Any]) -> ClientConnection | None:
    """Returns the connection of a request; None if it did not come from a socket of ours."""
    try:
        connection: ClientConnection = scope["extensions"][CONNECTION]
    except KeyError:
        return None
    return connection


def decode_body(body: bytes, connection: ClientConnection | None) -> Any:
    """Decodes the body of an HTTP request. Its memory counts until the request is answered."""
    return decode(body, None if connection is None else connection.hold_request)


# -- open streams ------------------------------------------------------------------------------------------------------
# Open WebSockets and event streams: limited per user, and closed when access is revoked or the server stops.


class OpenStreams:
    """Counts open streams, and decides whether a stream may stay open."""

    def __init__(self, authenticator: Authenticator, max_per_user: int, recheck_s: float) -> None:
        self._authenticator = authenticator
        self._max_per_user = max_per_user
        self._recheck_s = recheck_s
        self._open: Counter[UserId] = Counter()
        # Called by `stop`, for the server that accepts connections.
        self.on_stop: Callable[[], None] | None = None
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
        if self.on_stop is not None:
            self.on_stop()

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
