"""uvicorn's HTTP protocol with two limits that it lacks: how large and how slow the head of a request may be.

A head is read before anybody is authenticated. Without them a stranger could hold memory and sockets for ever.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class BoundedHttp(HttpToolsProtocol):
    """The limits are those of the class, because uvicorn makes the instances."""

    head_max_bytes: ClassVar[int]
    head_timeout_s: ClassVar[float]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head_bytes = 0
        self._is_in_head = self._began_here = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = self._began_here = True

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """A head that comes in one piece, as nearly all do, costs nothing here. The piece in which a head begins is not
        counted: it may hold other requests before it, and is bounded by the size of a read."""
        self._began_here = False
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        self._head_bytes = 0 if self._began_here else self._head_bytes + len(data)
        if self._head_bytes > self.head_max_bytes:
            self.send_400_response("The head of the request is too large.")
        elif self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded_http(head_max_bytes: int, head_timeout_s: float) -> type[HttpToolsProtocol]:
    """The protocol for uvicorn, with its limits filled in."""
    return type("BoundedHttp", (BoundedHttp,), {"head_max_bytes": head_max_bytes, "head_timeout_s": head_timeout_s})
