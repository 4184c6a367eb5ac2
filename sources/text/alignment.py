"""The index form of a text together with the source of each token, for highlighting what the index matches.

`segment` transforms a text in several steps. A span of the form is traced back through them, last step first. A step's
offsets are computed only if a span is requested and the step has moved characters.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Literal, Protocol
from unicodedata import category, combining, normalize

from sources.text import folding, segmentation

Span = tuple[int, int]


class AlignedForm:
    """The index form of a text. With `splits_runs` false, unspaced runs are not split into pairs of letters, which
    takes most of the time: words of other scripts can be found nevertheless."""

    def __init__(self, text: str, *, splits_runs: bool = True) -> None:
        self._text = text
        self._splits_runs = splits_runs
        self._is_bytewise = folding.folds_bytewise(text)
        self._spellings: list[segmentation.Spelling] = []
        is_composed = self._is_bytewise or folding.folds_to_lower_case(text)
        self._composed = text if is_composed else folding.compose(text)
        # The text with normalized letters: where unspaced runs can be searched before they are split.
        self.letters = self._spelled = text if is_composed else folding.without_ignorable(self._composed)
        # These are not cached properties: the lock of one would take as long as folding a short text.
        self._form: str | None = None
        self._marked_letters: str | None = None

    @property
    def form(self) -> str:
        """The index form without the parts of camelCase words."""
        if self._form is None:
            if self._is_bytewise:
                self._spelled, self._encoded, self._form, self._spellings = segmentation.fold_identifiers(self._text)
            else:
                self._encoded = segmentation.encode_latin1(self.letters)
                self._spellings = segmentation.identifier_spellings(self.letters, self._encoded)
                if self._spellings:
                    self._spelled = segmentation.spell(self.letters, self._spellings)
                    self._encoded = segmentation.encode_latin1(self._spelled)
                self._parts, self._segments = segmentation.segment_parts(self._spelled, splits_runs=self._splits_runs)
                self._form = " ".join(self._segments)
        return self._form

    @cached_property
    def full_form(self) -> str:
        """The index form with the parts of camelCase words at its end, the same as `segment` returns."""
        return " ".join([self.form, *self._tail])

    @cached_property
    def _tail(self) -> list[str]:
        """The tokens after the form: the parts of camelCase words, then Vietnamese words with their marks."""
        parts = self._part_tokens
        return parts if self._is_bytewise else [*parts, *(token for _, _, token in self._tone_words)]

    @property
    def marked_letters(self) -> str:
        """The letters of a Vietnamese text in lower case, in which words can be found by their marks; empty for any
        other text, which is indexed without marks."""
        if self._marked_letters is None:
            lowered = self.letters.lower() if not self._is_bytewise and folding.is_vietnamese(self.letters) else ""
            # The lower case of some Turkish letters is longer, which would move the others.
            self._marked_letters = lowered if len(lowered) in (0, len(self.letters)) else self.letters
        return self._marked_letters

    def has_tail(self, beginnings: Iterable[str]) -> bool:
        """Returns whether the full form ends with tokens that may have one of these beginnings: parts of camelCase
        words, or Vietnamese words with their marks as digits."""
        for beginning in beginnings:
            if not self.form or not beginning.isascii():
                continue
            if any(part.startswith(beginning) for part in self._part_tokens):
                return True
            if self.marked_letters and not beginning.isalpha() and not beginning.isdigit():
                return beginning in self.full_form
        return False

    def sources_of_letters(self, spans: list[Span]) -> list[Span]:
        """Returns the spans of the text that spans of `letters` come from."""
        return _trace(spans, self._normalization)

    @property
    def is_unmoved(self) -> bool:
        """Whether each character of `form` has the offset of its source."""
        return self._is_bytewise and not self._spellings

    def sources(self, spans: list[Span]) -> list[Span]:
        """Returns the spans of the text that spans of `form` come from."""
        if self.is_unmoved:
            return spans
        return _trace(spans, self._steps)

    def sources_in_full_form(self, spans: list[Span]) -> list[Span]:
        """Returns the spans of the text that spans of `full_form` come from.

        A span across the end of a camelCase word, or from the text to the parts after it, is clipped.
        """
        length = len(self.form)
        in_text = [(start, min(end, length)) for start, end in spans if start < length]
        tones_start = self._part_starts[-1]
        in_parts = [self._camel_case_source(*span) for span in spans if length < span[0] < tones_start]
        in_tones = [self._tone_source(*span) for span in spans if span[0] >= tones_start]
        return (
            self.sources(in_text)
            + _trace(in_parts, [*self._spelling, *self._normalization])
            + _trace(in_tones, self._normalization)
        )

    def _tone_source(self, start: int, end: int) -> Span:
        """Returns the words of `letters` that tokens with marks come from."""
        first, last = (bisect_right(self._tone_starts, offset) - 1 for offset in (start, end - 1))
        return self._tone_words[first][0], self._tone_words[last][1]

    @cached_property
    def _tone_words(self) -> list[tuple[int, int, str]]:
        return folding.tone_words(self.letters)

    @cached_property
    def _tone_starts(self) -> list[int]:
        """The offset of each token with marks in the full form."""
        lengths = [len(token) + 1 for _, _, token in self._tone_words]
        return list(accumulate(lengths, initial=self._part_starts[-1]))

    @cached_property
    def _steps(self) -> "list[_Step]":
        """The steps that moved characters, last step first."""
        return [*self._segmentation, *self._spelling, *self._normalization]

    @cached_property
    def _normalization(self) -> "list[_Step]":
        steps: list[_Step] = []
        if self.letters is not self._composed:
            steps.append(_Replacements((*match.span(), 0) for match in folding.IGNORABLE.finditer(self._composed)))
        if self._composed is not self._text:
            steps.append(_trace_composition(self._text, self._composed))
        return steps

    @property
    def _spelling(self) -> "list[_Step]":
        spelled = [(start, end, len(spelling)) for start, end, spelling in self._spellings]
        return [_Replacements(spelled)] if spelled else []

    @property
    def _segmentation(self) -> "list[_Step]":
        if self._is_bytewise or (len(self._parts) == 1 and _is_unmoved(self._parts[0], self._segments[0])):
            return []
        if len(self._parts) == 1:
            return [_trace_folding(self._parts[0])]
        return [_RunsAndGaps(self._parts, self._segments)]

    @cached_property
    def _camel_case_words(self) -> list[Span]:
        return segmentation.camel_case_words(self._encoded)

    @cached_property
    def _part_tokens(self) -> list[str]:
        return segmentation.all_camel_case_parts(self._spelled, self._camel_case_words)

    @cached_property
    def _camel_case_parts(self) -> list[tuple[int, int, int]]:
        """Start and end of each part, and the end of its word, before segmentation."""
        return segmentation.camel_case_part_spans(self._spelled, self._camel_case_words)

    @cached_property
    def _part_starts(self) -> list[int]:
        """The offset of each camelCase part in the full form."""
        lengths = (end - start + 1 for start, end, _ in self._camel_case_parts)
        return list(accumulate(lengths, initial=len(self.form) + 1))

    def _camel_case_source(self, start: int, end: int) -> Span:
        first, last = (bisect_right(self._part_starts, offset) - 1 for offset in (start, end - 1))
        first_start, _, word_end = self._camel_case_parts[first]
        last_start, _, _ = self._camel_case_parts[last]
        source_end = last_start + end - self._part_starts[last]
        return first_start + start - self._part_starts[first], min(source_end, word_end)


class _Step(Protocol):
    """A transformation of a text that moved characters."""

    def sources(self, spans: list[Span]) -> list[Span]:
        """Returns the spans of the input that spans of the output come from."""
        ...


def _trace(spans: list[Span], steps: Iterable[_Step]) -> list[Span]:
    for step in steps:
        spans = step.sources(spans)
    return spans


class _Replacements:
    """Replaces stretches of the input, each given as start, end and the length of the replacement."""

    def __init__(self, replaced: Iterable[tuple[int, int, int]]) -> None:
        self._starts: list[int] = []  # of the replacements, in the output
        self._ends: list[int] = []
        self._sources: list[Span] = []
        shift = 0
        for start, end, length in replaced:
            self._starts.append(start + shift)
            self._ends.append(start + shift + length)
            self._sources.append((start, end))
            shift += length - (end - start)

    def sources(self, spans: list[Span]) -> list[Span]:
        starts, ends, sources, source_end = self._starts, self._ends, self._sources, self.source_end
        if not starts:
            return spans
        traced: list[Span] = []
        # As `source_start` and `source_end`, without calls: Thai texts have hundreds of matches, and most of them are
        # between two replacements.
        replacements = len(starts)
        for start, end in spans:
            index = bisect_right(starts, start)
            if index and start < ends[index - 1]:
                traced.append((sources[index - 1][0], source_end(end)))
            else:
                shift = sources[index - 1][1] - ends[index - 1] if index else 0
                is_within = end > start and (index == replacements or end < starts[index])
                traced.append((start + shift, end + shift if is_within else source_end(end)))
        return traced

    def source_start(self, offset: int) -> int:
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return offset
        source_start, source_end = self._sources[index]
        return source_start if offset < self._ends[index] else source_end + offset - self._ends[index]

    def source_end(self, offset: int) -> int:
        """Returns the end in the input, including characters removed right before `offset`, such as a letter's
        marks."""
        index = bisect_right(self._starts, offset) - 1
        while index >= 0 and self._starts[index] == offset < self._ends[index]:
            index -= 1  # starts where the span ends
        if index < 0:
            return offset
        return self._sources[index][1] + max(0, offset - self._ends[index])


# -- composition -------------------------------------------------------------------------------------------------------

# Letters of Hindi, Bengali, Punjabi, Thai and Lao that are always decomposed: mostly the only ones that are.
_DECOMPOSED = {
    letter: normalize("NFKC", letter)
    for letter in "\u0958\u0959\u095a\u095b\u095c\u095d\u095e\u095f\u09dc\u09dd\u09df\u0a33\u0a36\u0a59\u0a5a\u0a5b"
    "\u0a5e\u0e33\u0eb3"
}
_DECOMPOSED_LETTER = re.compile(f"[{''.join(_DECOMPOSED)}]")
# By the block of Unicode that they are in, which has the letters of one script or of a few.
_DECOMPOSED_OF_BLOCK = {
    block: [letter for letter in _DECOMPOSED if ord(letter) >> 8 == block]
    for block in {ord(letter) >> 8 for letter in _DECOMPOSED}
}


def _trace_composition(text: str, composed: str) -> _Replacements:
    first = _DECOMPOSED_LETTER.search(text)
    if first is not None:
        replaced = text
        lengths: dict[str, int] = {}
        for letter in _DECOMPOSED_OF_BLOCK[ord(first[0]) >> 8]:
            if letter in text:
                replaced = replaced.replace(letter, _DECOMPOSED[letter])
                lengths[letter] = len(_DECOMPOSED[letter])
        if replaced == composed:
            return _replaced_letters(text, lengths)
    if len(composed) == len(text) and folding.IGNORABLE.sub("\0", composed) == folding.IGNORABLE.sub("\0", text):
        return _Replacements(())  # only the order of marks changed, which is common in Arabic
    form = folding.composition_form(text)
    letters = {letter: normalize(form, letter) for letter in set(text)}
    changed = [letter for letter, normalized in letters.items() if normalized != letter]
    replaced = text
    for letter in changed:
        replaced = replaced.replace(letter, letters[letter])
    if replaced == composed:
        return _replaced_letters(text, {letter: len(letters[letter]) for letter in changed})
    # Some characters are combined with the one before them.
    unstable = "".join(sorted(letter for letter in letters if _is_unstable(letter, form)))
    sequences = [(match, normalize(form, match[0])) for match in _sequences_of(unstable).finditer(text)]
    return _Replacements(_replacement(match, normalized) for match, normalized in sequences if normalized != match[0])


def _replacement(match: re.Match[str], normalized: str) -> tuple[int, int, int]:
    unchanged = 1 if normalized[0] == match[0][0] else 0
    return match.start() + unchanged, match.end(), len(normalized) - unchanged


@lru_cache(maxsize=64)
def _sequences_of(letters: str) -> re.Pattern[str]:
    """Matches sequences of the letters together with the character before them."""
    return re.compile(f".?[{re.escape(letters)}]+", re.DOTALL)


@lru_cache(maxsize=4_096)
def _is_unstable(letter: str, form: Literal["NFC", "NFKC"]) -> bool:
    """Returns whether normalization may change a letter or combine it with the one before it."""
    if letter.isascii():
        return False
    is_jamo = "\u1160" <= letter <= "\u11ff"
    return is_jamo or combining(letter) > 0 or category(letter)[0] == "M" or normalize(form, letter) != letter


def _replaced_letters(text: str, lengths: Mapping[str, int]) -> _Replacements:
    """Returns the step that replaces each of these letters with a text of the given length."""
    places: list[tuple[int, int, int]] = []
    # Finding one letter after the other is much faster than a regular expression for all letters.
    for letter, length in lengths.items():
        start = text.find(letter)
        while start >= 0:
            places.append((start, start + 1, length))
            start = text.find(letter, start + 1)
    return _Replacements(sorted(places))


# -- segmentation ------------------------------------------------------------------------------------------------------


def _is_unmoved(gap: str, folded: str) -> bool:
    return gap == folded or (len(gap) == len(folded) and folding.folds_to_single_characters(gap))


class _RunsAndGaps:
    """Folds the gaps between unspaced runs and splits the runs into overlapping tokens."""

    def __init__(self, parts: Sequence[str], segments: Sequence[str]) -> None:
        self._parts = parts
        self._segments = segments
        self._starts = list(accumulate([len(segment) + 1 for segment in segments], initial=0))
        self._source_starts = list(accumulate(map(len, parts), initial=0))
        self._part_steps: dict[int, _PartStep] = {}

    def sources(self, spans: list[Span]) -> list[Span]:
        starts, source_starts, steps = self._starts, self._source_starts, self._part_steps
        sources = []
        for start, end in spans:
            part = bisect_right(starts, start) - 1
            step = steps.get(part) or self._trace(part)
            source_start = source_starts[part] + step.source_start(start - starts[part])
            if end >= starts[part + 1]:
                part = bisect_right(starts, end - 1) - 1
                step = steps.get(part) or self._trace(part)
            sources.append((source_start, source_starts[part] + step.source_end(end - starts[part])))
        return sources

    def _trace(self, index: int) -> "_PartStep":
        part = self._parts[index]
        step: _PartStep
        if index % 2 and part != self._segments[index]:
            step = _LetterClusters(part) if segmentation.has_dependent_sign(part) else _SINGLE_LETTERS
        else:
            step = _UNMOVED if _is_unmoved(part, self._segments[index]) else _trace_folding(part)
        self._part_steps[index] = step
        return step


class _PartStep(Protocol):
    """The transformation of a gap or a run."""

    def source_start(self, offset: int) -> int: ...

    def source_end(self, offset: int) -> int: ...


def _trace_folding(text: str) -> _Replacements:
    lengths = {letter: len(folding.INDEX_FOLDING[ord(letter)]) for letter in set(text)}
    return _replaced_letters(text, {letter: length for letter, length in lengths.items() if length != 1})


class _SingleLetters:
    """Splits a run of letters: for each letter a token of two letters and a space; the last token is one letter."""

    def source_start(self, offset: int) -> int:
        return offset // 3

    def source_end(self, offset: int) -> int:
        return (offset - 1) // 3 + (offset - 1) % 3 + 1


class _LetterClusters:
    """Splits a run of letters with dependent signs: a token for each pair of clusters, and one for the last."""

    def __init__(self, run: str) -> None:
        lengths = [*map(len, segmentation.letter_clusters(run)), 0]
        self._sources = list(accumulate(lengths, initial=0))
        self._starts = list(accumulate((first + second + 1 for first, second in pairwise(lengths)), initial=0))

    def source_start(self, offset: int) -> int:
        token = bisect_right(self._starts, offset) - 1
        return self._sources[token] + offset - self._starts[token]

    def source_end(self, offset: int) -> int:
        return self.source_start(offset - 1) + 1


_SINGLE_LETTERS = _SingleLetters()
_UNMOVED = _Replacements(())
