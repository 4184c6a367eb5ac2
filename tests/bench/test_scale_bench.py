"""The benchmark of many users: copies of a library, and the check of whose library an answer came from."""

from pathlib import Path

import asyncpg
from msgspec.structs import replace

from bench.prose import MOST_COMMON_WORD
from bench.scale import CheckedClient, PlainSearch, server_settings
from bench.scale_libraries import TWO_HUNDRED_ITEMS, build_users
from tests.live import live


async def test_every_user_finds_their_own_copy_and_an_answer_of_another_is_noticed(
    database_url: str, tmp_path: Path
) -> None:
    settings = server_settings(tmp_path, database_url, session_url="")
    users, _ = await build_users(settings, 2, TWO_HUNDRED_ITEMS.times(0.1))
    async with live(settings) as server:
        client = await CheckedClient.open(server.mcp)
        for user in users:
            await client.search(user, MOST_COMMON_WORD)
        assert (client.answers, client.wrong) == (2, 0)

        await client.search(replace(users[0], token=users[1].token), MOST_COMMON_WORD)
        assert client.wrong == 1
        await client.close()


async def test_plain_sql_finds_rows_in_every_copy(database_url: str, tmp_path: Path) -> None:
    settings = server_settings(tmp_path, database_url, session_url="")
    users, sizes = await build_users(settings, 2, TWO_HUNDRED_ITEMS.times(0.1))
    connection = await asyncpg.connect(database_url)
    plain, found = PlainSearch(connection), []
    for user in users:
        await plain.use(user.tenant)
        found.append(await plain.run(user.tenant, MOST_COMMON_WORD))
    await connection.close()

    assert found[0] == found[1] > 0
    assert sizes.relations[0] == sizes.relations[1]
