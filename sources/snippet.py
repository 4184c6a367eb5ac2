"""The passage of a text that says most about a query: plain, on one line, never longer than asked, with the places to
highlight beside it. Finding the words of a query in a text is done here for every script, and so is counting them."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from msgspec import Struct

from sources.chunking import cut_after, cut_before
from sources.query import Phrase, Prefix, Term, Word
from sources.segment import FOLDING, RUN, fold, fold_narrow, is_even, is_level, is_narrow, stem

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


# -- a text prepared for finding ---------------------------------------------------------------------------------------


class _View(Protocol):
    """A text with its letters folded. Offsets are the fold's; `origin` turns them into the text's."""

    text: str
    folded: str

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        """The words that begin so."""
        ...

    def word_after(self, offset: int) -> tuple[int, int]:
        """The word that follows one ending at `offset`; an empty one at the end."""
        ...

    def origin(self, offset: int) -> int:
        """Where in the text the folded character at `offset` comes from."""
        ...


class _NarrowView:
    """A text without wide letters: folded by a byte table, which puts spaces between words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold_narrow(text)
        self._spaced = f" {self.folded} "

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        spaced, needle = self._spaced, f" {beginning}"
        at = spaced.find(needle)
        while at >= 0:
            end = spaced.find(" ", at + 1)
            yield at, end - 1
            at = spaced.find(needle, end)

    def stems(self, beginning: str, root: str, term: int) -> list[tuple[int, int, int]]:
        """The words with this stem: what nearly every query looks for in nearly every text."""
        spaced, needle = self._spaced, f" {beginning}"
        found = []
        at = spaced.find(needle)
        while at >= 0:
            end = spaced.find(" ", at + 1)
            word = spaced[at + 1 : end]
            if word == root or stem(word) == root:
                found.append((at, end - 1, term))
            at = spaced.find(needle, end)
        return found

    def word_after(self, offset: int) -> tuple[int, int]:
        return _word_after(_SPACED_WORD, self.folded, offset)

    def origin(self, offset: int) -> int:
        return offset


class _LevelView:
    """A text whose fold is its lower case; its words end where something else than a letter or digit stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text.lower()

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        return _bordered(_WORD, self.folded, beginning)

    def word_after(self, offset: int) -> tuple[int, int]:
        return _word_after(_WORD, self.folded, offset)

    def origin(self, offset: int) -> int:
        return offset


class _WideView:
    """Any other text, folded letter by letter; a letter may have become two (ß) or none (a vowel point)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text.translate(FOLDING)
        self._alignment = None if is_even(text) else _Alignment(text)

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        return _bordered(_SPACED_WORD, self.folded, beginning)

    def word_after(self, offset: int) -> tuple[int, int]:
        return _word_after(_SPACED_WORD, self.folded, offset)

    def origin(self, offset: int) -> int:
        return self._alignment.origin(offset) if self._alignment else offset


class _Alignment:
    """Offsets of a fold that is longer or shorter than its text."""

    def __init__(self, text: str) -> None:
        widths = {letter: len(FOLDING[ord(letter)]) for letter in set(text)}
        uneven = sorted((at, width) for letter, width in widths.items() if width != 1 for at in _places(text, letter))
        self._folded_from: list[int] = []
        self._shifts: list[int] = []
        shift = 0
        for at, width in uneven:
            shift += width - 1
            self._folded_from.append(at + 1 + shift)
            self._shifts.append(shift)

    def origin(self, offset: int) -> int:
        known = bisect_right(self._folded_from, offset)
        return offset - self._shifts[known - 1] if known else offset


# Letters of unspaced scripts end a word of any other.
_UNSPACED = RUN.pattern[1:-2]
_WORD = re.compile(rf"[^\W_{_UNSPACED}]*")
_SPACED_WORD = re.compile(f"[^ {_UNSPACED}]*")


