"""Media: one hit per item at its best chunk, read in stored chunks or fresh ones, transcripts in four forms."""

from typing import Any

import pytest

from bench.tokenizer import count_tokens
from sources.records import MediaChunk, Segment
from sources.text.token_estimates import json_text
from tests.sources.multilingual import SCRIPTS
from tests.sources.source_fixture import LibraryUser

TEXT = " ".join(f"Sentence {n} tells of topic{n} at some length, so that chunks come about." for n in range(200))
TALK = [
    Segment(start_ms=n * 5_000, end_ms=n * 5_000 + 4_999, text=f"Line {n} of topic{n}.", speaker="Ada")
    for n in range(240)
]


async def test_media_are_limited_to_their_types(ada: LibraryUser, ben: LibraryUser) -> None:
    film = await ada.add_media("Film", "A galleon.", media_type="video")
    await ada.add_media("Paper", "A galleon.", media_type="pdf")
    await ben.add_media("Film", "A galleon.", media_type="video")

    by_argument = await ada.search("media_search", "galleon", media_types=["VIDEO", "audio"])
    by_query = await ada.search("media_search", "galleon type:video")

    assert [hit["id"] for hit in by_argument] == [hit["id"] for hit in by_query] == [film]
    assert by_argument[0]["media_type"] == "video"


async def test_types_that_contradict_each_other_find_nothing_and_say_why(ada: LibraryUser) -> None:
    await ada.add_media("Film", "A galleon.", media_type="video")

    answer = await ada.call("media_search", query="galleon type:pdf", media_types=["video"])

    assert answer["results"] == []
    assert answer["read_as"] == "searched for nothing; type:pdf cannot match: the arguments select video"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"date_from": "2026-03-01"}, ["march", "april"]),
        ({"date_to": "2026-03-01"}, ["february", "march"]),
        ({"date_from": "2026-03-01", "date_to": "2026-03-01"}, ["march"]),
        ({"date_from": "2026-03-01T12:00:00Z", "date_to": "2026-03-01T13:00:00+01:00"}, ["march"]),
        ({"date_from": "2026-03-01T12:00:00.001Z"}, ["april"]),
        ({"query": "galleon after:2026-03-01 before:2026-03-02"}, ["march"]),
        ({"query": "galleon after:2026-03-01", "date_from": "2026-04-01"}, ["april"]),
    ],
)
async def test_dates_are_whole_days_and_both_included(
    ada: LibraryUser, arguments: dict[str, str], found: list[str]
) -> None:
    for name, month in (("february", 2), ("march", 3), ("april", 4)):
        await ada.add_media(name, "A galleon.", created_at=f"2026-0{month}-01T12:00:00.000Z")

    answer = await ada.call("media_search", **{"query": "galleon", **arguments})

    assert sorted(hit["title"] for hit in answer["results"]) == sorted(found)


@pytest.mark.parametrize("bad", ["yesterday", "2026-13-01", "01.02.2026", "", "2026-02-30T10:00"])
async def test_a_bad_date_is_refused_with_the_format(ada: LibraryUser, bad: str) -> None:
    sentence = await ada.call_error("media_search", query="x", date_to=bad)

    assert sentence.startswith("date_to: expected an ISO 8601 date such as 2026-11-15")
    assert sentence.endswith(f", got {bad!r}")


async def test_recent_media_come_first_when_asked(ada: LibraryUser) -> None:
    for year in (2024, 2026, 2025):
        await ada.add_media(str(year), "galleon " * (2027 - year), created_at=f"{year}-01-01T00:00:00.000Z")

    by_argument = await ada.search("media_search", "galleon", order_by="recent")
    by_config = await ada.with_config(order_by="recent").search("media_search", "galleon")

    assert [hit["title"] for hit in by_argument] == ["2026", "2025", "2024"]
    assert by_config == by_argument


async def test_a_hit_is_the_best_chunk_of_its_item_and_names_it(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)

    (hit,) = await ada.search("media_search", "topic150 chunks")

    assert list(hit["loc"])[:3] == ["media_id", "chunk_index", "chunk_uuid"]
    assert hit["loc"]["media_id"] == media
    assert hit["more_in_item"] > 0
    answer = await ada.read("media", media, loc={"chunk_index": hit["loc"]["chunk_index"]}, retrieval={"mode": "chunk"})
    assert "topic150 " in answer["content"]


