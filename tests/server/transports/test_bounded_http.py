"""Limits on the size and duration of a request's header section."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from server.transports.bounded_http import bounded_http
from server.transports.bounded_websocket import bounded_websocket
from server.transports.client_connections import ClientConnections
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.live import LiveServer
from tests.server.clients import LegacyClient, message
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch, request_bytes


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def listening(
    head_max_bytes: int = 1000,
    head_timeout_s: float = 30.0,
    app: ASGIApp = _app,
    idle_timeout_s: float = 30.0,
    refused_body_timeout_s: float = 30.0,
    on_change: Callable[[int], None] | None = None,
    state: ServerState | None = None,
    *,
    has_websockets: bool = False,
) -> AsyncIterator[str]:
    """Runs a server with this protocol only. `on_change` is called with the number of connections."""
    token_bytes = 256
    settings = build_settings(
        head_max_bytes=head_max_bytes - token_bytes,
        token_max_bytes=token_bytes,
        client_timeout_s=head_timeout_s,
        refused_body_timeout_s=refused_body_timeout_s,
    )
    connections = ClientConnections(settings, on_change)
    protocol = bounded_http(settings, connections)
    websocket = bounded_websocket(settings, connections) if has_websockets else "none"
    config = uvicorn.Config(app, http=protocol, ws=websocket, lifespan="off", log_config=None)
    config.timeout_keep_alive = idle_timeout_s  # type: ignore[assignment]  # passed to call_later
    config.load()
    server_state = state or ServerState()

    def connection() -> asyncio.Protocol:
        return protocol(config=config, server_state=server_state, app_state={})

    listener = socket.create_server(("127.0.0.1", 0))
    # The kernel holds little, so that a test can have unread output without sending much.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server = await asyncio.get_running_loop().create_server(connection, sock=listener)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_endless_headers_are_rejected_before_authentication(server: LiveServer) -> None:
    limit = server.runtime.settings.fixed.head_max_bytes + server.runtime.settings.fixed.token_max_bytes
    async with RawConnection.open(server.url) as connection:
        await connection.send(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for _ in range(limit // 1000 + 400):
            try:
                await connection.send(b"X-Filler: " + b"x" * 1000 + b"\r\n")
            except ConnectionError:
                break
        await connection.closed()


@each_case("filler", [b"x", b"a: b\r\n"])
async def test_headers_over_the_limit_are_rejected_with_400(filler: bytes) -> None:
    async with listening(head_max_bytes=1000) as url, RawConnection.open(url) as connection:
        await connection.send(b"GET / HTTP/1.1\r\na: ")
        await asyncio.sleep(0.01)
        await connection.send(filler * 1200)

        assert (await connection.head())[0] == 400
        await connection.closed()


@each_case(("size", "status"), [(1000, 200), (1001, 400)])
async def test_header_bytes_are_counted_exactly(size: int, status: int) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n"
    async with listening(head_max_bytes=1000) as url, RawConnection.open(url) as connection:
        await connection.send(head % (b"x" * (size - len(head % b""))))

        assert (await connection.head())[0] == status


async def test_headers_in_many_pieces_below_the_limit_are_accepted() -> None:
    async with listening(head_max_bytes=1000) as url, RawConnection.open(url) as connection:
        for _ in range(3):
            for piece in (b"GET / HT", b"TP/1.1\r\n", b"a: " + b"x" * 700, b"\r\n", b"\r\n"):
                await connection.send(piece)
                await asyncio.sleep(0.001)
            assert (await connection.response()).body == b"ok"


async def test_pipelined_requests_do_not_count_as_headers() -> None:
    request = request_bytes("GET", "/", {"Host": "x", "a": "x" * 400})
    async with listening(head_max_bytes=1000) as url, RawConnection.open(url) as connection:
        await connection.send(request * 20 + request[:300])
        await asyncio.sleep(0.01)
        await connection.send(request[300:])

        assert [(await connection.response()).status for _ in range(21)] == [200] * 21


async def test_a_body_does_not_count_as_headers() -> None:
    async with listening(head_max_bytes=1000) as url:
        assert (await fetch(url, "POST", "/", {}, b"x" * 100_000)).status == 200


# A line break between two requests is allowed (RFC 9112 section 2.2), and is not the beginning of one.
@each_case("sent", [b"", b"\r\n"])
async def test_idle_connections_are_closed(sent: bytes) -> None:
    async with listening(idle_timeout_s=0.05) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "x"}) * 2)
        assert [(await connection.response()).body for _ in range(2)] == [b"ok", b"ok"]
        await connection.send(sent)

        await connection.closed()


async def test_a_connection_is_not_idle_while_a_request_is_answered() -> None:
    timeout_s, served = 0.05, 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal served
        if served:
            await asyncio.sleep(2 * timeout_s)
        served += 1
        await _app(scope, receive, send)

    async with listening(app=app, idle_timeout_s=timeout_s) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "x"}) * 2)

        assert [(await connection.response()).body for _ in range(2)] == [b"ok", b"ok"]
        await connection.closed()


@each_case("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_late_headers_close_the_connection(sent: bytes) -> None:
    async with listening(head_timeout_s=0.05) as url, RawConnection.open(url) as connection:
        await connection.send(sent)

        await connection.closed()


async def test_late_headers_of_a_second_request_close_the_connection() -> None:
    async with listening(head_timeout_s=0.5) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "x"}))
        assert (await connection.response()).status == 200
        await connection.send(b"GET / HT")

        await connection.closed()


async def test_an_idle_connection_between_requests_stays_open() -> None:
    async with listening(head_timeout_s=0.5) as url, RawConnection.open(url) as idle, RawConnection.open(url) as late:
        for _ in range(2):
            await idle.send(request_bytes("GET", "/", {"Host": "x"}))
            assert (await idle.response()).status == 200
            await late.closed()  # its time for the headers is over


async def test_a_too_long_credential_is_rejected_with_401(server: LiveServer) -> None:
    client = LegacyClient(
        server, {"Authorization": "Bearer " + "x" * (server.runtime.settings.fixed.token_max_bytes + 1)}
    )

    response = await client.post(msgspec.json.encode(message("ping", {}, 1)))

    assert response.status == 401


@each_case(
    "headers, body",
    [
        ([(b"content-length", b"2"), (b"x-name", b"a\r\nset-cookie: b")], b"ok"),
        ([(b"content-length", b"2"), (b"x-name", b"a\nset-cookie: b")], b"ok"),
        ([(b"content-length", b"3")], b"ok"),
        ([(b"content-length", b"1")], b"ok"),
    ],
)
async def test_a_malformed_response_of_an_application_ends_the_connection(
    headers: list[tuple[bytes, bytes]], body: bytes, failures: list[str]
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async with listening(app=app) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "127.0.0.1"}))
        received = await connection.closed()
    assert b"set-cookie" not in received
    assert b"x-name" not in received
    # Twice, if another test has sent what the standard library logs to our log.
    assert failures
    assert all("RuntimeError" in failure for failure in failures)
    failures.clear()


async def test_an_application_that_fails_before_the_body_gets_a_500(failures: list[str]) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        raise ValueError

    async with listening(app=app) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "127.0.0.1"}))
        assert (await connection.response()).status == 500
        await connection.closed()
    assert failures
    assert all("ValueError" in failure for failure in failures)
    failures.clear()


async def test_a_response_can_close_the_connection() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"2"), (b"Connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async with listening(app=app) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "127.0.0.1"}))
        assert (await connection.response()).body == b"ok"
        assert await connection.closed() == b""


_CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_trailers_are_not_headers() -> None:
    seen: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        seen.extend(name for name, _ in scope["headers"])
        await _app(scope, receive, send)

    async with listening(app=app) as url, RawConnection.open(url) as connection:
        await connection.send(_CHUNKED + b"2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
        assert (await connection.response()).status == 200
    assert seen == [b"host", b"transfer-encoding"]


@each_case("filler", [b"0\r\n" + b"a: b\r\n" * 800, b"0\r\na: " + b"x" * 4000, b"1;" + b"x" * 4000])
@each_case("is_answered", [True, False])
async def test_endless_trailers_and_chunk_extensions_are_rejected(filler: bytes, is_answered: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not is_answered:
            while (await receive()).get("more_body"):
                pass
        await _app(scope, receive, send)

    async with listening(head_max_bytes=1000, app=app) as url, RawConnection.open(url) as connection:
        await connection.send(_CHUNKED + b"2\r\n{}\r\n")
        if is_answered:
            assert (await connection.response()).status == 200
        await connection.send(filler)

        # A response that was sent is the only one to this request.
        assert (await connection.closed())[:12] == (b"" if is_answered else b"HTTP/1.1 400")


async def test_many_chunks_with_short_extensions_and_trailers_are_accepted() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await _app(scope, receive, send)

    async with listening(head_max_bytes=1000, app=app) as url, RawConnection.open(url) as connection:
        chunk = b"40;name=value\r\n" + b"x" * 64 + b"\r\n"
        await connection.send(_CHUNKED + chunk * 1000 + b"0\r\nA: b\r\n\r\n")
        assert (await connection.response()).status == 200


async def test_requests_after_an_upgrade_that_is_ignored_are_answered() -> None:
    upgrade = request_bytes("GET", "/", {"Host": "x", "Connection": "Upgrade", "Upgrade": "h2c"})
    async with listening() as url, RawConnection.open(url) as connection:
        await connection.send(upgrade * 2 + request_bytes("GET", "/", {"Host": "x"}))

        assert [(await connection.response()).body for _ in range(3)] == [b"ok"] * 3


@each_case("connection_header", ["Upgrade", "Upgrade, close"])
@each_case("name", ["h2c", "websocket"])
async def test_the_body_of_a_request_with_an_ignored_upgrade_is_no_request(connection_header: str, name: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    hidden, headers = request_bytes("GET", "/", {"Host": "x"}), {"Connection": connection_header, "Upgrade": name}
    async with listening(app=app) as url, RawConnection.open(url) as connection:
        for body in (hidden, b"") if connection_header == "Upgrade" else (hidden,):
            await connection.request("POST", "/", headers, body)

            assert (await connection.response()).body == body
        if connection_header != "Upgrade":
            assert await connection.closed() == b""


@each_case("target", ["/", "x:443"])
async def test_the_body_of_a_connect_request_is_no_request(target: str) -> None:
    async with listening() as url, RawConnection.open(url) as connection:
        await connection.request("CONNECT", target, body=request_bytes("GET", "/", {"Host": "x"}))

        assert (await connection.response()).status == 400
        assert await connection.closed() == b""


async def test_a_malformed_request_does_not_answer_the_one_before() -> None:
    answer = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer.wait()
        await _app(scope, receive, send)

    async with listening(app=app) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "x"}) + b"malformed\r\n\r\n")

        assert await connection.closed() == b""
        answer.set()


async def test_every_pipelined_request_learns_that_the_client_has_disconnected() -> None:
    disconnected = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def stream() -> None:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                await asyncio.sleep(0.01)

        await send({"type": "http.response.start", "status": 200, "headers": []})
        streaming = asyncio.create_task(stream())
        while (await receive())["type"] != "http.disconnect":
            pass
        streaming.cancel()
        disconnected.set()

    async with listening(app=app) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "x"}) * 3)
        await connection.head()
        connection.abort()
        async with asyncio.timeout(WAIT_MAX_S):
            await disconnected.wait()


async def test_the_body_of_a_pipelined_request_may_take_longer_than_a_refused_one() -> None:
    timeout_s, served = 0.05, 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal served
        served += 1
        while served > 1 and (await receive()).get("more_body"):
            pass
        await _app(scope, receive, send)

    async with listening(app=app, refused_body_timeout_s=timeout_s) as url, RawConnection.open(url) as connection:
        second = request_bytes("POST", "/", {"Host": "x"}, b"body")
        await connection.send(request_bytes("GET", "/", {"Host": "x"}) + second[:-1])
        assert (await connection.response()).body == b"ok"
        await asyncio.sleep(4 * timeout_s)
        await connection.send(second[-1:])

        assert (await connection.response()).body == b"ok"


async def test_a_connection_is_idle_after_the_end_of_a_refused_body() -> None:
    timeout_s = 0.05
    async with listening(idle_timeout_s=timeout_s) as url, RawConnection.open(url) as connection:
        request = request_bytes("POST", "/", {"Host": "x"}, b"body")
        await connection.send(request[:-1])
        assert (await connection.response()).body == b"ok"
        await asyncio.sleep(4 * timeout_s)
        await connection.send(request[-1:])

        await connection.closed()


@each_case(
    ("headers", "is_upgraded"), [([], False), ([(b"connection", b"close")], False), ([(b"connection", b"close")], True)]
)
async def test_a_closed_connection_whose_output_is_not_read_is_aborted(
    headers: list[tuple[bytes, bytes]], is_upgraded: bool
) -> None:
    body, ended, written = b"x" * 50_000, asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length, *headers]})
        await send({"type": "http.response.body", "body": body[int(is_upgraded) :], "more_body": is_upgraded})
        written.set()
        await receive()
        await receive()

    def note(open_connections: int) -> None:
        if not open_connections:
            ended.set()

    async with listening(
        app=app, head_timeout_s=0.1, idle_timeout_s=0.1, on_change=note, has_websockets=is_upgraded
    ) as url:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            client.sendall(request_bytes("GET", "/", {"Host": "x"}))
            async with asyncio.timeout(WAIT_MAX_S):
                await written.wait()
                if is_upgraded:
                    client.sendall(request_bytes("GET", "/", {"Connection": "Upgrade", "Upgrade": "websocket"}))
                await ended.wait()


async def test_a_response_whose_body_follows_while_the_server_stops_closes_the_connection() -> None:
    state = ServerState()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        for connection in state.connections:
            connection.shutdown()
        await send({"type": "http.response.body", "body": b"ok"})

    async with listening(app=app, state=state) as url, RawConnection.open(url) as connection:
        await connection.send(request_bytes("GET", "/", {"Host": "x"}))
        assert (await connection.response()).header("connection") == "close"
        assert await connection.closed() == b""
