"""Requests that a client sends without waiting for the responses (RFC 9112 section 9.3.2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from msgspec import Struct
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from config.settings import Settings
from server.transports.bounded_http import SLICE_BYTES, bounded_http
from server.transports.bounded_websocket import bounded_websocket
from server.transports.client_connections import ClientConnections
from tests.server.http_client import RawConnection, request_bytes


class EchoServer(Struct):
    """Answers each request with its body, after `delay_s`, and counts the requests that wait."""

    url: str = ""
    delay_s: float = 0.0
    parsed: int = 0
    answered: int = 0
    most_waiting: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.most_waiting = max(self.most_waiting, self.parsed - self.answered)
        await asyncio.sleep(self.delay_s)
        body, has_more = b"", True
        while has_more:
            message = await receive()
            body, has_more = body + message["body"], message["more_body"]
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self.answered += 1
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def echo_server(delay_s: float = 0.0, head_timeout_s: float = 30.0) -> AsyncIterator[EchoServer]:
    settings = Settings(client_timeout_s=head_timeout_s)
    app, connections = EchoServer(delay_s=delay_s), ClientConnections(settings)

    class Protocol(bounded_http(settings, connections)):  # type: ignore[misc]  # made by a function
        def on_headers_complete(self) -> None:
            app.parsed += 1
            super().on_headers_complete()

    websocket = bounded_websocket(settings, connections)
    config = uvicorn.Config(app, http=Protocol, ws=websocket, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: Protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        app.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield app


async def test_pipelined_requests_wait_in_the_client_and_not_in_memory() -> None:
    request, count = request_bytes("GET", "/", {"Host": "x"}), 3_000
    async with echo_server() as server, RawConnection.open(server.url) as connection:
        sending = asyncio.create_task(connection.send(request * count))
        statuses = [(await connection.response()).status for _ in range(count)]
        await sending

    assert statuses == [200] * count
    # One slice is parsed while the last request of the slice before is answered.
    assert server.most_waiting <= SLICE_BYTES // len(request) + 2


async def test_pipelined_bodies_larger_than_a_slice_arrive_whole_and_in_order() -> None:
    bodies = [b"%d " % number * (3 * SLICE_BYTES) for number in range(20)]
    requests = [request_bytes("POST", "/", {"Host": "x"}, body) for body in bodies]
    async with echo_server() as server, RawConnection.open(server.url) as connection:
        sending = asyncio.create_task(connection.send(b"".join(requests)))
        received = [(await connection.response()).body for _ in bodies]
        await sending

    assert received == bodies


async def test_headers_that_wait_for_earlier_responses_are_not_late() -> None:
    """The last request arrives in part, and the server reads the rest only when the others are answered."""
    request = request_bytes("GET", "/", {"Host": "x"})
    async with echo_server(delay_s=0.1, head_timeout_s=0.2) as server, RawConnection.open(server.url) as connection:
        await connection.send(request * 6 + request[:10])
        await asyncio.sleep(0.05)
        await connection.send(request[10:])

        assert [(await connection.response()).status for _ in range(7)] == [200] * 7


async def test_a_websocket_does_not_begin_before_the_response_to_an_earlier_request() -> None:
    upgrade = {"Host": "x", "Connection": "Upgrade", "Upgrade": "websocket"}
    handshake = {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    async with echo_server(delay_s=0.1) as server, RawConnection.open(server.url) as connection:
        first = request_bytes("POST", "/", {"Host": "x"}, b"echo")
        await connection.send(first + request_bytes("GET", "/", upgrade | handshake))

        assert await connection.closed() == b""
