"""Streams that do not come to their end: the turn is kept all the same, with what had come."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from openai import APIError, AsyncOpenAI
from starlette.types import Message, Receive, Scope, Send

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from tests.live import LiveServer, live, make_settings
from tests.server.compat.agentkit.chat.conftest import Chatroom, UpstreamProgram
from tests.server.http_client import PATIENCE_S, RawConnection, fetch

ASK = [{"role": "user", "content": "Which cells are cheaper?"}]


async def begin(wire: RawConnection, server: LiveServer, who: str = "ada", **more: Any) -> list[Any]:
    """A stream of which two events were read."""
    body = msgspec.json.encode({"messages": ASK, "stream": True, **more})
    await wire.request(
        "POST", "/v1/chat/completions", {"Content-Type": "application/json", **await server.bearer(who)}, body
    )
    assert (await wire.head())[0] == 200
    return [await wire.event(), await wire.event()]


async def kept(server: LiveServer, who: str = "ada") -> list[Any]:
    """The messages of the one conversation, as soon as there is one."""
    bearer = await server.bearer(who)
    async with asyncio.timeout(PATIENCE_S):
        while not (listed := (await fetch(server.url, "GET", "/conversations", bearer)).json()["conversations"]):
            await asyncio.sleep(0.1)
    [one] = listed
    user = await server.user(who)
    principal = Principal(user.id, who, ClientId("test"), frozenset(SCOPES), "local", "test")
    context = build_context(principal, server.runtime.data_root, "request")
    async with server.runtime.libraries.library(context) as library:
        return list((await library.chats.messages(one["id"], 10, 0)).rows)


async def test_a_client_that_leaves_ends_the_upstream_and_its_turn_is_kept_as_far_as_it_came(
    server: LiveServer, upstream: UpstreamProgram
) -> None:
    async with RawConnection.open(server.url) as wire:
        await begin(wire, server, model="hanging")
        wire.abort()

    await upstream.wait_until_broken_off()
    asked, answered = await kept(server)
    assert asked.content == "Which cells are cheaper?"
    assert (answered.content, answered.metadata["cut"]) == ("Sodium is ", "client")
    assert (await fetch(server.url, "GET", "/conversations", await server.bearer("ben"))).json()["total"] == 0


async def test_a_whole_answer_is_kept_though_its_client_has_left(server: LiveServer, upstream: UpstreamProgram) -> None:
    body = msgspec.json.encode({"messages": ASK, "model": "slow"})
    async with RawConnection.open(server.url) as wire:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await wire.request("POST", "/v1/chat/completions", headers, body)
        await upstream.wait_until_asked_for("slow")
        wire.abort()
    await upstream.release()

    _, answered = await kept(server)
    assert answered.content == "Sodium is cheaper."
    assert "cut" not in answered.metadata


async def test_a_client_that_tries_again_has_one_turn_and_the_whole_answer(server: LiveServer) -> None:
    async with RawConnection.open(server.url) as wire:
        await begin(wire, server, model="hanging")
        wire.abort()
    await kept(server)

    body = msgspec.json.encode({"messages": ASK, "stream": True, "model": "any"})
    headers = {"Content-Type": "application/json", **await server.bearer("ada")}
    await fetch(server.url, "POST", "/v1/chat/completions", headers, body)

    asked, answered = await kept(server)
    assert (asked.role, answered.content) == ("user", "Sodium is cheaper.")
    assert "cut" not in answered.metadata


async def test_when_a_client_reads_the_end_the_turn_is_there(room: Chatroom) -> None:
    reader = await room.api.reader("ada")
    found: list[int] = []

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def look(message: Message) -> None:
            if b"[DONE]" in message.get("body", b""):
                async with reader.libraries.library(reader.context) as library:
                    found.append((await library.chats.list(10, 0)).total)
            await send(message)

        await room.api.app(scope, receive, look)

    await Chatroom(replace(room.api, app=watched)).complete(ASK, stream=True)

    assert found == [1]


async def test_an_upstream_that_dies_breaks_the_stream_off_and_the_turn_says_so(server: LiveServer) -> None:
    body = msgspec.json.encode({"messages": ASK, "stream": True, "model": "dying"})
    async with RawConnection.open(server.url) as wire:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await wire.request("POST", "/v1/chat/completions", headers, body)
        answer = await wire.answer()

    assert b"[DONE]" not in answer.body
    assert answer.events()[-1]["error"]["code"] == "bad_gateway"
    _, answered = await kept(server)
    assert (answered.content, answered.metadata["cut"]) == ("Sodium ", "upstream")


EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Sodium "},"finish_reason":null}]}\n\n'
FINISHED = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def saying(answer: bytes) -> AsyncIterator[str]:
    """The address of an API that answers these bytes, whatever it is asked, and closes the connection."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


BROKEN_OFF = {
    "chunks_without_their_end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(EVENT),
    "chunks_that_end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(EVENT) + chunk(b""),
    "a_closed_connection": HEAD + b"Connection: close\r\n\r\n" + EVENT,
    "within_an_event": HEAD + b"Connection: close\r\n\r\n" + EVENT + EVENT[:20],
    "before_an_event": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b""),
}


