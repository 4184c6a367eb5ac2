"""What all five sources have in common: result fields, clamping, paging, retrieval modes and budgets."""

import itertools
import math
from typing import Any

import pytest

from bench.tokenizer import count_tokens
from sources.text.token_estimates import json_text
from tests.cases import each_case
from tests.server.rest.rest_client import open_rest_client
from tests.sources.multilingual import SCRIPTS
from tests.sources.source_fixture import ID_ARGUMENT, SOURCES, LibraryUser

# The fields that tldw defines for every item, and those of some sources.
TLDW_FIELDS = [
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
]
OPTIONAL_FIELDS = {
    "notes": ["loc"],
    "media": ["media_type", "loc"],
    "chats": ["conversation_id", "message_id", "sender", "loc"],
    "characters": ["loc"],
    "prompts": ["loc"],
}
# The items of different sources in one library do not disturb each other.
every_source = each_case("source", SOURCES)

# Every message is unique.
SENTENCES = [f"Sentence number {n} speaks of topic{n} and nothing else." for n in range(120)]
LONG = " ".join(SENTENCES)
MODES = ("snippet", "chunk", "chunk_with_siblings", "full", "auto")


def total_chars(response: dict[str, Any]) -> int:
    """The size of a response: its content as text, everything else as JSON."""
    return len(json_text({**response, "content": ""})) + len(response["content"])


# -- search -----------------------------------------------------------------------------------------------------


