"""The official Python client 1.x over WebSocket: it can only send a URL, so the token travels as a Basic password."""

import asyncio
import os
from pathlib import Path

from tests.clients.legacy_python import DIRECTORY, SCRIPT, interpreter
from tests.clients.programs import Ended, Info, read_visit, run_program
from tests.live import LiveServer, live, make_settings

VISIT_TIMEOUT_S = 60


async def visit(server: LiveServer, user: str, token: str) -> Ended:
    url = server.ws.replace("ws://", f"ws://{user}:{token}@", 1)
    return await run_program(
        interpreter(),
        str(SCRIPT),
        directory=DIRECTORY,
        environment={**os.environ, "FLORILEGIUM_TEST_URL": url},
        timeout_s=VISIT_TIMEOUT_S,
    )


async def test_each_user_is_known_by_the_token_in_the_url(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        tokens = {user: await server.token(user) for user in ("ada", "bob")}
        ada, bob = await asyncio.gather(*(visit(server, user, token) for user, token in tokens.items()))

    assert read_visit(ada).info == Info("ada", "2025-11-25")
    assert read_visit(bob).info == Info("bob", "2025-11-25")


async def test_the_user_name_in_the_url_decides_nothing(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        await server.user("bob")
        seen = read_visit(await visit(server, "bob", await server.token("ada")))

    assert seen.info.user == "ada"


async def test_a_name_without_a_good_token_gets_nothing(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        await server.user("ada")
        ended = await visit(server, "ada", "not-a-token")

    assert ended.code != 0
    assert ended.stdout == ""
