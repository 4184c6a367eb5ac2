"""Search by meaning through the tools, with the model `fast` and two users."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.cli.local_library import fill_demo
from sources.drafts import NoteDraft
from sources.semantic.named_models import best_model
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS
from tests.server.rest.rest_client import open_rest_client
from tests.sources.semantic.api_server import ApiRequest, serve_api
from tests.sources.source_fixture import SOURCES, LibraryUser

CAR = "My automobile needs new tyres and an oil change before winter."
OTHERS = (
    "Knead the dough, let the yeast rise, and bake the loaf in a hot oven.",
    "Heavy rain and thunderstorms are expected over the mountains tomorrow.",
)
QUERY = "vehicle maintenance"


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[tuple[LibraryUser, LibraryUser]]:
    async with open_rest_client(tmp_path, semantic_model="fast", semantic_timeout_ms=60_000, **NO_RATE_LIMITS) as api:
        ada, ben = await api.library_user("ada"), await api.library_user("ben")
        for source in SOURCES:
            await ada.add_item(source, "Garage", f"{CAR} ({source})")
            for text in OTHERS:
                await ada.add_item(source, "Other", f"{text} ({source})")
                await ben.add_item(source, "Other", f"{text} ({source})")
        for reader in (ada, ben):
            await embed(reader)
        yield ada, ben


async def embed(reader: LibraryUser) -> None:
    await reader.libraries.embed(reader.context.user_id)


async def test_every_source_finds_by_meaning_and_only_the_users_own(
    readers: tuple[LibraryUser, LibraryUser],
) -> None:
    ada, ben = readers
    for source in SOURCES:
        response = await ada.call(f"{source}_search", query=QUERY)
        assert response["semantic"] == {"status": "on", "coverage": 1.0}
        assert response["results"][0]["title"] == "Garage", source
        assert "automobile" in response["results"][0]["snippet"]
        others = (await ben.call(f"{source}_search", query=QUERY))["results"]
        assert all("automobile" not in hit["snippet"] for hit in others)


@each_case("model", ["off", "fast"])
async def test_page_about_a_person_has_what_is_said_about_the_person_before_what_the_person_said(
    tmp_path: Path, model: str
) -> None:
    settings = {"semantic_model": model, "semantic_timeout_ms": 60_000, **NO_RATE_LIMITS}
    async with open_rest_client(tmp_path / model, **settings) as api:
        ada = await api.library_user("ada")
        await fill_demo(ada.libraries, ada.context)
        await embed(ada)
        for person in ("Maren", "Tobias", "Ilse", "Pell", "Henrik"):
            results = (await ada.call("knowledge_search", query=f"who is {person}?"))["results"]
            titles = [result["title"] for result in results]
            assert "Who is who on Kestrel Hill" in titles, person
            above = results[: titles.index("Who is who on Kestrel Hill")]
            assert all(person in result["snippet"] + result["title"] for result in above), person


async def test_score_is_the_same_in_a_source_and_in_all_sources(readers: tuple[LibraryUser, LibraryUser]) -> None:
    ada, _ = readers
    response = await ada.call("knowledge_search", query=f"{QUERY} tyres", explain=True, limit=100)

    assert response["semantic"] == {"status": "on", "coverage": 1.0}
    weight = response["explain"]["semantic_weight"]
    scores = {hit["uri"]: hit["score"] for hit in response["results"]}
    for source in SOURCES:
        hits = (await ada.call(f"{source}_search", query=f"{QUERY} tyres"))["results"]
        shared = {hit["uri"]: round(hit["score"], 3) for hit in hits if hit["uri"] in scores}
        assert shared
        assert shared.items() <= scores.items()
    for hit in response["results"]:
        parts = hit["explain"]
        assert hit["score"] == pytest.approx((1 - weight) * parts["lexical"] + weight * parts["semantic"], abs=0.001)
    assert response["results"][0]["explain"]["lexical"] > 0


async def test_a_query_that_nothing_has_to_do_with_finds_nothing(readers: tuple[LibraryUser, LibraryUser]) -> None:
    ada, _ = readers
    response = await ada.call("knowledge_search", query="xylophone concerto", explain=True)
    related = await ada.call("knowledge_search", query=QUERY, explain=True)

    assert response["semantic"] == {"status": "on", "coverage": 1.0}
    assert (response["results"], response["total_estimated"]) == ([], 0)
    floors = related["explain"]["semantic_floors"]
    assert sorted(floors) == sorted(SOURCES)
    for source, floor in floors.items():
        best = max(hit["explain"]["semantic"] for hit in related["results"] if hit["source"] == source)
        assert best > floor > 0.15


async def test_a_query_in_an_unknown_language_is_compared_by_words(readers: tuple[LibraryUser, LibraryUser]) -> None:
    ada, _ = readers
    text = "Οι μέλισσες έδωσαν φέτος δώδεκα κιλά μέλι"
    await ada.add_item("notes", "Μέλι", text)
    await embed(ada)
    response = await ada.call("notes_search", query="πόσα κιλά μέλι έδωσαν οι μέλισσες")

    assert response["semantic"] == {
        "status": "unavailable",
        "reason": "the model does not know the words of the query",
    }
    assert [hit["title"] for hit in response["results"]] == ["Μέλι"]


async def test_more_words_leave_less_weight_to_meaning(readers: tuple[LibraryUser, LibraryUser]) -> None:
    ada, _ = readers
    queries = ("tyres", "tyres oil brakes engine", "tyres oil brakes engine gears lights seats doors mirrors roof")
    responses = [await ada.call("knowledge_search", query=query, explain=True) for query in queries]

    short, four, long = [response["explain"]["semantic_weight"] for response in responses]
    assert short == four > long > 0


async def test_status_says_why_only_words_were_compared(readers: tuple[LibraryUser, LibraryUser]) -> None:
    ada, _ = readers
    assert (await ada.call("knowledge_search", query='"oil change"'))["semantic"] == {"status": "not_applicable"}
    assert (await ada.call("notes_search", query="tyres AND oil"))["semantic"] == {"status": "not_applicable"}


async def test_status_is_off_without_a_model(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        assert (await ada.call("knowledge_search", query=QUERY))["semantic"] == {"status": "off"}


async def test_a_library_made_without_a_model_is_embedded_in_the_background(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        async with ada.libraries.library(ada.context) as library:
            drafts = [NoteDraft(title=f"Loaf {number}", content=OTHERS[0]) for number in range(500)]
            await library.notes.create_many([*drafts, NoteDraft(title="Garage", content=CAR)])
        before = await ada.call("notes_search", query=QUERY)
    async with open_rest_client(
        tmp_path, semantic_model="fast", semantic_timeout_ms=60_000, user_max_passages=600, **NO_RATE_LIMITS
    ) as api:
        ada = await api.library_user("ada")
        first = await ada.call("notes_search", query=QUERY)
        async with asyncio.timeout(60):
            while (last := await ada.call("notes_search", query=QUERY))["semantic"]["status"] != "on":
                assert last["semantic"]["status"] == "partial"
                await asyncio.sleep(0.05)

    assert (before["results"], before["semantic"]["status"]) == ([], "off")
    assert first["semantic"]["status"] == "partial"
    assert first["semantic"]["coverage"] < 1
    assert last["results"][0]["title"] == "Garage"


async def test_the_model_that_auto_chose_is_named(tmp_path: Path) -> None:
    best = best_model(tmp_path)
    assert best is not None
    for setting, name in (("auto", f"{best.name} and multilingual (auto)"), ("fast", "fast"), ("off", "off")):
        async with open_rest_client(tmp_path / setting, semantic_model=setting, **NO_RATE_LIMITS) as api:
            ada = await api.library_user("ada")
            info = await ada.call("server_info")
            status = await api.request("GET", "/api/v1/server", user="ada")
        assert info["semantic_model"] == name
        assert status.json()["embedding"]["model"] == name


async def test_unreachable_endpoint_leaves_a_search_by_words(tmp_path: Path) -> None:
    endpoint: dict[str, Any] = {
        "semantic_model": "http://127.0.0.1:1/v1",
        "semantic_endpoint_model": "none",
        "semantic_endpoint_dimension": 8,
    }
    async with open_rest_client(tmp_path, **endpoint, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        await ada.add_item("notes", "Garage", CAR)
        response = await ada.call("knowledge_search", query="automobile")
    assert response["semantic"]["status"] == "unavailable"
    assert response["semantic"]["reason"]
    assert [hit["title"] for hit in response["results"]] == ["Garage"]


async def test_endpoint_that_fails_is_asked_once_in_a_search(tmp_path: Path) -> None:
    queries: list[ApiRequest] = []

    def answer(request: ApiRequest) -> tuple[int, bytes]:
        if request.body["input"] == ["automobile"]:
            queries.append(request)
            if len(queries) == 1:
                return 500, b""
        vectors = [{"index": index, "embedding": [1.0] * 8} for index, _ in enumerate(request.body["input"])]
        return 200, msgspec.json.encode({"data": vectors})

    with serve_api(answer) as server:
        endpoint = {
            "semantic_model": server.url,
            "semantic_endpoint_model": "m",
            "semantic_endpoint_dimension": 8,
            "fanout_deadline_ms": 60_000,
        }
        async with open_rest_client(tmp_path, **endpoint, **NO_RATE_LIMITS) as api:
            ada = await api.library_user("ada")
            for number in range(45):
                await ada.add_item("notes", f"Garage {number}", CAR)
            response = await ada.call("knowledge_search", query="automobile", limit=50)

    assert response["semantic"]["status"] == "unavailable"
    assert len(queries) == 1


async def test_snippet_of_a_hit_by_meaning_shows_the_nearest_passage(
    readers: tuple[LibraryUser, LibraryUser],
) -> None:
    ada, _ = readers
    filler = " ".join(f"Nothing of interest happened on day {number}." for number in range(200))
    concert = "The violinist tuned her instrument while the pianist played the first bars of the sonata. " * 20
    for source in SOURCES:
        await ada.add_item(source, "Diary", f"{filler} {concert} {filler}")
    await embed(ada)
    for source in SOURCES:
        hits = (await ada.call(f"{source}_search", query="orchestra music"))["results"]
        snippets = [hit["snippet"] for hit in hits if hit["title"] == "Diary"]
        assert any("violinist" in snippet for snippet in snippets), source
