"""Timed lines, gathered into passages short enough that their beginning says when their words are spoken. A line is
never cut here."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sources.records import Segment

# A hit shows the time at which its passage begins; who goes there has to hear the words soon.
_SPAN_MAX_MS = 30_000


class CueRun(Struct, frozen=True):
    """Lines that follow one another, and where they begin in the text, which is all lines one below the other."""

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
        """If it is one and the same."""
        speakers = {line.speaker for line in self.lines}
        return speakers.pop() if len(speakers) == 1 else None


def gather(lines: Sequence[Segment], size_chars: int) -> Iterator[CueRun]:
    """Runs of at most `size_chars` and half a minute; a line that is more than that is a run of its own."""
    run: list[Segment] = []
    start = chars = 0
    for line in lines:
        if run and (chars + len(line.text) > size_chars or _is_far(run[0], line)):
            yield CueRun(run, start)
            run, start, chars = [], start + chars, 0
        run.append(line)
        chars += len(line.text) + 1
    if run:
        yield CueRun(run, start)


def _is_far(first: Segment, line: Segment) -> bool:
    """Whichever way: the lines of some files are not in the order of their times."""
    return line.end_ms - first.start_ms > _SPAN_MAX_MS or first.start_ms - line.start_ms > _SPAN_MAX_MS
