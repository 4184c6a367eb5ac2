"""An upstream in a process of its own, and a server that relays to it."""

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from tests.live import LiveServer, free_port, live, make_settings
from tests.server.http_client import PATIENCE_S, HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client

UPSTREAM_KEY = "sk-upstream-secret"


class UpstreamProgram(Struct, frozen=True):
    url: str

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    async def seen(self) -> list[dict[str, Any]]:
        """Everything that was asked of it, oldest first."""
        return list(msgspec.json.decode(await asyncio.to_thread(_get, f"{self.url}/seen")))

    async def wait_until_asked_for(self, model: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not any(seen["asked"] and seen["asked"].get("model") == model for seen in await self.seen()):
                await asyncio.sleep(0.02)

    async def release(self) -> None:
        """Lets the model `slow` answer."""
        await asyncio.to_thread(_get, f"{self.url}/release")

    async def wait_until_broken_off(self) -> None:
        await asyncio.to_thread(_get, f"{self.url}/broken-off")


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return bytes(answer.read())


@pytest.fixture(scope="session")
def upstream() -> Iterator[UpstreamProgram]:
    port = free_port()
    program = subprocess.Popen([sys.executable, "-m", "tests.server.compat.agentkit.chat.upstream_program", str(port)])
    try:
        _wait_until_up(f"http://127.0.0.1:{port}/seen")
        yield UpstreamProgram(f"http://127.0.0.1:{port}")
    finally:
        program.terminate()
        program.wait(PATIENCE_S)


def _wait_until_up(url: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not _is_up(url):
        assert time.monotonic() < until, "the upstream did not start"
        time.sleep(0.05)


def _is_up(url: str) -> bool:
    try:
        return bool(_get(url))
    except urllib.error.URLError:
        return False


class Chatroom(Struct, frozen=True):
    """Ada and Ben before the chat of a server."""

    api: RestClient

    async def complete(
        self, messages: Any, who: str | None = "ada", *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> HttpResponse:
        body = msgspec.json.encode({"model": "plain", "messages": messages, **more})
        return await self.post(body, who, headers)

    async def post(
        self, body: bytes, who: str | None = "ada", headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        given = {"Content-Type": "application/json", **(headers or {})}
        return await self.api.request("POST", "/v1/chat/completions", who, given, body)

    async def conversations(self, who: str = "ada") -> list[dict[str, Any]]:
        """With their messages, the newest first."""
        listed = (await self.api.get("/conversations", who)).json()["conversations"]
        return [(await self.api.get(f"/conversations/{one['id']}", who)).json() for one in listed]

    async def turns(self, who: str = "ada") -> list[list[tuple[str, str]]]:
        """Who said what in each conversation."""
        return [
            [(message["role"], message["content"]) for message in conversation["messages"]]
            for conversation in await self.conversations(who)
        ]


@pytest.fixture
async def room(tmp_path: Path, upstream: UpstreamProgram) -> AsyncIterator[Chatroom]:
    """A server with an upstream."""
    settings = {"chat_upstream_url": upstream.api, "chat_upstream_key": UPSTREAM_KEY}
    async with open_rest_client(tmp_path, **settings) as api:
        yield Chatroom(api)


@pytest.fixture
async def quiet_room(tmp_path: Path) -> AsyncIterator[Chatroom]:
    """A server without one."""
    async with open_rest_client(tmp_path) as api:
        yield Chatroom(api)


@pytest.fixture
async def server(tmp_path: Path, upstream: UpstreamProgram) -> AsyncIterator[LiveServer]:
    """A server with an upstream, on a socket."""
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, chat_upstream_key=UPSTREAM_KEY)
    async with live(settings) as server:
        yield server
