"""Scores a block of candidates together, and sorts it. Python takes most of the time of a small search here, so work is
done once for the whole block, or for those candidates that need it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from operator import attrgetter

from sources.query import Term
from sources.search.scoring import QueryBoosts, Scorer, title_share
from sources.search.term_matching import JoinedForms, TermCounter, TermCounts
from sources.storage.contract import Search
from sources.storage.search.candidates import HitCandidate
from sources.text.segmentation import segment
from sources.text.stemming import STOPWORDS, stem

SCORE_DIGITS = 4
# A longer message always has words that a query lacks.
_REPETITION_CHARS = 100
# Of Latin, East Asian, Arabic, Greek and Ethiopic texts.
_QUESTION_MARKS = ("?", "？", "؟", "\u037e", "፧")

_by_score = attrgetter("score", "last_modified")
_by_completeness = attrgetter("has_all_terms", "score", "last_modified")


def sort_key(candidate: HitCandidate) -> str | int:
    """Orders candidates that are otherwise equal."""
    return candidate.part_id or candidate.id


class BlockScoring(ABC):
    @abstractmethod
    def score(self, block: list[HitCandidate]) -> None:
        """Sets `score` and `has_all_terms` of each candidate and sorts the block."""


class ComparableScoring(BlockScoring):
    """Scores that are comparable across sources and pages. With `prefers_all_terms`, what contains all terms comes
    first."""

    def __init__(
        self, counter: TermCounter, scorer: Scorer, search: Search, boosts: QueryBoosts, *, prefers_all_terms: bool
    ) -> None:
        self._counter = counter
        self._scorer = scorer
        self._boosts = boosts
        self._time_terms = search.query.time_terms
        self._query_stems = _query_stems(search.query.terms)
        # The terms that the query contains, as bits.
        self._own_terms = (1 << len(search.query.own_terms)) - 1
        self._near_terms = {index: term.near for index, term in enumerate(search.query.terms) if term.near is not None}
        is_by_score = search.query.has_operators or not (prefers_all_terms or search.query.preferred)
        self._rank = _by_score if is_by_score else _by_completeness
        self._opening = _opening(search.query.prose)
        self._terms_in_names: dict[str, tuple[int, ...]] = {"": ()}
        self._is_sorted = search.order == "relevance"

    def score(self, block: list[HitCandidate]) -> None:
        forms, counts, is_in_other, lengths = _count_terms(block, self._counter)
        if self._time_terms:
            self._add_times(block, counts)
        if self._near_terms:
            _remove_repetition(self._near_terms, counts, len(block))
        names: dict[int, tuple[int, ...]] = {}
        plain: list[int] = []
        if block[0].has_speakers:
            names = self._add_senders(block, counts)
            for index, candidate in enumerate(block):
                # A message that only asks, and has no word that the query lacks, adds no information.
                text = candidate.hit_text
                if (
                    len(text) <= _REPETITION_CHARS
                    and text.rstrip().endswith(_QUESTION_MARKS)
                    and candidate.part_id is not None
                    and _content_stems(segment(text)) <= self._query_stems
                ):
                    plain.append(index)
        elif block[0].has_authors:
            names = self._remove_authors(block, counts)
        tally = self._scorer.tally(counts, lengths, plain)
        scores = self._scorer.scores(tally, *self._title_shares(block, forms, tally.prominent))
        for index, in_name in names.items():
            scores[index] = self._scorer.name_score(in_name)
            block[index].is_only_named = not self._own_terms & ~sum(1 << term for term in in_name)
        scores = self._boosts.apply_to(scores, block)
        own_terms = self._own_terms
        for candidate, score, terms, prominent, is_matched_in_other in zip(
            block, scores, tally.terms, tally.prominent, is_in_other, strict=True
        ):
            if terms & own_terms == own_terms:
                candidate.has_all_terms = True
            candidate.is_matched_in_other = is_matched_in_other
            candidate.is_matched_aside = is_matched_in_other and not prominent
            candidate.score = round(score, SCORE_DIGITS)
        if self._is_sorted:
            block.sort(key=sort_key)
            block.sort(key=self._rank, reverse=True)

    def _title_shares(
        self, block: Sequence[HitCandidate], forms: JoinedForms, prominent: Sequence[int]
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Returns the share of a title that the query contains, for candidates with a title that matches, and the share
        that the opening of the query is, for those whose title begins with it. Words such as "who is" or "how to" are
        too common to be searched for, but such a title announces an answer."""
        shares: dict[int, float] = {}
        for index, terms in enumerate(prominent):
            candidate = block[index]
            if terms and candidate.part_id is None:
                # Tags may be indexed with the title, but are not part of it.
                title = forms.form(index) if candidate.tags == "[]" else segment(candidate.title)
                shares[index] = title_share(_content_stems(title), self._query_stems)
        opening_shares: dict[int, float] = {}
        if self._opening and block[0].part_id is None:
            for index in range(len(block)):
                form = forms.form(index).strip() + " "
                if form.startswith(self._opening):
                    opening_shares[index] = self._opening.count(" ") / max(1, form.count(" "))
        return shares, opening_shares

    def _add_times(self, block: Sequence[HitCandidate], counts: Sequence[TermCounts]) -> None:
        """What was created in a time of the query contains the words for it: a note of August 2023 need not say so."""
        for number, candidate in enumerate(block, len(block)):
            if self._boosts.time.contains(candidate.created_at):
                for term in self._time_terms:
                    counts[term].setdefault(number, 1)

    def _add_senders(self, block: Sequence[HitCandidate], counts: Sequence[TermCounts]) -> dict[int, tuple[int, ...]]:
        """The name of its sender counts as a word of a message that has other words of the query, or the same word.
        Returns the terms of the names of the others, by the number of the message: these are not about the person. A
        reply to a message that mentions its sender is no more about the person than any other message."""
        texts = len(block)
        only_names = {}
        for index, candidate in enumerate(block):
            terms = self._terms_in(candidate.speaker)
            if not terms:
                continue
            if any(
                index in parts or (index + texts in parts and term not in terms) for term, parts in enumerate(counts)
            ):
                for term in terms:
                    counts[term][index + texts] = counts[term].get(index + texts, 0) + 1
            else:
                only_names[index] = terms
                for term in terms:
                    counts[term].pop(index + texts, None)
        return only_names

    def _remove_authors(
        self, block: Sequence[HitCandidate], counts: Sequence[TermCounts]
    ) -> dict[int, tuple[int, ...]]:
        """Returns the same for items with an author, whose name is part of their text."""
        only_names = {}
        for index, candidate in enumerate(block):
            if not self._terms_in(candidate.author_name):
                continue
            in_name = self._counter.count(segment(candidate.author_name))
            other = index + len(block)
            in_text = [parts.get(index, 0) + parts.get(other, 0) for parts in counts]
            if in_text == in_name:
                only_names[index] = self._terms_in(candidate.author_name)
                for term in only_names[index]:
                    del counts[term][other]
        return only_names

    def _terms_in(self, name: str) -> tuple[int, ...]:
        terms = self._terms_in_names.get(name)
        if terms is None:
            found = self._counter.count(segment(name))
            terms = self._terms_in_names[name] = tuple([term for term, count in enumerate(found) if count])
        return terms


