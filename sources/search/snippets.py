"""Snippets: the passage of a text that matches a query best, as one line of plain text with the matches to
highlight."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice

from msgspec import Struct

from config.numbers import clamp
from sources.query import Prefix, Term
from sources.search.term_matching import Matcher, Span, TermMatcher, term_matcher
from sources.text.alignment import AlignedForm
from sources.text.folding import fold, folds_bytewise, grapheme_boundary_after, grapheme_boundary_before
from sources.text.segmentation import (
    camel_case_words,
    encode_latin1,
    fold_identifiers,
    has_camel_case,
    segment,
    stem,
    stem_prefix,
)

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
        self._matchers: list[TermMatcher] = []
        # Those of the terms that are found in the index form of a text: the number of the term, what every match begins
        # with, and what finds them.
        self._in_form: list[tuple[int, Sequence[str], TermMatcher | Matcher]] = []
        self._splits_runs = False
        for number, term in enumerate(self._terms):
            matcher = term_matcher(term.word)
            self._matchers.append(matcher)
            if matcher.unspaced is None and matcher.marked is None:
                only = matcher.alternatives[0] if len(matcher.alternatives) == 1 else None
                self._in_form.append((number, matcher.beginnings, only or matcher))
            self._splits_runs |= matcher.has_unspaced_tokens
        self._count = len(terms)
        self._weights = [1.0] * len(terms) + [_BIAS_WEIGHT] * len(bias)
        self._scan_max_chars = scan_max_chars
        # The texts of the page, and the text that was scanned last: a hit that has room for it gets a longer snippet of
        # the same text.
        self._page: dict[str, tuple[_Region, list[_TermMatch]]] = {}
        self._scanned = self._page

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
                if not _is_plain(region.line):
                    region.make_plain()
                regions[text] = region
                room -= len(text)
        if len(regions) < 2:
            self._page = self._scanned = {}
            return
        joined = "\n".join([region.line for region in regions.values()])
        if parted := camel_case_words(encode_latin1(joined)):
            ends = [*accumulate([len(region.line) + 1 for region in regions.values()])]
            dropped = {bisect_right(ends, start) for start, _ in parted}
            regions = {text: region for number, (text, region) in enumerate(regions.items()) if number not in dropped}
            joined = "\n".join([region.line for region in regions.values()])
        page: dict[str, tuple[_Region, list[_TermMatch]]] = {}
        if len(regions) > 1:
            start = at = 0
            matches = self._find_all(joined)
            for text, region in regions.items():
                end = start + len(region.line)
                own_end = bisect_left(matches, (end,), at)
                # One that ends later is a phrase that ends in the next text.
                own = [(first - start, last - start, term) for first, last, term in matches[at:own_end] if last <= end]
                page[text] = region, own
                start, at = end + 1, own_end
        self._page = self._scanned = page

    def snippet(self, text: str, length: int = 300, passage: tuple[int, int] | None = None) -> Snippet:
        """Returns at most `length` characters (1..1000), ellipses included, around the densest matches. Without any
        match, it starts at the passage, if one is given."""
        if not 0 < length <= LENGTH_MAX:
            length = clamp(length, 1, LENGTH_MAX)
        region, matches = self._scanned.get(text) or self._scan(text)
        if not matches:
            start = min(passage[0], max(0, len(text) - length)) if passage else 0
            if start != region.start:
                region = _Region(text, grapheme_boundary_before(text, start), self._scan_max_chars)
        first, last = self._window(region, matches, length)
        shown = region.line[first:last]
        if region.lines and not _is_plain(shown):
            # A new one: another thread may use the region that was scanned last.
            region = _Region(text, region.start, self._scan_max_chars)
            region.make_plain()
            matches = self._find_all(region.line)
            first, last = self._window(region, matches, length)
            shown = region.line[first:last]
        if self._count < len(self._weights):
            matches = [match for match in matches if match[2] < self._count]
        before = ELLIPSIS if first or region.start else ""
        after = ELLIPSIS if last < len(region.line) or region.is_truncated else ""
        return Snippet(
            f"{before}{shown}{after}" if shown else before or after,
            tuple(_merge(matches, first, last, len(before) - first)) if matches else (),
            region.start + first if region.is_unmoved else region.source_offset(first),
        )

    def _scan(self, text: str) -> "tuple[_Region, list[_TermMatch]]":
        """Returns the part of a text that snippets are taken from, and the matches in it."""
        if len(text) <= self._scan_max_chars:
            region = _Region(text, 0, self._scan_max_chars)
            scanned = region, self._find_all(region.line)
            self._scanned = {**self._page, text: scanned}
            return scanned
        # A text that is too long is scanned near the first occurrences of most terms.
        firsts = sorted({first for term in self._terms if (first := _first_occurrence(text, _probes(term))) >= 0})
        reach = self._scan_max_chars // 2
        nearby = [sum(first <= other < first + reach for other in firsts) for first in firsts]
        promising_start = max(0, firsts[nearby.index(max(nearby))] - reach // 2) if firsts else 0
        region = _Region(text, grapheme_boundary_before(text, promising_start), self._scan_max_chars)
        return region, self._find_all(region.line)

    def _find_all(self, text: str) -> list[_TermMatch]:
        if not text.isascii() and not folds_bytewise(text):
            return self._find_aligned(text)
        _, encoded, form, spellings = fold_identifiers(text)
        if spellings:
            return self._find_aligned(text)
        # In most Western text, each character of the index form has the offset of its source.
        padded = f" {form} "
        matches: list[_TermMatch] = []
        for term, beginnings, matcher in self._in_form:
            spans = matcher.spans(padded)
            if not spans and any(map(form.__contains__, beginnings)) and has_camel_case(encoded):
                return self._find_aligned(text)  # it may be a part of a camelCase word
            for start, end in spans:
                matches.append((start, end, term))
        matches.sort()
        return matches

    def _find_aligned(self, text: str) -> list[_TermMatch]:
        """Finds the terms in any text, and traces them from its index form to the text."""
        aligned = AlignedForm(text, splits_runs=self._splits_runs)
        in_letters: list[Span] = []
        in_form: list[Span] = []
        matches: list[_TermMatch] = []
        # The term of each of these spans.
        letter_terms: list[int] = []
        form_terms: list[int] = []
        padded = ""
        for term, matcher in enumerate(self._matchers):
            if matcher.unspaced is not None:
                in_letters += matcher.unspaced.find(aligned.letters)
                letter_terms += [term] * (len(in_letters) - len(letter_terms))
            elif matcher.marked is not None:
                in_letters += matcher.marked.find(aligned.marked_letters)
                letter_terms += [term] * (len(in_letters) - len(letter_terms))
            else:
                padded = padded or f" {aligned.form} "
                if spans := matcher.spans(padded):
                    in_form += spans
                    form_terms += [term] * len(spans)
                elif aligned.has_tail(matcher.beginnings):
                    spans = aligned.sources_in_full_form(matcher.spans(f" {aligned.full_form} "))
                    matches += [(*span, term) for span in spans]
        # Each step from a text to its form is traced once for all terms.
        if in_letters:
            sources = aligned.sources_of_letters(in_letters)
            matches += [(start, end, term) for (start, end), term in zip(sources, letter_terms, strict=True)]
        if in_form:
            sources = aligned.sources(in_form)
            matches += [(start, end, term) for (start, end), term in zip(sources, form_terms, strict=True)]
        matches.sort()
        return matches

    def _window(self, region: "_Region", matches: Sequence[_TermMatch], length: int) -> tuple[int, int]:
        """Returns the part of the line to show, around the densest matches, cut between words if they end nearby."""
        line, size = region.line, len(region.line)
        if size <= length and not region.start and not region.is_truncated:
            return 0, size
        if len(matches) > 1:
            start, end = self._densest(matches, length * 3 // 4)
        else:
            start, end = matches[0][:2] if matches else (0, 0)
        room = max(0, length - 2)  # an ellipsis on both sides
        first = max(0, min(start - max(0, room - end + start) // 2, size - room))
        if not first and not region.start:
            room = length - 1
        elif first and line[first - 1] != " ":
            space = line.find(" ", first, min(first + _WORD_SEARCH_CHARS, start))
            first = space + 1 if space >= 0 else grapheme_boundary_after(line, first)
        last = first + room
        if last >= size:
            return first, size
        if line[last] != " ":
            space = line.rfind(" ", max(last - _WORD_SEARCH_CHARS, min(end, last)), last)
            last = space if space >= 0 else grapheme_boundary_before(line, last)
        return first, last

    def _densest(self, matches: Sequence[_TermMatch], room: int) -> tuple[int, int]:
        """Returns the first span of at most `room` characters with the most distinct terms, then the most matches."""
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


# Finds nothing, so that its snippets are the beginnings of texts.
NO_TERMS = Highlighter(())


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


def _is_plain(passage: str) -> bool:
    """Returns whether the white space in part of a line is single spaces between words."""
    return passage.isprintable() and "  " not in passage and passage == passage.strip()


class _Region:
    """The part of a text that is scanned, as one `line`. Where it `is_unmoved`, characters of the line have the offset
    of their source."""

    def __init__(self, text: str, start: int, size: int) -> None:
        source = text if len(text) <= size else text[start : start + size]
        self.start, self._source = start, source
        self.is_truncated = start + len(source) < len(text)
        # Joins lines first and cleans up further only if the passage shown needs it, which is rare.
        if "\n" in source:
            self.lines = source.split("\n")
            self.line = " ".join(filter(None, map(str.strip, self.lines)))
        else:
            self.lines, self.line = [source], source.strip()
        self.is_unmoved = len(self.line) in (0, len(source))

    def make_plain(self) -> None:
        self.lines = []
        self._source = _CONTROL.sub(" ", self._source)
        self.line = " ".join(self._source.split())
        self.is_unmoved = len(self.line) in (0, len(self._source))

    def source_offset(self, offset: int) -> int:
        """Returns the offset in the text of a character of the line, found by counting words and letters."""
        if self.lines:
            start = self.start
            for line in self.lines:
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


def _merge(matches: Iterable[_TermMatch], first: int, last: int, shift: int = 0) -> list[tuple[int, int]]:
    """Clips the matches to a part of the line and merges those that touch; pairs of an unspaced script overlap. Moves
    them by `shift`."""
    merged: list[tuple[int, int]] = []
    reached = -1
    for start, end, _ in matches:
        if start < first or end > last:
            start, end = max(start, first), min(end, last)  # noqa: PLW2901 - clipped
            if start >= end:
                continue
        if start > reached:
            merged.append((start + shift, end + shift))
        elif end > reached:
            merged[-1] = (merged[-1][0], end + shift)
        else:
            continue
        reached = end
    return merged
