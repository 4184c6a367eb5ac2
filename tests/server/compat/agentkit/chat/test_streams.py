"""Interrupted streams: the turn is stored with the part that arrived."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import Message, Receive, Scope, Send

from auth.context import SCOPES, ClientId, Principal, build_context
from tests.live import LiveServer, live, make_settings
from tests.server.compat.agentkit.chat.conftest import ChatClient, UpstreamProgram
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch

ASK = [{"role": "user", "content": "Which cells are cheaper?"}]


async def start_stream(wire: RawConnection, server: LiveServer, who: str = "ada", **more: Any) -> list[Any]:
    """Starts a stream and reads two events."""
    body = msgspec.json.encode({"messages": ASK, "stream": True, **more})
    await wire.request(
        "POST", "/v1/chat/completions", {"Content-Type": "application/json", **await server.bearer(who)}, body
    )
    assert (await wire.head())[0] == 200
    return [await wire.event(), await wire.event()]


async def stored_messages(server: LiveServer, who: str = "ada") -> list[Any]:
    """Waits for the only conversation and returns its messages."""
    bearer = await server.bearer(who)
    async with asyncio.timeout(WAIT_MAX_S):
        while not (conversations := (await fetch(server.url, "GET", "/conversations", bearer)).json()["conversations"]):
            await asyncio.sleep(0.1)
    [conversation] = conversations
    user = await server.user(who)
    principal = Principal(user.id, who, ClientId("test"), frozenset(SCOPES), "local", "test")
    context = build_context(principal, server.runtime.data_root, "request")
    async with server.runtime.libraries.library(context) as library:
        return list((await library.chats.messages(conversation["id"], 10, 0)).rows)


async def test_client_disconnect_stops_the_upstream_and_stores_the_partial_turn(
    server: LiveServer, upstream: UpstreamProgram
) -> None:
    async with RawConnection.open(server.url) as wire:
        await start_stream(wire, server, model="hanging")
        wire.abort()

    await upstream.wait_for_disconnect()
    question, reply = await stored_messages(server)
    assert question.content == "Which cells are cheaper?"
    assert (reply.content, reply.metadata["cut"]) == ("Sodium is ", "client")
    assert (await fetch(server.url, "GET", "/conversations", await server.bearer("ben"))).json()["total"] == 0


async def test_whole_response_is_stored_after_the_client_disconnects(
    server: LiveServer, upstream: UpstreamProgram
) -> None:
    body = msgspec.json.encode({"messages": ASK, "model": "slow"})
    async with RawConnection.open(server.url) as wire:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await wire.request("POST", "/v1/chat/completions", headers, body)
        await upstream.wait_for_request("slow")
        wire.abort()
    await upstream.release()

    _, reply = await stored_messages(server)
    assert reply.content == "Sodium is cheaper."
    assert "cut" not in reply.metadata


async def test_retry_after_a_disconnect_stores_one_turn_with_the_whole_answer(server: LiveServer) -> None:
    async with RawConnection.open(server.url) as wire:
        await start_stream(wire, server, model="hanging")
        wire.abort()
    await stored_messages(server)

    body = msgspec.json.encode({"messages": ASK, "stream": True, "model": "any"})
    headers = {"Content-Type": "application/json", **await server.bearer("ada")}
    await fetch(server.url, "POST", "/v1/chat/completions", headers, body)

    question, reply = await stored_messages(server)
    assert (question.role, reply.content) == ("user", "Sodium is cheaper.")
    assert "cut" not in reply.metadata


async def test_turn_is_stored_before_the_client_reads_the_end(chat: ChatClient) -> None:
    reader = await chat.api.library_user("ada")
    totals: list[int] = []

    async def watching_app(scope: Scope, receive: Receive, send: Send) -> None:
        async def watch_send(message: Message) -> None:
            if b"[DONE]" in message.get("body", b""):
                async with reader.libraries.library(reader.context) as library:
                    totals.append((await library.chats.list(10, 0)).total)
            await send(message)

        await chat.api.app(scope, receive, watch_send)

    await ChatClient(replace(chat.api, app=watching_app)).complete(ASK, stream=True)

    assert totals == [1]


async def test_crashed_upstream_ends_the_stream_with_an_error_and_marks_the_turn(server: LiveServer) -> None:
    body = msgspec.json.encode({"messages": ASK, "stream": True, "model": "crashing"})
    async with RawConnection.open(server.url) as wire:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await wire.request("POST", "/v1/chat/completions", headers, body)
        response = await wire.response()

    assert b"[DONE]" not in response.body
    assert response.events()[-1]["error"]["code"] == "bad_gateway"
    _, reply = await stored_messages(server)
    assert (reply.content, reply.metadata["cut"]) == ("Sodium ", "upstream")


EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Sodium "},"finish_reason":null}]}\n\n'
FINISHED = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def fake_upstream(response: bytes) -> AsyncIterator[str]:
    """Yields the URL of an API that sends these bytes for any request and closes the connection."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
        writer.write(response)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


INCOMPLETE_STREAMS = {
    "chunks_without_their_end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(EVENT),
    "chunks_that_end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(EVENT) + chunk(b""),
    "a_closed_connection": HEAD + b"Connection: close\r\n\r\n" + EVENT,
    "within_an_event": HEAD + b"Connection: close\r\n\r\n" + EVENT + EVENT[:20],
    "before_an_event": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b""),
}


