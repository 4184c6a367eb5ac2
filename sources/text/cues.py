"""Groups timed transcript lines into passages short enough that a passage's start time tells when its words are spoken.

A line is never split.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sources.records import Segment

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
        if group and (chars + len(line.text) > size_chars or _is_distant(group[0], line)):
            yield CueGroup(group, start)
            group, start, chars = [], start + chars, 0
        group.append(line)
        chars += len(line.text) + 1
    if group:
        yield CueGroup(group, start)


def _is_distant(first: Segment, line: Segment) -> bool:
    """Compares in both directions, because some files do not list their lines in chronological order."""
    return line.end_ms - first.start_ms > _GROUP_MAX_MS or first.start_ms - line.start_ms > _GROUP_MAX_MS
