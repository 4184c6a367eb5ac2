"""uvicorn's HTTP protocol with limits on the size and the duration of a request's header section.

Headers are read before authentication. Without these limits anyone could hold memory and sockets indefinitely.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class BoundedHttp(HttpToolsProtocol):
    """The limits are class attributes, because uvicorn creates the instances."""

    head_max_bytes: ClassVar[int]
    head_timeout_s: ClassVar[float]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = self._head_began = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = self._head_began = True

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of a header section that spans several reads; nearly all fit into one and cost nothing.

        The read in which a header section begins is not counted: it may start with other requests, and its size is
        bounded anyway.
        """
        self._head_began = False
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        self._head_bytes = 0 if self._head_began else self._head_bytes + len(data)
        if self._head_bytes > self.head_max_bytes:
            self.send_400_response("The request headers are too large.")
        elif self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded_http(head_max_bytes: int, head_timeout_s: float) -> type[HttpToolsProtocol]:
    """Returns the protocol class for uvicorn with these limits."""
    return type("BoundedHttp", (BoundedHttp,), {"head_max_bytes": head_max_bytes, "head_timeout_s": head_timeout_s})
