"""Observations: what is kept of one, how they are filtered and found, and that their words count for nobody else."""

from typing import Any

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import NoteDraft, ObservationDraft
from sources.query import parse
from sources.storage.contract import Corpus, Library, ObservationFilter
from tests.sources.storage.library_fixture import OpenLibraries, make_search, titles

WHOLE = ObservationDraft(
    type="decision",
    title="Use JWT",
    subtitle="for the API",
    narrative="Stateless tokens fit services that scale.",
    facts=["refresh tokens rotate", "HS256 is used"],
    concepts=["JWT", "middleware"],
    files_read=["src/auth.ts"],
    files_modified=["src/middleware/jwt.ts"],
    project="my-api",
    session_id="s-1",
    origin="derived",
    conversation_id="c-1",
    line_start=3,
    line_end=9,
    metadata={"n": 1},
    created_at="2025-12-01T14:30:00Z",
)


async def learn(library: Library, title: str, **more: Any) -> str:
    return (await library.observations.create(ObservationDraft(title=title, **more))).id


async def listed(library: Library, **narrowing: Any) -> list[str]:
    page = await library.observations.list(50, 0, ObservationFilter(**narrowing))
    assert page.total == len(page.rows)
    return [row.title for row in page.rows]


async def test_an_observation_is_kept_whole(ada: Library, ben: Library) -> None:
    made = await ada.observations.create(WHOLE)
    kept = await ada.observations.get(made.id)
    assert kept == made
    assert made.id.startswith("obs-")
    assert (kept.type, kept.title, kept.subtitle, kept.project) == ("decision", "Use JWT", "for the API", "my-api")
    assert kept.facts == ("refresh tokens rotate", "HS256 is used")
    assert (kept.concepts, kept.files_read) == (("JWT", "middleware"), ("src/auth.ts",))
    assert (kept.origin, kept.conversation_id, kept.line_start, kept.line_end) == ("derived", "c-1", 3, 9)
    assert (kept.created_at, kept.metadata) == ("2025-12-01T14:30:00.000Z", {"n": 1})
    with pytest.raises(NotFound):
        await ben.observations.get(made.id)


async def test_little_has_to_be_said(ada: Library) -> None:
    made = await ada.observations.create(ObservationDraft(title="Tea helps"))
    assert (made.type, made.origin, made.project, made.facts) == ("general", "client", "", ())


