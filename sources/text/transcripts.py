"""Renders timed segments as text, SubRip, WebVTT or JSON, one page at a time. Any text is made safe for its format."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from sources.reading.cursors import START, Position
from sources.records import Segment
from sources.text.segmentation import word_boundary_before
from sources.text.token_estimates import json_text

TranscriptFormat = Literal["text", "srt", "vtt", "json"]
_VTT_HEADER = "WEBVTT\n\n"
_SEPARATORS = {"text": "\n", "srt": "\n\n", "vtt": "\n\n", "json": ","}


class TranscriptPage(Struct, frozen=True):
    """One page of a transcript. `next` is the position of the next page, or None on the last page."""

    content: str | dict[str, Any]
    next: Position | None


def render_transcript(
    segments: Sequence[Segment], form: TranscriptFormat, *, timestamps: bool, room: int, start: Position = START
) -> TranscriptPage:
    """Renders the segments from `start` on in at most `room` characters. Only a segment larger than that is split."""
    renderer = _Renderer(form, timestamps)
    parts: list[Any] = []
    left = room = room - _size(renderer.join([]))
    for index in range(start.index, len(segments)):
        skip = start.offset if index == start.index else 0
        segment = structs.replace(segments[index], text=segments[index].text[skip:])
        part = renderer.render(segment, index + 1)
        left -= _size(part) + len(_SEPARATORS[form])
        if left >= 0:
            parts.append(part)
            continue
        if parts:
            return TranscriptPage(renderer.join(parts), Position(index, 0))
        chars = renderer.count_fitting(segment, index + 1, room - len(_SEPARATORS[form]))
        truncated = renderer.render(structs.replace(segment, text=segment.text[:chars]), index + 1)
        return TranscriptPage(renderer.join([truncated]), Position(index, skip + chars))
    return TranscriptPage(renderer.join(parts), None)


class _Renderer(Struct, frozen=True):
    form: TranscriptFormat
    timestamps: bool

    def render(self, segment: Segment, number: int) -> Any:
        """Renders the segment with this number, counted from 1."""
        match self.form:
            case "text":
                # One line such as `[00:01:05] Ada: hello`, with the speaker if known.
                time = f"[{_clock(segment.start_ms)}] " if self.timestamps else ""
                return f"{time}{_speaker_prefix(segment)}{_one_line(segment.text)}"
            case "srt":
                # A SubRip cue. SubRip has no escapes, so an arrow in the text is shortened.
                body = _cue_lines(_speaker_prefix(segment) + segment.text).replace("-->", "->")
                return f"{number}\n{_timestamp(segment.start_ms, ',')} --> {_timestamp(segment.end_ms, ',')}\n{body}"
            case "vtt":
                # A WebVTT cue (W3C WebVTT section 4) with the speaker in a voice span and markup escaped.
                voice = f"<v {_escape(_one_line(segment.speaker))}>" if segment.speaker else ""
                body = voice + _escape(_cue_lines(segment.text))
                return f"{_timestamp(segment.start_ms, '.')} --> {_timestamp(segment.end_ms, '.')}\n{body}"
            case "json":
                times = {"start_ms": segment.start_ms, "end_ms": segment.end_ms} if self.timestamps else {}
                speaker = {"speaker": segment.speaker} if segment.speaker else {}
                return {**times, **speaker, "text": segment.text}

    def join(self, parts: Sequence[Any]) -> str | dict[str, Any]:
        if self.form == "json":
            return {"segments": list(parts)}
        text = _SEPARATORS[self.form].join(parts)
        return _VTT_HEADER + text if self.form == "vtt" else text

    def count_fitting(self, segment: Segment, number: int, room: int) -> int:
        """Returns how much of a segment's text fits into `room`, found by halving, since escapes lengthen the text.

        Returns at least one character, so that every page makes progress.
        """
        chars = len(segment.text)
        while chars > 1 and _size(self.render(structs.replace(segment, text=segment.text[:chars]), number)) > room:
            chars = word_boundary_before(segment.text, chars // 2) or 1
        return chars


def _size(part: Any) -> int:
    return len(part) if isinstance(part, str) else len(json_text(part))


def _timestamp(milliseconds: int, separator: str) -> str:
    return f"{_clock(milliseconds)}{separator}{max(0, milliseconds) % 1000:03d}"


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(max(0, milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def _speaker_prefix(segment: Segment) -> str:
    return f"{_one_line(segment.speaker)}: " if segment.speaker else ""


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cue_lines(text: str) -> str:
    """Removes blank lines, because they would end the cue."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# -- cues --------------------------------------------------------------------------------------------------------------
# Groups timed transcript lines into passages short enough that a passage's start time tells when its words are spoken.
#
# A line is never split.

# A hit shows the time at which its passage starts; a listener who jumps there should hear the words soon.
_GROUP_MAX_MS = 30_000


class CueGroup(Struct, frozen=True):
    """Consecutive lines, and their offset in the whole text, which is all lines joined by newlines."""

    lines: Sequence[Segment]
    start: int

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def start_ms(self) -> int:
        return self.lines[0].start_ms

    @property
    def end_ms(self) -> int:
        return max(self.start_ms, *(line.end_ms for line in self.lines))

    @property
    def speaker(self) -> str | None:
        """The speaker, if all lines have the same one."""
        speakers = {line.speaker for line in self.lines}
        return speakers.pop() if len(speakers) == 1 else None


def group_cues(lines: Sequence[Segment], size_chars: int) -> Iterator[CueGroup]:
    """Yields groups of at most `size_chars` and half a minute. A line over these limits is a group of its own."""
    group: list[Segment] = []
    start = chars = 0
    for line in lines:
        if group:
            # In both directions, because some files do not list their lines in chronological order.
            distance_ms = max(line.end_ms - group[0].start_ms, group[0].start_ms - line.start_ms)
            if chars + len(line.text) > size_chars or distance_ms > _GROUP_MAX_MS:
                yield CueGroup(group, start)
                group, start, chars = [], start + chars, 0
        group.append(line)
        chars += len(line.text) + 1
    if group:
        yield CueGroup(group, start)
