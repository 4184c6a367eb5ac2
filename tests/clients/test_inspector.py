"""The official Inspector's command line, in both eras, with a real token in a header."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode

from tests.clients.node_tools import program, run_node
from tests.live import LiveServer, live, make_settings

INSPECTOR_TIMEOUT_S = 60


async def inspect(server: LiveServer, catalog: Path, era: str, *method: str) -> Any:
    """The result of one call at the address that lists everything: the Inspector calls only what it has seen listed.
    It keeps a catalog of servers, which must not be the user's own."""
    ended = await run_node(
        program("mcp-inspector"),
        "--cli",
        f"{server.mcp}/full",
        *("--transport", "http"),
        *("--protocol-era", era),
        *("--header", f"Authorization: Bearer {await server.token('ada')}"),
        *("--format", "json", "--quiet", "--stored-auth-only"),
        *method,
        timeout_s=INSPECTOR_TIMEOUT_S,
        extra_environment={"MCP_CATALOG_PATH": str(catalog)},
    )
    assert ended.code == 0, ended.stderr
    return decode(ended.stdout)["result"]


@pytest.mark.parametrize(("era", "version"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")])
async def test_inspector_lists_and_calls_in_either_era(era: str, version: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.json"
    async with live(make_settings(tmp_path / "data")) as server:
        listed = await inspect(server, catalog, era, "--method", "tools/list", "--strict")
        called = await inspect(server, catalog, era, "--method", "tools/call", "--tool-name", "server_info")

    assert {tool["name"] for tool in listed["tools"]} == set(server.runtime.dispatcher.catalog.tools)
    info = called["structuredContent"]
    assert (info["user"], info["protocol_version"]) == ("ada", version)
