"""What a library contains, and lists of its items."""

from sources.drafts import MessageDraft
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import SOURCES, LibraryUser


async def titles(api: RestClient, parameters: str, user: str = "ada") -> list[str]:
    response = await api.get(f"/api/v1/library/items?{parameters}", user)
    assert response.status == 200, response.body
    return [item["title"] for item in response.json()["items"]]


async def test_overview_counts_the_items_of_one_user(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    for source in SOURCES:
        await ada.add_item(source, f"One of the {source}", "a galleon", tags=["Sea"])
    await ada.add_note("Another", "a frigate", tags=["sea", "north"])
    await ada.add_media("Film", "a sloop", media_type="video")
    await ben.add_note("Harbour", "a galleon", tags=["port"])

    library = (await api.get("/api/v1/library")).json()
    other = (await api.get("/api/v1/library", "ben")).json()

    assert library["items"] == 7
    assert library["sources"] == {"notes": 2, "media": 2, "chats": 1, "characters": 1, "prompts": 1}
    assert {one["tag"].lower(): one["items"] for one in library["tags"]} == {"sea": 6, "north": 1}
    assert library["media_types"]["video"] == 1
    assert library["namespaces"] == {"default": 1}
    # The tags of notes are indexed with their texts.
    assert (library["words"]["notes"], library["words"]["media"], other["words"]["notes"]) == (7, 4, 3)
    assert other["words"]["media"] == 0
    assert library["bytes"] > 0
    assert {item["title"] for item in library["recent"]} >= {"Film", "Another"}
    assert ([item["title"] for item in other["recent"]], other["items"]) == (["Harbour"], 1)


async def test_items_are_listed_by_source_tag_type_namespace_and_date(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_note("Old", "a galleon", tags=["Sea"], created_at="2019-05-05T12:00:00Z")
    await ada.add_media("Film", "a galleon", media_type="video", created_at="2020-05-05T12:00:00Z")
    message = MessageDraft(role="user", content="a galleon")
    await ada.add_chat("Talk", message, namespace="work", created_at="2021-05-05T12:00:00Z")
    await ada.add_note("New", "a galleon", tags=["sea", "north"])
    await ben.add_note("Harbour", "a galleon", tags=["sea"])

    assert (await titles(api, ""))[0] == "New"
    assert sorted(await titles(api, "")) == ["Film", "New", "Old", "Talk"]
    assert await titles(api, "source=notes") == ["New", "Old"]
    assert await titles(api, "tag=SEA") == ["New", "Old"]
    assert await titles(api, "tag=sea&source=media") == []
    assert await titles(api, "media_type=video") == ["Film"]
    assert await titles(api, "namespace=work") == ["Talk"]
    assert await titles(api, "until=2019") == ["Old"]
    assert await titles(api, "since=2020-05-05&until=2020-05-05") == ["Film"]
    assert await titles(api, "tag=sea", "ben") == ["Harbour"]


async def test_all_pages_together_have_every_item_once(api: RestClient, ada: LibraryUser) -> None:
    for number in range(5):
        await ada.add_note(f"Note {number}", "a galleon")
        await ada.add_prompt(f"Prompt {number}", "a galleon")
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = (await api.get(f"/api/v1/library/items?limit=3&offset={offset}")).json()
        assert page["total"] == 10
        seen += [item["title"] for item in page["items"]]
        offset = page["next_offset"]

    assert sorted(seen) == sorted(f"{kind} {number}" for kind in ("Note", "Prompt") for number in range(5))


async def test_invalid_time_is_rejected(api: RestClient, ada: LibraryUser) -> None:
    response = await api.get("/api/v1/library/items?since=someday")

    assert response.status == 400
    assert "since" in response.json()["error"]["message"]


async def test_timeline_counts_the_callers_items_by_month_and_source_and_by_day(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_note("One", "a galleon", tags=["sea"], created_at="2024-12-31T23:59:59Z")
    await ada.add_note("Two", "a galleon", tags=["sea"], created_at="2025-01-01T00:00:00Z")
    await ada.add_media("Film", "a galleon", created_at="2025-01-01T12:00:00Z")
    await ada.add_chat("Talk", "a galleon", created_at="2025-03-05T12:00:00Z")
    await ben.add_note("Harbour", "a galleon", created_at="2025-01-01T12:00:00Z")

    timeline = (await api.get("/api/v1/library/timeline")).json()
    earlier = (await api.get("/api/v1/library/timeline?year=2024")).json()

    assert timeline["months"] == {"2024-12": {"notes": 1}, "2025-01": {"notes": 1, "media": 1}, "2025-03": {"chats": 1}}
    assert list(timeline["months"]) == ["2024-12", "2025-01", "2025-03"]
    assert (timeline["year"], timeline["days"]) == (2025, {"2025-01-01": 2, "2025-03-05": 1})
    assert (earlier["months"], earlier["days"]) == (timeline["months"], {"2024-12-31": 1})
    assert timeline["tags"] == [{"tag": "sea", "items": 2}]
    for created, count in (("2025", 3), ("2025-01", 2), ("2025-01-01", 2), ("2024-12-31", 1), ("2023", 0)):
        assert (created, len(await titles(api, f"created={created}"))) == (created, count)


async def test_timeline_of_an_empty_library_is_empty(api: RestClient, ada: LibraryUser) -> None:
    timeline = (await api.get("/api/v1/library/timeline")).json()

    assert timeline == {"months": {}, "year": None, "days": {}, "tags": []}
    assert (await api.get("/api/v1/library/items?created=spring")).status == 400
