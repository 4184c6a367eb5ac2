"""The official Python client 1.x over WebSocket. It can set no headers, so the token is a Basic password in the URL."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.clients.legacy_python import DIRECTORY, SCRIPT, interpreter
from tests.clients.programs import Info, ProgramResult, read_report, run_program
from tests.live import LiveServer, live, make_settings

pytestmark = pytest.mark.slow("installs a client")

CLIENT_TIMEOUT_S = 60


async def run_client(server: LiveServer, user: str, token: str) -> ProgramResult:
    url = server.ws.replace("ws://", f"ws://{user}:{token}@", 1)
    return await run_program(
        interpreter(),
        str(SCRIPT),
        directory=DIRECTORY,
        environment={**os.environ, "FLORILEGIUM_TEST_URL": url},
        timeout_s=CLIENT_TIMEOUT_S,
    )


async def test_the_token_in_the_url_identifies_the_user(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        tokens = {user: await server.token(user) for user in ("ada", "bob")}
        ada, bob = await asyncio.gather(*(run_client(server, user, token) for user, token in tokens.items()))

    assert read_report(ada).info == Info("ada", "2025-11-25")
    assert read_report(bob).info == Info("bob", "2025-11-25")


async def test_the_user_name_in_the_url_is_ignored(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        await server.user("bob")
        report = read_report(await run_client(server, "bob", await server.token("ada")))

    assert report.info.user == "ada"


async def test_an_invalid_token_is_rejected(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        await server.user("ada")
        result = await run_client(server, "ada", "not-a-token")

    assert result.code != 0
    assert result.stdout == ""
