"""Searches of every kind: order, paging, filters and scores, whatever is typed."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import SourceTimeout
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.query import parse
from sources.records import Hit, HitPage
from sources.storage.contract import Corpus, Library, Search
from tests.sources.storage.item_kinds import ITEM_KINDS, ItemKind
from tests.sources.storage.library_fixture import LibraryFixture, ids, make_search

WORDS = ("tea", "milk", "sugar", "honey", "lemon")
every_kind = pytest.mark.parametrize("kind", ITEM_KINDS, ids=lambda kind: kind.name)


def some_words(n: int) -> str:
    """A few words, some of them common and some rare."""
    return " ".join(word for at, word in enumerate(WORDS) if n % (at + 2) == 0) or "water"


async def fill(kind: ItemKind, library: Library, count: int) -> None:
    """So many items, with several matching passages where an item can have them."""
    texts = [some_words(n) for n in range(count)]
    if kind.name == "chats":
        for n, text in enumerate(texts):
            await library.chats.create(ConversationDraft(title=f"{text} {n}"), [MessageDraft(content=text)])
        return
    repeated = 200 if kind.name == "media" else 1
    drafts = [kind.draft(f"Item {n}", f"{text}. " * repeated) for n, text in enumerate(texts)]
    await kind.collection(library).create_many(drafts)


def identity(hit: Hit) -> tuple[Any, ...]:
    return hit.id, hit.message_id, hit.chunk_index


async def pages(search: Any, query: Search, sizes: list[int]) -> list[HitPage]:
    """Page after page, as a caller would go on, of the sizes given in turn."""
    found: list[HitPage] = []
    offset = 0
    while not found or found[-1].has_more:
        size = sizes[len(found) % len(sizes)]
        found.append(await search(replace(query, limit=size, offset=offset)))
        offset += size
        assert len(found) < 200
    return found


@every_kind
@pytest.mark.parametrize("order", ["relevance", "recent"])
@pytest.mark.parametrize("scoring", ["comparable", "minmax"])
@pytest.mark.parametrize("query", ["tea", "tea milk honey", "tea OR lemon", "tea*"])
async def test_paging_visits_every_hit_once_in_the_order_of_one_long_page(
    kind: ItemKind, ada: Library, order: str, scoring: str, query: str
) -> None:
    await fill(kind, ada, 60)
    search = kind.collection(ada).search
    whole = await search(make_search(query, limit=200, order=order, scoring=scoring))
    assert not whole.has_more
    assert whole.total == len(whole.hits) > 25
    for sizes in ([1, 7, 30], [25]):
        walked = await pages(search, make_search(query, order=order, scoring=scoring), sizes)
        hits = [hit for page in walked for hit in page.hits]
        assert hits == list(whole.hits)
        assert all(page.total == whole.total for page in walked)
    assert len({identity(hit) for hit in whole.hits}) == len(whole.hits)


@every_kind
async def test_a_page_beyond_the_end_is_empty_and_knows_the_total(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 30)
    search = kind.collection(ada).search
    total = (await search(make_search("tea", limit=100))).total
    beyond = await search(make_search("tea", offset=10_000))
    assert (beyond.hits, beyond.has_more, beyond.total) == ((), False, total)


@every_kind
async def test_a_total_follows_what_is_written(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = [await collection.create(kind.draft("Tea")) for _ in range(3)]
    assert (await collection.search(make_search("tea", limit=1))).total == 3
    await collection.create(kind.draft("Tea"))
    assert (await collection.search(make_search("tea", limit=1))).total == 4
    await collection.delete(made[0].id)
    assert (await collection.search(make_search("tea", limit=1))).total == 3


@every_kind
async def test_scores_fall_and_lie_between_nothing_and_one(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 40)
    for scoring in ("comparable", "minmax"):
        hits = (await kind.collection(ada).search(make_search("tea", limit=20, scoring=scoring))).hits
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)


@every_kind
async def test_the_seeds_score_is_one_for_the_best_and_for_a_lone_hit(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    await collection.create(kind.draft("samovar"))
    for n in range(4):
        await collection.create(kind.draft("tea " * (n + 1) + "water " * 8))
    for _ in range(8):
        await collection.create(kind.draft("coffee"))
    lone = await collection.search(make_search("samovar", scoring="minmax"))
    assert [hit.score for hit in lone.hits] == [1.0]
    hits = (await collection.search(make_search("tea", scoring="minmax"))).hits
    assert (hits[0].score, hits[-1].score) == (1.0, 0.0)


@every_kind
async def test_hits_with_equal_scores_come_newest_first(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = [await collection.create(kind.draft("Green tea")) for _ in range(4)]
    await collection.update(made[1].id, kind.draft("Green tea"))
    expected = [made[1].id, made[3].id, made[2].id, made[0].id]
    assert ids(await collection.search(make_search("tea"))) == expected
    assert ids(await collection.search(make_search("tea", order="recent"))) == expected


@every_kind
async def test_recent_order_is_by_age_whatever_the_score(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    best = await collection.create(kind.draft("Tea tea tea"))
    newest = await collection.create(kind.draft("A cup of something that may be tea after all"))
    assert ids(await collection.search(make_search("tea", order="recent"))) == [newest.id, best.id]
    by_relevance = {hit.id: hit.score for hit in (await collection.search(make_search("tea"))).hits}
    by_age = {hit.id: hit.score for hit in (await collection.search(make_search("tea", order="recent"))).hits}
    assert by_relevance == by_age


@every_kind
async def test_dates_are_included_at_both_ends(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    for day in (1, 2, 3, 4):
        await collection.create(kind.draft(f"Tea {day}", created_at=f"2026-05-0{day}T00:00:00Z"))
    window: dict[str, Any] = {"date_from": "2026-05-02T00:00:00.000Z", "date_to": "2026-05-03T00:00:00.000Z"}
    found = await collection.search(make_search("tea", **window))
    assert sorted(hit.title for hit in found.hits) == ["Tea 2", "Tea 3"]
    assert found.total == 2


@every_kind
async def test_without_words_a_filter_lists_what_passes_it_newest_first(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    by: dict[str, Any] = {"by": "title"} if kind.name == "chats" else {}
    made = [await collection.create(kind.draft(f"Item {n}", tags=["x"])) for n in range(5)]
    await collection.create(kind.draft("Other"))
    first = await collection.search(make_search("", limit=2, tags=("x",), **by))
    rest = await collection.search(make_search("", limit=10, offset=2, tags=("x",), **by))
    assert [*ids(first), *ids(rest)] == [item.id for item in reversed(made)]
    assert (first.has_more, rest.has_more, first.total, rest.total) == (True, False, 5, 5)
    assert {hit.score for hit in first.hits} == {0.0}


@every_kind
@pytest.mark.parametrize("query", ["", "   ", "!!!", "()", '""', "* AND", "-tea", "NOT tea"])
async def test_a_query_without_words_finds_nothing(kind: ItemKind, ada: Library, query: str) -> None:
    await fill(kind, ada, 3)
    found = await kind.collection(ada).search(make_search(query))
    assert (found.hits, found.has_more, found.total) == ((), False, 0)


@every_kind
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.sampled_from("tea mlk\"'()*+-:^{}AND OR NOT NEAR,東京é\0\ud800"), max_size=40))
async def test_whatever_is_typed_finds_something_or_nothing(kind: ItemKind, ada: Library, query: str) -> None:
    collection = kind.collection(ada)
    if not (await collection.list(1, 0)).total:
        await fill(kind, ada, 3)
    found = await collection.search(make_search(query))
    assert len(found.hits) <= 10


@every_kind
async def test_a_search_ends_at_its_deadline_and_says_so(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 3)
    with pytest.raises(SourceTimeout, match=f"{kind.name} did not respond within 0 ms"):
        await kind.collection(ada).search(replace(make_search("tea"), deadline_ms=0))
    assert (await kind.collection(ada).search(make_search("tea"))).hits


@every_kind
async def test_another_owner_finds_their_own_and_nothing_else(
    kind: ItemKind, libraries: LibraryFixture, ada: Library
) -> None:
    await kind.collection(ada).create(kind.draft("Tea of Ada", tags=["x"]))
    async with libraries.library("ben") as ben:
        theirs = await kind.collection(ben).create(kind.draft("Tea of Ben"))
        assert ids(await kind.collection(ben).search(make_search("tea"))) == [theirs.id]
        assert (await kind.collection(ben).search(make_search("ada"))).hits == ()
        assert (await kind.collection(ben).search(make_search("", tags=("x",)))).hits == ()


async def test_a_word_weighs_as_much_as_it_is_rare_in_the_whole_library(ada: Library, ben: Library) -> None:
    await ada.notes.create_many([NoteDraft(content="chai"), NoteDraft(content="milk")])
    await ada.prompts.create_many([PromptDraft(name=f"Chai {n}") for n in range(20)])
    query = parse("chai milk")
    corpus = await ada.corpus(query, 10_000)
    assert (corpus.rows, corpus.frequencies) == (22, (21, 1))
    assert (await ben.corpus(query, 10_000)).rows == 0
    found = await ada.notes.search(make_search("chai milk"))
    assert [hit.text for hit in found.hits] == ["milk", "chai"]
    assert await ada.notes.search(make_search("chai milk", corpus=corpus)) == found
    alike = await ada.notes.search(make_search("chai milk", corpus=Corpus(22, (5, 5))))
    assert len({hit.score for hit in alike.hits}) == 1


@every_kind
async def test_hits_tell_their_rank_wherever_matches_were_ranked(kind: ItemKind, ada: Library, ben: Library) -> None:
    for library in (ada, ben):
        await fill(kind, library, 12)
    first = await kind.collection(ada).search(make_search("tea milk", limit=3))
    assert all(hit.bm25 is not None and hit.bm25 < 0 for hit in first.hits)
    again = await kind.collection(ada).search(make_search("tea milk", limit=1, offset=1))
    assert again.hits[0].bm25 == first.hits[1].bm25
    assert [hit.bm25 for hit in (await kind.collection(ben).search(make_search("tea milk", limit=3))).hits] == [
        hit.bm25 for hit in first.hits
    ]


async def test_the_weights_follow_what_is_written_in_any_file(ada: Library) -> None:
    await ada.notes.create_many([NoteDraft(content="chai"), NoteDraft(content="milk")])
    before = {hit.text: hit.score for hit in (await ada.notes.search(make_search("chai milk"))).hits}
    await ada.media.create_many([MediaDraft(title="Milk")] * 9)
    after = {hit.text: hit.score for hit in (await ada.notes.search(make_search("chai milk"))).hits}
    assert before["chai"] == before["milk"]
    assert after["chai"] > after["milk"]
