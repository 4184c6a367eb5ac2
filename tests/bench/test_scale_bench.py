"""The benchmark of many users: copies of a library, and the check of whose library an answer came from."""

import asyncio
from pathlib import Path

import asyncpg
import msgspec
from msgspec.structs import replace

from bench.prose import MOST_COMMON_WORD
from bench.request_templates import FIRST_ID
from bench.scale import CheckedClient, PlainSearch, server_settings
from bench.scale_libraries import TWO_HUNDRED_ITEMS, LibraryUser, build_users
from server.protocol.call import RETRY_AFTER_KEY
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


async def test_call_that_is_refused_because_of_the_load_is_repeated() -> None:
    results = [
        {"content": [], "isError": True, "_meta": {RETRY_AFTER_KEY: 0}},
        {"structuredContent": {"results": [{"title": "Ships [reader 0000]"}]}},
    ]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, result in enumerate(results):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(lengths[0])
            body = msgspec.json.encode({"jsonrpc": "2.0", "id": FIRST_ID + number, "result": result})
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        client = await CheckedClient.open(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp")
        await client.search(LibraryUser("[reader 0000]", "token", "tenant"), "ships")
        await client.close()

    assert (client.answers, client.refused, client.wrong) == (1, 1, 0)
