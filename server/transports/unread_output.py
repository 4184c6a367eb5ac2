"""Responses that a client does not read: limited in size per user, and in time."""

import asyncio

from config.settings import Settings
from server.transports.client_connections import ClientConnection

# What a client has to send or read within each timeout. A slow link manages that; a stalled client does not.
PROGRESS_BYTES = 64 * 1024


class UnreadOutput:
    """Watches one connection from the time its write buffer is full until the client has read it.

    The application writes nothing in the meantime, so the buffer only shrinks.
    """

    def __init__(self, transport: asyncio.Transport, client: ClientConnection, settings: Settings) -> None:
        self._transport = transport
        self._client = client
        self._timeout_s = settings.write_timeout_s
        self._max_bytes = settings.user_unread_max_bytes
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
