"""Finds the words of a text that match a search term. Scoring and highlighting both use this definition.

Matchers search the index form of a text (`sources.text.segmentation`), padded so that every word has a space on both
sides. As in FTS5's `porter` tokenizer, a word matches if it has the same stem.
"""

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from sources.query import Phrase, Prefix, Term, Word
from sources.text.folding import fold_joined
from sources.text.segmentation import UNSPACED_RUN, is_cluster_start, letter_clusters, segment
from sources.text.stemming import stem, stem_prefix

Span = tuple[int, int]

# What `fold_joined` puts between two texts.
_SEPARATOR_CHARS = len(" \n ")


def pad(form: str) -> str:
    return f" {form} "


class JoinedForms:
    """The index forms of several texts, folded, padded and joined to be searched as one. No phrase matches across
    texts. A text that FTS5 would not split into the right tokens must be given as its index form."""

    def __init__(self, texts: Sequence[str]) -> None:
        joined, self._lengths = fold_joined(texts)
        self.padded = pad(joined)
        self._starts = list(accumulate([length + _SEPARATOR_CHARS for length in self._lengths[:-1]], initial=0))

    def form(self, index: int) -> str:
        start = self._starts[index] + 1
        return self.padded[start : start + self._lengths[index]]

    def __len__(self) -> int:
        return len(self._lengths)

    def count_per_form(self, offsets: Iterable[int]) -> dict[int, int]:
        """Returns how many of the offsets into `padded` are in each form that has any."""
        counts: dict[int, int] = {}
        starts = self._starts
        for offset in offsets:
            form = bisect_right(starts, offset) - 1
            counts[form] = counts.get(form, 0) + 1
        return counts


class TermMatcher:
    """Matches a word of a query: any of its alternatives."""

    def __init__(self, word: Word) -> None:
        self._matchers = [_matcher(phrase) for phrase in _without_redundant_prefixes(word.alternatives)]
        # Every match begins with one of these.
        self.beginnings = [matcher.beginning for matcher in self._matchers]
        self.unspaced = _unspaced_term(word)

    def count(self, padded: str) -> int:
        """Counts the matches. Alternatives may match the same words, so only the most frequent one counts."""
        if len(self._matchers) == 1:
            return self._matchers[0].count(padded)
        return max(matcher.count(padded) for matcher in self._matchers)

    def count_each(self, forms: JoinedForms) -> dict[int, int]:
        """Counts the matches in each of several texts that has any."""
        counts = forms.count_per_form(self._matchers[0].starts(forms.padded))
        for matcher in self._matchers[1:]:
            for form, count in forms.count_per_form(matcher.starts(forms.padded)).items():
                counts[form] = max(count, counts.get(form, 0))
        return counts

    def spans(self, padded: str) -> list[Span]:
        """Returns the start and end of each match, as offsets in the form without its padding."""
        if len(self._matchers) == 1:
            return self._matchers[0].spans(padded)
        return list(dict.fromkeys(span for matcher in self._matchers for span in matcher.spans(padded)))


@lru_cache(maxsize=256)
def term_matcher(word: Word) -> TermMatcher:
    """Returns the matcher of a word. Counting and highlighting need the same."""
    return TermMatcher(word)


class _Matcher(ABC):
    """Matches one alternative. `starts` are the offsets of the space before each match, and so offsets in the form."""

    beginning: str

    @abstractmethod
    def starts(self, padded: str) -> list[int]: ...

    @abstractmethod
    def spans(self, padded: str) -> list[Span]: ...

    def count(self, padded: str) -> int:
        return len(self.starts(padded))


class _WordMatcher(_Matcher):
    """Matches single words."""

    @abstractmethod
    def matches(self, word: str) -> bool: ...

    @abstractmethod
    def end(self, word_start: int, word_end: int) -> int:
        """Returns the end of the match in a word that matches."""

    def spans(self, padded: str) -> list[Span]:
        return [(start, self.end(start + 1, padded.find(" ", start + 1)) - 1) for start in self.starts(padded)]


