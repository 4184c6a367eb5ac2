"""`search` and `fetch` as a deep-research client calls them: one string in, JSON text out, for two users."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.fanout import SearchQueue
from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from aggregator.similar import SimilarItems
from auth.context import SessionId
from config.errors import Unavailable
from server.protocol.catalog import Catalog
from server.services import Knowledge, build_knowledge
from server.tools.knowledge import add_knowledge_tools
from server.tools.research import Permalinks
from sources.items import Loc, uri_of
from sources.records import Segment
from sources.source import Source
from tests.aggregator.aggregator_fixture import FailingSource, FakeSource, result_item
from tests.cases import each_case
from tests.server.clients import text_of
from tests.server.protocol.dispatcher_fixture import make_dispatcher
from tests.sources.source_fixture import SOURCES, LibraryUser, SourceFixture, open_source_fixture

PUBLIC_URL = "https://kb.example.com"
FILLER = "Rain and wind again today, and nothing else to tell. "


@asynccontextmanager
async def research_users(root: Path, **changes: Any) -> AsyncIterator[tuple[LibraryUser, LibraryUser]]:
    """Two users and the knowledge tools of a server with a public URL."""
    async with open_source_fixture(root, public_url=PUBLIC_URL, **changes) as fixture:
        yield readers_of(fixture, build_knowledge(fixture.settings, fixture.libraries))


def readers_of(fixture: SourceFixture, knowledge: Knowledge) -> tuple[LibraryUser, LibraryUser]:
    catalog = Catalog()
    add_knowledge_tools(catalog, knowledge, fixture.settings)
    dispatcher = make_dispatcher(catalog)
    return tuple(msgspec.structs.replace(reader, dispatcher=dispatcher) for reader in (fixture.ada, fixture.ben))  # type: ignore[return-value]  # mypy does not count a generator


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[tuple[LibraryUser, LibraryUser]]:
    async with research_users(tmp_path) as both:
        yield both


@pytest.fixture
def ada(readers: tuple[LibraryUser, LibraryUser]) -> LibraryUser:
    return readers[0]


@pytest.fixture
def ben(readers: tuple[LibraryUser, LibraryUser]) -> LibraryUser:
    return readers[1]


async def search(reader: LibraryUser, query: str) -> list[Any]:
    return await reader.search("search", query)


async def read_to_the_end(reader: LibraryUser, identity: str) -> list[Any]:
    pages = [await reader.call("fetch", id=identity)]
    while "next_id" in pages[-1]["metadata"]:
        pages.append(await reader.call("fetch", id=pages[-1]["metadata"]["next_id"]))
    return pages


# -- search -----------------------------------------------------------------------------------------------------------


async def test_search_returns_the_same_json_as_text_and_structured_content(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    result = await ada.request("tools/call", name="search", arguments={"query": "galleon"})

    expected = {
        "results": [
            {
                "id": f"notes://{note}",
                "title": "Voyage",
                "url": f"{PUBLIC_URL}/items/notes/{note}?at=2#passage",
                "text": "A galleon.",
            }
        ]
    }
    assert [block["type"] for block in result["content"]] == ["text"]
    assert text_of(result) == msgspec.json.encode(expected).decode()
    assert result["structuredContent"] == expected


async def test_a_search_without_hits_returns_an_empty_list(ada: LibraryUser) -> None:
    assert await ada.call("search", query="galleon") == {"results": []}


async def test_no_user_finds_items_of_another(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Voyage", "A galleon.")

    assert len(await search(ada, "galleon")) == 1
    assert await search(ben, "galleon") == []


async def test_a_result_always_has_a_title(ada: LibraryUser) -> None:
    await ada.add_note("", "A galleon left the harbour before dawn. " * 20)
    await ada.add_chat("", "A galleon, and no title.")

    titles = [found["title"] for found in await search(ada, "galleon")]

    assert len(titles) == 2
    assert all(0 < len(title) <= 80 for title in titles)


async def test_research_search_never_suppresses_seen_hits(ada: LibraryUser) -> None:
    context = msgspec.structs.replace(ada.context, session=SessionId("legacy"))
    on_connection = msgspec.structs.replace(ada, context=context)
    await ada.add_note("First", "A galleon and a sloop.")
    await ada.add_note("Second", "A galleon and a brig.")

    first = await search(on_connection, "sloop")

    assert [found["title"] for found in first] == ["First"]
    assert {found["title"] for found in await search(on_connection, "galleon")} == {"First", "Second"}


async def test_a_failed_source_is_reported_in_the_note(tmp_path: Path) -> None:
    shelves: Sequence[Source] = (
        FakeSource("notes", [result_item("notes", 1)]),
        FailingSource("media", Unavailable("gone")),
    )
    async with open_source_fixture(tmp_path) as fixture:
        session_states = build_knowledge(fixture.settings, fixture.libraries).session_states
        retriever = Retriever(fixture.libraries, shelves, session_states)
        knowledge = Knowledge(
            sources=shelves,
            session_states=session_states,
            aggregator=Aggregator(fixture.libraries, shelves, session_states, fixture.settings),
            retriever=retriever,
            similar=SimilarItems(
                fixture.libraries, shelves, retriever, fixture.settings, SearchQueue(fixture.settings)
            ),
        )
        ada, _ = readers_of(fixture, knowledge)

        answer = await ada.call("search", query="galleon")

    assert [found["id"] for found in answer["results"]] == ["notes://1"]
    assert answer["note"] == "media could not be searched"


# -- fetch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
async def test_every_result_can_be_fetched_by_its_id_and_by_its_url(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A galleon under full sail.")
    found = next(found for found in await search(ada, "sail") if found["text"] != "Voyage")

    item = await ada.call("fetch", id=found["id"])

    assert list(item) == ["id", "title", "text", "url", "metadata"]
    assert (item["id"], item["title"]) == (found["id"], found["title"])
    # Without the position of the hit, because the item was fetched as a whole.
    assert item["url"] in (found["url"], found["url"].partition("?")[0])
    assert "A galleon under full sail." in item["text"]
    assert item["metadata"]["source"] == source
    assert (await ada.call("fetch", id=found["url"]))["text"] == item["text"]


async def test_fetch_returns_one_json_object_as_text(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.", ["ships"])

    result = await ada.request("tools/call", name="fetch", arguments={"id": f"notes://{note}"})

    assert [block["type"] for block in result["content"]] == ["text"]
    item = msgspec.json.decode(text_of(result))
    assert item == result["structuredContent"]
    assert (item["text"], item["metadata"]["tags"], item["metadata"]["extent"]) == ("A galleon.", "ships", "whole")
    assert all(isinstance(value, str) for value in item["metadata"].values())


async def test_a_message_is_fetched_with_its_neighbours(ada: LibraryUser) -> None:
    await ada.add_chat("Ships", "A sloop.", "A galleon.", "A brig.")
    found = next(found for found in await search(ada, "galleon") if found["text"].startswith("A galleon."))

    item = await ada.call("fetch", id=found["id"])

    assert item["text"] == "Ana: A sloop.\n\nGuide: A galleon.\n\nAna: A brig."
    assert item["metadata"]["extent"] == "passage"
    assert item["url"] == found["url"] == f"{PUBLIC_URL}/items/{found['id'].replace('://', '/')}#passage"


async def test_the_id_of_a_message_is_its_uri_even_in_a_long_conversation(tmp_path: Path) -> None:
    async with research_users(tmp_path, retrieval_max_tokens=1_000) as (ada, _):
        conversation = await ada.add_chat("Weather", *[FILLER * 10] * 30, "A galleon.", *[FILLER * 10] * 30)
        found = next(found for found in await search(ada, "galleon") if found["text"].startswith("A galleon."))

        item = await ada.call("fetch", id=found["id"])

    assert found["id"].startswith(f"chats://{conversation}/")
    assert "#" not in found["id"]
    assert "A galleon." in item["text"]


async def test_a_long_text_can_be_fetched_completely_in_parts(tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(2_000))
    async with research_users(tmp_path, retrieval_max_tokens=1_000) as (ada, _):
        note = await ada.add_note("Voyage", text)

        pages = await read_to_the_end(ada, f"notes://{note}")

    assert "".join(page["text"] for page in pages) == text
    assert all(int(page["metadata"]["tokens"]) <= 1_000 for page in pages)
    extents = [page["metadata"]["extent"] for page in pages]
    assert extents == ["beginning", *["continuation"] * (len(pages) - 1)]


@each_case("source", SOURCES)
async def test_the_id_of_a_hit_in_a_long_item_leads_to_its_passage(tmp_path: Path, source: str) -> None:
    async with research_users(tmp_path, retrieval_max_tokens=2_000, retrieval_default_tokens=600) as (ada, _):
        identity = await ada.add_item(source, "Weather", FILLER * 400 + "Then came the galleon. " + FILLER * 400)
        found = next(found for found in await search(ada, "galleon") if "galleon" in found["text"])

        item = await ada.call("fetch", id=found["id"])

    assert found["id"].startswith(f"{source}://{identity}")
    assert "#" in found["id"]
    assert "Then came the galleon." in item["text"]
    assert (item["id"], item["metadata"]["extent"]) == (found["id"], "passage")
    assert int(item["metadata"]["tokens"]) <= 600
    assert item["url"] == found["url"]


async def test_a_hit_in_a_recording_is_cited_with_its_time(tmp_path: Path) -> None:
    said = [
        Segment(start_ms=60_000 * n, end_ms=60_000 * n + 59_000, text=f"Minute {n}. {FILLER * 20}") for n in range(30)
    ]
    said[20] = Segment(start_ms=1_200_500, end_ms=1_259_000, text="Then came the galleon.")
    async with research_users(tmp_path, retrieval_max_tokens=2_000, retrieval_default_tokens=600) as (ada, _):
        media = await ada.add_media("Talk", segments=said)
        (found,) = await search(ada, "galleon")

        item = await ada.call("fetch", id=found["id"])

    assert "Then came the galleon." in item["text"]
    seconds = msgspec.json.decode(item["metadata"]["loc"])["seconds"]
    assert 1_080 <= seconds <= 1_200.5
    assert item["url"] == found["url"] == f"{PUBLIC_URL}/items/media/{media}?t={seconds:g}#passage"


async def test_next_id_continues_to_the_end_of_the_item(tmp_path: Path) -> None:
    async with research_users(tmp_path, retrieval_max_tokens=2_000, retrieval_default_tokens=600) as (ada, _):
        await ada.add_media("Weather", FILLER * 400 + "Then came the galleon. " + FILLER * 60 + "The end.")
        (found,) = await search(ada, "galleon")

        pages = await read_to_the_end(ada, found["id"])

    assert pages[-1]["text"].endswith("The end.")
    assert {page["id"].partition("#")[0] for page in pages} == {found["id"].partition("#")[0]}


@each_case("source", SOURCES)
async def test_items_of_other_users_are_reported_like_missing_ones(
    ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    await ada.add_item(source, "Other", "A sloop.")
    identity = str(await ada.add_item(source, "Voyage", "A galleon."))
    absent = "0" * len(identity)

    foreign, nothing = [await ben.call_error("fetch", id=f"{source}://{one}") for one in (identity, absent)]

    assert "not found" in foreign
    assert foreign.replace(identity, "*") == nothing.replace(absent, "*")


@each_case("identity", ["", "6f1c", "notes://", "web://1", "https://elsewhere.example/items/notes/1", "#cursor=x"])
async def test_an_invalid_id_is_rejected_with_an_example(ada: LibraryUser, identity: str) -> None:
    expected = f"id: expected the id of a search result, such as notes://6f1c, got {identity!r}"

    assert await ada.call_error("fetch", id=identity) == expected


@each_case(
    ("fragment", "sentence"),
    [
        ("cursor=forged", "cursor: expected the next_cursor of an earlier response"),
        ("chunk_index=99", "loc.chunk_index: expected 0 to 0, got 99"),
        ("chunk_index=x", "loc: Expected `int | null`, got `str`"),
        ("user=ben", "loc: Object contains unknown field `user`"),
    ],
)
async def test_an_invalid_position_is_rejected(ada: LibraryUser, fragment: str, sentence: str) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    assert sentence in await ada.call_error("fetch", id=f"notes://{note}#{fragment}")


@pytest.mark.parametrize(
    ("tool", "argument", "returned"),
    [("search", "query", {"results"}), ("fetch", "id", {"id", "title", "text", "url", "metadata"})],
)
async def test_both_tools_take_one_string_and_declare_what_they_return(
    ada: LibraryUser, tool: str, argument: str, returned: set[str]
) -> None:
    listed = {one["name"]: one for one in (await ada.request("tools/list"))["tools"]}[tool]

    assert {name: field["type"] for name, field in listed["inputSchema"]["properties"].items()} == {argument: "string"}
    assert listed["inputSchema"]["required"] == [argument]
    assert set(listed["outputSchema"]["properties"]) == returned
    assert "limit: unknown argument" in await ada.call_error(tool, **{argument: "x"}, limit=3)


@given(st.sampled_from(SOURCES), st.lists(st.text(min_size=1), min_size=1, max_size=2))
def test_a_permalink_converts_back_to_its_uri(source: str, segments: list[str]) -> None:
    links, uri = Permalinks(PUBLIC_URL), uri_of(source, *segments)

    assert links.of(uri).startswith(f"{PUBLIC_URL}/items/{source}/")
    assert links.uri_of(links.of(uri)) == links.uri_of(uri) == uri
    assert links.uri_of(links.of(uri, Loc(seconds=61.5))) == uri
