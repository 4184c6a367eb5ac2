"""The command line of the official Inspector, in both eras."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode

from tests.clients.node_tools import program, run_node
from tests.live import LiveServer, live, make_settings

pytestmark = pytest.mark.slow("runs a TypeScript client")

INSPECTOR_TIMEOUT_S = 60


async def inspect(server: LiveServer, catalog: Path, era: str, *method: str) -> Any:
    """Returns the result of one call. The full profile is used because the Inspector calls only listed tools.

    The Inspector stores a catalog of servers, which must not be the developer's own.
    """
    result = await run_node(
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
    assert result.code == 0, result.stderr
    return decode(result.stdout)["result"]


@pytest.mark.parametrize(("era", "version"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")])
async def test_the_inspector_can_list_and_call_tools(era: str, version: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.json"
    async with live(make_settings(tmp_path / "data")) as server:
        listed = await inspect(server, catalog, era, "--method", "tools/list", "--strict")
        call = await inspect(server, catalog, era, "--method", "tools/call", "--tool-name", "server_info")

    assert {tool["name"] for tool in listed["tools"]} == set(server.runtime.dispatcher.catalog.tools)
    info = call["structuredContent"]
    assert (info["user"], info["protocol_version"]) == ("ada", version)
