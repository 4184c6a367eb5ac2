"""Saved searches over REST."""

import asyncio
import io
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from sources.saved_searches import SAVED_MAX
from tests.server.console.test_note_images import import_into
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, RestClient
from tests.sources.source_fixture import LibraryUser


async def save(api: RestClient, name: str, user: str = "ada", **fields: Any) -> HttpResponse:
    return await api.request("PUT", f"/api/v1/searches/{name}", user, JSON, msgspec.json.encode(fields))


async def saved(api: RestClient, user: str = "ada") -> list[dict[str, str]]:
    searches: list[dict[str, str]] = (await api.get("/api/v1/searches", user)).json()["searches"]
    return searches


async def test_saved_searches_are_listed_replaced_and_deleted(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    assert (await save(api, "ships", q="galleon", tag="sea")).json() == {"name": "ships", "q": "galleon", "tag": "sea"}
    await save(api, "Ana", sender="Ana")
    await save(api, "ships", q="frigate", sort="recent")

    assert await saved(api) == [{"name": "Ana", "sender": "Ana"}, {"name": "ships", "q": "frigate", "sort": "recent"}]
    assert await saved(api, "ben") == []
    foreign = await api.request("DELETE", "/api/v1/searches/ships", "ben")
    unknown = await api.request("DELETE", "/api/v1/searches/other", "ben")
    assert (foreign.status, unknown.status) == (404, 404)
    assert (await api.request("DELETE", "/api/v1/searches/ships", "ada")).status == 200
    assert [one["name"] for one in await saved(api)] == ["Ana"]


async def test_empty_and_long_searches_are_rejected(api: RestClient, ada: LibraryUser) -> None:
    for name, fields in (
        ("%20", {"q": "x"}),
        ("x" * 101, {"q": "x"}),
        ("x", {"source": "notes"}),
        ("x", {"q": "y" * 1001}),
    ):
        assert (await save(api, name, **fields)).status == 400, name
    assert await saved(api) == []


async def test_searches_saved_at_the_same_time_are_all_kept_up_to_the_limit(api: RestClient, ada: LibraryUser) -> None:
    responses = await asyncio.gather(*(save(api, f"search {n}".replace(" ", "%20"), q="x") for n in range(SAVED_MAX)))

    assert {response.status for response in responses} == {200}
    assert len(await saved(api)) == SAVED_MAX
    assert (await save(api, "another", q="x")).status == 409
    assert (await save(api, "search%200", q="replaced")).status == 200


async def test_saved_searches_are_exported_and_imported_again(
    api: RestClient, ada: LibraryUser, ben: LibraryUser, tmp_path: Path
) -> None:
    await ada.add_note("Voyage", "a galleon")
    await save(api, "ships", q="galleon")
    await save(api, "Ana", sender="Ana")
    await save(api, "ships", "ben", q="frigate")

    archive = zipfile.ZipFile(io.BytesIO((await api.get("/api/v1/export")).body))
    archive.extractall(tmp_path)
    exported = tmp_path / "florilegium" / "saved-searches.json"
    first = await import_into(ben, exported.parent, api)
    damaged = [*msgspec.json.decode(exported.read_bytes()), {"name": "", "q": "x"}, {"name": "empty"}, {"q": 1}]
    exported.write_bytes(msgspec.json.encode(damaged))
    again = await import_into(ben, exported.parent, api)

    assert damaged[:2] == [{"name": "Ana", "sender": "Ana"}, {"name": "ships", "q": "galleon"}]
    assert await saved(api, "ben") == [{"name": "Ana", "sender": "Ana"}, {"name": "ships", "q": "frigate"}]
    assert (first.kinds["notes"].new, first.skipped) == (1, {"saved search whose name is in use": 1})
    assert (again.failed_items, first.failed_items) == (3, 0)
