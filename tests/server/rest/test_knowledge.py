"""Searching and reading over REST: the same results as the tools, from the caller's own library."""

import base64
from typing import Any

import msgspec
from msgspec.structs import fields

from aggregator.contract import FacetedSearch
from aggregator.facets import COUNTED_RESULTS_MIN, FacetCount, FacetedResponse, Facets
from server.operations.knowledge import ItemReadOptions
from sources.drafts import MessageDraft
from sources.items import Loc, RetrievalOptions
from tests.server.rest.rest_client import RestClient
from tests.sharing import access_to, with_libraries
from tests.sources.source_fixture import SOURCES, LibraryUser


async def test_a_search_finds_only_the_callers_items_in_every_source(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    for source in SOURCES:
        await ada.add_item(source, f"Ada's {source}", f"a galleon under sail, as told in {source}")
    await ben.add_note("Ben's only note", "a galleon at anchor")

    responses = {user: (await api.search({"query": "galleon"}, user)).json() for user in ("ada", "ben")}

    assert {hit["source"] for hit in responses["ada"]["results"]} == set(SOURCES)
    assert [hit["title"] for hit in responses["ben"]["results"]] == ["Ben's only note"]


async def test_a_search_returns_the_same_as_the_tool(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon under sail")
    args = {"query": "galleon", "limit": 3, "sources": ["notes", "media"], "explain": True}

    from_api = (await api.search(args)).json()
    from_tool = await ada.call("knowledge_search", **args)

    for response in (from_api, from_tool):
        del response["session"]
        for report in response["sources"].values():
            del report["ms"]
    assert from_api == from_tool


async def test_a_session_omits_items_it_has_returned(api: RestClient, ada: LibraryUser) -> None:
    for n in range(3):
        await ada.add_note(f"Note {n}", f"galleon number {n} under sail")
    first = (await api.search({"query": "galleon", "limit": 2})).json()

    second = (await api.search({"query": "galleon", "limit": 2, "session": first["session"]})).json()

    assert not {hit["uri"] for hit in first["results"]} & {hit["uri"] for hit in second["results"]}
    assert second["suppressed"] == 2


async def test_another_users_session_is_not_found(api: RestClient, ada: LibraryUser) -> None:
    session = (await api.search({"query": "galleon"})).json()["session"]

    foreign = await api.search({"query": "galleon", "session": session}, "ben")
    unknown = await api.search({"query": "galleon", "session": "x" * len(session)}, "ben")

    assert foreign.status == 404
    assert foreign.comparable() == unknown.comparable()


async def test_items_of_every_source_can_be_read_by_id_and_by_uri(api: RestClient, ada: LibraryUser) -> None:
    for source in SOURCES:
        identity = await ada.add_item(source, f"One of the {source}", "a galleon under sail")
        by_id = await api.get(f"/api/v1/items/{source}/{identity}?mode=full")
        by_uri = await api.get(f"/api/v1/items?uri={source}%3A%2F%2F{identity}&mode=full")

        assert by_id.json()["meta"]["title"] == f"One of the {source}"
        assert "a galleon under sail" in by_id.json()["content"]
        assert by_uri.json() == by_id.json()


async def test_budget_and_position_can_be_set_in_the_query_string(api: RestClient, ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", *(f"turn number {n}" for n in range(9)))

    response = (await api.get(f"/api/v1/items/chats/{chat}?mode=chunk&message_index=4&max_tokens=400")).json()

    assert (response["mode"], response["anchor"], response["content"]) == ("chunk", "loc", "Ana: turn number 4")
    assert response["tokens"] <= 400


async def test_a_message_can_be_read_by_the_path_of_its_uri(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "first words", "the galleon sails", "last words")
    hit = (await api.search({"query": "galleon"})).json()["results"][0]

    response = (await api.get(f"/api/v1/items/{hit['uri'].replace('://', '/')}?mode=chunk")).json()

    assert response["content"] == "Guide: the galleon sails"


async def test_an_item_can_be_read_page_by_page(api: RestClient, ada: LibraryUser) -> None:
    text = " ".join(f"word{n}" for n in range(2000))
    path = f"/api/v1/items/notes/{await ada.add_note('Long', text)}?mode=full&max_tokens=1000"
    page = (await api.get(path)).json()
    content = page["content"]
    while page["next_cursor"]:
        page = (await api.get(f"{path}&cursor={page['next_cursor']}")).json()
        content += page["content"]

    assert content.endswith(text)


async def test_another_users_item_gets_the_same_response_as_a_missing_one(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ben.add_note("Ben's", "so that his library exists")
    paths = ("/api/v1/items/media/1", "/api/v1/items?uri=media://1", "/items/media/1")
    missing = [await api.get(path, "ben") for path in paths]

    assert await ada.add_media("Secret", "a galleon under sail") == 1
    foreign = [await api.get(path, "ben") for path in paths]

    assert [response.status for response in foreign] == [404] * 3
    assert [response.comparable() for response in foreign] == [response.comparable() for response in missing]
    assert [(await api.get(path)).status for path in paths] == [200] * 3


async def test_an_unchanged_item_returns_304(api: RestClient, ada: LibraryUser) -> None:
    path = f"/api/v1/items/notes/{await ada.add_note('Voyage', 'a galleon under sail')}"
    first = await api.get(path)
    etag = first.header("etag") or ""

    again = await api.get(path, if_none_match=f'"other", W/{etag}')
    other = await api.get(f"{path}?mode=full", if_none_match=etag)

    assert (again.status, again.body, again.header("etag")) == (304, b"", etag)
    assert other.status == 200


def test_query_parameters_cover_all_retrieval_and_loc_fields() -> None:
    parameters = {field.name for field in fields(ItemReadOptions)}
    loc_fields = {field.name for field in fields(Loc)} - {"media_id", "conversation_id"}

    assert parameters == {field.name for field in fields(RetrievalOptions)} | loc_fields | {
        "query",
        "cursor",
        "session",
        "library",
    }


def test_a_request_without_options_uses_the_defaults_of_the_source() -> None:
    request = msgspec.convert({}, ItemReadOptions).as_knowledge_get({"uri": "notes://1"})

    assert (request.retrieval, request.loc) == (None, None)


async def add_galleons(user: LibraryUser) -> None:
    await user.add_note("Voyage", "a galleon", tags=["Sea", "work"], created_at="2025-03-31T23:30:00Z")
    await user.add_note("Log", "another galleon", tags=["sea"], created_at="2025-04-02T00:00:00Z")
    await user.add_media("Film", "a galleon in a film", media_type="video", created_at="2024-01-05T00:00:00Z")
    lines = [
        MessageDraft(role="user", sender=sender, content=f"the galleon {n}", created_at=f"2024-0{n}-05T00:00:00Z")
        for n, sender in enumerate(("Ana", "Ana", "Ben"), 1)
    ]
    await user.add_chat("Talk", *lines, namespace="work")


def counts(facet: list[dict[str, Any]]) -> dict[str, int]:
    return {one["value"]: one["count"] for one in facet}


async def test_facets_count_the_callers_results_and_each_is_what_its_filter_finds(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await add_galleons(ada)
    await ben.add_note("Harbour", "a galleon at anchor", tags=["harbour"])

    facets = (await api.search({"query": "galleon", "facets": True, "limit": 1})).json()["facets"]

    assert (facets["counted"], facets["is_complete"]) == (4, True)
    assert counts(facets["sources"]) == {"notes": 2, "media": 1, "chats": 1}
    months = {"2025-04": 1, "2025-03": 1, "2024-03": 1, "2024-02": 1, "2024-01": 2}
    assert counts(facets["months"]) == months
    assert list(counts(facets["months"])) == sorted(months, reverse=True)
    assert counts(facets["years"]) == {"2025": 2, "2024": 2}
    assert {tag.lower(): count for tag, count in counts(facets["tags"]).items()} == {"sea": 2, "work": 1}
    assert (counts(facets["media_types"]), counts(facets["senders"])) == ({"video": 1}, {"Ana": 1, "Ben": 1})
    assert counts(facets["namespaces"]) == {"work": 1}
    queries = {f"tag:{tag}": count for tag, count in counts(facets["tags"]).items()}
    queries |= {f"sender:{name}": count for name, count in counts(facets["senders"]).items()}
    queries |= {f"type:{name}": count for name, count in counts(facets["media_types"]).items()}
    queries |= {f"after:{month} before:{following(month)}": count for month, count in months.items()}
    for query, count in queries.items():
        found = (await api.search({"query": f"galleon {query}", "dedupe": "off"})).json()["results"]
        assert (query, len(found)) == (query, count)


def following(month: str) -> str:
    year, number = map(int, month.split("-"))
    return f"{year + number // 12}-{number % 12 + 1:02}"


async def test_facets_count_the_first_results_from_any_page(api: RestClient, ada: LibraryUser) -> None:
    for n in range(COUNTED_RESULTS_MIN + 60):
        await ada.add_note(f"Note {n}", f"galleon number {n}")

    pages = [
        (await api.search({"query": "galleon", "facets": True, "limit": 5, "offset": offset, "dedupe": "off"})).json()
        for offset in (0, 25)
    ]

    for page in pages:
        assert COUNTED_RESULTS_MIN <= page["facets"]["counted"] < COUNTED_RESULTS_MIN + 60
        assert not page["facets"]["is_complete"]
        assert page["facets"]["sources"] == [{"value": "notes", "count": page["facets"]["counted"]}]
    assert {hit["uri"] for hit in pages[0]["results"]}.isdisjoint(hit["uri"] for hit in pages[1]["results"])


async def test_asking_for_facets_changes_nothing_else(api: RestClient, ada: LibraryUser) -> None:
    await add_galleons(ada)
    args = {"query": "galleon", "limit": 2, "offset": 1, "dedupe": "off"}

    plain, faceted = [(await api.search({**args, **more})).json() for more in ({}, {"facets": True})]

    assert "facets" not in plain
    assert faceted.pop("facets")
    for response in (plain, faceted):
        del response["session"]
    assert faceted == plain


async def test_month_of_a_facet_is_that_of_the_callers_time_zone(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon", created_at="2025-03-31T23:30:00Z")

    config = base64.b64encode(b'{"time_zone": "Europe/Berlin"}').decode()
    response = await api.search({"query": "galleon", "facets": True}, "ada", Mcp_Config=config)

    assert counts(response.json()["facets"]["months"]) == {"2025-04": 1}


async def test_facets_count_items_of_other_libraries_too(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    # Both have the same id.
    await ada.add_media("Mine", "a galleon", media_type="video", tags=["sea"])
    await ben.add_media("Theirs", "a galleon", media_type="audio", tags=["sea"])
    member = with_libraries(ada, access_to(ben))

    response = await api.server.runtime.knowledge.aggregator.search(
        member.context, FacetedSearch(query="galleon", facets=True)
    )

    assert isinstance(response, FacetedResponse)
    assert isinstance(response.facets, Facets)
    assert response.facets.sources == (FacetCount("media", 2),)
    assert response.facets.media_types == (FacetCount("audio", 1), FacetCount("video", 1))
    assert response.facets.tags == (FacetCount("sea", 2),)
