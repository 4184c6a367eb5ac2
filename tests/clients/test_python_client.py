"""The official Python client over HTTP and HTTP+SSE, in each of its modes of choosing a protocol version."""

import asyncio
from pathlib import Path

from tests.cases import each_case
from tests.clients.python_client import connect
from tests.live import LiveServer, live, make_settings

MODES = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}


async def get_server_info(server: LiveServer, user: str, mode: str) -> tuple[set[str], object]:
    """Returns the listed tool names and the result of `server_info`."""
    async with connect(server, user, mode=mode) as client:
        listed = await client.list_tools()
        info = await client.call_tool("server_info")
    assert not info.is_error
    return {tool.name for tool in listed.tools}, info.structured_content


PROFILES = {"compact": ["knowledge_search", "knowledge_get"], "research": ["search", "fetch"]}


@each_case("profile", PROFILES)
@each_case("mode", MODES)
async def test_the_address_of_a_profile_returns_its_tools_and_instructions(
    mode: str, profile: str, tmp_path: Path
) -> None:
    async with (
        live(make_settings(tmp_path)) as server,
        connect(server, "ada", profile, mode=mode) as client,
    ):
        listed = await client.list_tools()
        instructions = client.instructions
        result = await client.call_tool(PROFILES[profile][0], {"query": "galleon"})

    assert [tool.name for tool in listed.tools] == PROFILES[profile]
    # A client with a fixed version does not request instructions.
    assert instructions is None if mode == "2026-07-28" else PROFILES[profile][0] in (instructions or "")
    assert not result.is_error


@each_case("mode", MODES)
async def test_each_client_is_authenticated_as_its_user(mode: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(get_server_info(server, "ada", mode), get_server_info(server, "bob", mode))

    assert "knowledge_search" in ada[0]
    for (_, info), user in ((ada, "ada"), (bob, "bob")):
        assert isinstance(info, dict)
        assert (info["user"], info["protocol_version"]) == (user, MODES[mode])


async def search_over_sse(server: LiveServer, user: str, mode: str) -> tuple[object, list[object]]:
    """Returns the result of `server_info`, and `exhausted` of two equal searches in the session."""
    from mcp import Client  # noqa: PLC0415 - as in python_client.py
    from mcp.client.sse import sse_client  # noqa: PLC0415 - as above

    headers = await server.bearer(user)
    async with Client(sse_client(f"{server.mcp}/sse", headers=headers), mode=mode) as client:
        assert "knowledge_search" in {tool.name for tool in (await client.list_tools()).tools}
        created = await client.call_tool("notes_create", {"title": f"Voyage of {user}", "content": "A galleon."})
        assert not created.is_error
        info = (await client.call_tool("server_info")).structured_content
        found = [(await client.call_tool("knowledge_search", {"query": "galleon"})) for _ in range(2)]
    results = [answer.structured_content or {} for answer in found]
    assert [hit["title"] for hit in results[0]["results"]] == [f"Voyage of {user}"]
    return info, [result.get("exhausted", False) for result in results]


@each_case("mode", MODES)
async def test_the_deprecated_sse_transport_serves_each_user_in_every_mode(mode: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        answers = await asyncio.gather(*(search_over_sse(server, user, mode) for user in ("ada", "bob")))

    for (info, exhausted), user in zip(answers, ("ada", "bob"), strict=True):
        assert isinstance(info, dict)
        assert (info["user"], info["protocol_version"]) == (user, MODES[mode])
        assert exhausted == [False, True]
