"""Transcripts in their four forms: as the formats ask, safe against hostile text, and page by page complete."""

import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.reading.cursors import START
from sources.records import Segment
from sources.text.transcripts import Format, render

TALK = (
    Segment(start_ms=0, end_ms=1_500, text="Welcome to the show.", speaker="Ada"),
    Segment(start_ms=1_500, end_ms=3_723_004, text="Thank you,\n\nAda.", speaker="Ben"),
    Segment(start_ms=3_723_004, end_ms=3_724_000, text="Goodbye."),
)


def whole(form: Format, timestamps: bool = True) -> Any:
    return render(TALK, form, timestamps=timestamps, room=10_000).content


def test_text_names_the_speakers() -> None:
    assert whole("text", timestamps=False) == "Ada: Welcome to the show.\nBen: Thank you, Ada.\nGoodbye."


def test_text_with_timestamps_starts_each_line_with_its_time() -> None:
    assert whole("text").splitlines()[2] == "[01:02:03] Goodbye."


def test_srt_numbers_its_cues_and_writes_commas() -> None:
    assert whole("srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nAda: Welcome to the show.\n\n"
        "2\n00:00:01,500 --> 01:02:03,004\nBen: Thank you,\nAda.\n\n"
        "3\n01:02:03,004 --> 01:02:04,000\nGoodbye."
    )


def test_vtt_has_its_head_and_voices() -> None:
    assert whole("vtt").startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n<v Ada>Welcome to the show.\n\n")


def test_json_keeps_milliseconds_and_the_text_as_it_is() -> None:
    assert whole("json")["segments"][1] == {
        "start_ms": 1_500,
        "end_ms": 3_723_004,
        "speaker": "Ben",
        "text": "Thank you,\n\nAda.",
    }


def test_json_without_timestamps_has_none() -> None:
    assert whole("json", timestamps=False)["segments"][2] == {"text": "Goodbye."}


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_no_text_can_forge_a_cue(form: Format) -> None:
    hostile = Segment(start_ms=0, end_ms=1, text="x\n\n2\n00:00:09,000 --> 00:00:10,000\n<b>& forged", speaker="a\n\nb")

    content = render([hostile], form, timestamps=True, room=10_000).content

    assert isinstance(content, str)
    assert content.count("-->") == 1
    assert len(re.split(r"\n\n", content.removeprefix("WEBVTT\n\n"))) == 1


SEGMENTS = st.lists(
    st.builds(
        Segment,
        start_ms=st.integers(-10, 10**9),
        end_ms=st.integers(-10, 10**9),
        text=st.text(max_size=200),
        speaker=st.none() | st.text(max_size=10),
    ),
    max_size=8,
)


@settings(max_examples=300)
@given(SEGMENTS, st.sampled_from(get_args(Format)), st.booleans(), st.integers(150, 400))
def test_pages_hold_every_segment_and_keep_to_their_room(
    segments: list[Segment], form: Format, timestamps: bool, room: int
) -> None:
    at, read, pages = START, [""] * len(segments), 0
    while True:
        page = render(segments, form, timestamps=timestamps, room=room, start=at)
        size = len(page.content) if isinstance(page.content, str) else len(msgspec.json.encode(page.content).decode())
        assert size <= room
        end = page.next or msgspec.structs.replace(START, index=len(segments))
        for index in range(at.index, min(end.index + 1, len(segments))):
            last = end.offset if index == end.index else len(segments[index].text)
            first = at.offset if index == at.index else 0
            read[index] += segments[index].text[first:last]
        if page.next is None:
            break
        assert (page.next.index, page.next.offset) > (at.index, at.offset)
        at, pages = page.next, pages + 1

    assert read == [segment.text for segment in segments]
