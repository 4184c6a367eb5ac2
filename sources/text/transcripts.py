"""Timed segments as text, SubRip, WebVTT or JSON, as many as fit. Pure, and refuses nothing: any text is made safe for
its format."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from sources.reading.cursors import START, Position
from sources.records import Segment
from sources.text.boundaries import word_border
from sources.text.tokens import json_text

Format = Literal["text", "srt", "vtt", "json"]
Write = Callable[[Segment, int], Any]
_VTT_HEAD = "WEBVTT\n\n"
_SEPARATORS = {"text": "\n", "srt": "\n\n", "vtt": "\n\n", "json": ","}


class Transcript(Struct, frozen=True):
    """A page of a transcript; `next` is where it goes on, if it does."""

    content: str | dict[str, Any]
    next: Position | None


def render(
    segments: Sequence[Segment], form: Format, *, timestamps: bool, room: int, start: Position = START
) -> Transcript:
    """The segments from `start` on, in at most `room` characters. Only a segment larger than the room is cut."""
    write = _writer(form, timestamps=timestamps)
    parts: list[Any] = []
    left = room = room - len(_assemble([], form) if form != "json" else '{"segments":[]}')
    for index in range(start.index, len(segments)):
        skip = start.offset if index == start.index else 0
        segment = replace(segments[index], text=segments[index].text[skip:])
        part = write(segment, index + 1)
        left -= _size(part) + len(_SEPARATORS[form])
        if left >= 0:
            parts.append(part)
            continue
        if parts:
            return Transcript(_assemble(parts, form), Position(index, 0))
        kept = _keep(segment, index + 1, write, room - len(_SEPARATORS[form]))
        cut = write(replace(segment, text=segment.text[:kept]), index + 1)
        return Transcript(_assemble([cut], form), Position(index, skip + kept))
    return Transcript(_assemble(parts, form), None)


def _writer(form: Format, *, timestamps: bool) -> Write:
    match form:
        case "text":
            return lambda segment, number: _as_text(segment, timestamps=timestamps)
        case "srt":
            return _as_srt
        case "vtt":
            return lambda segment, number: _as_vtt(segment)
        case "json":
            return lambda segment, number: _as_object(segment, timestamps=timestamps)


def _assemble(parts: Sequence[Any], form: Format) -> str | dict[str, Any]:
    if form == "json":
        return {"segments": list(parts)}
    text = _SEPARATORS[form].join(parts)
    return _VTT_HEAD + text if form == "vtt" else text


def _size(part: Any) -> int:
    return len(part) if isinstance(part, str) else len(json_text(part))


def _keep(segment: Segment, number: int, write: Write, room: int) -> int:
    """How much of a segment's text to keep. Escapes make a text longer by a factor, so the room is found by halves;
    one character is kept in any case, for a reader that pages must get on."""
    kept = len(segment.text)
    while kept > 1 and _size(write(replace(segment, text=segment.text[:kept]), number)) > room:
        kept = word_border(segment.text, kept // 2) or 1
    return kept


def _as_text(segment: Segment, *, timestamps: bool) -> str:
    """One line, `[00:01:05] Ada: hello`: the time where wanted, the speaker where known."""
    time = f"[{_clock(segment.start_ms)}] " if timestamps else ""
    return f"{time}{_spoken(segment)}{_one_line(segment.text)}"


def _as_srt(segment: Segment, number: int) -> str:
    """A SubRip cue; numbers start at 1 and go on over pages. SubRip has no escape, so an arrow is defused."""
    body = _cue_lines(_spoken(segment) + segment.text).replace("-->", "->")
    return f"{number}\n{_stamp(segment.start_ms, ',')} --> {_stamp(segment.end_ms, ',')}\n{body}"


def _as_vtt(segment: Segment) -> str:
    """A WebVTT cue (W3C WebVTT section 4): the speaker in a voice span, and what would be markup escaped."""
    voice = f"<v {_escape(_one_line(segment.speaker))}>" if segment.speaker else ""
    body = voice + _escape(_cue_lines(segment.text))
    return f"{_stamp(segment.start_ms, '.')} --> {_stamp(segment.end_ms, '.')}\n{body}"


def _as_object(segment: Segment, *, timestamps: bool) -> dict[str, Any]:
    times = {"start_ms": segment.start_ms, "end_ms": segment.end_ms} if timestamps else {}
    speaker = {"speaker": segment.speaker} if segment.speaker else {}
    return {**times, **speaker, "text": segment.text}


def _stamp(milliseconds: int, point: str) -> str:
    return f"{_clock(milliseconds)}{point}{max(0, milliseconds) % 1000:03d}"


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(max(0, milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def _spoken(segment: Segment) -> str:
    return f"{_one_line(segment.speaker)}: " if segment.speaker else ""


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cue_lines(text: str) -> str:
    """An empty line would end the cue, so lines that hold nothing go."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
