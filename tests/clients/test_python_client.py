"""The official Python client over HTTP, in each of its modes of choosing a protocol version."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.live import LiveServer, live, make_settings

MODES = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}


async def get_server_info(server: LiveServer, user: str, mode: str) -> tuple[set[str], object]:
    """Returns the listed tool names and the result of `server_info`."""
    async with (
        httpx2.AsyncClient(headers=await server.bearer(user), trust_env=False) as http,
        Client(streamable_http_client(server.mcp, http_client=http), mode=mode) as client,
    ):
        listed = await client.list_tools()
        info = await client.call_tool("server_info")
    assert not info.is_error
    return {tool.name for tool in listed.tools}, info.structured_content


PROFILES = {"compact": ["knowledge_search", "knowledge_get"], "research": ["search", "fetch"]}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", MODES)
async def test_the_address_of_a_profile_returns_its_tools_and_instructions(
    mode: str, profile: str, tmp_path: Path
) -> None:
    async with (
        live(make_settings(tmp_path)) as server,
        httpx2.AsyncClient(headers=await server.bearer("ada"), trust_env=False) as http,
        Client(streamable_http_client(f"{server.mcp}/{profile}", http_client=http), mode=mode) as client,
    ):
        listed = await client.list_tools()
        instructions = client.instructions
        result = await client.call_tool(PROFILES[profile][0], {"query": "galleon"})

    assert [tool.name for tool in listed.tools] == PROFILES[profile]
    # A client with a fixed version does not request instructions.
    assert instructions is None if mode == "2026-07-28" else PROFILES[profile][0] in (instructions or "")
    assert not result.is_error


@pytest.mark.parametrize("mode", MODES)
async def test_each_client_is_authenticated_as_its_user(mode: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(get_server_info(server, "ada", mode), get_server_info(server, "bob", mode))

    assert "knowledge_search" in ada[0]
    for (_, info), user in ((ada, "ada"), (bob, "bob")):
        assert isinstance(info, dict)
        assert (info["user"], info["protocol_version"]) == (user, MODES[mode])
