"""The passage of a text that says most about a query: plain, on one line, never longer than asked, with the places to
highlight beside it; and how often the words of the query stand in it."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct

from config.numbers import clamp
from sources.query import Term
from sources.search.term_matchers import Match, needles_of, places, view_of
from sources.text.graphemes import grapheme_boundary_after, grapheme_boundary_before

LENGTH_MAX = 1_000
SCAN_MAX_CHARS = 8_192
ELLIPSIS = "…"
# How far a cut looks for the end of a word; past that it falls between two letters.
_WORD_SEARCH_CHARS = 24
# In a text too long to be read whole, terms are first looked for in so much of it and at so many places.
_PROBE_MAX_CHARS = 1_000_000
_PROBE_MAX_PLACES = 64
# A word of an earlier query tips the balance between passages that are otherwise alike.
_BIAS_WEIGHT = 0.25


class Snippet(Struct, frozen=True, gc=False):
    """`ranges` are the words found, as (start, end) in `text`. In the original, the passage begins at `start` and the
    first of the words at `found_at`."""

    text: str
    ranges: tuple[tuple[int, int], ...]
    start: int
    found_at: int | None


def snippet(text: str, terms: Sequence[Term], length: int = 300, bias: Sequence[Term] = ()) -> Snippet:
    """One snippet; to make several for one query, keep a `Highlighter`."""
    return Highlighter(terms, bias).snippet(text, length)


# -- the passage -------------------------------------------------------------------------------------------------------

# What a line of plain text cannot hold, and what no JSON encoder takes.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")


class Highlighter:
    """The words of one query, prepared once to be found in many texts."""

    def __init__(self, terms: Sequence[Term], bias: Sequence[Term] = (), scan_max_chars: int = SCAN_MAX_CHARS) -> None:
        words = [term.word for term in (*terms, *bias)]
        self._needles = [needle for at, word in enumerate(words) for needle in needles_of(at, word)]
        humps = ["".join(part.capitalize() for part in word.text.split()) for word in words]
        self._humps = [(at, hump) for at, hump in enumerate(humps) if hump.isalnum()]
        self._count = len(terms)
        self._weights = [1.0] * len(terms) + [_BIAS_WEIGHT] * len(bias)
        self._scan_max_chars = scan_max_chars

    def count(self, text: str) -> tuple[int, ...]:
        """How often each term occurs in a text: the tf of scoring."""
        counts = [0] * len(self._weights)
        for term, _ in {(term, start) for start, _, term in self._find(text)}:
            counts[term] += 1
        return tuple(counts[: self._count])

    def snippet(self, text: str, length: int = 300) -> Snippet:
        """At most `length` characters (held to 1..1000), ellipses included, around the densest match."""
        length = clamp(length, 1, LENGTH_MAX)
        region = self._region(text)
        matches = self._matches(region.line)
        if not matches and region.start:
            region = _Region(text, 0, self._scan_max_chars)
        first, last = region.window(self._densest(matches, length * 3 // 4), length)
        if not region.is_plain(first, last):
            region.make_plain()
            matches = self._matches(region.line)
            first, last = region.window(self._densest(matches, length * 3 // 4), length)
        if self._count < len(self._weights):
            matches = [match for match in matches if match[2] < self._count]
        return region.show(first, last, matches)

    def _region(self, text: str) -> "_Region":
        if len(text) <= self._scan_max_chars:
            return _Region(text, 0, self._scan_max_chars)
        return _Region(text, grapheme_boundary_before(text, self._promising(text)), self._scan_max_chars)

    def _matches(self, text: str) -> list[Match]:
        found = self._find(text) or self._find_humps(text)
        found.sort()
        return found

    def _find(self, text: str) -> list[Match]:
        view = view_of(text)
        if len(self._needles) == 1:
            return self._needles[0].find(view)
        return [match for needle in self._needles for match in needle.find(view)]

    def _find_humps(self, text: str) -> list[Match]:
        """The terms as parts of camelCase words, which the index knows and the fold does not."""
        return [
            (at, at + len(hump), term)
            for term, hump in self._humps
            for at in places(text, hump)
            if text[at - 1 : at].islower()
        ]

    def _promising(self, text: str) -> int:
        """Where to begin reading a text too long to be read whole: before most of the terms' first appearances."""
        firsts = sorted({at for needle in self._needles if (at := _first_place(text, needle.probes)) >= 0})
        reach = self._scan_max_chars // 2
        held = [sum(at <= place < at + reach for place in firsts) for at in firsts]
        return max(0, firsts[held.index(max(held))] - reach // 2) if firsts else 0

    def _densest(self, matches: Sequence[Match], room: int) -> tuple[int, int]:
        """The stretch of at most `room` characters with the most different terms, then the most matches, then first."""
        if len(matches) == 1:
            return matches[0][:2]
        best, span = (0.0, 0), (0, 0)
        counts = [0] * len(self._weights)
        weight, left = 0.0, 0
        for right, (_, end, term) in enumerate(matches):
            weight += 0 if counts[term] else self._weights[term]
            counts[term] += 1
            while left < right and end - matches[left][0] > room:
                gone = matches[left][2]
                counts[gone] -= 1
                weight -= 0 if counts[gone] else self._weights[gone]
                left += 1
            if (weight, right - left) > best:
                best, span = (weight, right - left), (matches[left][0], end)
        return span


def _first_place(text: str, probes: Iterable[str]) -> int:
    """The first place where one of the probes stands at the beginning of a word, or -1; not every one is tried."""
    found = -1
    for probe in probes:
        for at in islice(places(text, probe, _PROBE_MAX_CHARS), _PROBE_MAX_PLACES):
            if at == 0 or not (text[at - 1].isalnum() and text[at].isascii()):
                found = at if found < 0 else min(found, at)
                break
    return found


class _Region:
    """The part of a text that is read, as one line, and what is shown of it."""

    def __init__(self, text: str, start: int, size: int) -> None:
        self.start = start
        self._source = text[start : start + size] if len(text) > size else text
        self._goes_on = start + len(self._source) < len(text)
        # Nearly every text is good lines; only what is shown is looked at whether it is.
        self._lines = self._source.split("\n")
        self.line = " ".join([line for line in map(str.strip, self._lines) if line])

    def is_plain(self, first: int, last: int) -> bool:
        """Whether white space in a stretch of the line is single spaces between words; others are not printable."""
        shown = self.line[first:last]
        return not self._lines or (shown.isprintable() and "  " not in shown and shown == shown.strip())

    def make_plain(self) -> None:
        self._lines = []
        self._source = _CONTROL.sub(" ", self._source)
        self.line = " ".join(self._source.split())

    def window(self, span: tuple[int, int], length: int) -> tuple[int, int]:
        """The stretch of the line to show around a span, cut between words where words end nearby."""
        line, size = self.line, len(self.line)
        if size <= length and not self.start and not self._goes_on:
            return 0, size
        start, end = span
        room = max(0, length - 2)  # an ellipsis on both sides
        margin = max(0, room - end + start) // 2
        first = clamp(start - margin, 0, size - room)
        if first:
            first = _word_start(line, first, start)
        elif not self.start:
            room = length - 1
        last = first + room
        return first, size if last >= size else _word_end(line, last, min(end, last))

    def show(self, first: int, last: int, matches: Iterable[Match]) -> Snippet:
        lead = ELLIPSIS if first or self.start else ""
        trail = ELLIPSIS if last < len(self.line) or self._goes_on else ""
        text = f"{lead}{self.line[first:last]}{trail}" if first < last else lead or trail
        ranges = _merge(matches, first, last)
        shift = len(lead) - first
        return Snippet(
            text,
            tuple([(start + shift, end + shift) for start, end in ranges]),
            self._origin(first),
            self._origin(ranges[0][0]) if ranges else None,
        )

    def _origin(self, offset: int) -> int:
        """Where in the text the character at `offset` of the line stands: in as many words, with as many letters."""
        if len(self.line) == len(self._source) or not self.line:
            return self.start + offset
        if self._lines:
            return self.start + _origin_in(self._lines, offset)
        rest = self._source.split(None, self.line.count(" ", 0, offset))[-1]
        letters = offset - self.line.rfind(" ", 0, offset) - 1
        return self.start + len(self._source) - len(rest) + letters


def _origin_in(lines: Sequence[str], offset: int) -> int:
    """Where the character at `offset` of the joined lines stands in them as they were."""
    start = 0
    for line in lines:
        stripped = line.strip()
        if stripped and offset <= len(stripped):
            return start + line.find(stripped) + offset
        if stripped:
            offset -= len(stripped) + 1
        start += len(line) + 1
    return start - 1


def _word_start(line: str, at: int, latest: int) -> int:
    if line[at - 1] == " ":
        return at
    space = line.find(" ", at, min(at + _WORD_SEARCH_CHARS, latest))
    return space + 1 if space >= 0 else grapheme_boundary_after(line, at)


def _word_end(line: str, at: int, earliest: int) -> int:
    if line[at] == " ":
        return at
    space = line.rfind(" ", max(at - _WORD_SEARCH_CHARS, earliest), at)
    return space if space >= 0 else grapheme_boundary_before(line, at)


def _merge(matches: Iterable[Match], first: int, last: int) -> list[tuple[int, int]]:
    """What of the matches lies between two places, those that touch made one; pairs of an unspaced script overlap."""
    merged: list[tuple[int, int]] = []
    for found_from, found_to, _ in matches:
        start, end = max(found_from, first), min(found_to, last)
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
