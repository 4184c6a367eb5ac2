"""The official Python client over stdio: it starts `florilegium stdio`, locally or as a bridge to a remote server."""

import sys
from pathlib import Path

import pytest
from msgspec import convert

from server.lifespan import open_runtime
from tests.cases import each_case
from tests.clients.programs import Info
from tests.live import live, make_settings

MODES = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}
START_TIMEOUT_S = 120


async def run_client(mode: str, log: Path, *arguments: str, environment: dict[str, str] | None = None) -> Info:
    """Starts the process, lists its tools and returns the result of `server_info`."""
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 - as in python_client.py
    from mcp.client.stdio import stdio_client  # noqa: PLC0415 - as above

    command = StdioServerParameters(
        command=sys.executable, args=["-m", "server.cli", "stdio", *arguments], env=environment
    )
    with log.open("w") as errors:
        transport = stdio_client(command, errlog=errors)
        async with Client(transport, mode=mode, read_timeout_seconds=START_TIMEOUT_S) as client:
            listed = await client.list_tools()
            info = await client.call_tool("server_info")
    assert "knowledge_search" in [tool.name for tool in listed.tools]
    assert not info.is_error
    return convert(info.structured_content, Info)


_OTHER_MODES = pytest.mark.slow("starts a process for a mode that the first tier uses over HTTP")


@pytest.mark.parametrize(
    "mode", ["auto", *(pytest.param(mode, marks=_OTHER_MODES) for mode in MODES if mode != "auto")]
)
async def test_the_user_on_the_command_line_is_used(mode: str, tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data")
    async with open_runtime(settings) as runtime:
        for name in ("ada", "bob"):
            await runtime.registry.add_user(name)

    storage = {"FLORILEGIUM_STORAGE_URL": settings.storage_url}
    arguments = ("--data-dir", settings.data_dir, "--user", "bob")
    info = await run_client(mode, tmp_path / "log", *arguments, environment=storage)

    assert info == Info("bob", MODES[mode])


async def test_the_single_user_is_the_default(tmp_path: Path) -> None:
    info = await run_client("auto", tmp_path / "log", "--data-dir", str(tmp_path / "data"), "--single-user-name", "eve")

    assert info == Info("eve", "2026-07-28")


@pytest.mark.slow("starts a server and a client")
@each_case("mode", MODES)
async def test_the_bridge_uses_the_user_of_the_token(mode: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path / "data")) as server:
        await server.user("bob")
        environment = {"TEST_TOKEN": await server.token("ada")}
        info = await run_client(
            mode, tmp_path / "log", "--remote", server.mcp, "--token-env", "TEST_TOKEN", environment=environment
        )

    assert info == Info("ada", MODES[mode])
