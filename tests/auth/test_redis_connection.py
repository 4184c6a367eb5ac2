"""What is posted without waiting: it is sent again if the server does not know the script, and a refusal is noticed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from auth.redis import RedisConnection, RedisScript, open_redis
from config.errors import SharedStateUnavailable
from config.settings import Settings
from tests.cases import each_case
from tests.servers.valkey import ValkeyProcess

APPEND = RedisScript("redis.call('APPEND', KEYS[1], ARGV[1])")


@pytest.fixture
async def connection(valkey: ValkeyProcess) -> AsyncIterator[RedisConnection]:
    async with open_redis(Settings(session_url=valkey.url)) as connection:
        await connection.call("PING")
        yield connection


async def test_a_posted_script_that_the_server_has_forgotten_is_sent_again_once(
    valkey: ValkeyProcess, connection: RedisConnection
) -> None:
    assert connection.post(APPEND, ["text"], "a")
    assert await connection.call("GET", "text") == b"a"
    valkey.configure("SCRIPT FLUSH SYNC")
    assert connection.post(APPEND, ["text"], "b")
    await connection.call("PING")

    assert await connection.call("GET", "text") == b"ab"
    assert connection.post(APPEND, ["text"], "c")
    assert await connection.call("GET", "text") == b"abc"


async def test_calls_after_a_refused_change_are_served_without_the_server(
    valkey: ValkeyProcess, connection: RedisConnection
) -> None:
    assert connection.post(APPEND, ["text"], "a")
    await connection.call("PING")
    valkey.configure("CONFIG SET maxmemory 1 maxmemory-policy noeviction")
    assert connection.post(APPEND, ["text"], "b")
    await connection.call("PING")  # sent before the refusal has arrived

    with pytest.raises(SharedStateUnavailable):
        await connection.call("PING")
    assert not connection.post(APPEND, ["text"], "c")


async def test_a_server_that_hangs_is_asked_once_by_calls_at_the_same_time(
    valkey: ValkeyProcess, connection: RedisConnection
) -> None:
    valkey.stop()
    try:
        failures = await asyncio.gather(*(connection.call("PING") for _ in range(50)), return_exceptions=True)
        assert all(isinstance(failure, SharedStateUnavailable) for failure in failures)
        with pytest.raises(SharedStateUnavailable):
            await connection.call("PING")
    finally:
        valkey.resume()
    async with asyncio.timeout(5):
        while not await _answers(connection):
            await asyncio.sleep(0.02)
    assert connection.is_available


async def _answers(connection: RedisConnection) -> bool:
    try:
        return bool(await connection.call("PING"))
    except SharedStateUnavailable:
        return False


async def test_any_text_and_large_replies_come_back_unchanged(connection: RedisConnection) -> None:
    text, many = "half a pair: \ud83d", [f"value {number}" for number in range(20_000)]
    await connection.call("SET", "text", text)
    await connection.call("RPUSH", "many", *many)
    await connection.call("SET", "large", b"\r\n" * 1_000_000)

    text_reply, many_reply, large_reply = await asyncio.gather(
        connection.call("GET", "text"), connection.call("LRANGE", "many", 0, -1), connection.call("GET", "large")
    )

    assert text_reply.decode("utf-8", "surrogatepass") == text
    assert [value.decode() for value in many_reply] == many
    assert large_reply == b"\r\n" * 1_000_000
    assert await connection.call("GET", "missing") is None


@each_case(
    "reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*many\r\n", b"*1\r\n" * 100_000 + b":1\r\n", b"*4294967296\r\n"]
)
async def test_connection_to_a_server_that_does_not_speak_redis_is_closed(reply: bytes) -> None:
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.readuntil(b"PING\r\n")
        writer.write(reply)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with open_redis(Settings(session_url=f"redis://127.0.0.1:{port}", redis_timeout_ms=60_000)) as connection:
            with pytest.raises(SharedStateUnavailable):
                await connection.call("PING")
            assert not connection.is_available
    assert len(connections) == 2