def _view(text: str) -> _View:
    if text.isascii() or is_narrow(text):
        return _NarrowView(text)
    return _LevelView(text) if is_level(text) else _WideView(text)


def _bordered(word: re.Pattern[str], folded: str, beginning: str) -> Iterator[tuple[int, int]]:
    """The words of a fold that begin so, by the pattern of what a word is made of."""
    at = folded.find(beginning)
    while at >= 0:
        end = _end(word, folded, at)
        if at == 0 or _end(word, folded, at - 1) == at - 1:
            yield at, end
        at = folded.find(beginning, max(end, at + 1))


def _word_after(word: re.Pattern[str], folded: str, offset: int) -> tuple[int, int]:
    for start in range(offset, len(folded)):
        if (end := _end(word, folded, start)) > start:
            return start, end
    return len(folded), len(folded)


def _end(word: re.Pattern[str], folded: str, start: int) -> int:
    match = word.match(folded, start)
    return match.end() if match else start


def _places(text: str, part: str, end: int | None = None) -> Iterator[int]:
    at = text.find(part, 0, end)
    while at >= 0:
        yield at
        at = text.find(part, at + 1, end)


# -- what is looked for ------------------------------------------------------------------------------------------------


# Where a term was found in a text: start, end, term. A bare tuple: a long text has hundreds, and they are sorted.
_Match = tuple[int, int, int]


class _Needle(Protocol):
    @property
    def probes(self) -> tuple[str, ...]:
        """Letters of which some stand, as written, wherever this is found; they tell where a long text is worth
        reading."""
        ...

    def find(self, view: _View) -> list[_Match]: ...


class _Words:
    """One word or several in a row, each by its stem; the last may be only the beginning of one."""

    def __init__(self, term: int, parts: Sequence[str], *, is_open: bool) -> None:
        self._term = term
        self._stems = [stem(part) for part in (parts[:-1] if is_open else parts)]
        self._open = parts[-1] if is_open else None
        self._is_plain = len(self._stems) == 1 and not is_open
        self._beginning = _first_letters(self._stems[0]) if self._stems else parts[-1]
        self.probes = _cases(self._beginning)

    def find(self, view: _View) -> list[_Match]:
        if self._is_plain and isinstance(view, _NarrowView):
            return view.stems(self._beginning, self._stems[0], self._term)
        found: list[_Match] = []
        for start, end in view.words(self._beginning):
            last = self._row_end(view, start, end)
            if last:
                found.append((view.origin(start), view.origin(last), self._term))
        return found

    def _row_end(self, view: _View, start: int, end: int) -> int:
        """Where the row ends that begins with this word, or 0 when it is another."""
        for at, wanted in enumerate(self._stems):
            if at:
                start, end = view.word_after(end)
            if stem(view.folded[start:end]) != wanted:
                return 0
        if self._open is None or not self._stems:
            return end
        start, end = view.word_after(end)
        return end if view.folded.startswith(self._open, start) else 0


class _Letters:
    """Letters of unspaced scripts, wherever they stand; what else is in the row follows at whatever distance."""

    def __init__(self, term: int, parts: Sequence[str]) -> None:
        self._term = term
        self._pattern = re.compile(r"[\W_]*".join(map(re.escape, parts)))
        self.probes = _cases(parts[0])

    def find(self, view: _View) -> list[_Match]:
        matches = self._pattern.finditer(view.folded)
        return [(view.origin(match.start()), view.origin(match.end()), self._term) for match in matches]


class _Signs:
    """What folding takes away, looked for in the text itself: C++, .NET, emoji."""

    def __init__(self, term: int, written: str) -> None:
        self._term = term
        self.probes = _cases(written)

    def find(self, view: _View) -> list[_Match]:
        return [(at, at + len(form), self._term) for form in self.probes for at in _places(view.text, form)]


_PARTS = re.compile(f"{RUN.pattern}|[^ {_UNSPACED}]+")


