"""Media: one hit per item at its best chunk, reading in stored or new chunks, transcripts in four formats."""

from typing import Any

import pytest

from bench.tokenizer import count_tokens
from sources.records import MediaChunk, Segment
from sources.text.token_estimates import json_text
from tests.cases import each_case
from tests.sources.multilingual import SCRIPTS
from tests.sources.source_fixture import LibraryUser

TEXT = " ".join(f"Sentence {n} tells of topic{n} at some length, so that there are several chunks." for n in range(200))
TALK = [
    Segment(start_ms=n * 5_000, end_ms=n * 5_000 + 4_999, text=f"Line {n} of topic{n}.", speaker="Ada")
    for n in range(240)
]


async def test_media_types_filter_the_hits(ada: LibraryUser, ben: LibraryUser) -> None:
    film = await ada.add_media("Film", "A galleon.", media_type="video")
    await ada.add_media("Paper", "A galleon.", media_type="pdf")
    await ben.add_media("Film", "A galleon.", media_type="video")

    by_argument = await ada.search("media_search", "galleon", media_types=["VIDEO", "audio"])
    by_query = await ada.search("media_search", "galleon type:video")

    assert [hit["id"] for hit in by_argument] == [hit["id"] for hit in by_query] == [film]
    assert by_argument[0]["media_type"] == "video"


async def test_contradicting_types_match_nothing_and_say_why(ada: LibraryUser) -> None:
    await ada.add_media("Film", "A galleon.", media_type="video")

    response = await ada.call("media_search", query="galleon type:pdf", media_types=["video"])

    assert response["results"] == []
    assert response["read_as"] == "searched for nothing; type:pdf cannot match: the arguments select video"


async def test_contradicting_times_match_nothing_and_say_why(ada: LibraryUser) -> None:
    await ada.add_media("Film", "A galleon.")

    response = await ada.call("media_search", query="galleon after:2026-05", date_to="2026-04-30")

    assert response["results"] == []
    assert (
        response["read_as"]
        == "searched for nothing; after:2026-05 cannot match: the arguments allow only earlier times"
    )