class QueryScoring(BlockScoring):
    """tldw's score: how the rank compares with those of all matches of the query."""

    def __init__(self, counter: TermCounter, scale: Callable[[Sequence[float | None]], Sequence[float]]) -> None:
        self._counter = counter
        self._scale = scale

    def score(self, block: list[HitCandidate]) -> None:
        scores = self._scale([candidate.bm25 for candidate in block])
        _, counts, is_in_other, _ = _count_terms(block, self._counter)
        for index, (candidate, score) in enumerate(zip(block, scores, strict=True)):
            prominent = [index in parts for parts in counts]
            candidate.has_all_terms = all(index in parts or index + len(block) in parts for parts in counts)
            candidate.is_matched_in_other = is_in_other[index]
            candidate.is_matched_aside = is_in_other[index] and not any(prominent)
            candidate.score = round(score, SCORE_DIGITS)


def _count_terms(
    block: Sequence[HitCandidate], counter: TermCounter
) -> tuple[JoinedForms, list[TermCounts], list[bool], tuple[int, ...]]:
    """Returns the index forms of the block's texts, first the prominent ones and then the others, how often each term
    occurs in them, whether the other text of each candidate contains any, and the length of both texts of each."""
    prominent, other, lengths = zip(*[candidate.scored_texts() for candidate in block], strict=True)
    texts = (*prominent, *other)
    forms = JoinedForms(texts)
    counts = counter.count_each(forms)
    is_in_other = [False] * len(texts)
    for parts in counts:
        for part in parts:
            is_in_other[part] = True
    return forms, counts, is_in_other[len(block) :], lengths


def _remove_repetition(near_terms: Mapping[int, int], counts: Sequence[TermCounts], texts: int) -> None:
    """A near term counts only in place of the term that it may mean, and with several near terms, one counts: a text
    with two of them must not rank above one with the term itself. Steuer* also matches Steuer itself."""
    first_near: dict[int, int] = {}
    for near, meant in near_terms.items():
        for index in {part % texts for part in counts[meant]}:
            counts[near].pop(index, None)
            counts[near].pop(index + texts, None)
        first = first_near.setdefault(meant, near)
        if first != near:
            for part, count in counts[near].items():
                counts[first][part] = max(count, counts[first].get(part, 0))
            counts[near].clear()


@lru_cache(maxsize=64)
def _opening(prose: str) -> str:
    """Returns the words before the first one that is searched for, each with a space after it, if there are several."""
    words = list(takewhile(STOPWORDS.__contains__, segment(prose).split()))
    return "".join(f"{word} " for word in words) if len(words) > 1 else ""


# All sources of a search need the same.
@lru_cache(maxsize=64)
def _query_stems(terms: tuple[Term, ...]) -> frozenset[str]:
    return frozenset([stem(token) for term in terms for phrase in term.word.alternatives for token in phrase.tokens])


@lru_cache(maxsize=4096)
def _content_stems(form: str) -> frozenset[str]:
    return frozenset(map(stem, set(form.split()) - STOPWORDS))
