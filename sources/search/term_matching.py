"""Finds the words of a text that match a search term. Scoring and highlighting both use this definition.

Matchers search the index form of a text (`sources.text.segmentation`), padded so that every word has a space on both
sides. As in FTS5's `porter` tokenizer, a word matches if it has the same stem.
"""

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from unicodedata import normalize

from sources.query import Phrase, Prefix, Term, Word
from sources.query.words import strip_punctuation
from sources.text.folding import JoinedForms, fold, join_forms, tone_token
from sources.text.segmentation import (
    DEPENDENT_SIGNS,
    UNSPACED_RUN,
    letter_clusters,
    normalize_letters,
    segment,
    stem,
    stem_prefix,
)

Span = tuple[int, int]


class TermMatcher:
    """Matches a word of a query: any of its `alternatives`."""

    def __init__(self, word: Word) -> None:
        self.alternatives: list[Matcher] = []
        self.beginnings: list[str] = []  # of which every match has one
        phrases = word.alternatives if len(word.alternatives) < 2 else _without_redundant(word.alternatives)
        is_ascii = True
        for phrase in phrases:
            is_prefix = isinstance(phrase, Prefix)
            matcher: Matcher
            if len(phrase.tokens) != 1:
                matcher = _SequenceMatcher(phrase.tokens, is_prefix=is_prefix)
            else:
                matcher = (_PrefixMatcher if is_prefix else _StemMatcher)(phrase.tokens[0])
            self.alternatives.append(matcher)
            self.beginnings.append(matcher.beginning)
            is_ascii = is_ascii and "".join(phrase.tokens).isascii()
        self.unspaced = None if is_ascii else _unspaced_term(word)
        # Whether it can only be found where runs are split into pairs.
        self.has_unspaced_tokens = (
            not is_ascii
            and self.unspaced is None
            and any(UNSPACED_RUN.search(token) for phrase in word.alternatives for token in phrase.tokens)
        )
        is_marked = self.unspaced is None and not word.text.isascii()
        self.marked = _marked_term(word) if is_marked else None

    def spans(self, padded: str) -> list[Span]:
        """Returns the start and end of each match, as offsets in the form without its padding."""
        if len(self.alternatives) == 1:
            return self.alternatives[0].spans(padded)
        found = [spans for matcher in self.alternatives if (spans := matcher.spans(padded))]
        if len(found) < 2:
            return found[0] if found else []
        return list(dict.fromkeys(chain.from_iterable(found)))


# Counting and highlighting need the same, and queries repeat words of their language.
term_matcher = lru_cache(maxsize=2_048)(TermMatcher)


class Matcher(ABC):
    """Matches one alternative. A span starts at the space before the match and ends before its last character: in the
    form, which has no padding, these are the offsets of the match."""

    beginning: str

    @abstractmethod
    def spans(self, padded: str) -> list[Span]: ...

    def count_in(self, joined: str, starts: Sequence[int]) -> "TermCounts":
        """Counts the matches in joined texts (`sources.text.folding.join_forms`), by the number of the text."""
        counts: TermCounts = {}
        for start, _ in self.spans(joined):
            text = bisect_right(starts, start) - 1
            counts[text] = counts.get(text, 0) + 1
        return counts


class _WordMatcher(Matcher):
    """Matches single words."""

    @abstractmethod
    def matches(self, word: str) -> bool: ...

    @abstractmethod
    def end(self, word_start: int, word_end: int) -> int:
        """Returns the end of the match in a word that matches."""


class _StemMatcher(_WordMatcher):
    """Matches every word with the same stem as a token."""

    def __init__(self, token: str) -> None:
        self._stem = stem(token)
        self.beginning = stem_prefix(self._stem)
        self._start = f" {self.beginning}"
        self._matches_beginning = self.matches(self.beginning)

    def spans(self, padded: str) -> list[Span]:
        # The innermost loop of a search: it stems only words that begin like the stem, and looks for the end of those
        # that are longer.
        start, wanted, find, is_whole = self._start, self._stem, padded.find, self._matches_beginning
        chars = len(start)
        spans: list[Span] = []
        at = find(start)
        while at >= 0:
            end = at + chars
            if padded[end] == " ":
                if is_whole:
                    spans.append((at, end - 1))
            else:
                end = find(" ", end)
                if stem(padded[at + 1 : end]) == wanted:
                    spans.append((at, end - 1))
            at = find(start, end)
        return spans

    def count_in(self, joined: str, starts: Sequence[int]) -> "TermCounts":
        start, wanted, find, is_whole = self._start, self._stem, joined.find, self._matches_beginning
        chars = len(start)
        counts: TermCounts = {}
        text = text_end = matches = 0
        at = find(start)
        while at >= 0:
            end = at + chars
            if joined[end] == " ":
                is_match = is_whole
            else:
                end = find(" ", end)
                is_match = stem(joined[at + 1 : end]) == wanted
            if is_match:
                if at >= text_end:  # the first match in this text
                    if matches:
                        counts[text] = matches
                    text, matches = bisect_right(starts, at) - 1, 0
                    text_end = starts[text + 1]
                matches += 1
            at = find(start, end)
        if matches:
            counts[text] = matches
        return counts

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

    def spans(self, padded: str) -> list[Span]:
        spans = []
        at = padded.find(self._start)
        while at >= 0:
            spans.append((at, self.end(at + 1, padded.find(" ", at + 1)) - 1))
            at = padded.find(self._start, at + 1)
        return spans

    def matches(self, word: str) -> bool:
        return word.startswith(self.beginning)

    def end(self, word_start: int, word_end: int) -> int:
        return word_start + len(self.beginning) if self._is_unspaced else word_end