@pytest.mark.parametrize(
    ("draft", "field"),
    [
        (ObservationDraft(), "title"),
        (ObservationDraft(title=" "), "title"),
        (ObservationDraft(title="x", type=""), "type"),
        (ObservationDraft(title="x", origin="invented"), "origin"),  # type: ignore[arg-type]  # what a caller may send
        (ObservationDraft(title="x", line_start=0), "line_start"),
        (ObservationDraft(title="x", line_start=9, line_end=3), "line_end"),
        (ObservationDraft(title="x", facts=["\0"]), "facts"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_its_field(ada: Library, draft: ObservationDraft, field: str) -> None:
    with pytest.raises(InvalidParams, match=f"^{field}: expected .*, got"):
        await ada.observations.create(draft)
    assert await listed(ada) == []


async def test_writes_with_one_key_are_made_once(ada: Library) -> None:
    one = await ada.observations.create(ObservationDraft(title="one"), idempotency_key="k")
    assert await ada.observations.create(ObservationDraft(title="one"), idempotency_key="k") == one
    drafts = [ObservationDraft(title="two"), ObservationDraft(title="three")]
    many = await ada.observations.create_many(drafts, idempotency_key="m")
    assert await ada.observations.create_many(drafts, idempotency_key="m") == many
    assert await listed(ada) == ["three", "two", "one"]
    with pytest.raises(Conflict):
        await ada.observations.create_many(drafts[:1], idempotency_key="m")


async def test_many_are_given_in_the_order_they_were_asked_for(ada: Library, ben: Library) -> None:
    one, two, three = [await learn(ada, title) for title in ("one", "two", "three")]
    await ada.observations.delete(two)
    asked = [three, "absent", two, one, "\ud800", three]
    assert [row.title for row in await ada.observations.get_many(asked)] == ["three", "one"]
    assert await ada.observations.get_many([]) == []
    assert await ben.observations.get_many(asked) == []


async def test_a_filter_takes_any_of_its_values_and_filters_restrict_each_other(ada: Library, ben: Library) -> None:
    await ada.observations.create(WHOLE)
    await learn(ada, "OAuth", type="pattern", project="Auth", concepts=["OAuth"], created_at="2025-11-15T09:15:00Z")
    assert await listed(ada, types=("DECISION", "bug-fix")) == ["Use JWT"]
    assert await listed(ada, types=("pattern", "decision")) == ["Use JWT", "OAuth"]
    assert await listed(ada, projects=("auth",)) == ["OAuth"]
    assert await listed(ada, concepts=("jwt", "nothing")) == ["Use JWT"]
    assert await listed(ada, files=("auth.ts",)) == ["Use JWT"]
    assert await listed(ada, files=("src/middleware/jwt.ts",)) == ["Use JWT"]
    assert await listed(ada, files=("middleware/jwt.ts",)) == []
    assert await listed(ada, projects=("auth",), concepts=("jwt",)) == []
    assert await listed(ada, projects=("\ud800",)) == []
    assert await listed(ada, date_from="2025-11-15T09:15:00.000Z", date_to="2025-11-30T00:00:00.000Z") == ["OAuth"]
    assert await listed(ben, types=("decision",)) == []


async def test_a_list_is_newest_first_in_pages_with_the_true_total(ada: Library) -> None:
    for day in (2, 3, 1):
        await learn(ada, f"day {day}", created_at=f"2026-01-0{day}")
    page = await ada.observations.list(2, 1)
    assert ([row.title for row in page.rows], page.total) == (["day 2", "day 1"], 3)


@pytest.mark.parametrize(
    "query", ["jwt", "API", "stateless", "rotating", "middleware", "auth.ts", "decisions", "my-api"]
)
async def test_an_observation_is_found_by_all_it_says(ada: Library, ben: Library, query: str) -> None:
    await ada.observations.create(WHOLE)
    await learn(ada, "Tea")
    found = await ada.observations.search(make_search(query))
    assert titles(found) == ["Use JWT"]
    [hit] = found.hits
    assert 0 < hit.score <= 1
    assert hit.text == "for the API\nStateless tokens fit services that scale.\nrefresh tokens rotate\nHS256 is used"
    assert (await ben.observations.search(make_search(query))).hits == ()


async def test_titles_weigh_more_and_filters_hold_in_a_search(ada: Library) -> None:
    await learn(ada, "Tea", project="home")
    await learn(ada, "Drinks", narrative="tea and coffee", project="work", files_read=["tea.md"])
    assert titles(await ada.observations.search(make_search("tea"))) == ["Tea", "Drinks"]
    assert titles(await ada.observations.search(make_search("tea"), ObservationFilter(projects=("work",)))) == [
        "Drinks"
    ]
    assert titles(await ada.observations.search(make_search("tea"), ObservationFilter(files=("tea.md",)))) == ["Drinks"]
    assert titles(await ada.observations.search(make_search("tea", date_to="2000-01-01T00:00:00.000Z"))) == []
    assert titles(await ada.observations.search(make_search("tea"), ObservationFilter(types=("\ud800",)))) == []
    assert titles(await ada.observations.search(make_search(""))) == []


async def test_scripts_without_spaces_are_found(ada: Library) -> None:
    await learn(ada, "東京の天気", facts=["京都も晴れ"])
    assert titles(await ada.observations.search(make_search("京都"))) == ["東京の天気"]


async def test_what_is_deleted_or_purged_is_found_no_more(ada: Library, ben: Library) -> None:
    one, two = await learn(ada, "tea one"), await learn(ada, "tea two")
    with pytest.raises(NotFound):
        await ben.observations.purge(one)
    await ada.observations.delete(one)
    await ada.observations.purge(two)
    assert titles(await ada.observations.search(make_search("tea"))) == await listed(ada) == []
    assert await listed(ada, types=("general",)) == []


async def test_observations_leave_the_scores_of_the_sources_as_they_are(ada: Library) -> None:
    await ada.notes.create(NoteDraft(title="Tea", content="green tea"))
    before = await ada.notes.search(make_search("green tea"))
    await ada.observations.create_many([ObservationDraft(title=f"tea {n}") for n in range(50)])
    assert await ada.notes.search(make_search("green tea")) == before
    assert await ada.corpus(parse("tea"), 10_000) == Corpus(1, (1,))
    assert (await ada.chats.search(make_search("tea"))).hits == ()


async def test_a_rare_word_says_more_than_one_that_all_observations_have(ada: Library) -> None:
    drafts = [ObservationDraft(title=f"number {n}", narrative="tea") for n in range(20)]
    await ada.observations.create_many([*drafts, ObservationDraft(title="odd", narrative="tea saffron")])
    [best, *rest] = (await ada.observations.search(make_search("tea saffron"))).hits
    assert best.title == "odd"
    assert rest[0].score < best.score / 4


async def test_observations_outlive_the_closing_of_a_library(open_libraries: OpenLibraries) -> None:
    async with open_libraries() as libraries, libraries.library("ada") as ada:
        made = await ada.observations.create(WHOLE)
    async with open_libraries() as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        assert await ada.observations.get(made.id) == made
        assert await listed(ben) == []