async def test_a_spoken_hit_tells_the_second(ada: LibraryUser) -> None:
    await ada.add_media("Talk", segments=TALK)

    (hit,) = await ada.search("media_search", "topic100")

    assert 0 <= 500 - hit["loc"]["seconds"] < 30
    assert hit["loc"]["start_ms"] == hit["loc"]["seconds"] * 1000


@pytest.mark.parametrize("form", ["number", "text", "uuid"])
async def test_media_are_read_by_number_text_or_uuid(ada: LibraryUser, form: str) -> None:
    media = await ada.add_media("Talk", TEXT)
    async with ada.libraries.library(ada.context) as library:
        names: dict[str, Any] = {"number": media, "text": str(media), "uuid": (await library.media.get(media)).uuid}

    assert (await ada.read("media", names[form]))["meta"]["id"] == media


@pytest.mark.parametrize("by", ["chunk_index", "chunk_uuid", "approx_offset"])
async def test_a_chunk_is_chosen_by_what_the_loc_names(ada: LibraryUser, by: str) -> None:
    media = await ada.add_media("Talk", TEXT)
    async with ada.libraries.library(ada.context) as library:
        chunk = (await library.media.chunks(media, 3, 1))[0]
    loc = {"chunk_index": 3, "chunk_uuid": chunk.uuid, "approx_offset": (chunk.start + chunk.end) // 2}

    answer = await ada.read("media", media, loc={by: loc[by]}, retrieval={"mode": "chunk"})

    assert answer["content"] == chunk.text
    assert answer["attachments"] == [{"chunk_index": 3, "start": 0, "end": len(chunk.text)}]
    assert (answer["meta"]["loc"]["chunk_index"], answer["meta"]["loc"]["chunk_uuid"]) == (3, chunk.uuid)


@pytest.mark.parametrize("loc", [{"seconds": 601.5}, {"start_ms": 601_500}])
async def test_a_moment_is_a_loc(ada: LibraryUser, loc: dict[str, float]) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    answer = await ada.read("media", media, loc=loc, retrieval={"mode": "chunk"})

    (chunk,) = answer["attachments"]
    assert chunk["start_ms"] <= 601_500
    assert "Line 120 " in answer["content"]


async def test_a_moment_in_an_item_without_transcript_is_refused(ada: LibraryUser) -> None:
    media = await ada.add_media("Paper", TEXT)

    assert "no transcript" in await ada.call_error("media_get", media_id=media, loc={"seconds": 5})


@pytest.mark.parametrize("index", [-1, 99_999])
async def test_a_chunk_that_is_not_there_is_refused_with_the_range(ada: LibraryUser, index: int) -> None:
    media = await ada.add_media("Paper", "One chunk.")

    sentence = await ada.call_error("media_get", media_id=media, loc={"chunk_index": index})

    assert sentence == f"loc.chunk_index: expected 0 to 0, got {index}"


async def test_siblings_are_the_neighbouring_stored_chunks(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    options = {"mode": "chunk_with_siblings", "sibling_window": 1, "max_tokens": 5000}

    answer = await ada.read("media", media, loc={"chunk_index": 3}, retrieval=options)

    assert [chunk["chunk_index"] for chunk in answer["attachments"]] == [2, 3, 4]
    assert answer["content"] in TEXT


async def test_siblings_stop_at_the_budget(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    options = {"mode": "chunk_with_siblings", "sibling_window": 50}

    sizes = [
        len(
            (await ada.read("media", media, loc={"chunk_index": 3}, retrieval={**options, "max_tokens": budget}))[
                "attachments"
            ]
        )
        for budget in (600, 1200, 2400)
    ]

    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


async def test_fresh_chunks_are_cut_where_stored_ones_are_not_wanted(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    options = {"mode": "chunk", "prefer_prechunked": False, "chunk_size_tokens": 32, "chunk_overlap_tokens": 0}

    answer = await ada.read("media", media, query="topic77", retrieval=options)

    assert "topic77 " in answer["content"]
    assert len(answer["content"]) <= 32 * 4
    assert answer["content"] in TEXT


async def test_imported_chunks_that_are_no_pieces_of_the_text_are_read_all_the_same(ada: LibraryUser) -> None:
    chunks = [MediaChunk(index=n, uuid="", text=f"Summary {n} of topic{n}.", start=0, end=0) for n in range(4)]
    media = await ada.add_media("Digest", TEXT, chunks=chunks)
    options = {"mode": "chunk_with_siblings", "max_tokens": 1000, "sibling_window": 1}

    answer = await ada.read("media", media, loc={"chunk_index": 1}, retrieval=options)

    assert answer["content"] == "\n\n".join(f"Summary {n} of topic{n}." for n in (0, 1, 2))
    assert answer["next_cursor"] is None


async def test_the_full_text_read_page_by_page_is_the_text(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    answer = await ada.read("media", media, retrieval={"mode": "full", "max_tokens": 700})
    text = answer["content"]

    while answer["next_cursor"]:
        answer = await ada.read("media", media, cursor=answer["next_cursor"], retrieval={"max_tokens": 700})
        text += answer["content"]

    assert text == TEXT


# -- transcripts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "beginning"),
    [
        ({}, "Ada: Line 0 of topic0.\nAda: Line 1"),
        ({"include_timestamps": True}, "[00:00:00] Ada: Line 0 of topic0.\n[00:00:05] Ada"),
        ({"format": "srt"}, "1\n00:00:00,000 --> 00:00:04,999\nAda: Line 0 of topic0.\n\n2\n"),
        ({"format": "vtt"}, "WEBVTT\n\n00:00:00.000 --> 00:00:04.999\n<v Ada>Line 0 of topic0."),
    ],
)
async def test_a_transcript_comes_in_the_form_that_is_asked_for(
    ada: LibraryUser, arguments: dict[str, Any], beginning: str
) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    assert (await ada.call("media_transcript", media_id=media, **arguments))["content"].startswith(beginning)


async def test_a_transcript_as_json_is_an_object(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK[:1])

    answer = await ada.call("media_transcript", media_id=media, format="json")

    assert answer == {
        "content": {"segments": [{"start_ms": 0, "end_ms": 4999, "speaker": "Ada", "text": "Line 0 of topic0."}]},
        "next_cursor": None,
    }


async def test_a_window_of_a_transcript_holds_what_is_spoken_in_it(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    answer = await ada.call("media_transcript", media_id=media, from_seconds=12, to_seconds=20)

    assert [line.split()[2] for line in answer["content"].splitlines()] == ["2", "3", "4"]


async def test_a_long_transcript_is_read_page_by_page(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK)
    pages, cursor = list[str](), None

    while True:
        page = await ada.call("media_transcript", media_id=media, format="srt", max_tokens=500, cursor=cursor)
        assert len(page["content"]) <= 2000
        pages.append(page["content"])
        if (cursor := page["next_cursor"]) is None:
            break

    numbers = [int(cue.split("\n")[0]) for cue in "\n\n".join(pages).split("\n\n")]
    assert numbers == list(range(1, 241))


@pytest.mark.parametrize("form", ["text", "srt", "vtt", "json"])
async def test_a_page_of_a_transcript_has_no_more_tokens_than_its_budget(ada: LibraryUser, form: str) -> None:
    for script, text in SCRIPTS.items():
        spoken = [Segment(start_ms=n * 5_000, end_ms=n * 5_000 + 4_999, text=text, speaker="Ada") for n in range(60)]
        media = await ada.add_media(script, segments=spoken)

        page = await ada.call("media_transcript", media_id=media, format=form, include_timestamps=True, max_tokens=600)

        assert 250 <= count_tokens(json_text(page)) <= 600, script
        assert page["next_cursor"] is not None


async def test_a_cursor_of_another_window_is_refused(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK)
    page = await ada.call("media_transcript", media_id=media, max_tokens=100)

    sentence = await ada.call_error("media_transcript", media_id=media, from_seconds=60, cursor=page["next_cursor"])

    assert "another item" in sentence


async def test_media_without_a_transcript_say_so(ada: LibraryUser) -> None:
    media = await ada.add_media("Paper", TEXT)

    assert await ada.call_error("media_transcript", media_id=media) == f"transcript of media '{media}' not found"


async def test_a_transcript_form_that_consists_of_times_cannot_do_without(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    sentence = await ada.call_error("media_transcript", media_id=media, format="srt", include_timestamps=False)

    assert sentence == "include_timestamps: expected true or null with srt, got false"


@pytest.mark.parametrize("seconds", [-1, float("-inf")])
async def test_a_time_before_the_beginning_is_refused(ada: LibraryUser, seconds: float) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    sentence = await ada.call_error("media_transcript", media_id=media, from_seconds=seconds)

    assert sentence.startswith("from_seconds: expected seconds from the start, 0 or more, got -")
