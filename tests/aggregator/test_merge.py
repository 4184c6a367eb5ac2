"""The merged order: by score, then date, then URI; spread over conversations; the same content once."""

from hypothesis import given
from hypothesis import strategies as st

from aggregator.merge import ALSO_IN_MAX, Candidate, by_date, by_score, collapse, share, spread
from sources.items import ResultItem, SearchResponse
from sources.source import as_matches
from tests.aggregator.shelves import hit

DATES = st.sampled_from([None, "2024-05-01T00:00:00.000Z", "2025-05-01T00:00:00.000Z", "2026-05-01T00:00:00.000Z"])
SCORES = st.floats(0, 1)


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    """Hits of two sources, some of one conversation, some with the same text."""
    made: list[ResultItem] = []
    for number in range(draw(st.integers(0, 30))):
        source = draw(st.sampled_from(["notes", "chats"]))
        text = draw(st.sampled_from([None, "the same passage"]))
        item = draw(st.sampled_from(["a", "b"])) if source == "chats" else None
        made.append(hit(source, number, draw(SCORES), modified=draw(DATES), text=text, item=item))
    return ranked(*made)


def uris(found: list[Candidate]) -> list[str]:
    return [candidate.match.uri for candidate in found]


def ranked(*items: ResultItem) -> list[Candidate]:
    answer = as_matches(SearchResponse(results=items, has_more=False, next_offset=None, total_estimated=None))
    return [Candidate(match.hit.source, match, rank, answer) for rank, match in enumerate(answer.found)]


def test_the_better_score_comes_first_whatever_its_source() -> None:
    found = by_score(ranked(hit("notes", 1, 0.2), hit("media", 1, 0.9), hit("notes", 2, 0.5)))

    assert uris(found) == ["media://1", "notes://2", "notes://1"]


def test_scores_that_differ_by_noise_are_a_tie_which_the_newer_wins() -> None:
    older = hit("notes", 1, 0.500_04, modified="2024-01-01T00:00:00.000Z")
    newer = hit("media", 1, 0.500_01, modified="2025-01-01T00:00:00.000Z")

    assert uris(by_score(ranked(older, newer))) == ["media://1", "notes://1"]


def test_a_tie_in_score_and_date_goes_by_uri() -> None:
    assert uris(by_score(ranked(hit("notes", 2), hit("notes", 1), hit("media", 3)))) == [
        "media://3",
        "notes://1",
        "notes://2",
    ]


def test_by_date_a_hit_without_one_comes_last() -> None:
    found = by_date(ranked(hit("notes", 1, modified=None), hit("notes", 2), hit("notes", 3, modified="2026-06-01")))

    assert uris(found) == ["notes://3", "notes://2", "notes://1"]


@given(candidates())
def test_the_order_does_not_depend_on_the_order_in_which_sources_answer(found: list[Candidate]) -> None:
    assert uris(by_score(found)) == uris(by_score(found[::-1]))


@given(candidates(), st.integers(1, 4))
def test_spreading_loses_nothing_and_keeps_the_order_of_what_it_keeps(found: list[Candidate], most: int) -> None:
    spread_out = spread(found, most)

    assert sorted(uris(spread_out)) == sorted(uris(found))
    for parent in ("a", "b"):
        own = [candidate for candidate in found if candidate.match.id == parent]
        assert [candidate for candidate in spread_out if candidate.match.id == parent] == own


def test_one_conversation_does_not_fill_the_page_while_others_wait() -> None:
    chat = [hit("chats", number, 0.9 - number / 100, item="long") for number in range(10)]
    found = spread(by_score(ranked(*chat, hit("notes", 1, 0.1))), 3)

    assert uris(found)[:4] == ["chats://long/0", "chats://long/1", "chats://long/2", "notes://1"]
    assert len(found) == 11


@given(candidates(), st.integers(1, 10))
def test_sharing_loses_nothing_and_keeps_the_order_of_each_source(found: list[Candidate], most: int) -> None:
    shared = share(found, most)

    assert sorted(uris(shared)) == sorted(uris(found))
    for source in ("notes", "chats"):
        own = [candidate for candidate in found if candidate.source == source]
        assert [candidate for candidate in shared if candidate.source == source] == own


@given(candidates(), st.integers(1, 10))
def test_of_ten_places_one_source_has_no_more_than_its_share_while_another_waits_for_its_own(
    found: list[Candidate], most: int
) -> None:
    shared = share(found, most)

    for start in range(0, len(shared), 10):
        page = [candidate.source for candidate in shared[start : start + 10]]
        behind = {candidate.source for candidate in shared[start + 10 :]}
        for source in set(page):
            short = {other for other in behind - {source} if page.count(other) < most}
            assert page.count(source) <= most or not short


def test_a_source_with_all_the_best_hits_leaves_four_of_ten_places() -> None:
    chats = [hit("chats", number, 0.9, item=number) for number in range(12)]
    notes = [hit("notes", number, 0.1) for number in range(5)]

    assert [one.source for one in share(ranked(*chats, *notes), 6)][:10] == ["chats"] * 6 + ["notes"] * 4


def test_the_same_content_under_another_uri_is_told_with_the_better_hit() -> None:
    same = "A text that was saved twice."
    entries = collapse(ranked(hit("notes", 1, text=same), hit("notes", 2), hit("media", 3, text=same)))

    assert [(entry.match.uri, entry.also_in, entry.is_told) for entry in entries] == [
        ("notes://1", ("media://3",), False),
        ("notes://2", (), False),
        ("media://3", (), True),
    ]


@given(candidates())
def test_every_hit_is_an_entry_or_told_with_one_and_never_both(found: list[Candidate]) -> None:
    entries = collapse(found)

    assert [entry.match.uri for entry in entries] == uris(found)
    told = [uri for entry in entries for uri in entry.also_in]
    assert sorted(told) == sorted(entry.match.uri for entry in entries if entry.is_told)
    assert all(len(entry.also_in) <= ALSO_IN_MAX for entry in entries)