class _SequenceMatcher(Matcher):
    """Matches consecutive words."""

    _NEXT_WORD = re.compile(" +([^ ]+)")

    def __init__(self, tokens: Sequence[str], *, is_prefix: bool) -> None:
        *middle, last = tokens[1:]
        self._first = _StemMatcher(tokens[0])
        self.beginning = self._first.beginning
        self._next: list[_WordMatcher] = [_StemMatcher(token) for token in middle]
        self._next.append(_PrefixMatcher(last) if is_prefix else _StemMatcher(last))

    def spans(self, padded: str) -> list[Span]:
        spans = []
        for start, _ in self._first.spans(padded):
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


def _without_redundant(alternatives: Sequence[Phrase | Prefix]) -> list[Phrase | Prefix]:
    """Removes alternatives that match nothing but what begins with another one, a prefix: in languages that are not
    stemmed, most words match with other endings, too."""
    single = [one for one in alternatives if len(one.tokens) == 1]
    prefixes = [one.tokens[0] for one in single if isinstance(one, Prefix) and not UNSPACED_RUN.match(one.tokens[0])]
    if not prefixes:
        return [*alternatives]
    redundant: set[Phrase | Prefix] = set()
    for one in single:
        token = one.tokens[0] if isinstance(one, Prefix) else stem_prefix(stem(one.tokens[0]))
        if any(token.startswith(prefix) for prefix in prefixes if prefix != token or isinstance(one, Phrase)):
            redundant.add(one)
    return [one for one in alternatives if one not in redundant]


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
        spans: list[Span] = []
        token, find, is_prefix = self._token, letters.find, self._is_prefix
        chars = len(token)
        at = find(token)
        while at >= 0:
            end = at + chars
            if is_prefix or letters[end : end + 1] not in DEPENDENT_SIGNS:
                spans.append((at, end))
            at = find(token, at + 1)
        return spans

    def count_in(self, letters: str, starts: Sequence[int]) -> "TermCounts":
        """Counts the matches in joined texts (`join_letters`), by the number of the text."""
        counts: TermCounts = {}
        token, find, is_prefix = self._token, letters.find, self._is_prefix
        chars, text, text_end = len(token), 0, 0
        at = find(token)
        while at >= 0:
            end = at + chars
            if is_prefix or letters[end : end + 1] not in DEPENDENT_SIGNS:
                if at >= text_end:  # the first match in this text
                    text = bisect_right(starts, at) - 1
                    text_end = starts[text + 1]
                    counts[text] = 0
                counts[text] += 1
            at = find(token, at + 1)
        return counts


def join_letters(texts: Sequence[str]) -> JoinedForms:
    """Joins texts with normalized letters. Also returns where each of them starts, and where a further one would."""
    letters = normalize_letters("\0\n".join(texts))  # no stored text contains NUL; lines are normalized one by one
    return letters, [*accumulate([len(text) + 2 for text in letters.split("\0\n")], initial=0)]


def _unspaced_term(word: Word) -> UnspacedTerm | None:
    phrase, *others = word.alternatives
    token, *next_tokens = phrase.tokens
    if others or next_tokens or not UNSPACED_RUN.fullmatch(token) or token[0] in DEPENDENT_SIGNS:
        return None
    is_prefix, clusters = isinstance(phrase, Prefix), len(letter_clusters(token))
    return UnspacedTerm(token, is_prefix=is_prefix) if clusters == 2 or (clusters == 1 and is_prefix) else None


# -- vietnamese --------------------------------------------------------------------------------------------------------


