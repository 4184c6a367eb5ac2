"""A server whose users and libraries are in PostgreSQL, through REST and MCP, with two users."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from config.errors import ConfigurationError
from tests.live import HTTP_OPTIONS, LiveServer, live, make_settings
from tests.server.postgres.mcp_calls import call


@pytest.fixture
async def server(tmp_path: Path, database_url: str) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path, storage_url=database_url)) as server:
        yield server


async def test_notes_are_written_searched_and_read_by_their_owner(server: LiveServer) -> None:
    async with httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        for user in ("ada", "ben"):
            await call(client, server, user, "notes_create", title=f"Kettle of {user}", content="water for the tea")
        found = {
            user: await call(client, server, user, "knowledge_search", query="tea kettle") for user in ("ada", "ben")
        }

    assert [item["title"] for item in found["ada"]["results"]] == ["Kettle of ada"]
    assert [item["title"] for item in found["ben"]["results"]] == ["Kettle of ben"]


async def test_meaning_is_compared_and_similar_items_are_found(tmp_path: Path, database_url: str) -> None:
    semantic = {"semantic_model": "fast", "semantic_timeout_ms": 60_000}
    car, bread = "My automobile needs new tyres before winter.", "Knead the dough and bake the loaf."
    async with (
        live(make_settings(tmp_path, storage_url=database_url, **semantic)) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS) as client,
    ):
        for user, text in (("ada", car), ("ada", bread), ("ben", bread)):
            await call(client, server, user, "notes_create", title=f"{text[:5]} of {user}", content=text)
        van = await call(client, server, "ada", "notes_create", title="Van", content="The van needs tyres and oil.")
        for user in ("ada", "ben"):
            await server.runtime.libraries.embed((await server.user(user)).id)
        found = {
            user: await call(client, server, user, "knowledge_search", query="vehicle maintenance")
            for user in ("ada", "ben")
        }
        similar = await call(client, server, "ada", "items_similar", uri=van["uri"])

    for user in ("ada", "ben"):
        assert found[user]["semantic"] == {"status": "on", "coverage": 1.0}
        assert all(user in item["title"] for item in found[user]["results"] if item["title"] != "Van")
    assert {item["title"] for item in found["ada"]["results"][:2]} == {"Van", "My au of ada"}
    assert similar["results"][0]["title"] == "My au of ada"


async def test_revoked_key_is_rejected_at_the_next_call(server: LiveServer) -> None:
    ada = await server.user("ada")
    key, secret = await server.runtime.registry.create_key(ada.id, "laptop", ["knowledge:read"])
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx2.AsyncClient(
        **HTTP_OPTIONS, base_url=server.url, headers={"Authorization": f"Bearer {secret}"}
    ) as client:
        before = await client.post("/api/v1/mcp/request", json=body)
        await server.runtime.registry.revoke_key(key.id)
        after = await client.post("/api/v1/mcp/request", json=body)

    assert (before.status_code, after.status_code) == (200, 401)


async def test_second_server_serves_the_same_users(server: LiveServer, tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "other", storage_url=server.runtime.settings.storage_url)
    async with live(settings) as other, httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        await call(client, server, "ada", "notes_create", title="Kettle", content="tea")
        found = await call(client, other, "ada", "knowledge_search", query="kettle")

    assert [item["title"] for item in found["results"]] == ["Kettle"]


async def test_scores_of_tldw_are_ranks_divided_by_the_largest(tmp_path: Path, database_url: str) -> None:
    settings = make_settings(tmp_path, storage_url=database_url, search_scoring="minmax")
    async with live(settings) as server, httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        for number in range(4):
            content = "tea " * (number + 1) + "water " * 8
            await call(client, server, "ada", "notes_create", title=f"Note {number}", content=content)
        found = await call(client, server, "ada", "notes_search", query="tea")

    assert [item["title"] for item in found["results"]] == ["Note 3", "Note 2", "Note 1", "Note 0"]
    scores = [item["score"] for item in found["results"]]
    # The worst hit has a rank too. With bm25, which is scaled between the worst and the best hit, it would be 0.
    assert scores[0] == 1.0 > scores[1] > scores[2] > scores[3] > 0


def test_invalid_address_is_a_setting_error_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="storage_url: expected postgresql://") as raised:
        make_settings(tmp_path, storage_url="mysql://ada:secret@db/kb")

    assert "secret" not in raised.value.message
