"""The checks of `florilegium doctor` for semantic search in PostgreSQL."""

from pathlib import Path

import asyncpg

from server.cli.semantic_checks import check_semantic
from tests.live import make_settings


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
