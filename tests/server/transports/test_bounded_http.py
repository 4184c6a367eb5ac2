"""The head of a request has a size and a time; what comes after it is the door's business."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from server.transports.bounded_http import bounded_http
from tests.live import LiveServer
from tests.server.clients import LegacyClient, message
from tests.server.http_client import RawConnection, fetch, request_bytes

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def listening(head_max_bytes: int = 1000, head_timeout_s: float = 30.0) -> AsyncIterator[str]:
    """A server of that protocol alone."""
    protocol = bounded_http(head_max_bytes, head_timeout_s)
    config = uvicorn.Config(_app, http=protocol, ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()

    def connection() -> asyncio.Protocol:
        return protocol(config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_head_without_end_is_cut_off_before_anybody_is_asked_who_they_are(server: LiveServer) -> None:
    limit = server.runtime.settings.head_max_bytes + server.runtime.settings.token_max_bytes
    async with RawConnection.open(server.url) as wire:
        await wire.send(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for _ in range(limit // 1000 + 400):
            try:
                await wire.send(b"X-Filler: " + b"x" * 1000 + b"\r\n")
            except ConnectionError:
                break
        await wire.closed()


@pytest.mark.parametrize("filler", [b"x", b"a: b\r\n"], ids=["one line", "many lines"])
async def test_a_head_over_the_limit_is_a_bad_request(filler: bytes) -> None:
    async with listening(head_max_bytes=1000) as url, RawConnection.open(url) as wire:
        await wire.send(b"GET / HTTP/1.1\r\na: ")
        await asyncio.sleep(0.01)
        await wire.send(filler * 1200)

        assert (await wire.head())[0] == 400
        await wire.closed()


async def test_a_head_in_many_pieces_below_the_limit_is_read() -> None:
    async with listening(head_max_bytes=1000) as url, RawConnection.open(url) as wire:
        for _ in range(3):
            for piece in (b"GET / HT", b"TP/1.1\r\n", b"a: " + b"x" * 700, b"\r\n", b"\r\n"):
                await wire.send(piece)
                await asyncio.sleep(0.001)
            assert (await wire.answer()).body == b"ok"


async def test_requests_before_a_head_in_pieces_do_not_count_as_head() -> None:
    one = request_bytes("GET", "/", {"Host": "x", "a": "x" * 400})
    async with listening(head_max_bytes=1000) as url, RawConnection.open(url) as wire:
        await wire.send(one * 20 + one[:300])
        await asyncio.sleep(0.01)
        await wire.send(one[300:])

        assert [(await wire.answer()).status for _ in range(21)] == [200] * 21


async def test_a_body_does_not_count_as_head() -> None:
    async with listening(head_max_bytes=1000) as url:
        assert (await fetch(url, "POST", "/", {}, b"x" * 100_000)).status == 200


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(sent: bytes) -> None:
    async with listening(head_timeout_s=0.05) as url, RawConnection.open(url) as wire:
        await wire.send(sent)

        await wire.closed()


async def test_a_second_head_that_does_not_come_in_time_ends_the_connection_too() -> None:
    async with listening(head_timeout_s=0.05) as url, RawConnection.open(url) as wire:
        await wire.send(request_bytes("GET", "/", {"Host": "x"}))
        assert (await wire.answer()).status == 200
        await wire.send(b"GET / HT")

        await wire.closed()


async def test_a_connection_between_two_requests_is_not_hurried() -> None:
    async with listening(head_timeout_s=0.03) as url, RawConnection.open(url) as wire:
        for _ in range(2):
            await wire.send(request_bytes("GET", "/", {"Host": "x"}))
            assert (await wire.answer()).status == 200
            await asyncio.sleep(0.06)


async def test_a_long_credential_is_still_looked_at_and_refused_as_one(server: LiveServer) -> None:
    client = LegacyClient(server, {"Authorization": "Bearer " + "x" * (server.runtime.settings.token_max_bytes + 1)})

    answer = await client.post(msgspec.json.encode(message("ping", {}, 1)))

    assert answer.status == 401
