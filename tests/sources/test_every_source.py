"""What holds for all five sources alike: the shapes, the clamps, the pages, the modes and their budgets."""

import math
from typing import Any

import pytest

from bench.tokenizer import count_tokens
from sources.text.token_estimates import json_text
from tests.sources.multilingual import SCRIPTS
from tests.sources.source_fixture import ID_ARGUMENT, SOURCES, LibraryUser, open_source_fixture

SEED_FIELDS = [
    "id",
    "source",
    "title",
    "snippet",
    "uri",
    "score",
    "score_type",
    "created_at",
    "last_modified",
    "version",
    "tags",
    "media_type",
    "url",
    "conversation_id",
    "message_id",
    "sender",
    "loc",
]
every_source = pytest.mark.parametrize("source", SOURCES)

# A text in which each sentence can be told from every other.
SENTENCES = [f"Sentence number {n} speaks of topic{n} and nothing else." for n in range(120)]
LONG = " ".join(SENTENCES)


def chars_of(answer: dict[str, Any]) -> int:
    """What an answer costs: its content as text, everything around it as JSON."""
    return len(json_text({**answer, "content": ""})) + len(answer["content"])


# -- search -----------------------------------------------------------------------------------------------------


@every_source
async def test_a_hit_has_every_field_of_the_seed_null_where_there_is_nothing(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", "A galleon under full sail.")

    answer = await ada.call(f"{source}_search", query="galleon")

    assert list(answer)[:4] == ["results", "has_more", "next_offset", "total_estimated"]
    (hit,) = answer["results"]
    assert list(hit)[: len(SEED_FIELDS)] == SEED_FIELDS
    assert (hit["id"], hit["source"], hit["title"], hit["score_type"]) == (identity, source, "Voyage", "fts_coverage")
    assert hit["uri"].startswith(f"{source}://{identity}")
    assert "galleon" in hit["snippet"]
    assert 0 < hit["score"] <= 1


@every_source
async def test_highlights_are_the_places_of_the_words_in_the_snippet(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A galleon under full sail.")

    (hit,) = await ada.search(f"{source}_search", "galleon")

    assert [hit["snippet"][start:end] for start, end in hit["highlights"]] == ["galleon"]


@every_source
async def test_each_reader_finds_their_own_items_only(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    mine = await ada.add_item(source, "Voyage", "A galleon of Ada's.")
    await ben.add_item(source, "Voyage", "A galleon of Ben's.")

    hits = await ada.search(f"{source}_search", "galleon")

    assert [hit["id"] for hit in hits] == [mine]
    assert "Ben" not in hits[0]["snippet"]


@every_source
@pytest.mark.parametrize(("given", "taken"), [({}, 10), ({"limit": 0}, 1), ({"limit": -5}, 1), ({"limit": 999}, 100)])
async def test_a_limit_is_10_and_is_moved_into_1_to_100(
    ada: LibraryUser, source: str, given: dict[str, int], taken: int
) -> None:
    for number in range(101):
        await ada.add_item(source, f"Voyage {number}", "A galleon.")

    answer = await ada.call(f"{source}_search", query="galleon", **given)

    assert len(answer["results"]) == taken
    assert answer["has_more"] is True
    assert answer["next_offset"] == taken


@every_source
@pytest.mark.parametrize(("given", "most"), [({}, 300), ({"snippet_length": 40}, 40), ({"snippet_length": 0}, 1)])
async def test_a_snippet_is_300_characters_at_most_unless_asked_otherwise(
    ada: LibraryUser, source: str, given: dict[str, int], most: int
) -> None:
    await ada.add_item(source, "Voyage", f"{LONG} galleon {LONG}")

    (hit,) = await ada.search(f"{source}_search", "galleon", **given)

    assert most * 0.5 <= len(hit["snippet"]) <= most


@every_source
async def test_a_snippet_is_never_longer_than_1000_characters(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", f"{LONG} galleon {LONG}")

    (hit,) = await ada.search(f"{source}_search", "galleon", snippet_length=10**9)

    assert len(hit["snippet"]) <= 1000


@every_source
async def test_a_snippet_is_one_line_of_plain_text_around_the_match(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "before " * 200 + "\n\n\tgalleon \n under\tsail " + "after " * 200)

    (hit,) = await ada.search(f"{source}_search", "galleon", snippet_length=60)

    assert "galleon under sail" in hit["snippet"]


@every_source
@pytest.mark.parametrize("limit", [1, 3, 7])
async def test_paging_visits_every_hit_exactly_once(
    ada: LibraryUser, ben: LibraryUser, source: str, limit: int
) -> None:
    mine = [await ada.add_item(source, f"Voyage {n}", "galleon " * (n % 4 + 1) + f"and topic{n}") for n in range(23)]
    await ben.add_item(source, "Voyage", "galleon")
    seen: list[Any] = []
    offset: int | None = 0

    while offset is not None:
        answer = await ada.call(f"{source}_search", query="galleon", limit=limit, offset=offset)
        seen += [hit["id"] for hit in answer["results"]]
        assert answer["has_more"] == (answer["next_offset"] is not None)
        offset = answer["next_offset"]

    assert sorted(map(str, seen)) == sorted(map(str, mine))


@every_source
async def test_a_hit_has_the_same_score_on_every_page(ada: LibraryUser, source: str) -> None:
    for n in range(12):
        await ada.add_item(source, f"Voyage {n}", "galleon " * (n % 4 + 1) + f"and topic{n}")

    together = await ada.search(f"{source}_search", "galleon topic3", limit=12)
    singly = [
        hit
        for offset in range(12)
        for hit in await ada.search(f"{source}_search", "galleon topic3", limit=1, offset=offset)
    ]

    assert [(hit["id"], hit["score"]) for hit in singly] == [(hit["id"], hit["score"]) for hit in together]


@every_source
async def test_total_estimated_is_the_number_of_hits_or_null(ada: LibraryUser, source: str) -> None:
    for n in range(7):
        await ada.add_item(source, f"Voyage {n}", "galleon")

    answer = await ada.call(f"{source}_search", query="galleon", limit=2)

    assert answer["total_estimated"] in (7, None)


@every_source
async def test_a_query_without_a_word_finds_nothing_and_says_so(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A galleon.")

    answer = await ada.call(f"{source}_search", query="  ?!  ")

    assert (answer["results"], answer["has_more"], answer["next_offset"]) == ([], False, None)
    assert answer["read_as"]


@every_source
async def test_a_query_for_another_source_finds_nothing_and_says_why(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A galleon.")
    other = "notes" if source != "notes" else "media"

    answer = await ada.call(f"{source}_search", query=f"galleon source:{other}")

    assert answer["results"] == []
    assert f"source:{other}" in answer["read_as"]
    assert await ada.search(f"{source}_search", f"galleon source:{source}")


@every_source
async def test_a_tag_in_the_query_limits_the_hits(ada: LibraryUser, source: str) -> None:
    tagged = await ada.add_item(source, "Voyage", "A galleon.", tags=["harbour"])
    await ada.add_item(source, "Voyage", "A galleon.")

    assert [hit["id"] for hit in await ada.search(f"{source}_search", "galleon tag:harbour")] == [tagged]


@every_source
async def test_a_tag_alone_lists_what_has_it(ada: LibraryUser, source: str) -> None:
    tagged = await ada.add_item(source, "Voyage", "A galleon.", tags=["harbour"])
    await ada.add_item(source, "Voyage", "A galleon.")

    assert [hit["id"] for hit in await ada.search(f"{source}_search", "tag:harbour")] == [tagged]


@every_source
async def test_the_request_config_sets_the_snippet_length_and_an_argument_beats_it(
    ada: LibraryUser, source: str
) -> None:
    await ada.add_item(source, "Voyage", f"{LONG} galleon {LONG}")
    terse = ada.with_config(snippet_length=50)

    (short,) = await terse.search(f"{source}_search", "galleon")
    (longer,) = await terse.search(f"{source}_search", "galleon", snippet_length=120)

    assert len(short["snippet"]) <= 50 < len(longer["snippet"]) <= 120


@every_source
async def test_an_unknown_argument_is_refused_with_the_known_ones(ada: LibraryUser, source: str) -> None:
    sentence = await ada.call_error(f"{source}_search", query="galleon", user_id="ben")

    assert sentence.startswith("user_id: unknown argument; ")
    assert "query" in sentence


async def test_min_max_scores_run_from_1_to_0_over_the_hits(tmp_path: Any) -> None:
    async with open_source_fixture(tmp_path, search_scoring="minmax") as fixture:
        for n in range(5):
            await fixture.ada.add_note(f"Voyage {n}", "galleon " * (n + 1) + "sail " * 20)
            await fixture.ada.add_note(f"Other {n}", "Something else.")
            await fixture.ada.add_note(f"Fleet {n}", "mast " * 20)

        one_word = [hit["score"] for hit in await fixture.ada.search("notes_search", "galleon")]
        two_words = [hit["score"] for hit in await fixture.ada.search("notes_search", "galleon mast")]

    for scores in (one_word, two_words):
        assert scores[0] == pytest.approx(1.0, abs=1e-3)
        assert scores[-1] == pytest.approx(0.0, abs=1e-3)
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) > 2


async def test_a_lone_hit_has_the_min_max_score_1(tmp_path: Any) -> None:
    async with open_source_fixture(tmp_path, search_scoring="minmax") as fixture:
        await fixture.ada.add_note("Voyage", "galleon")

        (hit,) = await fixture.ada.search("notes_search", "galleon")

    assert hit["score"] == 1.0


# -- get --------------------------------------------------------------------------------------------------------


@every_source
async def test_a_get_answers_meta_content_and_attachments(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", "A galleon under full sail.")

    answer = await ada.read(source, identity)

    assert list(answer)[:3] == ["meta", "content", "attachments"]
    assert list(answer["meta"])[: len(SEED_FIELDS)] == SEED_FIELDS
    assert answer["meta"]["id"] == identity
    assert "A galleon under full sail." in answer["content"]


@every_source
@pytest.mark.parametrize("mode", ["snippet", "chunk", "chunk_with_siblings", "full", "auto"])
async def test_every_mode_works_and_says_which_it_was(ada: LibraryUser, source: str, mode: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)

    answer = await ada.read(source, identity, query="topic77", retrieval={"mode": mode})

    assert answer["mode"] == ("snippet" if mode == "auto" else mode)
    assert ("topic77" in answer["content"]) or mode == "full"
    assert answer["anchor"] == (
        "page" if (source, mode) == ("chats", "full") else "beginning" if mode == "full" else "query"
    )


@every_source
async def test_auto_with_a_budget_takes_siblings(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)

    answer = await ada.read(source, identity, retrieval={"mode": "auto", "max_tokens": 500})

    assert answer["mode"] == "chunk_with_siblings"


@every_source
@pytest.mark.parametrize("mode", ["snippet", "chunk", "chunk_with_siblings", "full", "auto"])
@pytest.mark.parametrize("budget", [60, 150, 200, 500, 2000])
async def test_no_answer_is_larger_than_its_budget(ada: LibraryUser, source: str, mode: str, budget: int) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)

    answer = await ada.read(source, identity, query="topic60", retrieval={"mode": mode, "max_tokens": budget})

    assert count_tokens(json_text(answer["content"])) <= budget
    assert count_tokens(json_text(answer)) <= answer["tokens"]
    assert answer["tokens"] <= budget or (answer["over_budget"] is True and budget < 250)
    assert answer["truncated"] or "topic60" in answer["content"] or mode == "full"


@every_source
@pytest.mark.parametrize("mode", ["snippet", "chunk", "chunk_with_siblings", "full"])
async def test_a_budget_holds_in_tokens_of_every_script(ada: LibraryUser, source: str, mode: str) -> None:
    options = {"mode": mode, "max_tokens": 700, "snippet_length": 1000}
    for script, text in SCRIPTS.items():
        identity = await ada.add_item(source, text[:80], text * 40)

        answer = await ada.read(source, identity, retrieval=options)

        assert count_tokens(json_text(answer)) <= answer["tokens"] <= 700, script
        assert mode != "full" or count_tokens(json_text(answer["content"])) >= 100, f"{script}: it is not used"


@every_source
async def test_what_an_item_costs_is_what_reading_all_of_it_takes(ada: LibraryUser, source: str) -> None:
    text = SCRIPTS["Greek"] * 20 + " galleon"
    identity = await ada.add_item(source, "Voyage", text)

    (hit,) = await ada.search(f"{source}_search", "galleon")
    whole = await ada.read(source, identity, retrieval={"mode": "full"})

    assert 1 <= hit["cost_tokens"] / count_tokens(text) < 2
    assert source == "chats" or 1 <= whole["meta"]["cost_tokens"] / count_tokens(whole["content"]) < 2


@every_source
async def test_an_oversized_first_chunk_is_cut_told_and_can_be_read_on(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)

    answer = await ada.read(source, identity, retrieval={"mode": "chunk", "max_tokens": 240, "chunk_size_tokens": 2000})

    assert answer["truncated"] is True
    rest = await ada.read(source, identity, cursor=answer["next_cursor"])
    both = (answer["content"] + rest["content"]).replace("Ana: ", "")
    assert both[both.index("Sentence number") :] in LONG


@every_source
async def test_full_is_paged_by_cursor_and_says_everything_once(
    ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)
    await ben.add_item(source, "Voyage", "Ben's own.")
    answer = await ada.read(source, identity, retrieval={"mode": "full", "max_tokens": 400})
    text = answer["content"]

    while answer["next_cursor"] is not None:
        assert answer["truncated"] is True
        answer = await ada.read(source, identity, cursor=answer["next_cursor"], retrieval={"max_tokens": 400})
        text += answer["content"]

    assert text.count("Sentence number") == len(SENTENCES)
    assert LONG in text.replace("Ana: ", "")


@every_source
async def test_siblings_do_not_repeat_what_chunks_share(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)
    options = {
        "mode": "chunk_with_siblings",
        "max_tokens": 3000,
        "sibling_window": 5,
        "chunk_size_tokens": 60,
        "chunk_overlap_tokens": 25,
        "prefer_prechunked": False,
    }

    answer = await ada.read(source, identity, query="topic60", retrieval=options)

    topics = [word.rstrip(".") for word in answer["content"].split() if word.startswith("topic")]
    assert len(topics) == len(set(topics))
    assert topics == sorted(topics, key=lambda topic: int(topic.removeprefix("topic")))


@every_source
@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "é", "gA", "Zm9v" * 50])
async def test_a_cursor_that_is_not_ours_is_refused_in_a_sentence(ada: LibraryUser, source: str, cursor: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)

    sentence = await ada.call_error(f"{source}_get", **{ID_ARGUMENT[source]: identity}, cursor=cursor)

    assert sentence == "cursor: expected the next_cursor of an earlier response, got an invalid cursor"


@every_source
async def test_a_loc_that_is_no_loc_is_refused_in_a_sentence(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)

    sentence = await ada.call_error(f"{source}_get", **{ID_ARGUMENT[source]: identity}, loc={"chapter": 7})

    assert sentence.startswith("loc: ")
    assert "expected the loc of a search result" in sentence


@every_source
async def test_the_loc_of_a_hit_leads_to_the_passage_that_was_found(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)
    (hit,) = await ada.search(f"{source}_search", "topic93")

    answer = await ada.read(source, identity, loc=hit["loc"], retrieval={"mode": "chunk", "max_tokens": 700})
    short = await ada.read(source, identity, loc=hit["loc"], query="topic93", retrieval={"mode": "snippet"})

    assert answer["anchor"] == short["anchor"] == "loc"
    assert "topic93 " in answer["content"]
    assert "topic93 " in short["content"]


@every_source
async def test_the_request_config_sets_the_budget(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)
    frugal = ada.with_config(max_tokens=600, chars_per_token=2)

    answer = await frugal.read(source, identity, retrieval={"mode": "full"})

    assert math.ceil(chars_of(answer) / 2) <= answer["tokens"] <= 600


@every_source
@pytest.mark.parametrize("number", [10**30, -(10**30), 2**63, 0, -1])
async def test_no_number_is_too_large_or_too_small_to_be_answered(ada: LibraryUser, source: str, number: int) -> None:
    identity = await ada.add_item(source, "Voyage", LONG)
    options = dict.fromkeys(["snippet_length", "chunk_size_tokens", "chunk_overlap_tokens", "sibling_window"], number)
    found = {"limit": number, "offset": number, "snippet_length": number}

    assert "results" in await ada.call(f"{source}_search", query="topic1", **found)
    for mode in ("snippet", "chunk", "chunk_with_siblings"):
        answer = await ada.read(source, identity, loc={"approx_offset": number}, retrieval={"mode": mode, **options})
        assert isinstance(answer["content"], str)
