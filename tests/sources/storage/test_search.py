"""Searches in every source: order, paging, filters, scores and arbitrary input."""

import itertools
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
from tests.sources.storage.library_fixture import LibraryFixture, OpenLibraries, ids, make_search
from tests.tiers import examples

pytestmark = pytest.mark.postgres

WORDS = ("tea", "milk", "sugar", "honey", "lemon")
SCORINGS = ("comparable", "minmax")
every_kind = pytest.mark.parametrize("kind", ITEM_KINDS, ids=lambda kind: kind.name)


def some_words(n: int) -> str:
    """Returns a few words, common ones more often than rare ones."""
    return " ".join(word for at, word in enumerate(WORDS) if n % (at + 2) == 0) or "water"


async def fill(kind: ItemKind, library: Library, count: int) -> None:
    """Creates items; media items have several matching passages."""
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
    """Reads page after page until the last, with the sizes in turn."""
    page: list[HitPage] = []
    offset = 0
    while not page or page[-1].has_more:
        size = sizes[len(page) % len(sizes)]
        page.append(await search(replace(query, limit=size, offset=offset)))
        offset += size
        assert len(page) < 200
    return page


@every_kind
async def test_pages_contain_every_hit_once_in_the_same_order_as_one_large_page(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 60)
    search = kind.collection(ada).search
    queries, orders, scorings = ("tea", "tea milk honey", "tea OR lemon", "tea*"), ("relevance", "recent"), SCORINGS
    for query, order, scoring in itertools.product(queries, orders, scorings):
        case = (query, order, scoring)
        complete = await search(make_search(query, limit=200, order=order, scoring=scoring))
        assert not complete.has_more, case
        assert complete.total == len(complete.hits) == len({identity(hit) for hit in complete.hits}) > 25, case
        for sizes in ([1, 7, 30], [25]):
            results = await pages(search, make_search(query, order=order, scoring=scoring), sizes)
            assert [hit for page in results for hit in page.hits] == list(complete.hits), case
            assert all(page.total == complete.total for page in results), case


@every_kind
async def test_page_beyond_the_end_is_empty_but_has_the_total(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 30)
    search = kind.collection(ada).search
    total = (await search(make_search("tea", limit=100))).total
    beyond = await search(make_search("tea", offset=10_000))
    assert (beyond.hits, beyond.has_more, beyond.total) == ((), False, total)


@every_kind
async def test_search_that_does_not_count_its_hits_finds_the_same(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 12)
    search = make_search("tea milk", limit=2)
    counted = await kind.collection(ada).search(search)
    uncounted = await kind.collection(ada).search(replace(search, counts_hits=False))
    assert (ids(uncounted), uncounted.has_more) == (ids(counted), True)
    # The entries of media are counted in any case: a hit says how many more its item has.
    assert uncounted.total == (counted.total if kind.name == "media" else None)
    assert counted.total is not None


@every_kind
async def test_total_changes_with_each_write(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    items = [await collection.create(kind.draft("Tea")) for _ in range(3)]
    assert (await collection.search(make_search("tea", limit=1))).total == 3
    await collection.create(kind.draft("Tea"))
    assert (await collection.search(make_search("tea", limit=1))).total == 4
    await collection.delete(items[0].id)
    assert (await collection.search(make_search("tea", limit=1))).total == 3


@every_kind
async def test_scores_descend_and_are_between_zero_and_one(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 40)
    for scoring in SCORINGS:
        hits = (await kind.collection(ada).search(make_search("tea", limit=20, scoring=scoring))).hits
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)