@pytest.mark.parametrize("raw", INCOMPLETE_STREAMS.values(), ids=INCOMPLETE_STREAMS.keys())
async def test_incomplete_stream_ends_with_an_error_however_the_connection_ended(tmp_path: Path, raw: bytes) -> None:
    from openai import APIError, AsyncOpenAI  # noqa: PLC0415 - as in test_openai_package.py

    async with fake_upstream(raw) as url, live(make_settings(tmp_path, chat_upstream_url=url)) as server:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        body = msgspec.json.encode({"messages": ASK, "stream": True})
        response = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=await server.token("ben"), max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            with pytest.raises(APIError, match=r"the upstream (broke off|sent an incomplete)"):
                _ = [chunk async for chunk in stream]
        reply = (await stored_messages(server))[-1]

    assert b"[DONE]" not in response.body
    assert msgspec.json.decode(response.body.rstrip().rpartition(b"data: ")[2])["error"]["code"] == "bad_gateway"
    assert reply.metadata["cut"] == "upstream"


async def test_stream_with_a_finish_reason_is_complete_without_done(tmp_path: Path) -> None:
    raw = HEAD + b"Connection: close\r\n\r\n" + EVENT + FINISHED
    async with fake_upstream(raw) as url, live(make_settings(tmp_path, chat_upstream_url=url)) as server:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        body = msgspec.json.encode({"messages": ASK, "stream": True})
        response = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)
        _, reply = await stored_messages(server)

    assert response.body == EVENT + FINISHED
    assert "cut" not in reply.metadata


async def test_server_shutdown_stores_the_partial_turn(tmp_path: Path, upstream: UpstreamProgram) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api)
    async with live(settings) as server, RawConnection.open(server.url) as wire:
        await start_stream(wire, server, model="hanging")
        server.runtime.open_streams.stop()
        assert (await wire.event())["error"]["code"] == "service_unavailable"

    async with live(make_settings(tmp_path)) as restarted:
        _, reply = await stored_messages(restarted)
    assert (reply.content, reply.metadata["cut"]) == ("Sodium is ", "server")


async def test_stream_ends_when_access_is_revoked(server: LiveServer) -> None:
    async with RawConnection.open(server.url) as wire:
        await start_stream(wire, server, model="hanging")
        await server.runtime.registry.disable_user((await server.user("ada")).id)

        assert (await wire.event())["error"]["code"] == "service_unavailable"
        assert await wire.event() is None


@pytest.mark.slow("waits for a time limit")
async def test_too_long_turn_is_ended(tmp_path: Path, upstream: UpstreamProgram) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, chat_turn_max_s=1.0)
    async with live(settings) as server:
        async with RawConnection.open(server.url) as wire:
            await start_stream(wire, server, model="hanging")
            assert "error" in await wire.event()
        _, reply = await stored_messages(server)

    assert reply.metadata["cut"] == "server"


# `hanging` must start to respond within the limit, even on a machine that stalls for a second or two.
@pytest.mark.parametrize(
    ("model", "timeout_s"),
    [("silent", 0.3), pytest.param("hanging", 5.0, marks=pytest.mark.slow("waits for a time limit"))],
)
async def test_silent_upstream_times_out(
    tmp_path: Path, upstream: UpstreamProgram, model: str, timeout_s: float
) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, chat_upstream_timeout_s=timeout_s)
    async with live(settings) as server, RawConnection.open(server.url) as wire:
        body = msgspec.json.encode({"messages": ASK, "stream": True, "model": model})
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await wire.request("POST", "/v1/chat/completions", headers, body)
        response = await wire.response()

    error = response.json() if model == "silent" else response.events()[-1]
    assert response.status == (504 if model == "silent" else 200)
    assert error["error"]["code"] == "gateway_timeout"


async def test_unreachable_upstream_returns_502_in_openais_format(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, chat_upstream_url="http://127.0.0.1:1/v1")) as server:
        bearer = await server.bearer("ada")
        headers = {"Content-Type": "application/json", **bearer}
        body = msgspec.json.encode({"messages": ASK})
        response = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)
        models = await fetch(server.url, "GET", "/v1/models", bearer)

    for rejected in (response, models):
        assert rejected.status == 502
        assert rejected.json() == {
            "error": {
                "message": "the upstream cannot be reached",
                "type": "api_error",
                "param": None,
                "code": "bad_gateway",
            }
        }


async def test_too_large_response_returns_502(tmp_path: Path, upstream: UpstreamProgram) -> None:
    async with live(make_settings(tmp_path, chat_upstream_url=upstream.api, chat_response_max_bytes=2048)) as server:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        body = msgspec.json.encode({"messages": ASK, "model": "huge"})
        response = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)

    assert response.status == 502


async def test_too_many_streams_of_a_user_are_rejected(tmp_path: Path, upstream: UpstreamProgram) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, stream_max_per_user=2)
    async with (
        live(settings) as server,
        RawConnection.open(server.url) as first,
        RawConnection.open(server.url) as second,
    ):
        await start_stream(first, server, model="hanging")
        body = msgspec.json.encode({"messages": ASK, "stream": True, "model": "hanging"})
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await second.request("POST", "/v1/chat/completions", headers, body)

        assert (await second.response()).status == 503
        async with RawConnection.open(server.url) as other:
            await start_stream(other, server, "ben", model="hanging")
