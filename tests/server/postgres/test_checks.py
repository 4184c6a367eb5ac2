"""The checks of `florilegium doctor` for PostgreSQL and the session server."""

from pathlib import Path

import asyncpg

from auth.registry import Registry
from config.paths import DataRoot
from config.postgres.connection import ConnectionOptions
from server.cli.doctor import check_postgres, check_semantic, check_session_server
from tests.live import make_settings
from tests.servers.shared import SharedServer
from tests.servers.valkey import own_valkey


async def test_missing_extension_is_reported_and_not_installed(tmp_path: Path, database_url: str) -> None:
    settings = make_settings(tmp_path, storage_url=database_url, semantic_model="fast")
    installed = {check.name: check for check in await check_semantic(settings)}
    connection = await asyncpg.connect(database_url)
    await connection.execute("DROP EXTENSION vector")
    missing = {check.name: check for check in await check_semantic(settings)}
    found = await connection.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'vector'")
    await connection.close()

    assert installed["pgvector"].outcome == "ok"
    assert missing["pgvector"].outcome == "warn"
    assert "CREATE EXTENSION vector" in missing["pgvector"].message
    assert found == 0
    assert "pgvector" not in {check.name for check in await check_semantic(make_settings(tmp_path))}


async def test_empty_database_is_left_empty(tmp_path: Path, database_url: str) -> None:
    settings = make_settings(tmp_path, storage_url=database_url)
    before = await check_postgres(settings, DataRoot(tmp_path))
    connection = await asyncpg.connect(database_url)
    schema = await connection.fetchval("SELECT to_regnamespace('florilegium')")
    await connection.close()
    async with Registry.open(ConnectionOptions(url=database_url)) as registry:
        await registry.add_user("ada")
    # As in a restored dump, which does not contain it.
    connection = await asyncpg.connect(database_url)
    await connection.execute(f'ALTER ROLE postgres IN DATABASE "{database_url.rpartition("/")[2]}" RESET search_path')
    await connection.close()

    assert [check.outcome for check in before] == ["ok"]
    assert "created or migrated by the next start" in before[0].message
    assert schema is None
    assert "has 1 user" in (await check_postgres(settings, DataRoot(tmp_path)))[0].message


async def test_unreachable_database_is_named(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, storage_url="postgresql://ada:secret@127.0.0.1:1/kb")

    [check] = await check_postgres(settings, DataRoot(tmp_path))

    assert check.outcome == "fail"
    assert "127.0.0.1:1/kb: the PostgreSQL server cannot be reached; try again ([Errno 111] " in check.message
    assert "secret" not in check.message


async def test_session_server_must_answer_and_allow_the_keys(tmp_path: Path, valkey_server: SharedServer) -> None:
    usable = await check_session_server(make_settings(tmp_path, session_url=valkey_server.url))
    absent = await check_session_server(make_settings(tmp_path, session_url="redis://127.0.0.1:1/0"))
    with own_valkey(tmp_path) as valkey:
        valkey.configure("ACL SETUSER ada on >secret ~other:* +@all")
        url = valkey.url.replace("redis://", "redis://ada:{}@")
        wrong = await check_session_server(make_settings(tmp_path, session_url=url.format("guess")))
        forbidden = await check_session_server(make_settings(tmp_path, session_url=url.format("secret")))

    assert [check.outcome for (check,) in (usable, absent, wrong, forbidden)] == ["ok", "fail", "fail", "fail"]
    assert "cannot be reached" in absent[0].message
    assert "WRONGPASS" in wrong[0].message
    assert "NOPERM" in forbidden[0].message
    assert all("secret" not in check.message for (check,) in (wrong, forbidden))
