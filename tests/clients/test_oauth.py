"""Official clients complete OAuth against a live server: people sign in, allow access, and use their own library."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from msgspec.json import decode, encode
from pydantic import AnyUrl

from auth.context import READ, WRITE
from tests.clients.node_tools import PROJECT, packages, program
from tests.clients.oauth_person import Person, people, run_node_with
from tests.clients.programs import read_report
from tests.live import HTTP_OPTIONS, free_port, live, make_settings
from tests.server.clients import handshake, message

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

TIMEOUT_S = 120


class MemoryStorage:
    """Keeps what the client has to remember."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> "OAuthToken | None":
        return self.tokens

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        self.tokens = tokens

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        return self.client

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        self.client = client_info


class PythonClient:
    """The Python SDK as a program of one person."""

    def __init__(self, person: Person, url: str, metadata_url: str | None = None, **first_changes: str | None) -> None:
        """`first_changes` are what the person changes in the form at the first visit."""
        from mcp.client.auth import OAuthClientProvider  # noqa: PLC0415 - as in python_client.py
        from mcp.shared.auth import OAuthClientMetadata  # noqa: PLC0415 - as above

        self.storage = MemoryStorage()
        self._first_changes = first_changes
        self.visits = 0
        self._person = person
        self._url = url
        self._answers: asyncio.Queue[AuthorizationCodeResult] = asyncio.Queue()
        redirect_uri = "http://127.0.0.1:8976/callback"
        self._provider = OAuthClientProvider(
            url,
            OAuthClientMetadata(client_name="Python client", redirect_uris=[AnyUrl(redirect_uri)]),
            self.storage,
            self._sign_in,
            self._answers.get,
            client_metadata_url=metadata_url,
        )

    async def _sign_in(self, url: str) -> None:
        from mcp.shared.auth import AuthorizationCodeResult  # noqa: PLC0415 - as above

        page = await self._person.allow(url, **(self._first_changes if self.visits == 0 else {}))
        self.visits += 1
        await self._answers.put(AuthorizationCodeResult(**page.answer))

    def expire(self) -> None:
        """Lets the client believe that its access token has expired."""
        self._provider.context.token_expiry_time = 1.0

    async def call(self, tool: str, mode: str = "auto", **arguments: object) -> object:
        from mcp import Client  # noqa: PLC0415 - as above
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - as above

        async with (
            httpx2.AsyncClient(**HTTP_OPTIONS, auth=self._provider) as http,
            Client(streamable_http_client(self._url, http_client=http), mode=mode) as client,
        ):
            result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_python_sdk_registers_and_connects_each_person(mode: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server, people(server) as persons:
        clients = [PythonClient(person, server.mcp) for person in persons]
        infos = [await client.call("server_info", mode) for client in clients]

    assert [info["user"] for info in infos if isinstance(info, dict)] == ["ada", "bob"]
    assert all(client.storage.client is not None and client.storage.tokens is not None for client in clients)
    assert clients[0].storage.client != clients[1].storage.client


async def test_python_sdk_refreshes_its_token_without_its_person(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server, people(server) as (ada, _):
        client = PythonClient(ada, server.mcp)
        await client.call("server_info")
        first = client.storage.tokens
        assert first is not None
        client.expire()
        info = await client.call("server_info")

    assert isinstance(info, dict)
    assert (info["user"], client.visits) == ("ada", 1)
    assert client.storage.tokens is not None
    assert client.storage.tokens.refresh_token != first.refresh_token


async def test_python_sdk_asks_again_for_a_scope_that_its_person_left_out(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server, people(server) as (ada, _):
        client = PythonClient(ada, server.mcp, **{f"scope_{WRITE}": None})
        await client.call("server_info")
        before = client.storage.tokens
        created = await client.call("notes_create", title="Step-up", content="Written after the second visit.")
        after = client.storage.tokens

    assert before is not None
    assert after is not None
    assert (before.scope, after.scope) == (READ, f"{READ} {WRITE}")
    assert isinstance(created, dict)
    assert client.visits == 2


async def test_python_sdk_connects_to_a_profile(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server, people(server) as (ada, _):
        client = PythonClient(ada, f"{server.mcp}/research")
        result = await client.call("search", query="galleon")

    assert isinstance(result, dict)
    assert result["results"] == []


@pytest.mark.slow("runs TypeScript clients")
@pytest.mark.parametrize("version", ["1", "2"])
async def test_typescript_clients_connect_each_person(version: str, tmp_path: Path) -> None:
    packages()
    async with live(make_settings(tmp_path)) as server, people(server) as persons:
        reports = []
        for person in persons:
            result = await run_node_with(
                person,
                "sdk_oauth.mjs",
                version,
                directory=PROJECT,
                extra_environment={"FLORILEGIUM_TEST_URL": server.mcp},
                timeout_s=TIMEOUT_S,
            )
            reports.append(read_report(result))

    assert [report.info.user for report in reports] == ["ada", "bob"]
    assert all(report.had_session for report in reports)


@pytest.mark.slow("runs TypeScript clients")
async def test_mcp_remote_connects_a_stdio_client(tmp_path: Path) -> None:
    messages = [
        handshake(request_id=1),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        message("tools/call", {"name": "server_info", "arguments": {}}, 2),
    ]
    async with live(make_settings(tmp_path / "data")) as server, people(server) as (_, bob):
        result = await run_node_with(
            bob,
            program("mcp-remote"),
            server.mcp,
            str(free_port()),
            *("--transport", "http-only", "--allow-http"),
            directory=tmp_path,
            extra_environment={"MCP_REMOTE_CONFIG_DIR": str(tmp_path / "config"), "HOME": str(tmp_path)},
            timeout_s=TIMEOUT_S,
            stdin=b"".join(encode(line) + b"\n" for line in messages),
            last_output='"id":2',
        )

    answers = {answer.get("id"): answer for answer in map(decode, result.stdout.splitlines())}
    assert answers[2]["result"]["structuredContent"]["user"] == "bob"


@pytest.mark.slow("runs TypeScript clients")
async def test_inspector_connects(tmp_path: Path) -> None:
    port = free_port()
    async with live(make_settings(tmp_path / "data")) as server, people(server) as (ada, _):
        result = await run_node_with(
            ada,
            program("mcp-inspector"),
            "--cli",
            f"{server.mcp}/full",
            *("--transport", "http", "--format", "json", "--quiet"),
            *("--callback-url", f"http://127.0.0.1:{port}/oauth/callback"),
            *("--method", "tools/call", "--tool-name", "server_info"),
            directory=tmp_path,
            extra_environment={
                "MCP_CATALOG_PATH": str(tmp_path / "catalog.json"),
                "HOME": str(tmp_path),
                "MCP_AUTO_OPEN_ENABLED": "true",
            },
            timeout_s=TIMEOUT_S,
        )

    assert result.code == 0, result.stderr
    assert decode(result.stdout)["result"]["structuredContent"]["user"] == "ada"
