"""Tests of the four transcript formats: syntax, safety against hostile text, and complete paging."""

import re
from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sources.reading.cursors import START
from sources.records import Segment
from sources.text.transcripts import TranscriptFormat, render_transcript
from tests.cases import each_case
from tests.tiers import examples

TALK = (
    Segment(start_ms=0, end_ms=1_500, text="Welcome to the show.", speaker="Ada"),
    Segment(start_ms=1_500, end_ms=3_723_004, text="Thank you,\n\nAda.", speaker="Ben"),
    Segment(start_ms=3_723_004, end_ms=3_724_000, text="Goodbye."),
)


def render_all(form: TranscriptFormat, timestamps: bool = True) -> Any:
    return render_transcript(TALK, form, timestamps=timestamps, room=10_000).content


def test_text_includes_the_speakers() -> None:
    assert render_all("text", timestamps=False) == "Ada: Welcome to the show.\nBen: Thank you, Ada.\nGoodbye."


def test_text_with_timestamps_starts_each_line_with_its_time() -> None:
    assert render_all("text").splitlines()[2] == "[01:02:03] Goodbye."


def test_srt_numbers_cues_and_uses_decimal_commas() -> None:
    assert render_all("srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nAda: Welcome to the show.\n\n"
        "2\n00:00:01,500 --> 01:02:03,004\nBen: Thank you,\nAda.\n\n"
        "3\n01:02:03,004 --> 01:02:04,000\nGoodbye."
    )


def test_vtt_starts_with_its_header_and_uses_voice_spans() -> None:
    assert render_all("vtt").startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n<v Ada>Welcome to the show.\n\n")


def test_json_has_milliseconds_and_the_unchanged_text() -> None:
    assert render_all("json")["segments"][1] == {
        "start_ms": 1_500,
        "end_ms": 3_723_004,
        "speaker": "Ben",
        "text": "Thank you,\n\nAda.",
    }


def test_json_without_timestamps_omits_them() -> None:
    assert render_all("json", timestamps=False)["segments"][2] == {"text": "Goodbye."}


@each_case("form", ["srt", "vtt"])
def test_hostile_text_cannot_forge_a_cue(form: TranscriptFormat) -> None:
    hostile = Segment(start_ms=0, end_ms=1, text="x\n\n2\n00:00:09,000 --> 00:00:10,000\n<b>& forged", speaker="a\n\nb")

    content = render_transcript([hostile], form, timestamps=True, room=10_000).content

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


@settings(max_examples=examples(150))
@given(SEGMENTS, st.sampled_from(get_args(TranscriptFormat)), st.booleans(), st.integers(150, 400))
def test_pages_together_contain_every_segment_and_stay_within_their_room(
    segments: list[Segment], form: TranscriptFormat, timestamps: bool, room: int
) -> None:
    position, texts = START, [""] * len(segments)
    while True:
        page = render_transcript(segments, form, timestamps=timestamps, room=room, start=position)
        size = len(page.content) if isinstance(page.content, str) else len(msgspec.json.encode(page.content).decode())
        assert size <= room
        end = page.next or msgspec.structs.replace(START, index=len(segments))
        for index in range(position.index, min(end.index + 1, len(segments))):
            last = end.offset if index == end.index else len(segments[index].text)
            first = position.offset if index == position.index else 0
            texts[index] += segments[index].text[first:last]
        if page.next is None:
            break
        assert (page.next.index, page.next.offset) > (position.index, position.offset)
        position = page.next

    assert texts == [segment.text for segment in segments]
