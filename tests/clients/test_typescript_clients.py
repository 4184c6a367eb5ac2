"""The official TypeScript clients under Node, with real tokens: SDK 1.x (HTTP, WebSocket) and client 2.x (HTTP)."""

import asyncio
from pathlib import Path

import pytest

from tests.clients.node_tools import packages, run_node
from tests.clients.programs import Info, Seen, read_visit
from tests.live import LiveServer, live, make_settings

SCRIPT_TIMEOUT_S = 60


async def visit(server: LiveServer, user: str, url: str, *script: str) -> Seen:
    packages()
    given = {
        "FLORILEGIUM_TEST_URL": url,
        "FLORILEGIUM_TEST_TICKET_URL": f"{server.mcp}/ticket",
        "FLORILEGIUM_TEST_TOKEN": await server.token(user),
    }
    ended = await run_node(*script, timeout_s=SCRIPT_TIMEOUT_S, extra_environment=given)
    return read_visit(ended)


async def test_sdk_1_speaks_the_legacy_era_in_a_session_of_its_user(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(*(visit(server, user, server.mcp, "sdk_http.mjs") for user in ("ada", "bob")))

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
async def test_client_2_finds_the_era_it_asks_for(mode: str, era: str, version: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        seen = await visit(server, "ada", server.mcp, "client_http.mjs", mode)

    assert (seen.era, seen.info) == (era, Info("ada", version))


async def test_sdk_1_connects_over_websocket_with_a_ticket(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        ada, bob = await asyncio.gather(
            *(visit(server, user, server.ws, "sdk_websocket.mjs") for user in ("ada", "bob"))
        )

    assert (ada.info.user, bob.info.user) == ("ada", "bob")
