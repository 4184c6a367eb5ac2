"""Slow and endless clients over real sockets. The server must close each of them, and answer a user meanwhile."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress

from msgspec import Struct
from websockets.frames import Frame, Opcode

from tests.attack.tenants import Tenant, ping
from tests.server.clients import JSON_AND_EVENTS
from tests.server.http_client import RawConnection, fetch, request_bytes

# Time limits of the attacked server, in seconds. The defaults are longer and only make the attack take longer.
SHORT_TIMEOUTS = {"client_timeout_s": 2.0, "idle_timeout_s": 2.0}
_USER_PAUSE_S = 0.05
_HOST = {"Host": "127.0.0.1"}
_UPGRADE = {
    **_HOST,
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
_EMPTY_PING = Frame(Opcode.PING, b"").serialize(mask=True)


class SlowClient(Struct, frozen=True):
    """Sends `start` and then `part` again and again. It reads what it gets only if `is_reading`."""

    name: str
    start: bytes
    part: bytes
    pause_s: float
    is_reading: bool = True


class SlowClientResult(Struct):
    """`open_clients` names those that the server did not close. The user's calls were made meanwhile."""

    clients: int
    open_clients: list[str]
    user_calls: int
    failed_user_calls: int
    slowest_user_call_s: float


def slow_clients(credential: Mapping[str, str]) -> Iterator[SlowClient]:
    signed = {**_HOST, **JSON_AND_EVENTS, **credential}
    unsigned = {**_HOST, **JSON_AND_EVENTS}
    chunked = {"Transfer-Encoding": "chunked"}
    refused = request_bytes("POST", "/mcp", unsigned, b"{}")
    yield SlowClient("sends nothing", b"", b"", 0.2)
    yield SlowClient("sends its headers one byte at a time", b"GET / HTTP/1.1\r\nX: ", b"x", 0.05)
    yield SlowClient("never ends its headers", b"GET / HTTP/1.1\r\n", b"X: " + b"x" * 8000 + b"\r\n", 0.001)
    yield SlowClient(
        "sends its body one byte at a time",
        request_bytes("POST", "/mcp", {**signed, "Content-Length": "9999"}),
        b" ",
        0.05,
    )
    yield SlowClient(
        "never ends its body",
        request_bytes("POST", "/mcp", {**signed, **chunked}, b""),
        b"10000\r\n" + b" " * 65536 + b"\r\n",
        0,
    )
    yield SlowClient(
        "sends chunks of one byte",
        request_bytes("POST", "/mcp", {**signed, **chunked}, b""),
        b"1\r\n \r\n" * 100,
        0.001,
    )
    yield SlowClient(
        "never ends its body, without a credential",
        request_bytes("POST", "/mcp", {**unsigned, **chunked}, b""),
        b"100\r\n" + b" " * 256 + b"\r\n",
        0.01,
    )
    yield SlowClient("repeats refused requests", refused, refused * 20, 0.001)
    yield SlowClient(
        "never reads its responses", b"", request_bytes("GET", "/openapi.json", _HOST) * 10, 0, is_reading=False
    )
    yield SlowClient(
        "floods with pings, without a credential", request_bytes("GET", "/mcp/ws", _UPGRADE), _EMPTY_PING * 1000, 0
    )
    upgrade = request_bytes("GET", "/mcp/ws", {**_UPGRADE, **credential})
    yield SlowClient("floods with pings", upgrade, _EMPTY_PING * 1000, 0.001)
    yield SlowClient(
        "never ends a message", upgrade, Frame(Opcode.CONT, b"x" * 60_000, fin=False).serialize(mask=True), 0.001
    )


async def attack_with_slow_clients(
    url: str, attacker: Tenant, user: Tenant, copies: int, limit_s: float
) -> SlowClientResult:
    """Runs every kind of client several times at once, until the server has closed all or the time is over."""
    clients = [client for client in slow_clients(attacker.credential) for _ in range(copies)]
    running = asyncio.gather(*(_is_closed(url, client, limit_s) for client in clients))
    result = SlowClientResult(len(clients), [], 0, 0, 0.0)
    while not running.done():
        await _call_as_user(url, user, result)
    counts = Counter(client.name for client, is_closed in zip(clients, await running, strict=True) if not is_closed)
    result.open_clients = [f"{count} that {name}" for name, count in counts.items()]
    return result


async def _call_as_user(url: str, user: Tenant, result: SlowClientResult) -> None:
    headers = {**JSON_AND_EVENTS, **user.credential, "Mcp-Session-Id": user.session_id}
    started_at = time.monotonic()
    response = await fetch(url, "POST", "/mcp", headers, ping())
    result.user_calls += 1
    result.failed_user_calls += response.status != 200
    result.slowest_user_call_s = max(result.slowest_user_call_s, time.monotonic() - started_at)
    await asyncio.sleep(_USER_PAUSE_S)


async def _is_closed(url: str, client: SlowClient, limit_s: float) -> bool:
    """Returns whether the server closed the connection before the time was over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s), RawConnection.open(url) as connection:
            await _send_until_closed(connection, client)
            return True
    return False


async def _send_until_closed(connection: RawConnection, client: SlowClient) -> None:
    reading = asyncio.ensure_future(connection.closed() if client.is_reading else asyncio.Event().wait())
    try:
        await connection.send(client.start)
        while not reading.done():
            await connection.send(client.part)
            await asyncio.sleep(client.pause_s)
    except ConnectionError:
        return
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