class _StemMatcher(_WordMatcher):
    """Matches every word with the same stem as a token."""

    def __init__(self, token: str) -> None:
        self._stem = stem(token)
        self.beginning = stem_prefix(self._stem)
        self._start = f" {self.beginning}"

    def starts(self, padded: str) -> list[int]:
        # The innermost loop of a search: it stems only words that begin like the stem.
        start, wanted = self._start, self._stem
        starts = []
        at = padded.find(start)
        while at >= 0:
            end = padded.find(" ", at + 1)
            word = padded[at + 1 : end]
            if word == wanted or stem(word) == wanted:
                starts.append(at)
            at = padded.find(start, end)
        return starts

    def spans(self, padded: str) -> list[Span]:
        start, wanted = self._start, self._stem
        spans = []
        at = padded.find(start)
        while at >= 0:
            end = padded.find(" ", at + 1)
            word = padded[at + 1 : end]
            if word == wanted or stem(word) == wanted:
                spans.append((at, end - 1))
            at = padded.find(start, end)
        return spans

    def matches(self, word: str) -> bool:
        return word == self._stem or stem(word) == self._stem

    def end(self, word_start: int, word_end: int) -> int:
        return word_end


class _PrefixMatcher(_WordMatcher):
    """Matches every word that begins with a token."""

    def __init__(self, token: str) -> None:
        self.beginning = token
        self._start = f" {token}"
        # Tokens of an unspaced run overlap: only the letters asked for are part of the match, not those after them.
        self._is_unspaced = UNSPACED_RUN.match(token) is not None

    def count(self, padded: str) -> int:
        return padded.count(self._start)

    def starts(self, padded: str) -> list[int]:
        starts = []
        at = padded.find(self._start)
        while at >= 0:
            starts.append(at)
            at = padded.find(self._start, at + 1)
        return starts

    def matches(self, word: str) -> bool:
        return word.startswith(self.beginning)

    def end(self, word_start: int, word_end: int) -> int:
        return word_start + len(self.beginning) if self._is_unspaced else word_end


class _SequenceMatcher(_Matcher):
    """Matches consecutive words."""

    _NEXT_WORD = re.compile(" +([^ ]+)")

    def __init__(self, tokens: Sequence[str], *, is_prefix: bool) -> None:
        *middle, last = tokens[1:]
        self._first = _StemMatcher(tokens[0])
        self.beginning = self._first.beginning
        self._next: list[_WordMatcher] = [_StemMatcher(token) for token in middle]
        self._next.append(_PrefixMatcher(last) if is_prefix else _StemMatcher(last))

    def starts(self, padded: str) -> list[int]:
        return [start for start, _ in self.spans(padded)]

    def spans(self, padded: str) -> list[Span]:
        spans = []
        for start in self._first.starts(padded):
            end = self._match_end(padded, padded.find(" ", start + 1))
            if end is not None:
                spans.append((start, end - 1))
        return spans

    def _match_end(self, padded: str, end: int) -> int | None:
        """Returns where the sequence ends whose first word ends at `end`, or None if the next words do not match."""
        for matcher in self._next:
            word = self._NEXT_WORD.match(padded, end)
            if word is None or not matcher.matches(word[1]):
                return None
            end = matcher.end(*word.span(1))
        return end


def _without_redundant_prefixes(alternatives: Iterable[Phrase | Prefix]) -> list[Phrase | Prefix]:
    """Removes prefixes that begin with another one, which matches the same words and more."""
    alternatives = list(alternatives)
    prefixes = [one.tokens[0] for one in alternatives if isinstance(one, Prefix) and len(one.tokens) == 1]
    return [one for one in alternatives if not _is_redundant(one, prefixes)]


