"""An upstream in its own process, and clients of servers with and without it."""

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
from tests.server.http_client import WAIT_MAX_S, HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client

UPSTREAM_KEY = "sk-upstream-secret"


class UpstreamProgram(Struct, frozen=True):
    url: str

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    async def requests(self) -> list[dict[str, Any]]:
        """Returns all requests it received, oldest first."""
        return list(msgspec.json.decode(await asyncio.to_thread(_get, f"{self.url}/requests")))

    async def wait_for_request(self, model: str) -> None:
        async with asyncio.timeout(WAIT_MAX_S):
            while not any(
                request["json"] and request["json"].get("model") == model for request in await self.requests()
            ):
                await asyncio.sleep(0.02)

    async def release(self) -> None:
        """Lets the model `slow` respond."""
        await asyncio.to_thread(_get, f"{self.url}/release")

    async def wait_for_disconnect(self) -> None:
        await asyncio.to_thread(_get, f"{self.url}/disconnect")


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=WAIT_MAX_S) as response:
        return bytes(response.read())


@pytest.fixture(scope="session")
def upstream() -> Iterator[UpstreamProgram]:
    port = free_port()
    program = subprocess.Popen([sys.executable, "-m", "tests.server.compat.agentkit.chat.upstream_program", str(port)])
    try:
        _wait_until_up(f"http://127.0.0.1:{port}/requests")
        yield UpstreamProgram(f"http://127.0.0.1:{port}")
    finally:
        program.terminate()
        program.wait(WAIT_MAX_S)


def _wait_until_up(url: str) -> None:
    until = time.monotonic() + WAIT_MAX_S
    while not _is_up(url):
        assert time.monotonic() < until, "the upstream did not start"
        time.sleep(0.05)


def _is_up(url: str) -> bool:
    try:
        return bool(_get(url))
    except urllib.error.URLError:
        return False


class ChatClient(Struct, frozen=True):
    """Sends chat requests as Ada or Ben and reads their stored conversations."""

    api: RestClient

    async def complete(
        self, messages: Any, who: str | None = "ada", *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> HttpResponse:
        body = msgspec.json.encode({"model": "plain", "messages": messages, **more})
        return await self.post(body, who, headers)

    async def post(
        self, body: bytes, who: str | None = "ada", headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        return await self.api.request("POST", "/v1/chat/completions", who, all_headers, body)

    async def conversations(self, who: str = "ada") -> list[dict[str, Any]]:
        """Returns the conversations with their messages, newest first."""
        page = (await self.api.get("/conversations", who)).json()["conversations"]
        return [(await self.api.get(f"/conversations/{one['id']}", who)).json() for one in page]

    async def turns(self, who: str = "ada") -> list[list[tuple[str, str]]]:
        """Returns role and content of each message by conversation."""
        return [
            [(message["role"], message["content"]) for message in conversation["messages"]]
            for conversation in await self.conversations(who)
        ]


@pytest.fixture
async def chat(tmp_path: Path, upstream: UpstreamProgram) -> AsyncIterator[ChatClient]:
    """A client of a server with an upstream."""
    settings = {"chat_upstream_url": upstream.api, "chat_upstream_key": UPSTREAM_KEY}
    async with open_rest_client(tmp_path, **settings) as api:
        yield ChatClient(api)


@pytest.fixture
async def chat_without_model(tmp_path: Path) -> AsyncIterator[ChatClient]:
    """A client of a server without an upstream."""
    async with open_rest_client(tmp_path) as api:
        yield ChatClient(api)


@pytest.fixture
async def server(tmp_path: Path, upstream: UpstreamProgram) -> AsyncIterator[LiveServer]:
    """A server with an upstream, on a socket."""
    settings = make_settings(tmp_path, chat_upstream_url=upstream.api, chat_upstream_key=UPSTREAM_KEY)
    async with live(settings) as server:
        yield server
