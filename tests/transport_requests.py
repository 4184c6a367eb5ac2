"""Counts what reaches a transport: requests to an application, over a socket or in the process, and program starts.

A test that is named in `tests/compatibility/manifests` fails if it causes none, so that no promise rests on a test that
only calls functions.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send


class RequestCounter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1

    def counting(self, app: ASGIApp) -> ASGIApp:
        """Returns the application with its HTTP requests and WebSocket connections counted."""

        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "lifespan":
                self.add()
            await app(scope, receive, send)

        return call


TRANSPORT_REQUESTS = RequestCounter()


@contextmanager
def require_transport(test: str, named_tests: Collection[str]) -> Iterator[None]:
    """Fails if a named test, given as a pytest node id, caused no request within the block."""
    before = TRANSPORT_REQUESTS.count
    yield
    if test.partition("[")[0] in named_tests:
        assert TRANSPORT_REQUESTS.count > before, "a test named in a compatibility manifest must use a transport"
