"""Subtitles and transcripts: lines with times, grouped into short chunks."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.events import FailedItem, ImportedMedia
from sources.importers.registry import load_importer
from sources.records import Segment
from tests.cases import each_case
from tests.sources.importers.single_files import (
    damaged_files,
    importer_for,
    read,
    read_draft,
    read_or_reject,
    write,
)

IMPORTER = load_importer("subtitles")

SRT = """1
00:00:01,000 --> 00:00:02,500
<i>The tide</i> is {\\an8}out.

2
00:00:03,000 --> 00:01:04,000
Look &amp; see:

crabs.

3
01:00:00,000 --> 01:00:01,000
2024
"""
VTT = """WEBVTT - a talk
Kind: captions
Language: en-GB

STYLE
::cue { color: red }

NOTE nothing to see

intro
00:01.000 --> 00:02.500 align:start position:0%
<v.loud Mara Field>The tide is <c.x>out</c>.</v>

01:00:03.000 --> 01:00:04.000
No name &lt;here&gt;.
"""
SCROLLING = """WEBVTT

00:00:00.000 --> 00:00:02.000
the<00:00:00.500><c> tide</c>

00:00:02.000 --> 00:00:02.010
the tide

00:00:02.010 --> 00:00:04.000
the tide
is<00:00:02.500><c> out</c>
"""
WHISPER = json.dumps(
    {
        "text": " The tide is out.",
        "language": "en",
        "segments": [
            {"id": 0, "start": 0.0, "end": 1.52, "text": " The tide", "tokens": [1], "speaker": "SPEAKER_01"},
            {"id": 1, "start": 1.52, "end": 3, "text": " is out."},
        ],
    }
)
WHISPER_CPP = json.dumps(
    {
        "result": {"language": "de"},
        "transcription": [{"timestamps": {}, "offsets": {"from": 40, "to": 1_000}, "text": " Ebbe"}],
    }
)
JSON3 = json.dumps(
    {
        "wireMagic": "pb3",
        "events": [
            {"tStartMs": 0, "dDurationMs": 9_000, "id": 1, "wpWinPosId": 1},
            {"tStartMs": 80, "dDurationMs": 1_920, "segs": [{"utf8": "the"}, {"utf8": " tide", "tOffsetMs": 400}]},
            {"tStartMs": 2_000, "aAppend": 1, "segs": [{"utf8": "\n"}]},
            {"tStartMs": 2_000, "segs": [{"utf8": "is out"}]},
        ],
    }
)
SAMPLES = {
    "a.srt": SRT.encode(),
    "a.vtt": VTT.encode(),
    "b.vtt": SCROLLING.encode(),
    "a.json": WHISPER.encode(),
    "b.json": WHISPER_CPP.encode(),
    "a.json3": JSON3.encode(),
}


def line(start_ms: int, end_ms: int, text: str, speaker: str | None = None) -> Segment:
    return Segment(start_ms=start_ms, end_ms=end_ms, text=text, speaker=speaker)


@each_case(
    ("name", "lines", "language"),
    [
        (
            "a.srt",
            [
                line(1_000, 2_500, "The tide is out."),
                line(3_000, 64_000, "Look & see: crabs."),
                line(3_600_000, 3_601_000, "2024"),
            ],
            None,
        ),
        (
            "a.vtt",
            [
                line(1_000, 2_500, "The tide is out.", "Mara Field"),
                line(3_603_000, 3_604_000, "No name <here>."),
            ],
            "en-GB",
        ),
        ("b.vtt", [line(0, 2_000, "the tide"), line(2_010, 4_000, "is out")], None),
        ("a.json", [line(0, 1_520, "The tide", "SPEAKER_01"), line(1_520, 3_000, "is out.")], "en"),
        ("b.json", [line(40, 1_000, "Ebbe")], "de"),
        ("a.json3", [line(80, 2_000, "the tide"), line(2_000, 2_000, "is out")], None),
    ],
)
def test_every_format_is_read_with_times(tmp_path: Path, name: str, lines: list[Segment], language: str | None) -> None:
    media = read_draft(IMPORTER, write(tmp_path / name, SAMPLES[name]))

    assert media.segments == lines
    assert media.metadata.get("language") == language
    assert (media.title, media.media_type, media.metadata["file"]) == (name[0], "transcript", name)
    assert read_draft(IMPORTER, tmp_path / name) == media


def test_chunks_are_short_and_have_correct_offsets(tmp_path: Path) -> None:
    segments = [{"start": n * 5, "end": n * 5 + 4, "text": f"Sentence {n} about the sea. " * 3} for n in range(50)]
    media = read_draft(IMPORTER, write(tmp_path / "talk.en.json", json.dumps({"segments": segments})))

    text = "\n".join(segment.text for segment in media.segments)
    assert [text[chunk.start : chunk.end] for chunk in media.chunks] == [chunk.text for chunk in media.chunks]
    assert "\n".join(chunk.text for chunk in media.chunks) == text
    assert max(len(chunk.text) for chunk in media.chunks) <= 400
    assert max(chunk.end_ms - chunk.start_ms for chunk in media.chunks) <= 30_000
    assert len({chunk.uuid for chunk in media.chunks}) == len(media.chunks)
    assert (media.title, media.metadata["language"]) == ("talk", "en")


def test_lines_separated_by_silence_are_not_in_one_chunk(tmp_path: Path) -> None:
    segments = [{"start": n * 45, "end": n * 45 + 2, "text": f"Line {n}."} for n in range(20)]
    media = read_draft(IMPORTER, write(tmp_path / "talk.json", json.dumps({"segments": segments})))

    assert [(chunk.start_ms, chunk.text) for chunk in media.chunks] == [(n * 45_000, f"Line {n}.") for n in range(20)]


@each_case("end", ["\r\n", "\r"])
def test_other_encodings_and_line_endings_are_read(tmp_path: Path, end: str) -> None:
    old = SRT.replace("tide", "côte").replace("\n", end).encode("cp1252")

    assert read_draft(IMPORTER, write(tmp_path / "a.srt", old)).segments[0].text == "The côte is out."
    assert importer_for(tmp_path / "a.srt") == "subtitles"


def test_line_without_a_time_is_reported_and_the_others_are_imported(tmp_path: Path) -> None:
    segments: list[Any] = [
        {"start": 1, "end": 0, "text": "a"},
        {"start": -1, "text": "b"},
        7,
        {"start": 1e300, "text": "c"},
    ]
    segments.append({"start": 2, "end": 3, "text": 5})

    *failures, media = read(IMPORTER, write(tmp_path / "a.json", json.dumps(segments)))

    problem = "expected start, end and text"
    assert failures == [FailedItem(f"line {number} of the transcript", problem) for number in (2, 3, 4, 5)]
    assert isinstance(media, ImportedMedia)
    assert media.draft.segments == [line(1_000, 1_000, "a")]


@each_case("name", SAMPLES)
def test_subtitles_are_recognized(tmp_path: Path, name: str) -> None:
    assert importer_for(write(tmp_path / name, SAMPLES[name])) == "subtitles"


@each_case(
    ("name", "text"),
    [("a.json", '{"segments": 1}'), ("a.json", "[1]"), ("a.srt", "1\nno time\n")],
)
def test_other_files_are_not_recognized(tmp_path: Path, name: str, text: str) -> None:
    assert importer_for(write(tmp_path / name, text)) is None


@each_case(
    ("name", "data", "problem"),
    [
        ("a.srt", b"1\nno time\n", "no lines with times"),
        ("a.srt", b"00:00:01,000 --> 00:00:02,000\na\0b", "expected text, got a NUL character"),
        ("a.vtt", b"WEBVTT", "no lines with times"),
        ("a.vtt", b"WEBVTT" + b"\n" * 1_000_001, "at most 1000000 lines"),
        ("a.json", b"{}", "expected an object with segments, transcription or events"),
        ("a.json", b'{"segments": []}', "no lines with times"),
        ("a.json", b"[" * 100_000, "JSON is nested more than"),
        ("a.json", b'{"segments": [{"start": 1, "end": 2, "text": "\\ud800"}]}', "JSON is malformed"),
    ],
)
def test_file_without_lines_is_rejected(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    with pytest.raises(InvalidParams, match=problem):
        read(IMPORTER, write(tmp_path / name, data))


def test_oversized_file_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    with path.open("wb") as file:
        file.write(SRT.encode())
        file.truncate(1 << 30)

    with pytest.raises(TooLarge):
        read(IMPORTER, path)


@pytest.mark.slow("reads long texts")
@each_case(
    "text",
    ["<" * 500_000, "{\\" * 500_000, "<v " * 300_000, "1\n" * 300_000, "00:00:01,000 --> 00:00:02,000\n" * 30_000],
)
def test_repeated_markup_is_read_quickly(tmp_path: Path, text: str) -> None:
    media = read_draft(IMPORTER, write(tmp_path / "a.srt", f"00:00:01,000 --> 00:00:02,000\nx {text}"))

    assert media.segments[0].text.startswith("x")


@given(damaged_files(SAMPLES))
def test_damaged_file_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    read_or_reject(IMPORTER, *sample)


@given(st.sampled_from([b"", b"WEBVTT\n", b"{", b"["]), st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(head: bytes, data: bytes) -> None:
    read_or_reject(IMPORTER, "a.srt", head + data)
