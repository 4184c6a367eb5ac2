"""Server-to-client messages with the official Python client: elicitation, sampling, progress and changes."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.python_client import connect
from tests.conformance.fixtures import add_fixtures
from tests.live import LiveServer, live, make_settings

ERAS = ("2026-07-28", "legacy")


def fixture_server(data_dir: Path) -> AbstractAsyncContextManager[LiveServer]:
    return live(make_settings(data_dir), extend=add_fixtures)


def texts_of(result: Any) -> list[str]:
    return [block.text for block in result.content]


@pytest.fixture
def callbacks() -> dict[str, Any]:
    """A client's answers to what a tool asks for."""
    import mcp_types as types  # noqa: PLC0415 - as in python_client.py

    async def accept(*_: object) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada", "color": "green"})

    async def sample(*_: object) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="Good day,"), model="none")

    async def list_roots(*_: object) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///library"}]})

    return {"elicitation_callback": accept, "sampling_callback": sample, "list_roots_callback": list_roots}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_can_request_three_inputs_at_once(mode: str, callbacks: dict[str, Any], tmp_path: Path) -> None:
    async with fixture_server(tmp_path) as server, connect(server, "ada", mode=mode, **callbacks) as client:
        result = await client.call_tool("test_input_required_result_multiple_inputs")

    assert texts_of(result) == ["Good day, Ada, 1 roots"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_can_request_input_in_two_rounds(mode: str, callbacks: dict[str, Any], tmp_path: Path) -> None:
    async with fixture_server(tmp_path) as server, connect(server, "ada", mode=mode, **callbacks) as client:
        result = await client.call_tool("test_input_required_result_multi_round")

    assert texts_of(result) == ["Ada likes green"]


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_is_delivered_to_its_call(mode: str, tmp_path: Path) -> None:
    reports: list[tuple[float, float | None]] = []

    async def record(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total))

    async with fixture_server(tmp_path) as server, connect(server, "ada", mode=mode) as client:
        await client.call_tool("test_tool_with_progress", progress_callback=record)

    assert reports == [(0, 100), (50, 100), (100, 100)]


async def test_a_subscription_delivers_the_users_own_changes_only(tmp_path: Path) -> None:
    from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged  # noqa: PLC0415 - as in python_client.py

    uri = "test://watched-resource"
    async with (
        fixture_server(tmp_path) as server,
        connect(server, "ada", mode="2026-07-28") as ada,
        connect(server, "bob", mode="2026-07-28") as bob,
        ada.listen(tools_list_changed=True, resource_subscriptions=[uri]) as changes,
        asyncio.timeout(20),
    ):
        await bob.call_tool("test_trigger_resource_change")  # bob's library, not ada's
        await bob.call_tool("test_trigger_tool_change")  # tools are shared by all users
        assert await anext(changes) == ToolsListChanged()
        await ada.call_tool("test_trigger_resource_change")
        assert await anext(changes) == ResourceUpdated(uri=uri)
