"""Subtitles and transcripts: SubRip, WebVTT, Whisper's JSON and YouTube's json3, as media whose every line has a time.

Lines are gathered into short chunks, so that a hit is near the second at which its words are spoken.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import MediaDraft
from sources.importers.engine.files import (
    changed_at,
    is_text,
    key_of,
    plain_name,
    read_json,
    read_text,
    short_title,
    size_of,
)
from sources.importers.engine.imported_items import FailedItem, ImportedMedia, ImportEvent, ReadPosition, stable_uuid
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.records import MediaChunk, Segment
from sources.text.cues import group_cues

# About half a minute of speech.
_CHUNK_CHARS = 400
# Nothing is longer than a year; a number beyond it is no time.
_TIME_MAX_MS = 366 * 86_400_000
# A day of speech has some ten thousand.
_LINES_MAX = 1_000_000
_CLOCK = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})(?:[.,](\d{1,3}))?"
_TIMING = re.compile(rf"[ \t]*{_CLOCK}[ \t]*-->[ \t]*{_CLOCK}(?:[ \t]|$)")
_TIMING_IN_HEAD = re.compile(rb"^[ \t]*[\d:.,]{5,16}[ \t]*-->[ \t]*[\d:.,]{5,16}", re.MULTILINE)
_VOICE = re.compile(r"<v(?:\.[^\s>]{0,80})?[ \t]+([^<>\n]{1,200})>")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>|<\d[\d:.]{0,20}>|\{\\[^{}\n]{0,200}\}")
# Captions that YouTube makes by itself: each word with its time, and each line shown twice as it scrolls up.
_SCROLLING = re.compile(r"<\d\d:\d\d:\d\d\.\d{3}><c>")
_LANGUAGE = re.compile(r"(.+)\.([a-z]{2,3}(?:-[A-Za-z]{2,4})?)")


class _Transcript(Struct, frozen=True):
    segments: Sequence[Segment]
    broken: Sequence[FailedItem] = ()
    language: str = ""


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder or not is_text(probe.head):
        return 0.0
    head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"WEBVTT"):
        return 1.0
    if head.startswith((b"{", b"[")):
        return _looks_like_json(head)
    return 0.9 if _TIMING_IN_HEAD.search(head[:4096].replace(b"\r", b"\n")) else 0.0


def _looks_like_json(head: bytes) -> float:
    if b'"tStartMs"' in head and b'"events"' in head:
        return 1.0
    if b'"transcription"' in head and b'"offsets"' in head:
        return 0.9
    has_times = all(name in head for name in (b'"start"', b'"end"', b'"text"'))
    return 0.7 if has_times and (b'"segments"' in head or head.startswith(b"[")) else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    found = _transcript(path, limits)
    yield from found.broken
    if not found.segments:
        raise InvalidParams(f"{plain_name(path.name)}: got no timed line, expected subtitles or a transcript")
    yield ImportedMedia(_media(path, found, limits))
    progress(size_of(path))


def _transcript(path: Path, limits: ImportLimits) -> _Transcript:
    with path.open("rb") as file:
        head = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith((b"{", b"[")):
        return _of_json(read_json(path, limits))
    text = read_text(path, limits)
    if text.count("\n") > _LINES_MAX:
        raise InvalidParams(f"the subtitles: got more than {_LINES_MAX} lines, expected fewer")
    is_vtt = text.lstrip().startswith("WEBVTT")
    segments = [segment for segment in _segments(_cues(text.split("\n"), is_vtt=is_vtt)) if segment.text]
    header = re.search(r"^Language: ([\w-]{2,20})$", text[:1000], re.MULTILINE) if is_vtt else None
    return _Transcript(segments, language=header[1] if header else "")


def _media(path: Path, found: _Transcript, limits: ImportLimits) -> MediaDraft:
    stem = plain_name(path.stem)
    named = _LANGUAGE.fullmatch(stem)
    language = found.language or (named[2] if named else "")
    key = key_of(path, limits)
    return MediaDraft(
        title=short_title(named[1] if named else stem),
        media_type="transcript",
        segments=found.segments,
        chunks=list(_chunks(found.segments, key)),
        metadata={"file": plain_name(path.name), **({"language": language} if language else {})},
        uuid=stable_uuid("subtitles", "media", key),
        created_at=changed_at(path, limits),
    )


def _chunks(segments: Sequence[Segment], key: str) -> Iterator[MediaChunk]:
    for index, run in enumerate(group_cues(segments, _CHUNK_CHARS)):
        text = run.text
        yield MediaChunk(
            index=index,
            uuid=stable_uuid("subtitles", "chunks", f"{key}/{index}"),
            text=text,
            start=run.start,
            end=run.start + len(text),
            start_ms=run.start_ms,
            end_ms=run.end_ms,
            speaker=run.speaker,
        )


# -- SubRip and WebVTT -------------------------------------------------------------------------------------------------


class _Cue(Struct, frozen=True):
    start_ms: int
    end_ms: int
    lines: Sequence[str]


def _cues(lines: Sequence[str], *, is_vtt: bool) -> Iterator[_Cue]:
    """In WebVTT a cue ends with an empty line; in SubRip with the number of the next, as some have empty lines."""
    timed = [(index, found) for index, line in enumerate(lines) if (found := _TIMING.match(line))]
    ends = [index for index, _ in timed[1:]] + [len(lines)]
    for (index, found), end in zip(timed, ends, strict=False):
        text = [line.strip() for line in lines[index + 1 : end]]
        kept = text[: text.index("")] if is_vtt and "" in text else text
        if not is_vtt and end < len(lines):
            kept = _without_number(text)
        start_ms = _milliseconds(*found.groups()[:4])
        yield _Cue(start_ms, max(start_ms, _milliseconds(*found.groups()[4:])), [line for line in kept if line])


def _without_number(lines: list[str]) -> list[str]:
    """A line of digits right before the next timing is the number of that cue."""
    return lines[:-1] if lines and lines[-1].isdigit() else lines


def _milliseconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> int:
    whole = (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int((fraction or "0").ljust(3, "0"))


def _segments(cues: Iterable[_Cue]) -> Iterator[Segment]:
    shown: Sequence[str] = ()
    is_scrolling = False
    for cue in cues:
        is_scrolling = is_scrolling or any(_SCROLLING.search(line) for line in cue.lines)
        lines = [_plain(line) for line in cue.lines]
        new = [line for line in lines if line not in shown] if is_scrolling else lines
        shown = lines
        voice = next((found[1].strip() for line in cue.lines if (found := _VOICE.search(line))), None)
        yield Segment(start_ms=cue.start_ms, end_ms=cue.end_ms, text=" ".join(new).strip(), speaker=voice)


def _plain(line: str) -> str:
    return " ".join(unescape(_MARKUP.sub("", line)).replace("\0", "").split())


# -- JSON --------------------------------------------------------------------------------------------------------------


def _of_json(value: Any) -> _Transcript:
    if isinstance(value, list):
        return _whisper(value, "")
    if not isinstance(value, Mapping):
        raise InvalidParams("the transcript: got a single value, expected an object with lines")
    if isinstance(value.get("events"), list):
        return _gathered(map(_of_event, value["events"]))
    language = value.get("language")
    if isinstance(value.get("transcription"), list):
        result = value.get("result")
        spoken = result.get("language") if isinstance(result, Mapping) else language
        return replace(_gathered(map(_of_offsets, value["transcription"])), language=_short(spoken))
    if isinstance(value.get("segments"), list):
        return _whisper(value["segments"], _short(language))
    raise InvalidParams("the transcript: got an object without segments, transcription or events, expected one of them")


def _whisper(values: list[Any], language: str) -> _Transcript:
    return replace(_gathered(map(_of_seconds, values)), language=language)


def _gathered(found: Iterable[Segment | None]) -> _Transcript:
    segments, broken = [], []
    for number, segment in enumerate(found, 1):
        if segment is None:
            broken.append(FailedItem(f"line {number} of the transcript", "got no start, end and text, expected them"))
        elif segment.text:
            segments.append(segment)
    return _Transcript(segments, broken)


def _of_seconds(value: Any) -> Segment | None:
    """Whisper, and what is made like it: `start` and `end` in seconds."""
    if not isinstance(value, Mapping):
        return None
    return _segment(_scaled(value.get("start"), 1000), _scaled(value.get("end"), 1000), value)


def _of_offsets(value: Any) -> Segment | None:
    """whisper.cpp: `offsets` in milliseconds."""
    if not isinstance(value, Mapping) or not isinstance(offsets := value.get("offsets"), Mapping):
        return None
    return _segment(_scaled(offsets.get("from"), 1), _scaled(offsets.get("to"), 1), value)


def _of_event(value: Any) -> Segment | None:
    """json3: words in `segs`; an event without any opens a window or breaks a line."""
    if not isinstance(value, Mapping):
        return None
    parts = value.get("segs")
    words = (part.get("utf8") for part in parts if isinstance(part, Mapping)) if isinstance(parts, list) else ()
    start = _scaled(value.get("tStartMs", 0), 1)
    lasts = _scaled(value.get("dDurationMs", 0), 1)
    said = {"text": "".join(word for word in words if isinstance(word, str))}
    return _segment(start, None if start is None or lasts is None else start + lasts, said)


def _segment(start_ms: int | None, end_ms: int | None, value: Mapping[str, Any]) -> Segment | None:
    text, speaker = value.get("text"), value.get("speaker")
    if start_ms is None or not isinstance(text, str):
        return None
    end = start_ms if end_ms is None else max(start_ms, end_ms)
    return Segment(start_ms=start_ms, end_ms=end, text=" ".join(text.split()), speaker=_short(speaker) or None)


def _scaled(value: Any, factor: int) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value * factor <= _TIME_MAX_MS:
        return None
    return round(value * factor)


def _short(value: Any) -> str:
    return short_title(value) if isinstance(value, str) else ""


IMPORTER = Importer(
    name="subtitles",
    title="Subtitles and transcripts (srt, vtt, Whisper JSON, YouTube json3)",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".srt", ".vtt", ".json", ".json3"),
)
