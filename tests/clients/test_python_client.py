"""The official Python client over HTTP, with real tokens, in every way it can choose a protocol version."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.live import LiveServer, live, make_settings

MODES = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}


async def ask_who_i_am(server: LiveServer, user: str, mode: str) -> tuple[set[str], object]:
    """The names of the tools listed, and what `server_info` says."""
    async with (
        httpx2.AsyncClient(headers=await server.bearer(user), trust_env=False) as http,
        Client(streamable_http_client(server.mcp, http_client=http), mode=mode) as client,
    ):
        listed = await client.list_tools()
        answer = await client.call_tool("server_info")
    assert not answer.is_error
    return {tool.name for tool in listed.tools}, answer.structured_content


PROFILES = {"compact": ["knowledge_search", "knowledge_get"], "research": ["search", "fetch"]}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", MODES)
async def test_the_address_of_a_profile_lists_its_tools_and_tells_how_to_use_them(
    mode: str, profile: str, tmp_path: Path
) -> None:
    async with (
        live(make_settings(tmp_path)) as server,
        httpx2.AsyncClient(headers=await server.bearer("ada"), trust_env=False) as http,
        Client(streamable_http_client(f"{server.mcp}/{profile}", http_client=http), mode=mode) as client,
    ):
        listed = await client.list_tools()
        told = client.instructions
        answer = await client.call_tool(PROFILES[profile][0], {"query": "galleon"})

    assert [tool.name for tool in listed.tools] == PROFILES[profile]
    # A client that was told the version asks for no introduction.
    assert told is None if mode == "2026-07-28" else PROFILES[profile][0] in (told or "")
    assert not answer.is_error


@pytest.mark.parametrize("mode", MODES)
async def test_each_user_is_known_by_the_own_name(mode: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(ask_who_i_am(server, "ada", mode), ask_who_i_am(server, "bob", mode))

    assert "knowledge_search" in ada[0]
    for (_, info), user in ((ada, "ada"), (bob, "bob")):
        assert isinstance(info, dict)
        assert (info["user"], info["protocol_version"]) == (user, MODES[mode])
