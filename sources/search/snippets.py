"""Snippets: the passage of a text that matches a query best, as one line of plain text with the matches to
highlight."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from config.numbers import clamp
from sources.query import Prefix, Term
from sources.search.term_matching import term_matcher
from sources.text.alignment import AlignedForm
from sources.text.folding import fold, folds_bytewise, grapheme_boundary_after, grapheme_boundary_before
from sources.text.segmentation import encode_latin1, has_camel_case, segment
from sources.text.stemming import stem, stem_prefix

LENGTH_MAX = 1_000
SCAN_MAX_CHARS = 8_192
ELLIPSIS = "…"
# How far a cut moves to the end of a word; if none is near, it is made between two letters.
_WORD_SEARCH_CHARS = 24
# A text too long to be scanned as a whole is first probed for the terms: only so much of it, at so many positions.
_PROBE_MAX_CHARS = 1_000_000
_PROBE_MAX_POSITIONS = 64
# Of the texts of a page that are scanned together: they are kept until the next page.
_PAGE_MAX_CHARS = 32_768
# Terms of earlier queries decide between passages that are otherwise equal.
_BIAS_WEIGHT = 0.25

# A match in a text: start, end and index of the term. A plain tuple, because long texts have hundreds to be sorted.
_TermMatch = tuple[int, int, int]


class Snippet(Struct, frozen=True, gc=False):
    """`ranges` are the matches as (start, end) in `text`. In the original text, the passage starts at `start`."""

    text: str
    ranges: tuple[tuple[int, int], ...]
    start: int


class Highlighter:
    """The terms of one query, prepared to be found in many texts."""

    def __init__(self, terms: Sequence[Term], bias: Sequence[Term] = (), scan_max_chars: int = SCAN_MAX_CHARS) -> None:
        self._terms = (*terms, *bias)
        self._matchers = [term_matcher(term.word) for term in self._terms]
        self._splits_runs = any(matcher.has_unspaced_tokens for matcher in self._matchers)
        self._count = len(terms)
        self._weights = [1.0] * len(terms) + [_BIAS_WEIGHT] * len(bias)
        self._scan_max_chars = scan_max_chars
        # The text that was scanned last: a hit that has room for it gets a longer snippet of the same text.
        self._scanned: tuple[str, _Region, list[_TermMatch]] | None = None
        self._page: dict[str, tuple[_Region, list[_TermMatch]]] = {}

    def matches(self, text: str) -> bool:
        """Returns whether any term matches a text."""
        padded = f" {segment(text)} "
        return any(matcher.spans(padded) for matcher in self._matchers[: self._count])

    def ranges(self, text: str) -> list[tuple[int, int]]:
        """Returns the ranges of a whole text that match, in order and without overlaps."""
        return _merge(self._find_all(text), 0, len(text))

    def scan(self, texts: Iterable[str]) -> None:
        """Prepares the snippets of a page of texts. In scripts other than Latin, finding the terms in all of them at
        once takes half of the time; others, and texts with parts of identifiers, are scanned one by one."""
        regions: dict[str, _Region] = {}
        room = _PAGE_MAX_CHARS
        for text in texts:
            if len(text) <= min(room, self._scan_max_chars) and not folds_bytewise(text):
                region = _Region(text, 0, self._scan_max_chars)
                if not region.is_plain(0, len(region.line)):
                    region.make_plain()
                if not has_camel_case(encode_latin1(region.line)):
                    regions[text] = region
                    room -= len(text)
        page: dict[str, tuple[_Region, list[_TermMatch]]] = {}
        if len(regions) > 1:
            start = at = 0
            matches = self._find_all("\n".join([region.line for region in regions.values()]))
            for text, region in regions.items():
                end = start + len(region.line)
                own: list[_TermMatch] = []
                while at < len(matches) and matches[at][0] < end:
                    first, last, term = matches[at]
                    if last <= end:  # otherwise a phrase that ends in the next text
                        own.append((first - start, last - start, term))
                    at += 1
                page[text] = region, own
                start = end + 1
        self._page = page

    def snippet(self, text: str, length: int = 300, passage: tuple[int, int] | None = None) -> Snippet:
        """Returns at most `length` characters (1..1000), ellipses included, around the densest matches. Without any
        match, it starts at the passage, if one is given."""
        length = clamp(length, 1, LENGTH_MAX)
        scanned = self._scanned
        if (prepared := self._page.get(text)) is not None:
            region, matches = prepared
        elif scanned is not None and scanned[0] == text:
            _, region, matches = scanned
        elif len(text) <= self._scan_max_chars:
            region = _Region(text, 0, self._scan_max_chars)
            matches = self._find_all(region.line)
            self._scanned = text, region, matches
        else:
            # A text that is too long is scanned near the first occurrences of most terms.
            firsts = sorted(
                {
                    promising_start_first
                    for term in self._terms
                    if (promising_start_first := _first_occurrence(text, _probes(term))) >= 0
                }
            )
            reach = self._scan_max_chars // 2
            nearby = [
                sum(promising_start_first <= other < promising_start_first + reach for other in firsts)
                for promising_start_first in firsts
            ]
            promising_start = max(0, firsts[nearby.index(max(nearby))] - reach // 2) if firsts else 0
            region = _Region(text, grapheme_boundary_before(text, promising_start), self._scan_max_chars)
            matches = self._find_all(region.line)
        if not matches:
            start = min(passage[0], max(0, len(text) - length)) if passage else 0
            if start != region.start:
                region = _Region(text, grapheme_boundary_before(text, start), self._scan_max_chars)
        first, last = region.window(self._densest(matches, length * 3 // 4), length)
        if not region.is_plain(first, last):
            # A new one: another thread may use the region that was scanned last.
            region = _Region(text, region.start, self._scan_max_chars)
            region.make_plain()
            matches = self._find_all(region.line)
            first, last = region.window(self._densest(matches, length * 3 // 4), length)
        if self._count < len(self._weights):
            matches = [match for match in matches if match[2] < self._count]
        return region.render(first, last, matches)

    def _find_all(self, text: str) -> list[_TermMatch]:
        aligned = AlignedForm(text, splits_runs=self._splits_runs)
        in_letters: list[_TermMatch] = []
        in_form: list[_TermMatch] = []
        matches: list[_TermMatch] = []
        padded = ""
        for term, matcher in enumerate(self._matchers):
            if matcher.unspaced is not None:
                in_letters += [(*span, term) for span in matcher.unspaced.find(aligned.letters)]
            elif matcher.marked is not None:
                in_letters += [(*span, term) for span in matcher.marked.find(aligned.marked_letters)]
            else:
                padded = padded or f" {aligned.form} "
                if spans := matcher.spans(padded):
                    for start, end in spans:
                        in_form.append((start, end, term))
                elif aligned.has_tail(matcher.beginnings):
                    spans = aligned.sources_in_full_form(matcher.spans(f" {aligned.full_form} "))
                    matches += [(*span, term) for span in spans]
        if aligned.is_unmoved and not matches:  # most Western text
            in_form.sort()
            return in_form
        # Each step from a text to its form is traced once for all terms.
        for found, trace in ((in_letters, aligned.sources_of_letters), (in_form, aligned.sources)):
            if found:
                sources = trace([(start, end) for start, end, _ in found])
                matches += [(start, end, term) for (start, end), (_, _, term) in zip(sources, found, strict=True)]
        matches.sort()
        return matches

    def _densest(self, matches: Sequence[_TermMatch], room: int) -> tuple[int, int]:
        """Returns the first span of at most `room` characters with the most distinct terms, then the most matches."""
        if len(matches) == 1:
            return matches[0][:2]
        best, span = (0.0, 0), (0, 0)
        counts = [0] * len(self._weights)
        weight, left = 0.0, 0
        for right, (_, end, term) in enumerate(matches):
            weight += 0 if counts[term] else self._weights[term]
            counts[term] += 1
            while left < right and end - matches[left][0] > room:
                dropped = matches[left][2]
                counts[dropped] -= 1
                weight -= 0 if counts[dropped] else self._weights[dropped]
                left += 1
            if (weight, right - left) > best:
                best, span = (weight, right - left), (matches[left][0], end)
        return span


# -- probing long texts ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _probes(term: Term) -> tuple[str, ...]:
    """Returns strings of which one usually occurs, as written, wherever the term matches."""
    probes: list[str] = []
    for phrase in term.word.alternatives:
        token = phrase.tokens[0]
        if token not in fold(phrase.text):
            probe = phrase.text  # spelled differently in the index, such as C++ and emoji
        elif isinstance(phrase, Prefix) and len(phrase.tokens) == 1:
            probe = token
        else:
            probe = stem_prefix(stem(token))
        probes += (probe, probe.lower(), probe.capitalize(), probe.upper())
    return tuple(dict.fromkeys(probes))


def _first_occurrence(text: str, probes: Iterable[str]) -> int:
    """Returns the first position of a probe at the start of a word, or -1. Checks a limited number of positions."""
    first = -1
    for probe in probes:
        for position in islice(_occurrences(text, probe), _PROBE_MAX_POSITIONS):
            if position == 0 or not (text[position - 1].isalnum() and text[position].isascii()):
                first = position if first < 0 else min(first, position)
                break
    return first


def _occurrences(text: str, part: str) -> Iterator[int]:
    position = text.find(part, 0, _PROBE_MAX_CHARS)
    while position >= 0:
        yield position
        position = text.find(part, position + 1, _PROBE_MAX_CHARS)


# -- the passage -------------------------------------------------------------------------------------------------------

# Characters that a line of plain text cannot contain, and lone surrogates, which no JSON encoder accepts.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")


class _Region:
    """The part of a text that is scanned, as one line."""

    def __init__(self, text: str, start: int, size: int) -> None:
        self.start = start
        self._source = text[start : start + size] if len(text) > size else text
        self._is_truncated = start + len(self._source) < len(text)
        # Joins lines first and cleans up further only if the passage shown needs it, which is rare.
        self._lines = self._source.split("\n")
        self.line = " ".join(filter(None, map(str.strip, self._lines)))

    def is_plain(self, first: int, last: int) -> bool:
        """Returns whether the white space in part of the line is single spaces between words."""
        passage = self.line[first:last]
        return not self._lines or (passage.isprintable() and "  " not in passage and passage == passage.strip())

    def make_plain(self) -> None:
        self._lines = []
        self._source = _CONTROL.sub(" ", self._source)
        self.line = " ".join(self._source.split())

    def window(self, span: tuple[int, int], length: int) -> tuple[int, int]:
        """Returns the part of the line to show around a span, cut between words if they end nearby."""
        line, size = self.line, len(self.line)
        if size <= length and not self.start and not self._is_truncated:
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

    def render(self, first: int, last: int, matches: Iterable[_TermMatch]) -> Snippet:
        before = ELLIPSIS if first or self.start else ""
        after = ELLIPSIS if last < len(self.line) or self._is_truncated else ""
        text = f"{before}{self.line[first:last]}{after}" if first < last else before or after
        ranges = _merge(matches, first, last)
        shift = len(before) - first
        return Snippet(
            text,
            tuple([(start + shift, end + shift) for start, end in ranges]),
            self._source_offset(first),
        )

    def _source_offset(self, offset: int) -> int:
        """Returns the offset in the text of a character of the line, found by counting words and letters."""
        if len(self.line) == len(self._source) or not self.line:
            return self.start + offset
        if self._lines:
            start = self.start
            for line in self._lines:
                stripped = line.strip()
                if stripped and offset <= len(stripped):
                    return start + line.find(stripped) + offset
                if stripped:
                    offset -= len(stripped) + 1
                start += len(line) + 1
            return start - 1
        rest = self._source.split(None, self.line.count(" ", 0, offset))[-1]
        letters = offset - self.line.rfind(" ", 0, offset) - 1
        return self.start + len(self._source) - len(rest) + letters


def _word_start(line: str, offset: int, latest: int) -> int:
    if line[offset - 1] == " ":
        return offset
    space = line.find(" ", offset, min(offset + _WORD_SEARCH_CHARS, latest))
    return space + 1 if space >= 0 else grapheme_boundary_after(line, offset)


def _word_end(line: str, offset: int, earliest: int) -> int:
    if line[offset] == " ":
        return offset
    space = line.rfind(" ", max(offset - _WORD_SEARCH_CHARS, earliest), offset)
    return space if space >= 0 else grapheme_boundary_before(line, offset)


def _merge(matches: Iterable[_TermMatch], first: int, last: int) -> list[tuple[int, int]]:
    """Clips the matches to a part of the line and merges those that touch; pairs of an unspaced script overlap."""
    merged: list[tuple[int, int]] = []
    for start, end, _ in matches:
        if start < first or end > last:
            start, end = max(start, first), min(end, last)  # noqa: PLW2901 - clipped
            if start >= end:
                continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