@pytest.mark.parametrize(
    ("arguments", "titles"),
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
async def test_date_bounds_are_inclusive_and_dates_mean_whole_days(
    ada: LibraryUser, arguments: dict[str, str], titles: list[str]
) -> None:
    for name, month in (("february", 2), ("march", 3), ("april", 4)):
        await ada.add_media(name, "A galleon.", created_at=f"2026-0{month}-01T12:00:00.000Z")

    response = await ada.call("media_search", **{"query": "galleon", **arguments})

    assert sorted(hit["title"] for hit in response["results"]) == sorted(titles)


@each_case("date", ["someday", "2026-13-01", "31.02.2026", "", "2026-02-30T10:00"])
async def test_invalid_date_is_rejected_with_the_format(ada: LibraryUser, date: str) -> None:
    message = await ada.call_error("media_search", query="x", date_to=date)

    assert message.startswith("date_to: expected a date such as 2026-11-15")
    assert message.endswith(f", got {date!r}")


async def test_order_by_recent_sorts_newest_first(ada: LibraryUser) -> None:
    for year in (2024, 2026, 2025):
        await ada.add_media(str(year), "galleon " * (2027 - year), created_at=f"{year}-01-01T00:00:00.000Z")

    by_argument = await ada.search("media_search", "galleon", order_by="recent")
    by_config = await ada.with_config(order_by="recent").search("media_search", "galleon")

    assert [hit["title"] for hit in by_argument] == ["2026", "2025", "2024"]
    assert by_config == by_argument


async def test_hit_is_the_best_chunk_of_its_item(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)

    (hit,) = await ada.search("media_search", "topic150 chunks")

    assert list(hit["loc"])[:3] == ["media_id", "chunk_index", "chunk_uuid"]
    assert hit["loc"]["media_id"] == media
    assert hit["more_in_item"] > 0
    response = await ada.read(
        "media", media, loc={"chunk_index": hit["loc"]["chunk_index"]}, retrieval={"mode": "chunk"}
    )
    assert "topic150 " in response["content"]


async def test_hit_in_a_transcript_has_its_time(ada: LibraryUser) -> None:
    await ada.add_media("Talk", segments=TALK)

    (hit,) = await ada.search("media_search", "topic100")

    assert 0 <= 500 - hit["loc"]["seconds"] < 30
    assert hit["loc"]["start_ms"] == hit["loc"]["seconds"] * 1000


@each_case("form", ["number", "text", "uuid"])
async def test_media_can_be_read_by_number_text_or_uuid(ada: LibraryUser, form: str) -> None:
    media = await ada.add_media("Talk", TEXT)
    async with ada.libraries.library(ada.context) as library:
        forms: dict[str, Any] = {"number": media, "text": str(media), "uuid": (await library.media.get(media)).uuid}

    assert (await ada.read("media", forms[form]))["meta"]["id"] == media


@each_case("by", ["chunk_index", "chunk_uuid", "approx_offset"])
async def test_loc_selects_the_chunk(ada: LibraryUser, by: str) -> None:
    media = await ada.add_media("Talk", TEXT)
    async with ada.libraries.library(ada.context) as library:
        chunk = (await library.media.chunks(media, 3, 1))[0]
    loc = {"chunk_index": 3, "chunk_uuid": chunk.uuid, "approx_offset": (chunk.start + chunk.end) // 2}

    response = await ada.read("media", media, loc={by: loc[by]}, retrieval={"mode": "chunk", "attachments": True})

    assert response["content"] == chunk.text
    assert response["attachments"] == [{"chunk_index": 3, "start": 0, "end": len(chunk.text)}]
    assert (response["meta"]["loc"]["chunk_index"], response["meta"]["loc"]["chunk_uuid"]) == (3, chunk.uuid)


@each_case("loc", [{"seconds": 601.5}, {"start_ms": 601_500}])
async def test_time_in_loc_selects_the_chunk(ada: LibraryUser, loc: dict[str, float]) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    response = await ada.read("media", media, loc=loc, retrieval={"mode": "chunk", "attachments": True})

    (chunk,) = response["attachments"]
    assert chunk["start_ms"] <= 601_500
    assert "Line 120 " in response["content"]


async def test_time_in_loc_is_rejected_without_a_transcript(ada: LibraryUser) -> None:
    media = await ada.add_media("Paper", TEXT)

    assert "no transcript" in await ada.call_error("media_get", media_id=media, loc={"seconds": 5})


@each_case("index", [-1, 99_999])
async def test_chunk_index_out_of_range_is_rejected_with_the_range(ada: LibraryUser, index: int) -> None:
    media = await ada.add_media("Paper", "One chunk.")

    message = await ada.call_error("media_get", media_id=media, loc={"chunk_index": index})

    assert message == f"loc.chunk_index: expected 0 to 0, got {index}"


async def test_siblings_are_the_adjacent_stored_chunks(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    options = {"mode": "chunk_with_siblings", "sibling_window": 1, "max_tokens": 5000, "attachments": True}

    response = await ada.read("media", media, loc={"chunk_index": 3}, retrieval=options)

    assert [chunk["chunk_index"] for chunk in response["attachments"]] == [2, 3, 4]
    assert response["content"] in TEXT


async def test_larger_budgets_return_more_siblings(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    options = {"mode": "chunk_with_siblings", "sibling_window": 50, "attachments": True}

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


async def test_prefer_prechunked_false_splits_the_text_into_new_chunks(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    options = {"mode": "chunk", "prefer_prechunked": False, "chunk_size_tokens": 32, "chunk_overlap_tokens": 0}

    response = await ada.read("media", media, query="topic77", retrieval=options)

    assert "topic77 " in response["content"]
    assert len(response["content"]) <= 32 * 4
    assert response["content"] in TEXT


async def test_imported_chunks_that_are_not_part_of_the_text_can_be_read(ada: LibraryUser) -> None:
    chunks = [MediaChunk(index=n, uuid="", text=f"Summary {n} of topic{n}.", start=0, end=0) for n in range(4)]
    media = await ada.add_media("Digest", TEXT, chunks=chunks)
    options = {"mode": "chunk_with_siblings", "max_tokens": 1000, "sibling_window": 1}

    response = await ada.read("media", media, loc={"chunk_index": 1}, retrieval=options)

    assert response["content"] == "\n\n".join(f"Summary {n} of topic{n}." for n in (0, 1, 2))
    assert response["next_cursor"] is None


async def test_pages_of_the_full_text_add_up_to_the_text(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", TEXT)
    response = await ada.read("media", media, retrieval={"mode": "full", "max_tokens": 700})
    text = response["content"]

    while response["next_cursor"]:
        response = await ada.read("media", media, cursor=response["next_cursor"], retrieval={"max_tokens": 700})
        text += response["content"]

    assert text == TEXT


# -- transcripts ------------------------------------------------------------------------------------------------


@each_case(
    ("arguments", "start"),
    [
        ({}, "Ada: Line 0 of topic0.\nAda: Line 1"),
        ({"include_timestamps": True}, "[00:00:00] Ada: Line 0 of topic0.\n[00:00:05] Ada"),
        ({"format": "srt"}, "1\n00:00:00,000 --> 00:00:04,999\nAda: Line 0 of topic0.\n\n2\n"),
        ({"format": "vtt"}, "WEBVTT\n\n00:00:00.000 --> 00:00:04.999\n<v Ada>Line 0 of topic0."),
    ],
)
async def test_transcript_is_returned_in_the_requested_format(
    ada: LibraryUser, arguments: dict[str, Any], start: str
) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    assert (await ada.call("media_transcript", media_id=media, **arguments))["content"].startswith(start)


async def test_json_transcript_is_an_object(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK[:1])

    response = await ada.call("media_transcript", media_id=media, format="json")

    assert response == {
        "content": {"segments": [{"start_ms": 0, "end_ms": 4999, "speaker": "Ada", "text": "Line 0 of topic0."}]},
        "next_cursor": None,
    }


async def test_time_range_selects_the_overlapping_segments(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    response = await ada.call("media_transcript", media_id=media, from_seconds=12, to_seconds=20)

    assert [line.split()[2] for line in response["content"].splitlines()] == ["2", "3", "4"]


async def test_pages_of_a_long_transcript_contain_every_segment_once(ada: LibraryUser) -> None:
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


@each_case("form", ["text", "srt", "vtt", "json"])
async def test_transcript_page_does_not_exceed_its_token_budget(ada: LibraryUser, form: str) -> None:
    for script, text in SCRIPTS.items():
        segments = [Segment(start_ms=n * 5_000, end_ms=n * 5_000 + 4_999, text=text, speaker="Ada") for n in range(60)]
        media = await ada.add_media(script, segments=segments)

        page = await ada.call("media_transcript", media_id=media, format=form, include_timestamps=True, max_tokens=600)

        assert 250 <= count_tokens(json_text(page)) <= 600, script
        assert page["next_cursor"] is not None


async def test_cursor_of_another_time_range_is_rejected(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK)
    page = await ada.call("media_transcript", media_id=media, max_tokens=100)

    message = await ada.call_error("media_transcript", media_id=media, from_seconds=60, cursor=page["next_cursor"])

    assert "another item" in message


async def test_missing_transcript_is_not_found(ada: LibraryUser) -> None:
    media = await ada.add_media("Paper", TEXT)

    assert await ada.call_error("media_transcript", media_id=media) == f"transcript of media '{media}' not found"


async def test_subtitle_format_without_timestamps_is_rejected(ada: LibraryUser) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    message = await ada.call_error("media_transcript", media_id=media, format="srt", include_timestamps=False)

    assert message == "include_timestamps: expected true or null with srt, got false"


@each_case("seconds", [-1, -1e308, 1e308])
async def test_time_outside_all_recordings_is_rejected(ada: LibraryUser, seconds: float) -> None:
    media = await ada.add_media("Talk", segments=TALK)

    message = await ada.call_error("media_transcript", media_id=media, from_seconds=seconds)

    assert message.startswith("from_seconds: expected seconds from the start, 0 or more, got ")
