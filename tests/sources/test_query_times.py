"""Queries that name a time, through the tools of every source, with two users and a fixed clock."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS
from tests.server.rest.rest_client import open_rest_client
from tests.sources.source_fixture import SOURCES, LibraryUser

NOW = datetime(2026, 11, 15, 20, 30, tzinfo=UTC)
TEXT = "The committee discussed the harbour budget at length."


def at(user: LibraryUser, now: datetime = NOW, **config: Any) -> LibraryUser:
    """Returns the user at a fixed time. Requests go to the dispatcher, because no transport can set the clock."""
    context = replace(user.context, received_at=now, config=config)
    return LibraryUser(user.name, user.dispatcher, user.libraries, context)


async def titles(user: LibraryUser, tool: str, query: str, **arguments: Any) -> list[str]:
    return [hit["title"] for hit in await user.search(tool, query, **arguments)]


# The items of one source differ in nothing that a query asks for but the time.
DATED = {"oak": "2023-08-20T12:00:00Z", "elm": "2024-05-20T12:00:00Z", "ash": "2026-11-04T12:00:00Z"}


async def add_dated(user: LibraryUser, source: str, order: list[str]) -> None:
    for name in order:
        text = f"{TEXT} {source} {name}"
        if source == "chats":
            message = MessageDraft(sender="Ana", content=text, created_at=DATED[name])
            await user.add_chat(name, message, created_at="2020-01-01T00:00:00Z")
        else:
            await user.add_item(source, name, text, created_at=DATED[name])


@each_case(
    ("query", "first"),
    [
        ("harbour budget in August 2023", "oak"),
        ("harbour budget 2023-08-20", "oak"),
        ("harbour budget May 2024", "elm"),
        ("harbour budget last week", "ash"),
        ("harbour budget since September", "ash"),
        ("harbour budget before 2024", "oak"),
        ("harbour budget im August 2023", "oak"),
        ("harbour budget la semaine dernière", "ash"),
        ("harbour budget 上周", "ash"),
    ],
)
async def test_what_was_created_then_comes_first_in_every_source(
    ada: LibraryUser, ben: LibraryUser, query: str, first: str
) -> None:
    ada, ben = at(ada), at(ben)
    for source in SOURCES:
        await add_dated(ada, source, [first, *(name for name in DATED if name != first)])
    for source in SOURCES:
        assert (await titles(ada, f"{source}_search", query))[0] == first
    assert (await titles(ada, "knowledge_search", query))[0] == first
    assert await titles(ben, "knowledge_search", query) == []


async def test_a_score_is_the_same_in_every_tool_and_page_and_at_most_one(ada: LibraryUser) -> None:
    ada = at(ada)
    for number in range(45):
        month = 1 + number % 12
        await ada.add_note(f"Budget {number}", f"{TEXT} Folder {number}.", created_at=f"2023-{month:02}-10T12:00:00Z")
    query = "harbour budget in August 2023"
    whole = {hit["id"]: hit["score"] for hit in await ada.search("notes_search", query, limit=100)}
    assert len(whole) == 45
    assert all(0 < score <= 1 for score in whole.values())
    for size in (7, 20):
        paged: dict[str, float] = {}
        for offset in range(0, 45, size):
            for hit in await ada.search("notes_search", query, limit=size, offset=offset):
                paged[hit["id"]] = hit["score"]
        assert list(paged.items()) == list(whole.items())
    merged = await ada.search("knowledge_search", query, limit=20, dedupe="off")
    assert [hit["score"] for hit in merged] == [round(score, 3) for score in whole.values()][: len(merged)]
    august = [hit["created_at"][5:7] for hit in await ada.search("notes_search", query, limit=4)]
    assert august == ["08"] * 4


async def test_a_note_of_the_time_need_not_repeat_its_words(ada: LibraryUser) -> None:
    ada = at(ada)
    await ada.add_note("Written then", TEXT, created_at="2023-08-20T12:00:00Z")
    await ada.add_note("Looking ahead", "In August 2023 the harbour will be closed.", created_at="2023-02-01T12:00:00Z")
    assert await titles(ada, "notes_search", "harbour budget August 2023") == ["Written then", "Looking ahead"]


@each_case(
    ("query", "first"),
    [
        ("harbour lease on 5 May 2023", "relative"),
        ("harbour lease in the first week of May 2023", "relative"),
        ("harbour lease in April 2023", "month"),
        ("harbour lease on 8 May 2023", "yesterday"),
        ("harbour lease", "plain"),
    ],
)
async def test_a_message_is_about_the_day_that_its_relative_time_means(
    ada: LibraryUser, query: str, first: str
) -> None:
    """Without a time, the newest of the messages comes first, which differ in nothing else: also not in length."""
    ada = at(ada)
    texts = {
        "relative": "Last Friday... we talked about the harbour lease.",
        "month": "Last month.... we talked about the harbour lease.",
        "yesterday": "Yesterday..... we talked about the harbour lease.",
        "plain": "Once more..... we talked about the harbour lease.",
    }
    for minute, (name, text) in enumerate(texts.items()):
        message = MessageDraft(sender="Ana", content=text, created_at=f"2023-05-09T12:{minute:02}:00Z")
        await ada.add_chat(name, message, created_at="2020-01-01T00:00:00Z")
    assert (await titles(ada, "chats_search", query))[0] == first
    response = await ada.call("knowledge_search", query=query, explain=True, dedupe="off")
    boosted = [hit["title"] for hit in response["results"] if hit["explain"].get("time_boost") == 1.2]
    assert boosted == ([] if first == "plain" else [first])


async def test_read_as_and_explain_tell_how_a_time_was_read(ada: LibraryUser) -> None:
    ada = at(ada)
    await add_dated(ada, "notes", list(DATED))
    response = await ada.call("knowledge_search", query="harbour budget last week", explain=True)
    assert response["read_as"] == "ranked higher what was created from 2026-11-02 to 2026-11-08 (last week)"
    boosts = {hit["title"]: hit["explain"]["time_boost"] for hit in response["results"]}
    assert boosts == {"ash": 1.2, "oak": 1.0, "elm": 1.0}
    plain = await ada.call("knowledge_search", query="harbour budget", explain=True, dedupe="off")
    assert "read_as" not in plain
    assert "time_boost" not in plain["results"][0]["explain"]
    own = await ada.call("notes_search", query="harbour budget last week")
    assert own["read_as"] == response["read_as"]


async def test_operators_and_quotations_are_literal(ada: LibraryUser) -> None:
    ada = at(ada)
    await ada.add_note("May", "harbour budget 2023", created_at="2023-08-20T12:00:00Z")
    for query in ("harbour AND 2023", '"harbour budget 2023"', "harbour budget -yesterday"):
        assert "read_as" not in await ada.call("notes_search", query=query)


async def test_a_query_of_nothing_but_a_relative_time_lists_what_was_created_then(
    ada: LibraryUser, ben: LibraryUser
) -> None:
    ada, ben = at(ada), at(ben)
    for source in SOURCES:
        await add_dated(ada, source, list(DATED))
    await ben.add_note("Ben's", TEXT, created_at="2026-11-14T12:00:00Z")
    response = await ada.call("knowledge_search", query="what did I do last week?")
    assert {hit["source"] for hit in response["results"]} == set(SOURCES)
    assert {hit["title"] for hit in response["results"]} == {"ash"}
    assert response["read_as"] == "filter only, newest first; created from 2026-11-02 to 2026-11-08 (last week)"
    assert await titles(ben, "knowledge_search", "gestern") == ["Ben's"]


@each_case(
    "query",
    [
        "what happened last week?",
        "Was habe ich letzte Woche gemacht?",
        "qu'avons-nous fait la semaine dernière ?",
        "¿qué hice la semana pasada?",
        "o que eu fiz na semana passada?",
        "что было на прошлой неделе?",
        "上周做了什么？",
        "先週は何をしましたか",
    ],
)
async def test_a_question_about_anything_of_a_time_lists_what_was_created_then(ada: LibraryUser, query: str) -> None:
    ada = at(ada)
    await add_dated(ada, "notes", list(DATED))
    response = await ada.call("knowledge_search", query=query)
    assert [hit["title"] for hit in response["results"]] == ["ash"]
    assert response["read_as"].startswith("filter only, newest first; created from 2026-11-02 to 2026-11-08 (")


@each_case("query", ["Was hat Anna gestern gemacht?", "hat yesterday", "昨日の会議", "new plan today"])
async def test_a_question_about_something_searches_for_it(ada: LibraryUser, query: str) -> None:
    response = await at(ada).call("knowledge_search", query=query)
    assert response["read_as"].startswith("ranked higher what was created")


NIGHT = "2026-11-14T23:30:00Z"  # already the 15th in Berlin, still the 14th in New York


@pytest.fixture
async def items_of_the_night(ada: LibraryUser) -> None:
    await at(ada).add_note("Night", TEXT, created_at=NIGHT)
    await at(ada).add_media("Night", TEXT, created_at=NIGHT)


@pytest.mark.usefixtures("items_of_the_night")
@each_case(
    ("zone", "query", "is_found"),
    [
        ("UTC", "harbour after:yesterday before:today", True),
        ("Europe/Berlin", "harbour after:yesterday before:today", False),
        ("Europe/Berlin", "harbour after:today", True),
        ("America/New_York", "harbour before:2026-11-15", True),
        ("Europe/Berlin", "harbour before:2026-11-15", False),
        ("Asia/Tokyo", "harbour after:2026-11-15T00:00", True),
        ("UTC", "harbour after:2026-11-15T00:00", False),
        ("UTC", "harbour after:24h", True),
        ("UTC", "harbour after:7d", True),
        ("UTC", "harbour before:7d", False),
        ("UTC", "harbour before:2026-11", False),
        ("UTC", "harbour after:2026-11", True),
        ("UTC", 'harbour after:"last week"', True),
        ("UTC", 'harbour before:"last week"', False),
        ("UTC", "harbour after:november", True),
        ("UTC", "harbour after:2026 before:2027", True),
    ],
)
async def test_filters_are_in_the_time_zone_of_the_request(
    ada: LibraryUser, ben: LibraryUser, zone: str, query: str, is_found: bool
) -> None:
    ada, ben = at(ada, time_zone=zone), at(ben, time_zone=zone)
    assert await titles(ada, "notes_search", query) == ["Night"] * is_found
    assert await titles(ada, "knowledge_search", query, sources=["notes"]) == ["Night"] * is_found
    assert await titles(ben, "notes_search", query) == []


async def test_the_setting_is_the_default_time_zone(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, time_zone="Europe/Berlin", **NO_RATE_LIMITS) as client:
        ada = await client.library_user("ada")
        await ada.add_note("Night", TEXT, created_at=NIGHT)
        assert await titles(at(ada), "notes_search", "harbour after:today") == ["Night"]
        assert await titles(at(ada, time_zone="UTC"), "notes_search", "harbour after:today") == []


@pytest.mark.usefixtures("items_of_the_night")
@each_case(
    ("date_from", "date_to", "is_found"),
    [
        ("yesterday", "yesterday", True),
        ("today", None, False),
        ("7d", None, True),
        (None, "7d", False),
        ("2026-11", "2026-11", True),
        (None, "2026-10", False),
        ("last month", "last month", False),
        ("2026", "2026", True),
    ],
)
async def test_date_arguments_accept_words(
    ada: LibraryUser, date_from: str | None, date_to: str | None, is_found: bool
) -> None:
    ada = at(ada)
    found = await titles(ada, "media_search", "harbour", date_from=date_from, date_to=date_to)
    assert found == ["Night"] * is_found
    filters = {"media": {"date_from": date_from, "date_to": date_to}}
    in_all = await titles(ada, "knowledge_search", "harbour", sources=["media"], filters=filters)
    assert in_all == ["Night"] * is_found


async def test_an_unknown_time_zone_is_rejected(ada: LibraryUser) -> None:
    message = "expected an IANA time zone such as Europe/Berlin, got 'Mars/Olympus'"
    ada = at(ada, time_zone="Mars/Olympus")
    for tool in ("notes_search", "knowledge_search"):
        assert await ada.call_error(tool, query="harbour") == f"config.time_zone: {message}"
    assert await at(ada).call_error("session_configure", time_zone="Mars/Olympus") == f"time_zone: {message}"


async def test_a_session_has_a_time_zone(ada: LibraryUser) -> None:
    ada = at(ada)
    await ada.add_note("Night", TEXT, created_at=NIGHT)
    session = (await ada.call("session_configure", time_zone="Europe/Berlin"))["session"]
    query = "harbour after:today"
    assert await titles(ada, "knowledge_search", query) == []
    assert await titles(ada, "knowledge_search", query, session=session) == ["Night"]