def _is_redundant(phrase: Phrase | Prefix, prefixes: Iterable[str]) -> bool:
    if isinstance(phrase, Phrase) or len(phrase.tokens) != 1:
        return False
    token = phrase.tokens[0]
    return any(token != prefix and token.startswith(prefix) for prefix in prefixes)


def _matcher(phrase: Phrase | Prefix) -> _Matcher:
    is_prefix = isinstance(phrase, Prefix)
    if len(phrase.tokens) != 1:
        return _SequenceMatcher(phrase.tokens, is_prefix=is_prefix)
    return _PrefixMatcher(phrase.tokens[0]) if is_prefix else _StemMatcher(phrase.tokens[0])


# -- unspaced scripts --------------------------------------------------------------------------------------------------


class UnspacedTerm:
    """A term that is a pair of letters of an unspaced script, or the beginning of one.

    The tokens of an unspaced run are all pairs of its letters, so such a term matches wherever its letters occur.
    Finding them in the text is several times faster than splitting the text into pairs.
    """

    def __init__(self, token: str, *, is_prefix: bool) -> None:
        self._token = token
        self._is_prefix = is_prefix

    def find(self, letters: str) -> list[Span]:
        """Returns the matches in a text with normalized letters."""
        spans = []
        at = letters.find(self._token)
        while at >= 0:
            end = at + len(self._token)
            if self._is_prefix or is_cluster_start(letters, end):
                spans.append((at, end))
            at = letters.find(self._token, at + 1)
        return spans


def _unspaced_term(word: Word) -> UnspacedTerm | None:
    phrase, *others = word.alternatives
    token, *next_tokens = phrase.tokens
    if others or next_tokens or not UNSPACED_RUN.fullmatch(token) or not is_cluster_start(token, 0):
        return None
    is_prefix, clusters = isinstance(phrase, Prefix), len(letter_clusters(token))
    return UnspacedTerm(token, is_prefix=is_prefix) if clusters == 2 or (clusters == 1 and is_prefix) else None


# -- term counting -----------------------------------------------------------------------------------------------------
# Counts the terms of a query in texts, for scoring.

# How often a term of a query matches, by the number of the text.
TermCounts = dict[int, int]


class TermCounter:
    """The terms of one query, prepared to be counted in the index forms of many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._matchers = [term_matcher(term.word) for term in terms]

    def count(self, form: str) -> list[int]:
        """Returns how often each term matches."""
        padded = pad(form)
        return [matcher.count(padded) for matcher in self._matchers]

    def count_each(self, forms: JoinedForms) -> list[TermCounts]:
        """Returns how often each term matches, by the number of the text, in those of several texts that have it. The
        texts are searched as one."""
        return [matcher.count_each(forms) for matcher in self._matchers]


@lru_cache(maxsize=64)
def term_counter(terms: tuple[Term, ...]) -> TermCounter:
    """Returns the counter of these terms. All sources of a search need the same."""
    return TermCounter(terms)


def best_field(fields: Mapping[str, str], counter: TermCounter) -> tuple[str, str] | None:
    """Returns the name and text of the field that matches most terms; if none matches, of the first that is not empty.
    Returns None if all are empty."""
    filled = [(name, text) for name, text in fields.items() if text]
    if len(filled) < 2:
        return filled[0] if filled else None
    forms = JoinedForms([text for _, text in filled])
    by_term = counter.count_each(forms)
    counts = [[in_fields.get(field, 0) for in_fields in by_term] for field in range(len(forms))]
    # Folding finds everything except other scripts and parts of identifiers, and is much cheaper than segmenting.
    if not any(map(any, counts)):
        counts = [counter.count(segment(text)) for _, text in filled]
    best, chosen = (0, 0), filled[0]
    for field, in_field in zip(filled, counts, strict=True):
        if any(in_field) and (matches := (len(in_field) - in_field.count(0), sum(in_field))) > best:
            best, chosen = matches, field
    return chosen
