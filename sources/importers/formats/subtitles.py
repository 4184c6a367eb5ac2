"""Subtitles and transcripts with times: SubRip, WebVTT, SBV, Whisper's JSON and TSV, YouTube's json3 and the JSON of
youtube-transcript-api, imported as media.

Lines are grouped into short chunks, so that a search hit is close to the second at which the words are spoken.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import unescape
from typing import Any

from msgspec import Struct

from config.errors import InvalidParams
from sources.drafts import MediaDraft
from sources.importers.engine import files
from sources.importers.engine.events import FailedItem, ImportedMedia, stable_uuid
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.values import Fields, short_title
from sources.records import MediaChunk, Segment
from sources.text.transcripts import group_cues

# About half a minute of speech.
_CHUNK_CHARS = 400
# No recording is longer than a year; larger numbers are not times.
_TIME_MAX_MS = 366 * 86_400_000
_CLOCK = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})(?:[.,](\d{1,3}))?"
_TIMING = re.compile(rf"[ \t]*{_CLOCK}[ \t]*-->[ \t]*{_CLOCK}(?:[ \t]|$)")
_TIMING_IN_HEAD = re.compile(rb"^[ \t]*[\d:.,]{5,16}[ \t]*-->[ \t]*[\d:.,]{5,16}", re.MULTILINE)
# Two times and a comma on a line of their own.
_SBV_START = re.compile(rb"\d{1,2}:\d\d:\d\d\.\d{3},\d{1,2}:\d\d:\d\d\.\d{3}\r?\n")
_SBV_TIMING = re.compile(r"^(\d{1,2}:\d\d:\d\d\.\d{3}),(\d{1,2}:\d\d:\d\d\.\d{3})$", re.MULTILINE)
_TSV_START = b"start\tend\ttext"
_VOICE = re.compile(r"<v(?:\.[^\s>]{0,80}+)?[ \t]++([^<>\n]{1,200}+)>")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>|<\d[\d:.]{0,20}>|\{\\[^{}\n]{0,200}\}")
# YouTube's automatic captions: every word has a time, and every line is shown twice while scrolling.
_SCROLLING = re.compile(r"<\d\d:\d\d:\d\d\.\d{3}><c>")
_LANGUAGE_SUFFIX = re.compile(r"(.+)\.([a-z]{2,3}(?:-[A-Za-z]{2,4})?)")


class SubtitlesImporter(FileImporter):
    name = "subtitles"
    title = "Subtitles and transcripts (srt, vtt, sbv, Whisper JSON and TSV, YouTube)"
    suffixes = (".srt", ".vtt", ".sbv", ".tsv", ".json", ".json3")

    def recognizes(self, probe: FileProbe) -> float:
        if not probe.is_text:
            return 0.0
        head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if head.startswith(b"WEBVTT"):
            return 1.0
        if head.startswith((b"{", b"[")):
            if b'"tStartMs"' in head and b'"events"' in head:
                return 1.0
            if b'"transcription"' in head and b'"offsets"' in head:
                return 0.9
            if head.startswith(b"[") and all(field in head for field in (b'"start"', b'"duration"', b'"text"')):
                return 0.8
            has_times = all(field in head for field in (b'"start"', b'"end"', b'"text"'))
            return 0.7 if has_times and (b'"segments"' in head or head.startswith(b"[")) else 0.0
        if head.startswith(_TSV_START) or _SBV_START.match(head):
            return 0.9
        return 0.9 if _TIMING_IN_HEAD.search(head[:4096].replace(b"\r", b"\n")) else 0.0

    def read_file(self, file: InputFile) -> Events:
        transcript = _parse_json(file.json(), file.limits) if is_json(file.head(64)) else _parse_text(file)
        yield from files.encoding_doubts("", transcript.encoding, is_doubtful=transcript.is_encoding_doubtful)
        yield from transcript.failures
        if not transcript.segments:
            raise InvalidParams(f"{file.name}: no lines with times")
        stem, key = file.stem, file.key
        with_language = _LANGUAGE_SUFFIX.fullmatch(stem)
        language = transcript.language or (with_language[2] if with_language else "")
        chunks = [
            MediaChunk(
                index=index,
                uuid=stable_uuid("subtitles", "chunks", f"{key}/{index}"),
                text=run.text,
                start=run.start,
                end=run.start + len(run.text),
                start_ms=run.start_ms,
                end_ms=run.end_ms,
                speaker=run.speaker,
            )
            for index, run in enumerate(group_cues(transcript.segments, _CHUNK_CHARS))
        ]
        draft = MediaDraft(
            title=short_title(with_language[1] if with_language else stem),
            media_type="transcript",
            segments=transcript.segments,
            chunks=chunks,
            metadata={
                "file": file.name,
                **({"language": language} if language else {}),
                **files.encoding_metadata(transcript.encoding),
            },
            uuid=stable_uuid("subtitles", "media", key),
            created_at=file.modified_at,
        )
        yield ImportedMedia(draft)


class _TimedTranscript(Struct, frozen=True):
    segments: Sequence[Segment]
    failures: Sequence[FailedItem] = ()
    language: str = ""
    encoding: str = ""
    is_encoding_doubtful: bool = False


def _parse_text(file: InputFile) -> _TimedTranscript:
    decoded = file.decoded_text()
    text = decoded.text
    is_vtt = text.lstrip().startswith("WEBVTT")
    if text.encode("utf-8", "replace")[:20].lstrip().startswith(_TSV_START):
        return _collect(map(_tsv_segment, text.strip().split("\n")[1:]), file.limits)
    lines = _SBV_TIMING.sub(r"\1 --> \2", text).split("\n")
    segments = [segment for segment in _cue_segments(lines, is_vtt=is_vtt) if segment.text]
    language = re.search(r"^Language: ([\w-]{2,20})$", text[:1000], re.MULTILINE) if is_vtt else None
    return _TimedTranscript(
        segments,
        language=language[1] if language else "",
        encoding=decoded.encoding,
        is_encoding_doubtful=decoded.is_doubtful,
    )


def _cue_segments(lines: Sequence[str], *, is_vtt: bool) -> Iterator[Segment]:
    """In WebVTT an empty line ends a cue. In SubRip some cues contain empty lines, so the number of the next one ends
    it."""
    timings = [(index, timing) for index, line in enumerate(lines) if "-->" in line and (timing := _TIMING.match(line))]
    ends = [index for index, _ in timings[1:]] + [len(lines)]
    previous: Sequence[str] = ()
    is_scrolling = False
    for (index, timing), end in zip(timings, ends, strict=False):
        cue = [line.strip() for line in lines[index + 1 : end]]
        if is_vtt:
            cue = cue[: cue.index("")] if "" in cue else cue
        elif end < len(lines):
            # Removes a line of digits directly before the next timing: it is the number of that cue.
            cue = cue[:-1] if cue and cue[-1].isdigit() else cue
        start_ms = _clock_milliseconds(*timing.groups()[:4])
        end_ms = max(start_ms, _clock_milliseconds(*timing.groups()[4:]))
        cue = [line for line in cue if line]
        is_scrolling = is_scrolling or any(_SCROLLING.search(line) for line in cue)
        texts = [" ".join(unescape(_MARKUP.sub("", line)).replace("\0", "").split()) for line in cue]
        # A scrolling cue repeats lines of the one before it.
        new = [line for line in texts if line not in previous] if is_scrolling else texts
        previous = texts
        voice = next((match[1].strip() for line in cue if (match := _VOICE.search(line))), None)
        yield Segment(start_ms=start_ms, end_ms=end_ms, text=" ".join(new).strip(), speaker=voice)


def _clock_milliseconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> int:
    whole_seconds = (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)
    return whole_seconds * 1000 + int((fraction or "0").ljust(3, "0"))


def _parse_json(value: Any, limits: ImportLimits) -> _TimedTranscript:
    if isinstance(value, list):
        # youtube-transcript-api writes a list for each video; a file has one.
        lines = value[0] if len(value) == 1 and isinstance(value[0], list) else value
        return _collect(_segments(lines, _whisper_segment), limits)
    fields = Fields.require(value, "transcript: expected a JSON object or list")
    if isinstance(fields.get("events"), list):
        return _collect(_segments(fields["events"], _youtube_segment), limits)
    if isinstance(fields.get("transcription"), list):
        about = fields.nested("result") if isinstance(fields.get("result"), dict) else fields
        segments = _segments(fields["transcription"], _whisper_cpp_segment)
        return _collect(segments, limits, about.text("language"))
    if isinstance(fields.get("segments"), list):
        return _collect(_segments(fields["segments"], _whisper_segment), limits, fields.text("language"))
    raise InvalidParams("transcript: expected an object with segments, transcription or events")


def _segments(lines: list[Any], read_line: Callable[[Fields], Segment | None]) -> Iterator[Segment | None]:
    return (read_line(Fields(line)) if isinstance(line, dict) else None for line in lines)


def _collect(segments: Iterable[Segment | None], limits: ImportLimits, language: str = "") -> _TimedTranscript:
    """Stops when so many lines failed that the file is given up."""
    valid: list[Segment] = []
    failures: list[FailedItem] = []
    for number, segment in enumerate(segments, 1):
        if segment is None:
            failures.append(FailedItem(f"line {number} of the transcript", "expected start, end and text"))
            # As `limit_events`, which counts only what is yielded.
            if len(failures) > max(limits.failed_max, len(valid)):
                break
        elif segment.text:
            valid.append(segment)
    return _TimedTranscript(valid, failures, short_title(language))


def _whisper_segment(line: Fields) -> Segment | None:
    """Parses the form of Whisper and similar programs, with `start` and `end` or `duration` in seconds."""
    start, end = _milliseconds(line.get("start"), 1000), _milliseconds(line.get("end"), 1000)
    duration = _milliseconds(line.get("duration"), 1000)
    if end is None and start is not None and duration is not None:
        end = start + duration
    return _segment(start, end, line)


def _whisper_cpp_segment(line: Fields) -> Segment | None:
    """Parses the form of whisper.cpp, with `offsets` in milliseconds."""
    offsets = line.nested("offsets")
    return _segment(_milliseconds(offsets.get("from"), 1), _milliseconds(offsets.get("to"), 1), line)


def _tsv_segment(line: str) -> Segment | None:
    """Parses a line of Whisper's TSV, with times in milliseconds."""
    start, end, text = (*line.split("\t", 2), "", "")[:3]
    if not (start.isdecimal() and end.isdecimal() and len(start) < 12 and len(end) < 12):
        return None
    return _segment(_milliseconds(int(start), 1), _milliseconds(int(end), 1), {"text": text})


def _youtube_segment(line: Fields) -> Segment | None:
    """Parses a json3 event, with words in `segs`; an event without words opens a window or breaks a line."""
    start, duration = (_milliseconds(line.get(name, 0), 1) for name in ("tStartMs", "dDurationMs"))
    words = "".join(part.text("utf8") for part in line.objects("segs"))
    return _segment(start, None if start is None or duration is None else start + duration, {"text": words})


def _segment(start_ms: int | None, end_ms: int | None, line: Mapping[str, Any]) -> Segment | None:
    text, speaker = line.get("text"), line.get("speaker")
    if start_ms is None or not isinstance(text, str):
        return None
    end = start_ms if end_ms is None else max(start_ms, end_ms)
    name = short_title(speaker) or None if isinstance(speaker, str) else None
    return Segment(start_ms=start_ms, end_ms=end, text=" ".join(text.split()), speaker=name)


def _milliseconds(value: Any, factor: int) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value * factor <= _TIME_MAX_MS:
        return None
    return round(value * factor)
