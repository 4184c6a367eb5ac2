"""Changes of many items over REST: tags of the whole library, selections, pins, undo, and large changes."""

import asyncio
from typing import Any

from auth.context import READ
from sources.drafts import NoteDraft
from tests.cases import each_case
from tests.server.rest.rest_client import RestClient
from tests.server.rest.test_items import send, titles
from tests.sources.source_fixture import SOURCES, LibraryUser


async def tags(api: RestClient, user: str = "ada") -> dict[str, int]:
    listed = (await api.get("/api/v1/tags", user)).json()["tags"]
    return {one["tag"]: one["items"] for one in listed}


async def undo(api: RestClient, change: Any, user: str = "ada") -> Any:
    return await send(api, "POST", "/api/v1/items/undo", {"undo": change["undo"]}, user)


async def test_tag_is_renamed_merged_and_deleted_in_all_sources_and_undone(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    for source in SOURCES:
        await ada.add_item(source, f"Voyage {source}", f"a galleon that {source} know", tags=["Sea"])
    await ada.add_note("Harbour", "a quay", tags=["ships", "sea"])
    await ben.add_note("Bay", "a galleon", tags=["sea"])
    assert await tags(api) == {"sea": len(SOURCES) + 1, "ships": 1}

    renamed = await send(api, "POST", "/api/v1/tags/rename", {"tag": "SEA", "new_tag": "ocean"})
    assert (renamed.status, renamed.json()["changed"], renamed.json()["state"]) == (200, len(SOURCES) + 1, "done")
    assert await tags(api) == {"ocean": len(SOURCES) + 1, "ships": 1}
    assert len(await titles(api, "tag:ocean galleon")) == len(SOURCES)
    assert await titles(api, "tag:sea galleon") == []
    refused = await send(api, "POST", "/api/v1/tags/rename", {"tag": "ocean", "new_tag": "Ships"})
    assert (refused.status, await tags(api)) == (409, {"ocean": len(SOURCES) + 1, "ships": 1})
    merged = await send(api, "POST", "/api/v1/tags/rename", {"tag": "ocean", "new_tag": "ships", "merge": True})
    assert (merged.status, await tags(api)) == (200, {"ships": len(SOURCES) + 1})
    deleted = await send(api, "DELETE", "/api/v1/tags?tag=ships")
    assert (deleted.status, await tags(api), await tags(api, "ben")) == (200, {}, {"sea": 1})
    assert (await send(api, "DELETE", "/api/v1/tags?tag=ships")).status == 404

    assert (await undo(api, deleted.json(), "ben")).status == 404
    for change in (deleted, merged, renamed):
        answer = await undo(api, change.json())
        assert (answer.status, answer.json()["skipped"]) == (200, 0)
    assert await tags(api) == {"sea": len(SOURCES) + 1, "ships": 1}
    assert (await undo(api, deleted.json())).status == 404


@each_case("source", SOURCES)
async def test_selection_is_tagged_pinned_and_deleted_and_what_changed_meanwhile_is_reported(
    api: RestClient, ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    keys = [await ada.add_item(source, f"Voyage {number}", "a galleon") for number in range(3)]
    foreign = await ben.add_item(source, "Bay", "a galleon")
    items = [{"uri": f"{source}://{key}", "version": 1} for key in keys]

    tagged = await send(api, "POST", "/api/v1/items/selection/tags", {"items": items[:2], "add": ["sea"]})
    assert (tagged.status, tagged.json()["changed"]) == (200, 2)
    stale = await send(api, "POST", "/api/v1/items/selection/delete", {"items": items})
    assert (stale.json()["changed"], stale.json()["skipped"]) == (1, 2)
    assert "has changed since" in stale.json()["problem"]
    pinned = await send(
        api, "POST", "/api/v1/items/selection/update", {"items": [items[0] | {"version": None}], "pinned": True}
    )
    assert pinned.json()["changed"] == 1
    listed = (await api.get(f"/api/v1/library/items?source={source}&pinned=true")).json()
    assert [(item["uri"], item["pinned"]) for item in listed["items"]] == [(items[0]["uri"], True)]
    others = await send(api, "POST", "/api/v1/items/selection/delete", {"items": [{"uri": f"{source}://{foreign}"}]})
    is_own_number = str(foreign) in map(str, keys)
    assert others.json()["changed"] == (1 if is_own_number else 0)
    assert (await ben.read(source, foreign))["meta"]["title"] == "Bay"

    for change in (stale, others) if is_own_number else (stale,):
        assert (await undo(api, change.json())).status == 200
    assert (await api.get(f"/api/v1/library/items?source={source}")).json()["total"] == 3


async def test_all_that_match_a_filter_are_changed_unless_their_number_has_changed(
    api: RestClient, ada: LibraryUser
) -> None:
    for number in range(3):
        await ada.add_note(f"Note {number}", "x", tags=["inbox"])
    chat = await ada.add_chat("Talk", "hello", tags=["inbox"])
    where = {"where": {"tag": "inbox"}}

    refused = await send(api, "POST", "/api/v1/items/selection/delete", {**where, "expected_total": 3})
    moved = await send(api, "POST", "/api/v1/items/selection/update", {**where, "namespace": "work"})
    deleted = await send(api, "POST", "/api/v1/items/selection/delete", {**where, "expected_total": 4})

    assert (refused.status, "4 items match now" in refused.body.decode()) == (409, True)
    assert (moved.json()["changed"], moved.json()["skipped"]) == (1, 3)
    assert (deleted.json()["changed"], (await api.get("/api/v1/library/items")).json()["total"]) == (4, 0)
    assert (await undo(api, deleted.json())).json()["changed"] == 4
    assert (await api.get("/api/v1/library/items?namespace=work")).json()["items"][0]["id"] == chat
    for body in ({}, {"items": [], "add": ["x"]}, {"items": [{"uri": "notes://a/b"}], "add": ["x"]}):
        assert (await send(api, "POST", "/api/v1/items/selection/tags", body)).status == 400


async def test_large_change_goes_on_after_its_response_and_is_undone(api: RestClient, ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        for start in range(0, 1_100, 100):
            drafts = [NoteDraft(title=f"Note {start + number}", tags=["many"]) for number in range(100)]
            await library.notes.create_many(drafts)
        await library.bookmarks.claim("library change", "another one", 60)
        refused = await send(api, "DELETE", "/api/v1/tags?tag=many")
        await library.bookmarks.release("library change", "another one")
    assert (refused.status, await tags(api)) == (409, {"many": 1_100})

    async def ended() -> Any:
        while True:
            change = (await api.get("/api/v1/items/changes")).json()["changes"][0]
            if change["state"] != "running":
                return change
            await asyncio.sleep(0.05)

    started = (await send(api, "POST", "/api/v1/tags/rename", {"tag": "many", "new_tag": "some"})).json()
    assert (started["state"], started["total"]) == ("running", 1_100)
    change = await ended()
    assert (change["id"], change["state"], change["changed"]) == (started["id"], "done", 1_100)
    assert await tags(api) == {"some": 1_100}
    assert (await undo(api, change)).status == 200
    assert (await ended())["changed"] == 1_100
    assert await tags(api) == {"many": 1_100}


async def test_reader_cannot_change_many_items(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "x", tags=["sea"])
    bearer = await api.server.bearer("ada", scopes=(READ,))
    for method, path in (
        ("POST", "/api/v1/tags/rename"),
        ("DELETE", "/api/v1/tags?tag=sea"),
        ("POST", "/api/v1/items/selection/tags"),
        ("POST", "/api/v1/items/selection/delete"),
        ("POST", "/api/v1/items/selection/update"),
        ("POST", "/api/v1/items/undo"),
    ):
        assert (await api.request(method, path, None, bearer)).status == 403


async def test_duplicates_are_found_merged_and_separated_again(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    old = await ada.add_note("Voyage", text, tags=["sea"])
    new = await ada.add_note("Voyage again", f"{text} and the end", tags=["Ship", "SEA"])
    media = [await ada.add_media(f"Film {number}", text) for number in range(2)]
    await ada.add_note("Other", "nothing in common with the rest of the notes here")
    await ben.add_note("Voyage", text)
    assert (await api.get("/api/v1/duplicates")).json()["search"]["state"] == "none"

    search = (await send(api, "POST", "/api/v1/duplicates")).json()
    groups = (await api.get("/api/v1/duplicates")).json()["groups"]

    assert (search["state"], search["scanned"], search["found"]) == ("done", 5, 2)
    uris = [[one["item"]["uri"] for one in group["items"]] for group in groups]
    assert uris == [[f"media://{media[0]}", f"media://{media[1]}"], [f"notes://{old}", f"notes://{new}"]]
    assert (groups[0]["share"], groups[1]["share"] < 1) == (1.0, True)
    assert (await api.get("/api/v1/duplicates", "ben")).json()["groups"] == []

    merge = {"uris": uris[1], "versions": [1, 1], "text": "both"}
    assert (await send(api, "POST", "/api/v1/items/merge", merge, "ben")).status == 404
    assert (await send(api, "POST", "/api/v1/items/merge", {**merge, "versions": [1, 2]})).status == 409
    merged = await send(api, "POST", "/api/v1/items/merge", merge)
    assert (merged.status, merged.json()["changed"]) == (200, 2)
    kept = await ada.read("notes", old, retrieval={"mode": "full"})
    assert kept["meta"]["tags"] == ["sea", "Ship"]
    assert kept["content"] == f"{text}\n\n---\n\n{text} and the end"
    assert (await api.get(f"/api/v1/items/notes/{new}")).status == 404
    assert len((await api.get("/api/v1/duplicates")).json()["groups"]) == 1
    assert (await undo(api, merged.json())).json()["changed"] == 2
    assert (await ada.read("notes", old, retrieval={"mode": "full"}))["content"] == text
    assert (await ada.read("notes", new))["meta"]["tags"] == ["Ship", "SEA"]

    refused = [
        {"uris": [uris[0][0], uris[1][0]]},
        {"uris": uris[0][:1]},
        {"uris": uris[0], "text": "both"},
        {"uris": uris[0], "keep": uris[1][0]},
    ]
    for body in refused:
        assert (await send(api, "POST", "/api/v1/items/merge", body)).status == 400
    assert (await send(api, "POST", "/api/v1/items/merge", {"uris": uris[0], "keep": uris[0][1]})).status == 200
    assert (await api.get(f"/api/v1/items/media/{media[0]}")).status == 404


async def test_large_library_is_compared_in_the_background(api: RestClient, ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        for start in range(0, 600, 100):
            drafts = [NoteDraft(title=f"Note {start + number}", content=f"Text {number}") for number in range(100)]
            await library.notes.create_many(drafts)

    started = (await send(api, "POST", "/api/v1/duplicates")).json()
    assert (started["state"], started["total"]) == ("running", 600)
    while (found := (await api.get("/api/v1/duplicates?limit=50")).json())["search"]["state"] == "running":
        await asyncio.sleep(0.05)

    assert (found["search"]["state"], found["search"]["scanned"], found["search"]["found"]) == ("done", 600, 100)
    assert [len(group["items"]) for group in found["groups"]] == [6] * 50
    assert found["next_offset"] == 50
