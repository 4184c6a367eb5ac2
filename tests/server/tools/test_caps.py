"""Caps: the help of arguments and `server_info` name them, with the values of this server."""

from pathlib import Path
from typing import Any

from tests.live import live, make_settings
from tests.server.clients import ModernClient

SETTINGS: dict[str, Any] = {
    "retrieval_max_tokens": 7_000,
    "message_page_max": 33,
    "fanout_deadline_ms": 1_234,
    "query_max_chars": 77,
    "stream_max_per_user": 3,
}


async def test_the_help_of_arguments_names_their_caps(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, **SETTINGS)) as server:
        listed = await (await ModernClient.of(server, "ada")).request("tools/list")
    tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in listed.json()["result"]["tools"]}

    retrieval = tools["knowledge_get"]["retrieval"]["properties"]
    assert "1..7000" in retrieval["max_tokens"]["description"]
    assert "1..1000" in retrieval["snippet_length"]["description"]
    assert "1..8" in retrieval["chars_per_token"]["description"]
    assert "16..4000" in retrieval["chunk_size_tokens"]["description"]
    assert "0..50" in retrieval["sibling_window"]["description"]
    assert "1..7000" in tools["media_transcript"]["max_tokens"]["description"]
    assert "1..33" in tools["chats_get"]["page_size"]["description"]
    assert "1..1234" in tools["knowledge_search"]["deadline_ms"]["description"]
    assert all("1..100" in tools[name]["limit"]["description"] for name in tools if name.endswith("_search"))


async def test_server_info_contains_the_caps(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, **SETTINGS)) as server:
        response = await (await ModernClient.of(server, "ada")).call("server_info")
    limits = response.json()["result"]["structuredContent"]["limits"]

    expected = {
        "response_tokens": 7_000,
        "messages": 33,
        "search_ms": 1_234,
        "query_chars": 77,
        "streams": 3,
        "hits": 100,
        "snippet_chars": 1_000,
        "chunk_tokens": 4_000,
        "siblings": 50,
        "chars_per_token": 8,
    }
    assert {name: limits[name] for name in expected} == expected
    assert limits["calls_per_minute"] == 1_200


async def test_server_info_names_no_rate_limit_without_authentication(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, jwt_secret="")) as server:
        response = await ModernClient(server, {}).call("server_info")
    limits = response.json()["result"]["structuredContent"]["limits"]

    assert (limits["calls_per_minute"], limits["tool_calls_per_minute"]) == (0, 0)