@pytest.mark.parametrize("raw", BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
async def test_a_stream_that_ends_before_its_answer_does_is_an_error_however_the_connection_ended(
    tmp_path: Path, raw: bytes
) -> None:
    async with saying(raw) as url, live(make_settings(tmp_path, chat_upstream_url=url)) as server:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        body = msgspec.json.encode({"messages": ASK, "stream": True})
        answer = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=await server.token("ben"), max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            with pytest.raises(APIError, match="the upstream broke off"):
                _ = [piece async for piece in stream]
        answered = (await kept(server))[-1]

    assert b"[DONE]" not in answer.body
    assert msgspec.json.decode(answer.body.rstrip().rpartition(b"data: ")[2])["error"]["code"] == "bad_gateway"
    assert answered.metadata["cut"] == "upstream"


async def test_an_answer_that_told_why_it_ended_is_whole_without_done(tmp_path: Path) -> None:
    raw = HEAD + b"Connection: close\r\n\r\n" + EVENT + FINISHED
    async with saying(raw) as url, live(make_settings(tmp_path, chat_upstream_url=url)) as server:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        body = msgspec.json.encode({"messages": ASK, "stream": True})
        answer = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)
        _, answered = await kept(server)

    assert answer.body == EVENT + FINISHED
    assert "cut" not in answered.metadata


async def test_a_server_that_stops_keeps_what_had_come(tmp_path: Path, upstream: UpstreamProgram) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api)
    async with live(settings) as server, RawConnection.open(server.url) as wire:
        await begin(wire, server, model="hanging")
        server.runtime.open_streams.stop()
        assert (await wire.event())["error"]["code"] == "service_unavailable"

    async with live(make_settings(tmp_path)) as again:
        _, answered = await kept(again)
    assert (answered.content, answered.metadata["cut"]) == ("Sodium is ", "server")


async def test_a_stream_ends_when_access_is_withdrawn(server: LiveServer) -> None:
    async with RawConnection.open(server.url) as wire:
        await begin(wire, server, model="hanging")
        await server.runtime.registry.disable_user((await server.user("ada")).id)

        assert (await wire.event())["error"]["code"] == "service_unavailable"
        assert await wire.event() is None


async def test_a_turn_that_goes_on_too_long_is_ended(tmp_path: Path, upstream: UpstreamProgram) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, chat_turn_max_s=1.0)
    async with live(settings) as server:
        async with RawConnection.open(server.url) as wire:
            await begin(wire, server, model="hanging")
            assert "error" in await wire.event()
        _, answered = await kept(server)

    assert answered.metadata["cut"] == "server"


@pytest.mark.parametrize("model", ["silent", "hanging"])
async def test_an_upstream_that_falls_silent_is_given_up(tmp_path: Path, upstream: UpstreamProgram, model: str) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, chat_upstream_timeout_s=0.3)
    async with live(settings) as server, RawConnection.open(server.url) as wire:
        body = msgspec.json.encode({"messages": ASK, "stream": True, "model": model})
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await wire.request("POST", "/v1/chat/completions", headers, body)
        answer = await wire.answer()

    told = answer.json() if model == "silent" else answer.events()[-1]
    assert answer.status == (504 if model == "silent" else 200)
    assert told["error"]["code"] == "gateway_timeout"


async def test_an_upstream_that_is_down_is_502_in_openais_form(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, chat_upstream_url="http://127.0.0.1:1/v1")) as server:
        bearer = await server.bearer("ada")
        headers = {"Content-Type": "application/json", **bearer}
        body = msgspec.json.encode({"messages": ASK})
        answer = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)
        models = await fetch(server.url, "GET", "/v1/models", bearer)

    for refused in (answer, models):
        assert refused.status == 502
        assert refused.json() == {
            "error": {
                "message": "the upstream cannot be reached",
                "type": "api_error",
                "param": None,
                "code": "bad_gateway",
            }
        }


async def test_an_answer_larger_than_is_taken_is_502(tmp_path: Path, upstream: UpstreamProgram) -> None:
    async with live(make_settings(tmp_path, chat_upstream_url=upstream.api, chat_response_max_bytes=2048)) as server:
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        body = msgspec.json.encode({"messages": ASK, "model": "huge"})
        answer = await fetch(server.url, "POST", "/v1/chat/completions", headers, body)

    assert answer.status == 502


async def test_more_streams_than_a_user_may_have_are_refused(tmp_path: Path, upstream: UpstreamProgram) -> None:
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, stream_max_per_user=2)
    async with (
        live(settings) as server,
        RawConnection.open(server.url) as first,
        RawConnection.open(server.url) as second,
    ):
        await begin(first, server, model="hanging")
        body = msgspec.json.encode({"messages": ASK, "stream": True, "model": "hanging"})
        headers = {"Content-Type": "application/json", **await server.bearer("ada")}
        await second.request("POST", "/v1/chat/completions", headers, body)

        assert (await second.answer()).status == 503
        async with RawConnection.open(server.url) as other:
            await begin(other, server, "ben", model="hanging")