class MarkedTerm:
    """A Vietnamese word with its marks. In the index form it is at the end of the text, spelled with digits; finding it
    in the text is several times faster than spelling all words of the text."""

    def __init__(self, word: str) -> None:
        self._word = word

    def find(self, letters: str) -> list[Span]:
        """Returns the matches in a text in lower case."""
        spans = []
        at = letters.find(self._word)
        while at >= 0:
            end = at + len(self._word)
            if not letters[end : end + 1].isalpha() and not letters[max(0, at - 1) : at].isalpha():
                spans.append((at, end))
            at = letters.find(self._word, end)
        return spans


def _marked_term(word: Word) -> MarkedTerm | None:
    phrase, *others = word.alternatives
    if others or isinstance(phrase, Prefix) or len(phrase.tokens) != 1 or word.text.isascii():
        return None
    marked = normalize("NFC", strip_punctuation(word.text)).lower()
    return MarkedTerm(marked) if tone_token(marked) == phrase.tokens[0] else None


# -- term counting -----------------------------------------------------------------------------------------------------
# Counts the terms of a query in texts, for scoring.

# How often a term of a query matches, by the number of the text.
TermCounts = dict[int, int]


class TermCounter:
    """The terms of one query, prepared to be counted in the index forms of many texts. The alternatives of a word may
    match the same words of a text, so only the most frequent one counts."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self._matchers: list[TermMatcher] = []
        for term in terms:
            self._matchers.append(term_matcher(term.word))
        unspaced = [matcher.unspaced is not None for matcher in self._matchers]
        # Whether any term, and whether every term, can be found in letters.
        self.has_unspaced, self.is_unspaced = any(unspaced), any(unspaced) and all(unspaced)

    def count(self, form: str) -> list[int]:
        """Returns how often each term matches."""
        padded = f" {form} "
        counts: list[int] = []
        for matcher in self._matchers:
            most = 0
            for alternative in matcher.alternatives:
                most = max(most, len(alternative.spans(padded)))
            counts.append(most)
        return counts

    def count_each(self, forms: JoinedForms) -> list[TermCounts]:
        """Returns how often each term matches, by the number of the text, in those of several texts that have it. The
        texts are searched as one."""
        return self._count_each(self._matchers, forms)

    def count_with_letters(self, titles: JoinedForms, others: JoinedForms, letters: JoinedForms) -> list[TermCounts]:
        """Does the same for texts that follow their titles. Their letters are a quarter of their index forms, in which
        there are pairs of them, so terms of an unspaced script are counted there. `others` are the forms of both, which
        are needed unless every term `is_unspaced`."""
        texts = len(titles[1]) - 1
        matchers = self._matchers
        in_titles = iter(self._count_each([one for one in matchers if one.unspaced is not None], titles))
        in_forms = iter(self._count_each([one for one in matchers if one.unspaced is None], others))
        by_term: list[TermCounts] = []
        for matcher in matchers:
            if matcher.unspaced is None:
                by_term.append(next(in_forms))
            else:
                counts = next(in_titles)
                for text, count in matcher.unspaced.count_in(*letters).items():
                    counts[texts + text] = count
                by_term.append(counts)
        return by_term

    def _count_each(self, matchers: Sequence[TermMatcher], forms: JoinedForms) -> list[TermCounts]:
        joined, starts = forms
        by_term: list[TermCounts] = []
        for matcher in matchers:
            most: TermCounts = {}
            for alternative in matcher.alternatives:
                counts = alternative.count_in(joined, starts)
                if most:
                    for text, count in counts.items():
                        most[text] = max(count, most.get(text, 0))
                else:
                    most = counts
            by_term.append(most)
        return by_term


# All sources of a search need the same.
term_counter = lru_cache(maxsize=64)(TermCounter)


def best_field(fields: Mapping[str, str], counter: TermCounter) -> tuple[str, str] | None:
    """Returns the name and text of the field that matches most terms; if none matches, of the first that is not empty.
    Returns None if all are empty."""
    filled = [(name, text) for name, text in fields.items() if text]
    if len(filled) < 2:
        return filled[0] if filled else None
    texts = [text for _, text in filled]
    # Folding finds everything except other scripts and parts of identifiers, and is much cheaper than segmenting.
    by_term = counter.count_each(join_forms(list(map(fold, texts))))
    if not any(by_term):
        by_term = counter.count_each(join_forms(list(map(segment, texts))))
    best, chosen = (0, 0), filled[0]
    for number, field in enumerate(filled):
        counts = [counts[number] for counts in by_term if number in counts]
        if (len(counts), sum(counts)) > best:
            best, chosen = (len(counts), sum(counts)), field
    return chosen