@every_kind
@pytest.mark.sqlite  # with PostgreSQL, ranks are divided by the largest one
async def test_minmax_score_is_one_for_the_best_and_for_a_single_hit(kind: ItemKind, ada: Library) -> None:
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
async def test_hits_with_equal_scores_are_newest_first(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    items = [await collection.create(kind.draft("Green tea")) for _ in range(4)]
    await collection.update(items[1].id, kind.draft("Green tea"))
    expected = [items[1].id, items[3].id, items[2].id, items[0].id]
    assert ids(await collection.search(make_search("tea"))) == expected
    assert ids(await collection.search(make_search("tea", order="recent"))) == expected


@every_kind
async def test_recent_order_ignores_the_score(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    best = await collection.create(kind.draft("Tea tea tea"))
    newest = await collection.create(kind.draft("A cup of something that may be tea after all"))
    assert ids(await collection.search(make_search("tea", order="recent"))) == [newest.id, best.id]
    by_relevance = {hit.id: hit.score for hit in (await collection.search(make_search("tea"))).hits}
    by_age = {hit.id: hit.score for hit in (await collection.search(make_search("tea", order="recent"))).hits}
    assert by_relevance == by_age


@every_kind
async def test_date_range_includes_both_ends(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    for day in (1, 2, 3, 4):
        await collection.create(kind.draft(f"Tea {day}", created_at=f"2026-05-0{day}T00:00:00Z"))
    window: dict[str, Any] = {"date_from": "2026-05-02T00:00:00.000Z", "date_to": "2026-05-03T00:00:00.000Z"}
    page = await collection.search(make_search("tea", **window))
    assert sorted(hit.title for hit in page.hits) == ["Tea 2", "Tea 3"]
    assert page.total == 2


@every_kind
async def test_filter_without_words_lists_matching_items_newest_first(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    by: dict[str, Any] = {"by": "title"} if kind.name == "chats" else {}
    items = [await collection.create(kind.draft(f"Item {n}", tags=["x"])) for n in range(5)]
    await collection.create(kind.draft("Other"))
    first = await collection.search(make_search("", limit=2, tags=("x",), **by))
    rest = await collection.search(make_search("", limit=10, offset=2, tags=("x",), **by))
    assert [*ids(first), *ids(rest)] == [item.id for item in reversed(items)]
    assert (first.has_more, rest.has_more, first.total, rest.total) == (True, False, 5, 5)
    assert {hit.score for hit in first.hits} == {0.0}


@every_kind
async def test_query_without_words_returns_nothing(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 3)
    for query in ("", "   ", "!!!", "()", '""', "* AND", "-tea", "NOT tea"):
        page = await kind.collection(ada).search(make_search(query))
        assert (page.hits, page.has_more, page.total) == ((), False, 0), query


@every_kind
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.sampled_from("tea mlk\"'()*+-:^{}AND OR NOT NEAR,東京é\0\ud800"), max_size=40))
async def test_no_input_raises_an_error(kind: ItemKind, ada: Library, query: str) -> None:
    collection = kind.collection(ada)
    if not (await collection.list(1, 0)).total:
        await fill(kind, ada, 3)
    page = await collection.search(make_search(query))
    assert len(page.hits) <= 10


@every_kind
async def test_search_times_out_at_its_deadline(kind: ItemKind, ada: Library) -> None:
    await fill(kind, ada, 3)
    with pytest.raises(SourceTimeout, match=f"{kind.name} did not respond within 0 ms"):
        await kind.collection(ada).search(replace(make_search("tea"), deadline_ms=0))
    assert (await kind.collection(ada).search(make_search("tea"))).hits


@every_kind
async def test_search_returns_only_items_of_the_owner(kind: ItemKind, libraries: LibraryFixture, ada: Library) -> None:
    await kind.collection(ada).create(kind.draft("Tea of Ada", tags=["x"]))
    async with libraries.library("ben") as ben:
        item = await kind.collection(ben).create(kind.draft("Tea of Ben"))
        assert ids(await kind.collection(ben).search(make_search("tea"))) == [item.id]
        assert (await kind.collection(ben).search(make_search("ada"))).hits == ()
        assert (await kind.collection(ben).search(make_search("", tags=("x",)))).hits == ()


async def test_term_weight_depends_on_its_frequency_in_the_whole_library(ada: Library, ben: Library) -> None:
    await ada.notes.create_many([NoteDraft(content="chai"), NoteDraft(content="milk")])
    await ada.prompts.create_many([PromptDraft(name=f"Chai {n}") for n in range(20)])
    query = parse("chai milk")
    corpus = await ada.corpus(query, 10_000)
    assert (corpus.rows, corpus.frequencies) == (22, (21, 1))
    assert (await ben.corpus(query, 10_000)).rows == 0
    page = await ada.notes.search(make_search("chai milk"))
    assert [hit.text for hit in page.hits] == ["milk", "chai"]
    assert (await ada.notes.search(make_search("chai milk", corpus=corpus))).hits == page.hits
    equal_weights = await ada.notes.search(make_search("chai milk", corpus=Corpus(22, (5, 5))))
    assert len({hit.score for hit in equal_weights.hits}) == 1


@every_kind
async def test_ranked_hits_have_a_bm25_rank(kind: ItemKind, ada: Library, ben: Library) -> None:
    for library in (ada, ben):
        await fill(kind, library, 12)
    first = await kind.collection(ada).search(make_search("tea milk", limit=3))
    assert all(hit.bm25 is not None and hit.bm25 < 0 for hit in first.hits)
    again = await kind.collection(ada).search(make_search("tea milk", limit=1, offset=1))
    assert again.hits[0].bm25 == first.hits[1].bm25
    assert [hit.bm25 for hit in (await kind.collection(ben).search(make_search("tea milk", limit=3))).hits] == [
        hit.bm25 for hit in first.hits
    ]


async def test_term_weights_change_with_writes_to_any_file(ada: Library) -> None:
    await ada.notes.create_many([NoteDraft(content="chai"), NoteDraft(content="milk")])
    before = {hit.text: hit.score for hit in (await ada.notes.search(make_search("chai milk"))).hits}
    await ada.media.create_many([MediaDraft(title="Milk")] * 9)
    after = {hit.text: hit.score for hit in (await ada.notes.search(make_search("chai milk"))).hits}
    assert before["chai"] == before["milk"]
    assert after["chai"] > after["milk"]


async def test_a_page_of_filtered_messages_has_a_total(ada: Library) -> None:
    for number in range(4):
        messages = [MessageDraft(sender="Ana", content=f"tea {number}"), MessageDraft(sender="Ben", content="milk")]
        draft = ConversationDraft(title=f"Chat {number}", metadata={"project": "kitchen"})
        await ada.chats.create(draft, messages)
    await ada.chats.create(ConversationDraft(title="Other"), [MessageDraft(sender="Ana", content="tea")])

    project: dict[str, Any] = {"projects": ("kitchen",)}
    for filters in (project, {"senders": ("ana",), **project}):
        page, whole = [await ada.chats.search(make_search("tea", limit=limit, **filters)) for limit in (1, 100)]
        assert len(whole.hits) >= 4
        assert (len(page.hits), page.has_more, page.total) == (1, True, len(whole.hits))


# -- near words --------------------------------------------------------------------------------------------------------


async def near_words(library: Library, query: str) -> list[str]:
    page = await library.notes.search(make_search(query))
    return [term.word.text for term in page.query.terms if term.near is not None] if page.query else []


async def test_near_words_follow_the_writes_of_this_process_and_of_others(open_libraries: OpenLibraries) -> None:
    async with (
        open_libraries() as libraries,
        open_libraries() as others,
        libraries.library("ada") as ada,
        others.library("ada") as elsewhere,
        libraries.library("ben") as ben,
    ):
        await ben.notes.create(NoteDraft(title="Foreign", content="The harbour, the harbouring and the harbours"))
        await ada.notes.create(NoteDraft(title="Own", content="The lighthouse"))
        found = []
        for library in (ada, elsewhere):
            found += [await near_words(one, "harbuor") for one in (ada, elsewhere, ben)]
            note = await library.notes.create(NoteDraft(title="Port", content="The harbour"))
            found += [await near_words(one, "harbuor") for one in (ada, elsewhere)]
            await library.notes.delete(note.id)

    assert found == [[], [], ["harbour"], ["harbour"], ["harbour"]] * 2


async def test_near_words_of_human_only_messages_are_those_of_their_own_index(ada: Library) -> None:
    hidden = MessageDraft(role="user", content="The lighthouse", metadata={"human_only": True})
    await ada.chats.create(ConversationDraft(title="Talk"), [hidden, MessageDraft(role="user", content="The harbour")])

    pages = [await ada.chats.search(make_search(query)) for query in ("lighthuose", "harbuor")]

    assert [[hit.text for hit in page.hits] for page in pages] == [["The lighthouse"], ["The harbour"]]


async def test_no_vocabulary_is_read_if_the_known_words_occur_nowhere_together(open_libraries: OpenLibraries) -> None:
    async with open_libraries() as libraries, libraries.library("ada") as ada:
        vocabularies = libraries.engine._options.vocabularies  # type: ignore[attr-defined]
        for text in ("tea", "milk and a lighthouse", "sugar"):
            await ada.notes.create(NoteDraft(content=text))
        apart, apart_bytes = await near_words(ada, "tea milk lighthuose"), vocabularies.size_bytes
        await ada.notes.create(NoteDraft(content="milk and tea"))
        together = await near_words(ada, "tea milk lighthuose")
        await ada.notes.create(NoteDraft(content="milk and tea at the lighthouse"))
        near, near_bytes = await near_words(ada, "tea milk lighthuose"), vocabularies.size_bytes

    assert (apart, apart_bytes, together, near) == ([], 0, [], ["lighthouse"])
    assert near_bytes > 0