def _widest(word: Word) -> list[Phrase | Prefix]:
    """The alternatives of a word without those that a shorter beginning finds anyway."""
    stumps = [found for found in word.alternatives if isinstance(found, Prefix) and len(found.tokens) == 1]
    return [
        found
        for found in word.alternatives
        if len(found.tokens) != 1
        or not any(found.tokens[0].startswith(stump.tokens[0]) for stump in stumps if stump != found)
    ]


def _needle(term: int, wanted: Phrase | Prefix) -> _Needle:
    parts = _PARTS.findall(fold(wanted.text))
    if any(RUN.match(part) for part in parts):
        return _Letters(term, parts)
    if set(wanted.tokens) != set(parts):
        return _Signs(term, wanted.text)
    return _Words(term, parts, is_open=isinstance(wanted, Prefix))


def _first_letters(root: str) -> str:
    """The letters that all words with this stem begin with. Stemming may have changed the last one (happy: happi,
    shaping: shape, visibility: visibl) and no other."""
    return root[:-1] if len(root) > 2 and root.endswith(("i", "e", "bl")) else root


def _cases(written: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((written, written.lower(), written.capitalize(), written.upper())))


# -- the passage -------------------------------------------------------------------------------------------------------

# What a line of plain text cannot hold, and what no JSON encoder takes.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")


class Highlighter:
    """The words of one query, prepared once to be found in many texts."""

    def __init__(self, terms: Sequence[Term], bias: Sequence[Term] = (), scan_max_chars: int = SCAN_MAX_CHARS) -> None:
        words = [term.word for term in (*terms, *bias)]
        self._needles = [_needle(at, wanted) for at, word in enumerate(words) for wanted in _widest(word)]
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
        length = min(max(1, length), LENGTH_MAX)
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
        return _Region(text, cut_before(text, self._promising(text)), self._scan_max_chars)

    def _matches(self, text: str) -> list[_Match]:
        found = self._find(text) or self._find_humps(text)
        found.sort()
        return found

    def _find(self, text: str) -> list[_Match]:
        view = _view(text)
        if len(self._needles) == 1:
            return self._needles[0].find(view)
        return [match for needle in self._needles for match in needle.find(view)]

    def _find_humps(self, text: str) -> list[_Match]:
        """The terms as parts of camelCase words, which the index knows and the fold does not."""
        return [
            (at, at + len(hump), term)
            for term, hump in self._humps
            for at in _places(text, hump)
            if text[at - 1 : at].islower()
        ]

    def _promising(self, text: str) -> int:
        """Where to begin reading a text too long to be read whole: before most of the terms' first appearances."""
        places = sorted({at for needle in self._needles if (at := _first_place(text, needle.probes)) >= 0})
        reach = self._scan_max_chars // 2
        held = [sum(at <= place < at + reach for place in places) for at in places]
        return max(0, places[held.index(max(held))] - reach // 2) if places else 0

    def _densest(self, matches: Sequence[_Match], room: int) -> tuple[int, int]:
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
        for at in islice(_places(text, probe, _PROBE_MAX_CHARS), _PROBE_MAX_PLACES):
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
        first = max(0, min(start - margin, size - room))
        if first:
            first = _word_start(line, first, start)
        elif not self.start:
            room = length - 1
        last = first + room
        return first, size if last >= size else _word_end(line, last, min(end, last))

    def show(self, first: int, last: int, matches: Iterable[_Match]) -> Snippet:
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
    return space + 1 if space >= 0 else cut_after(line, at)


def _word_end(line: str, at: int, earliest: int) -> int:
    if line[at] == " ":
        return at
    space = line.rfind(" ", max(at - _WORD_SEARCH_CHARS, earliest), at)
    return space if space >= 0 else cut_before(line, at)


def _merge(matches: Iterable[_Match], first: int, last: int) -> list[tuple[int, int]]:
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
