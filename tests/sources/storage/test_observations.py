"""Observations: storing, filtering and searching them, without affecting the term weights of sources."""

from typing import Any

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import NoteDraft, ObservationDraft
from sources.query import parse
from sources.storage.contract import Corpus, Library, ObservationFilter
from tests.cases import each_case
from tests.sources.storage.library_fixture import OpenLibraries, make_search, titles

pytestmark = pytest.mark.postgres

COMPLETE = ObservationDraft(
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


async def create_observation(library: Library, title: str, **fields: Any) -> str:
    return (await library.observations.create(ObservationDraft(title=title, **fields))).id


async def list_titles(library: Library, **filters: Any) -> list[str]:
    page = await library.observations.list(50, 0, ObservationFilter(**filters))
    assert page.total == len(page.rows)
    return [row.title for row in page.rows]


async def test_every_field_of_an_observation_is_stored(ada: Library, ben: Library) -> None:
    created = await ada.observations.create(COMPLETE)
    stored = await ada.observations.get(created.id)
    assert stored == created
    assert created.id.startswith("obs-")
    assert (stored.type, stored.title, stored.subtitle, stored.project) == (
        "decision",
        "Use JWT",
        "for the API",
        "my-api",
    )
    assert stored.facts == ("refresh tokens rotate", "HS256 is used")
    assert (stored.concepts, stored.files_read) == (("JWT", "middleware"), ("src/auth.ts",))
    assert (stored.origin, stored.conversation_id, stored.line_start, stored.line_end) == ("derived", "c-1", 3, 9)
    assert (stored.created_at, stored.metadata) == ("2025-12-01T14:30:00.000Z", {"n": 1})
    with pytest.raises(NotFound):
        await ben.observations.get(created.id)


async def test_only_the_title_is_required(ada: Library) -> None:
    created = await ada.observations.create(ObservationDraft(title="Tea helps"))
    assert (created.type, created.origin, created.project, created.facts) == ("general", "client", "", ())


@each_case(
    ("draft", "field"),
    [
        (ObservationDraft(), "title"),
        (ObservationDraft(title=" "), "title"),
        (ObservationDraft(title="x", type=""), "type"),
        (ObservationDraft(title="x", origin="invented"), "origin"),  # type: ignore[arg-type]  # clients can send any string
        (ObservationDraft(title="x", line_start=0), "line_start"),
        (ObservationDraft(title="x", line_start=9, line_end=3), "line_end"),
        (ObservationDraft(title="x", facts=["\0"]), "facts"),
    ],
)
async def test_invalid_value_is_rejected_with_its_field(ada: Library, draft: ObservationDraft, field: str) -> None:
    with pytest.raises(InvalidParams, match=f"^{field}: expected .*, got"):
        await ada.observations.create(draft)
    assert await list_titles(ada) == []


async def test_writes_repeated_with_their_key_are_applied_once(ada: Library) -> None:
    one = await ada.observations.create(ObservationDraft(title="one"), idempotency_key="k")
    assert await ada.observations.create(ObservationDraft(title="one"), idempotency_key="k") == one
    drafts = [ObservationDraft(title="two"), ObservationDraft(title="three")]
    many = await ada.observations.create_many(drafts, idempotency_key="m")
    assert await ada.observations.create_many(drafts, idempotency_key="m") == many
    assert await list_titles(ada) == ["three", "two", "one"]
    with pytest.raises(Conflict):
        await ada.observations.create_many(drafts[:1], idempotency_key="m")


async def test_get_many_returns_the_order_of_the_ids(ada: Library, ben: Library) -> None:
    one, two, three = [await create_observation(ada, title) for title in ("one", "two", "three")]
    await ada.observations.delete(two)
    requested_ids = [three, "absent", two, one, "\ud800", three]
    assert [row.title for row in await ada.observations.get_many(requested_ids)] == ["three", "one"]
    assert await ada.observations.get_many([]) == []
    assert await ben.observations.get_many(requested_ids) == []


async def test_filter_matches_any_of_its_values_and_filters_are_combined(ada: Library, ben: Library) -> None:
    await ada.observations.create(COMPLETE)
    await create_observation(
        ada, "OAuth", type="pattern", project="Auth", concepts=["OAuth"], created_at="2025-11-15T09:15:00Z"
    )
    assert await list_titles(ada, types=("DECISION", "bug-fix")) == ["Use JWT"]
    assert await list_titles(ada, types=("pattern", "decision")) == ["Use JWT", "OAuth"]
    assert await list_titles(ada, projects=("auth",)) == ["OAuth"]
    assert await list_titles(ada, concepts=("jwt", "nothing")) == ["Use JWT"]
    assert await list_titles(ada, files=("auth.ts",)) == ["Use JWT"]
    assert await list_titles(ada, files=("src/middleware/jwt.ts",)) == ["Use JWT"]
    assert await list_titles(ada, files=("middleware/jwt.ts",)) == []
    assert await list_titles(ada, projects=("auth",), concepts=("jwt",)) == []
    assert await list_titles(ada, projects=("\ud800",)) == []
    assert await list_titles(ada, date_from="2025-11-15T09:15:00.000Z", date_to="2025-11-30T00:00:00.000Z") == ["OAuth"]
    assert await list_titles(ben, types=("decision",)) == []


async def test_list_is_newest_first_with_the_total(ada: Library) -> None:
    for day in (2, 3, 1):
        await create_observation(ada, f"day {day}", created_at=f"2026-01-0{day}")
    page = await ada.observations.list(2, 1)
    assert ([row.title for row in page.rows], page.total) == (["day 2", "day 1"], 3)


async def test_observation_is_found_by_all_of_its_text(ada: Library, ben: Library) -> None:
    await ada.observations.create(COMPLETE)
    await create_observation(ada, "Tea")
    text = "for the API\nStateless tokens fit services that scale.\nrefresh tokens rotate\nHS256 is used"
    for query in ("jwt", "API", "stateless", "rotating", "middleware", "auth.ts", "decisions", "my-api"):
        [hit] = (await ada.observations.search(make_search(query))).hits
        assert (hit.title, hit.text) == ("Use JWT", text), query
        assert 0 < hit.score <= 1
        assert (await ben.observations.search(make_search(query))).hits == ()


async def test_title_match_ranks_first_and_filters_apply_to_searches(ada: Library) -> None:
    await create_observation(ada, "Tea", project="home")
    await create_observation(ada, "Drinks", narrative="tea and coffee", project="work", files_read=["tea.md"])
    assert titles(await ada.observations.search(make_search("tea"))) == ["Tea", "Drinks"]
    assert titles(await ada.observations.search(make_search("tea"), ObservationFilter(projects=("work",)))) == [
        "Drinks"
    ]
    assert titles(await ada.observations.search(make_search("tea"), ObservationFilter(files=("tea.md",)))) == ["Drinks"]
    assert titles(await ada.observations.search(make_search("tea", date_to="2000-01-01T00:00:00.000Z"))) == []
    assert titles(await ada.observations.search(make_search("tea"), ObservationFilter(types=("\ud800",)))) == []
    assert titles(await ada.observations.search(make_search(""))) == []


async def test_scripts_without_spaces_are_found(ada: Library) -> None:
    await create_observation(ada, "東京の天気", facts=["京都も晴れ"])
    assert titles(await ada.observations.search(make_search("京都"))) == ["東京の天気"]


async def test_deleted_and_purged_observations_are_not_found(ada: Library, ben: Library) -> None:
    one, two = await create_observation(ada, "tea one"), await create_observation(ada, "tea two")
    with pytest.raises(NotFound):
        await ben.observations.purge(one)
    await ada.observations.delete(one)
    await ada.observations.purge(two)
    assert titles(await ada.observations.search(make_search("tea"))) == await list_titles(ada) == []
    assert await list_titles(ada, types=("general",)) == []


async def test_observations_do_not_affect_scores_of_sources(ada: Library) -> None:
    await ada.notes.create(NoteDraft(title="Tea", content="green tea"))
    before = await ada.notes.search(make_search("green tea"))
    await ada.observations.create_many([ObservationDraft(title=f"tea {n}") for n in range(50)])
    assert await ada.notes.search(make_search("green tea")) == before
    assert await ada.corpus(parse("tea"), 10_000) == Corpus(1, (1,))
    assert (await ada.chats.search(make_search("tea"))).hits == ()


async def test_rare_term_has_a_higher_weight_than_a_common_one(ada: Library) -> None:
    drafts = [ObservationDraft(title=f"number {n}", narrative="tea") for n in range(20)]
    await ada.observations.create_many([*drafts, ObservationDraft(title="odd", narrative="tea saffron")])
    [best, *rest] = (await ada.observations.search(make_search("tea saffron"))).hits
    assert best.title == "odd"
    assert rest[0].score < best.score / 4


async def test_observation_survives_reopening(open_libraries: OpenLibraries) -> None:
    async with open_libraries() as libraries, libraries.library("ada") as ada:
        created = await ada.observations.create(COMPLETE)
    async with open_libraries() as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        assert await ada.observations.get(created.id) == created
        assert await list_titles(ben) == []


async def test_a_misspelled_word_finds_near_words_of_the_owner_only(ada: Library, ben: Library) -> None:
    await create_observation(ada, "Authentication by middleware", project="api")
    await create_observation(ada, "Deployment")
    await create_observation(ben, "Authenticator of Ben")

    page = await ada.observations.search(make_search("autentication"))
    in_project = await ada.observations.search(make_search("autentication"), ObservationFilter(projects=("api",)))
    elsewhere = await ada.observations.search(make_search("autentication"), ObservationFilter(projects=("web",)))

    assert titles(page) == titles(in_project) == ["Authentication by middleware"]
    assert titles(elsewhere) == []
    assert page.query is not None
    assert "authentication" in (page.query.read_as or "")
    assert titles(await ben.observations.search(make_search("midleware"))) == []
