"""The official Python client uses the layered-memory tools at `/mcp/memory`, for each user's own observations."""

from pathlib import Path
from typing import Any

import pytest

from auth.context import READ
from tests.clients.python_client import connect
from tests.live import live, make_settings

ENTRY = {"type": "decision", "title": "We sail by galleon", "facts": ["Two decks"], "project": "voyage"}


def text_of(result: Any) -> str:
    [block] = result.content
    return str(block.text)


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_search_get_observations_and_read_work_for_each_user(tmp_path: Path, mode: str) -> None:
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            async with connect(server, name, "full") as writer:
                recorded = await writer.call_tool("observations_record", {"observations": [ENTRY]})
            async with connect(server, name, "memory", mode=mode) as reader:
                listed = [tool.name for tool in (await reader.list_tools()).tools]
                search = await reader.call_tool("search", {"query": "galleon", "response_format": "json"})
                [row] = search.structured_content["results"]
                rows = await reader.call_tool("search", {"query": "galleon"})
                observation = await reader.call_tool("get_observations", {"ids": [row["id"]]})
                missing = await reader.call_tool("read", {"path": "chats://absent"})

            assert listed == ["search", "get_observations", "read"]
            assert search.structured_content["total"] == 1
            assert recorded.structured_content["observations"][0]["id"] == row["id"]
            assert rows.structured_content is None
            assert f"{row['id']} decision" in text_of(rows)
            assert "] - decision: We sail by galleon\n\n**Facts:**\n- Two decks" in text_of(observation)
            assert (missing.is_error, text_of(missing)) == (True, "Error: File not found: chats://absent")


async def test_the_memory_tools_are_marked_read_only(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server, connect(server, "ada", "full") as reader:
        hints = {tool.name: tool.annotations for tool in (await reader.list_tools()).tools}

    for name in ("memory_search", "memory_get_observations", "memory_read"):
        annotations = hints[name]
        assert annotations is not None
        assert (annotations.read_only_hint, annotations.destructive_hint) == (True, False)
        assert (annotations.idempotent_hint, annotations.open_world_hint) == (True, False)
    recording = hints["observations_record"]
    assert recording is not None
    assert (recording.read_only_hint, recording.destructive_hint, recording.idempotent_hint) == (False, False, False)


async def test_recording_requires_the_write_scope(tmp_path: Path) -> None:
    from mcp import MCPError  # noqa: PLC0415 - as in python_client.py

    async with live(make_settings(tmp_path)) as server, connect(server, "ada", "full", scopes=(READ,)) as reader:
        listed = {tool.name for tool in (await reader.list_tools()).tools}

        assert "memory_search" in listed
        assert "observations_record" not in listed
        with pytest.raises(MCPError, match="knowledge:write"):
            await reader.call_tool("observations_record", {"observations": [ENTRY]})


async def test_only_the_full_profile_lists_recording(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        for profile in ("default", "memory"):
            async with connect(server, "ada", profile) as reader:
                assert "observations_record" not in {tool.name for tool in (await reader.list_tools()).tools}