@every_source
async def test_hit_has_the_fields_of_tldw_without_null_fields_of_other_sources(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", "A galleon under full sail.")

    response = await ada.call(f"{source}_search", query="galleon")

    assert list(response)[:4] == ["results", "has_more", "next_offset", "total_estimated"]
    (hit,) = response["results"]
    added = ["highlights", "cost_tokens"]
    assert list(hit) == [*TLDW_FIELDS, *OPTIONAL_FIELDS[source], *added]
    assert None not in hit.values()
    assert (hit["id"], hit["source"], hit["title"], hit["score_type"]) == (item_id, source, "Voyage", "fts_coverage")
    assert hit["uri"].startswith(f"{source}://{item_id}")
    assert [hit["snippet"][start:end] for start, end in hit["highlights"]] == ["galleon"]
    assert 0 < hit["score"] <= 1


@every_source
async def test_users_find_only_their_own_items(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    mine = await ada.add_item(source, "Voyage", "A galleon of Ada's.")
    await ben.add_item(source, "Voyage", "A galleon of Ben's.")

    hits = await ada.search(f"{source}_search", "galleon")

    assert [hit["id"] for hit in hits] == [mine]
    assert "Ben" not in hits[0]["snippet"]


@every_source
async def test_limit_defaults_to_10_and_is_clamped_to_1_to_100(ada: LibraryUser, source: str) -> None:
    for number in range(101):
        await ada.add_item(source, f"Voyage {number}", "A galleon.")

    for arguments, count in (({}, 10), ({"limit": 0}, 1), ({"limit": -5}, 1), ({"limit": 999}, 100)):
        response = await ada.call(f"{source}_search", query="galleon", **arguments)
        assert (len(response["results"]), response["has_more"], response["next_offset"]) == (count, True, count)


@every_source
async def test_snippet_length_defaults_to_at_most_300_characters(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", f"{LONG} galleon {LONG}")

    for arguments, max_chars in (({}, 300), ({"snippet_length": 40}, 40), ({"snippet_length": 0}, 1)):
        (hit,) = await ada.search(f"{source}_search", "galleon", **arguments)
        assert max_chars * 0.5 <= len(hit["snippet"]) <= max_chars


@every_source
async def test_snippet_has_at_most_1000_characters(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", f"{LONG} galleon {LONG}")

    (hit,) = await ada.search(f"{source}_search", "galleon", snippet_length=10**9)

    assert len(hit["snippet"]) <= 1000


@every_source
async def test_snippet_is_one_line_of_plain_text_around_the_match(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "before " * 200 + "\n\n\tgalleon \n under\tsail " + "after " * 200)

    (hit,) = await ada.search(f"{source}_search", "galleon", snippet_length=60)

    assert "galleon under sail" in hit["snippet"]


@every_source
async def test_pages_contain_every_hit_once(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    mine = [await ada.add_item(source, f"Voyage {n}", "galleon " * (n % 4 + 1) + f"and topic{n}") for n in range(23)]
    await ben.add_item(source, "Voyage", "galleon")

    for limit in (1, 3, 7):
        seen: list[Any] = []
        offset: int | None = 0
        while offset is not None:
            response = await ada.call(f"{source}_search", query="galleon", limit=limit, offset=offset)
            seen += [hit["id"] for hit in response["results"]]
            assert response["has_more"] == (response["next_offset"] is not None)
            offset = response["next_offset"]
        assert sorted(map(str, seen)) == sorted(map(str, mine))


@every_source
async def test_score_does_not_depend_on_the_page(ada: LibraryUser, source: str) -> None:
    for n in range(12):
        await ada.add_item(source, f"Voyage {n}", "galleon " * (n % 4 + 1) + f"and topic{n}")

    one_page = await ada.search(f"{source}_search", "galleon topic3", limit=12)
    single_pages = [
        hit
        for offset in range(12)
        for hit in await ada.search(f"{source}_search", "galleon topic3", limit=1, offset=offset)
    ]

    assert [(hit["id"], hit["score"]) for hit in single_pages] == [(hit["id"], hit["score"]) for hit in one_page]


@every_source
async def test_total_estimated_is_exact_or_null(ada: LibraryUser, source: str) -> None:
    for n in range(7):
        await ada.add_item(source, f"Voyage {n}", "galleon")

    response = await ada.call(f"{source}_search", query="galleon", limit=2)

    assert response["total_estimated"] in (7, None)


@every_source
async def test_query_without_words_matches_nothing_and_says_so(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A galleon.")

    response = await ada.call(f"{source}_search", query="  ?!  ")

    assert (response["results"], response["has_more"], response["next_offset"]) == ([], False, None)
    assert response["read_as"]


@every_source
async def test_query_for_another_source_matches_nothing_and_says_why(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A galleon.")
    other = "notes" if source != "notes" else "media"

    response = await ada.call(f"{source}_search", query=f"galleon source:{other}")

    assert response["results"] == []
    assert f"source:{other}" in response["read_as"]
    assert await ada.search(f"{source}_search", f"galleon source:{source}")


@every_source
async def test_tag_filters_the_hits_and_alone_lists_the_tagged_items(ada: LibraryUser, source: str) -> None:
    tagged = await ada.add_item(source, "Voyage", "A galleon.", tags=["harbour"])
    await ada.add_item(source, "Voyage", "A galleon.")

    for query in ("galleon tag:harbour", "tag:harbour"):
        assert [hit["id"] for hit in await ada.search(f"{source}_search", query)] == [tagged]


@every_source
async def test_argument_overrides_the_snippet_length_of_the_config(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", f"{LONG} galleon {LONG}")
    configured = ada.with_config(snippet_length=50)

    (short,) = await configured.search(f"{source}_search", "galleon")
    (longer,) = await configured.search(f"{source}_search", "galleon", snippet_length=120)

    assert len(short["snippet"]) <= 50 < len(longer["snippet"]) <= 120


@every_source
async def test_unknown_argument_is_rejected_with_the_known_ones(ada: LibraryUser, source: str) -> None:
    message = await ada.call_error(f"{source}_search", query="galleon", user_id="ben")

    assert message.startswith("user_id: unknown argument; ")
    assert "query" in message


@pytest.mark.sqlite  # with PostgreSQL, tldw divides ranks by the largest one
async def test_minmax_scores_range_from_1_to_0(tmp_path: Any) -> None:
    async with open_rest_client(tmp_path, search_scoring="minmax") as api:
        ada = await api.library_user("ada")
        for n in range(5):
            await ada.add_note(f"Voyage {n}", "galleon " * (n + 1) + "sail " * 20)
            await ada.add_note(f"Other {n}", "Something else.")
            await ada.add_note(f"Fleet {n}", "mast " * 20)

        one_word = [hit["score"] for hit in await ada.search("notes_search", "galleon")]
        two_words = [hit["score"] for hit in await ada.search("notes_search", "galleon mast")]

    for scores in (one_word, two_words):
        assert scores[0] == pytest.approx(1.0, abs=1e-3)
        assert scores[-1] == pytest.approx(0.0, abs=1e-3)
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) > 2


async def test_single_hit_has_the_minmax_score_1(tmp_path: Any) -> None:
    async with open_rest_client(tmp_path, search_scoring="minmax") as api:
        ada = await api.library_user("ada")
        await ada.add_note("Voyage", "galleon")

        (hit,) = await ada.search("notes_search", "galleon")

    assert hit["score"] == 1.0


# -- get --------------------------------------------------------------------------------------------------------


@every_source
async def test_get_returns_meta_content_and_attachments(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", "A galleon under full sail.")

    response = await ada.read(source, item_id)

    assert list(response)[:3] == ["meta", "content", "attachments"]
    fields = [name for name in TLDW_FIELDS if name not in ("snippet", "score_type")]
    assert list(response["meta"])[: len(fields)] == fields
    assert None not in response["meta"].values()
    assert response["meta"]["id"] == item_id
    assert "A galleon under full sail." in response["content"]


@every_source
async def test_every_mode_works_and_is_reported(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)

    for mode in MODES:
        response = await ada.read(source, item_id, query="topic77", retrieval={"mode": mode})
        assert response["mode"] == ("snippet" if mode == "auto" else mode)
        assert ("topic77" in response["content"]) or mode == "full"
        assert response["anchor"] == (
            "page" if (source, mode) == ("chats", "full") else "beginning" if mode == "full" else "query"
        )


@every_source
async def test_auto_with_a_budget_reads_siblings(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)

    response = await ada.read(source, item_id, retrieval={"mode": "auto", "max_tokens": 500})

    assert response["mode"] == "chunk_with_siblings"


@every_source
async def test_no_response_exceeds_its_budget(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)

    for mode, budget in itertools.product(MODES, (60, 150, 200, 500, 2000)):
        response = await ada.read(source, item_id, query="topic60", retrieval={"mode": mode, "max_tokens": budget})
        case = (mode, budget)
        assert count_tokens(json_text(response["content"])) <= min(budget, response["tokens"] + 2), case
        assert count_tokens(json_text(response)) <= budget or (response["over_budget"] is True and budget < 250), case
        assert response["truncated"] or "topic60" in response["content"] or mode == "full", case


@pytest.mark.slow("reads long texts of every script")
@every_source
async def test_budget_is_kept_in_every_script(ada: LibraryUser, source: str) -> None:
    for script, text in SCRIPTS.items():
        item_id = await ada.add_item(source, text[:80], text * 40)
        for mode in ("snippet", "chunk", "chunk_with_siblings", "full"):
            options = {"mode": mode, "max_tokens": 700, "snippet_length": 1000}
            response = await ada.read(source, item_id, retrieval=options)
            case = (script, mode)
            assert count_tokens(json_text(response)) <= 700, case
            assert count_tokens(response["content"]) <= response["tokens"] <= 700, case
            assert mode != "full" or count_tokens(json_text(response["content"])) >= 100, (script, "is too short")


@each_case(
    ("source", "number", "text"),
    [
        (source, number, text)
        for source in SOURCES
        for number, text in enumerate((SCRIPTS["Greek"] * 20, f"{LONG}\n\n日本語", "A ship."))
    ],
)
async def test_cost_tokens_of_a_hit_is_what_reading_all_of_it_reports(
    ada: LibraryUser, ben: LibraryUser, source: str, number: int, text: str
) -> None:
    await ben.add_item(source, "Voyage", f"A galleon{number} of another length.")
    item_id = await ada.add_item(source, "Voyage", f"{text} galleon{number}")

    (hit,) = await ada.search(f"{source}_search", f"galleon{number}")
    whole = await ada.read(source, item_id, retrieval={"mode": "full"})

    assert hit["cost_tokens"] == whole["tokens"] == whole["meta"].get("cost_tokens", whole["tokens"])
    assert 0.8 <= whole["tokens"] / count_tokens(whole["content"]) < 2


@every_source
async def test_chars_per_token_applies_to_the_cost_as_well(ada: LibraryUser, source: str) -> None:
    configured = ada.with_config(chars_per_token=3)
    item_id = await ada.add_item(source, "Voyage", f"{LONG} galleon")

    (hit,) = await configured.search(f"{source}_search", "galleon")
    whole = await configured.read(source, item_id, retrieval={"mode": "full"})

    assert hit["cost_tokens"] == whole["tokens"] == math.ceil(len(whole["content"]) / 3)


@each_case(("source", "budget"), itertools.product(SOURCES, (1200, 2000, 5000)))
async def test_four_fifths_of_a_budget_are_content_if_the_item_is_longer(
    ada: LibraryUser, source: str, budget: int
) -> None:
    text = " ".join(f"Sentence number {n} speaks of something." for n in range(2 * budget))
    item_id = await ada.add_item(source, "An item with a title of usual length", text, tags=["harbour", "ships"])
    options = {"mode": "full", "max_tokens": budget}

    first = await ada.read(source, item_id, retrieval=options)
    second = await ada.read(source, item_id, retrieval=options, cursor=first["next_cursor"])

    for response in (first, second):
        assert 0.8 * budget <= response["tokens"] <= budget
        assert count_tokens(json_text(response)) <= budget
    both = first["content"] + second["content"]
    assert text.startswith(both[both.index("Sentence") :])


@every_source
async def test_oversized_chunk_is_truncated_and_can_be_continued(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)

    response = await ada.read(
        source, item_id, retrieval={"mode": "chunk", "max_tokens": 240, "chunk_size_tokens": 2000}
    )

    assert response["truncated"] is True
    rest = await ada.read(source, item_id, cursor=response["next_cursor"])
    both = (response["content"] + rest["content"]).replace("Ana: ", "")
    assert both[both.index("Sentence number") :] in LONG


@every_source
async def test_pages_of_full_mode_contain_everything_once(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)
    await ben.add_item(source, "Voyage", "Ben's own.")
    response = await ada.read(source, item_id, retrieval={"mode": "full", "max_tokens": 400})
    text = response["content"]

    while response["next_cursor"] is not None:
        assert response["truncated"] is True
        response = await ada.read(source, item_id, cursor=response["next_cursor"], retrieval={"max_tokens": 400})
        text += response["content"]

    assert text.count("Sentence number") == len(SENTENCES)
    assert LONG in text.replace("Ana: ", "")


@every_source
async def test_overlap_of_chunks_is_not_repeated(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)
    options = {
        "mode": "chunk_with_siblings",
        "max_tokens": 3000,
        "sibling_window": 5,
        "chunk_size_tokens": 60,
        "chunk_overlap_tokens": 25,
        "prefer_prechunked": False,
    }

    response = await ada.read(source, item_id, query="topic60", retrieval=options)

    topics = [word.rstrip(".") for word in response["content"].split() if word.startswith("topic")]
    assert len(topics) == len(set(topics))
    assert topics == sorted(topics, key=lambda topic: int(topic.removeprefix("topic")))


@every_source
async def test_invalid_cursor_or_loc_is_rejected(ada: LibraryUser, source: str) -> None:
    item = {ID_ARGUMENT[source]: await ada.add_item(source, "Voyage", LONG)}

    for cursor in ("", "x", "AAAA", "é", "gA", "Zm9v" * 50):
        message = await ada.call_error(f"{source}_get", **item, cursor=cursor)
        assert message == "cursor: expected the next_cursor of an earlier response, got an invalid cursor"
    message = await ada.call_error(f"{source}_get", **item, loc={"chapter": 7})
    assert message.startswith("loc: ")
    assert "expected the loc of a search result" in message


@every_source
async def test_loc_of_a_hit_selects_its_passage(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)
    (hit,) = await ada.search(f"{source}_search", "topic93")

    response = await ada.read(source, item_id, loc=hit["loc"], retrieval={"mode": "chunk", "max_tokens": 700})
    short = await ada.read(source, item_id, loc=hit["loc"], query="topic93", retrieval={"mode": "snippet"})

    assert response["anchor"] == short["anchor"] == "loc"
    assert "topic93 " in response["content"]
    assert "topic93 " in short["content"]


@every_source
async def test_config_sets_the_budget(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)
    configured = ada.with_config(max_tokens=600, chars_per_token=2)

    response = await configured.read(source, item_id, retrieval={"mode": "full"})

    assert response["tokens"] == math.ceil(len(response["content"]) / 2)
    assert total_chars(response) <= 600 * 2


@every_source
async def test_any_number_is_accepted_and_clamped(ada: LibraryUser, source: str) -> None:
    item_id = await ada.add_item(source, "Voyage", LONG)
    names = ("snippet_length", "chunk_size_tokens", "chunk_overlap_tokens", "sibling_window")

    for number in (10**30, -(10**30), 2**63, 0, -1):
        arguments = dict.fromkeys(("limit", "offset", "snippet_length"), number)
        assert "results" in await ada.call(f"{source}_search", query="topic1", **arguments)
        for mode in ("snippet", "chunk", "chunk_with_siblings"):
            options = {"mode": mode, **dict.fromkeys(names, number)}
            response = await ada.read(source, item_id, loc={"approx_offset": number}, retrieval=options)
            assert isinstance(response["content"], str)
