"""Searching and reading over REST: the answers of the tools, to the caller's own library."""

import msgspec
from msgspec.structs import fields

from server.rest.knowledge import ItemReading
from sources.items import Loc, RetrievalOptions
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import SOURCES, LibraryUser


async def test_a_search_finds_the_callers_items_in_every_source_and_nobody_elses(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    for source in SOURCES:
        await ada.add_item(source, f"Ada's {source}", f"a galleon under sail, as told in {source}")
    await ben.add_note("Ben's only note", "a galleon at anchor")

    found = {who: (await api.search({"query": "galleon"}, who)).json() for who in ("ada", "ben")}

    assert {hit["source"] for hit in found["ada"]["results"]} == set(SOURCES)
    assert [hit["title"] for hit in found["ben"]["results"]] == ["Ben's only note"]


async def test_a_search_answers_what_the_tool_answers(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon under sail")
    asked = {"query": "galleon", "limit": 3, "sources": ["notes", "media"], "explain": True}

    over_rest = (await api.search(asked)).json()
    as_tool = await ada.call("knowledge_search", **asked)

    for answer in (over_rest, as_tool):
        del answer["session"]
        for report in answer["sources"].values():
            del report["ms"]
    assert over_rest == as_tool


async def test_a_session_leaves_out_what_it_has_shown(api: RestClient, ada: LibraryUser) -> None:
    for n in range(3):
        await ada.add_note(f"Note {n}", f"galleon number {n} under sail")
    first = (await api.search({"query": "galleon", "limit": 2})).json()

    second = (await api.search({"query": "galleon", "limit": 2, "session": first["session"]})).json()

    assert not {hit["uri"] for hit in first["results"]} & {hit["uri"] for hit in second["results"]}
    assert second["suppressed"] == 2


async def test_the_session_of_another_user_does_not_exist(api: RestClient, ada: LibraryUser) -> None:
    session = (await api.search({"query": "galleon"})).json()["session"]

    foreign = await api.search({"query": "galleon", "session": session}, "ben")
    unknown = await api.search({"query": "galleon", "session": "x" * len(session)}, "ben")

    assert foreign.status == 404
    assert foreign.told() == unknown.told()


async def test_every_kind_of_item_is_read_by_source_and_id_and_by_uri(api: RestClient, ada: LibraryUser) -> None:
    for source in SOURCES:
        identity = await ada.add_item(source, f"One of the {source}", "a galleon under sail")
        by_id = await api.get(f"/api/v1/items/{source}/{identity}?mode=full")
        by_uri = await api.get(f"/api/v1/items?uri={source}%3A%2F%2F{identity}&mode=full")

        assert by_id.json()["meta"]["title"] == f"One of the {source}"
        assert "a galleon under sail" in by_id.json()["content"]
        assert by_uri.json() == by_id.json()


async def test_a_budget_and_a_place_are_read_from_the_query_string(api: RestClient, ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", *(f"turn number {n}" for n in range(9)))

    answer = (await api.get(f"/api/v1/items/chats/{chat}?mode=chunk&message_index=4&max_tokens=400")).json()

    assert (answer["mode"], answer["anchor"], answer["content"]) == ("chunk", "loc", "Ana: turn number 4")
    assert answer["tokens"] <= 400


async def test_a_message_is_read_under_the_path_of_its_uri(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "first words", "the galleon sails", "last words")
    hit = (await api.search({"query": "galleon"})).json()["results"][0]

    answer = (await api.get(f"/api/v1/items/{hit['uri'].replace('://', '/')}?mode=chunk")).json()

    assert answer["content"] == "Guide: the galleon sails"


async def test_an_item_is_paged_by_its_cursor(api: RestClient, ada: LibraryUser) -> None:
    text = " ".join(f"word{n}" for n in range(2000))
    path = f"/api/v1/items/notes/{await ada.add_note('Long', text)}?mode=full&max_tokens=1000"
    page = (await api.get(path)).json()
    read = page["content"]
    while page["next_cursor"]:
        page = (await api.get(f"{path}&cursor={page['next_cursor']}")).json()
        read += page["content"]

    assert read.endswith(text)


async def test_the_item_of_another_user_is_answered_byte_for_byte_as_an_absent_one(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ben.add_note("Ben's", "so that his library exists")
    paths = ("/api/v1/items/media/1", "/api/v1/items?uri=media://1", "/items/media/1")
    absent = [await api.get(path, "ben") for path in paths]

    assert await ada.add_media("Secret", "a galleon under sail") == 1
    foreign = [await api.get(path, "ben") for path in paths]

    assert [answer.status for answer in foreign] == [404] * 3
    assert [answer.told() for answer in foreign] == [answer.told() for answer in absent]
    assert [(await api.get(path)).status for path in paths] == [200] * 3


async def test_an_unchanged_item_is_answered_with_304_and_a_changed_one_is_not(
    api: RestClient, ada: LibraryUser
) -> None:
    path = f"/api/v1/items/notes/{await ada.add_note('Voyage', 'a galleon under sail')}"
    first = await api.get(path)
    etag = first.header("etag") or ""

    again = await api.get(path, if_none_match=f'"other", W/{etag}')
    other = await api.get(f"{path}?mode=full", if_none_match=etag)

    assert (again.status, again.body, again.header("etag")) == (304, b"", etag)
    assert other.status == 200


def test_the_query_string_offers_every_option_and_every_place_but_those_the_path_names() -> None:
    offered = {field.name for field in fields(ItemReading)}
    places = {field.name for field in fields(Loc)} - {"media_id", "conversation_id"}

    assert offered == {field.name for field in fields(RetrievalOptions)} | places | {"query", "cursor", "session"}


def test_a_reading_that_asks_for_nothing_leaves_the_default_to_the_source() -> None:
    asked = msgspec.convert({}, ItemReading).as_get({"uri": "notes://1"})

    assert (asked.retrieval, asked.loc) == (None, None)
