"""The official TypeScript clients on Node: SDK 1.x (HTTP, HTTP+SSE, WebSocket) and client 2.x (HTTP)."""

import asyncio
from pathlib import Path

import pytest

from tests.clients.node_tools import packages, run_node
from tests.clients.programs import ClientReport, Info, read_report
from tests.live import LiveServer, live, make_settings

pytestmark = pytest.mark.slow("runs TypeScript clients")

SCRIPT_TIMEOUT_S = 60


async def run_client(server: LiveServer, user: str, url: str, *script: str) -> ClientReport:
    packages()
    environment = {
        "FLORILEGIUM_TEST_URL": url,
        "FLORILEGIUM_TEST_TICKET_URL": f"{server.mcp}/ticket",
        "FLORILEGIUM_TEST_TOKEN": await server.token(user),
    }
    result = await run_node(*script, timeout_s=SCRIPT_TIMEOUT_S, extra_environment=environment)
    return read_report(result)


async def test_sdk_1_opens_a_legacy_session_of_its_user(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(
            *(run_client(server, user, server.mcp, "sdk_http.mjs") for user in ("ada", "bob"))
        )

    assert ada.info == Info("ada", "2025-11-25")
    assert bob.info == Info("bob", "2025-11-25")
    assert ada.had_session


@pytest.mark.parametrize(
    ("mode", "era", "version"),
    [
        ("legacy", "legacy", "2025-11-25"),
        ("auto", "modern", "2026-07-28"),
        ("2026-07-28", "modern", "2026-07-28"),
    ],
)
async def test_client_2_negotiates_the_requested_era(mode: str, era: str, version: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        report = await run_client(server, "ada", server.mcp, "client_http.mjs", mode)

    assert (report.era, report.info) == (era, Info("ada", version))


async def test_sdk_1_connects_over_websocket_with_a_ticket(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(
            *(run_client(server, user, server.ws, "sdk_websocket.mjs") for user in ("ada", "bob"))
        )

    assert (ada.info.user, bob.info.user) == ("ada", "bob")


async def test_sdk_1_connects_over_the_deprecated_sse_transport(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(
            *(run_client(server, user, f"{server.mcp}/sse", "sdk_sse.mjs") for user in ("ada", "bob"))
        )

    assert (ada.info, bob.info) == (Info("ada", "2025-11-25"), Info("bob", "2025-11-25"))
