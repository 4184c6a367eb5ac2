"""Scores from 0 to 1.

The default score is comparable across sources and pages: it depends on the query, the hit and how common the words are,
but never on the other hits. `scale_to_range` is the alternative, which ranks within one result list.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain, compress, takewhile
from math import log, sqrt
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct

from config.times import format_time
from sources.query import Term
from sources.search.message_boost import QUESTION_MARKS, ROLES, MessageBoost
from sources.search.term_matching import TermCounter, TermCounts, join_letters
from sources.text.folding import JoinedForms, fold, fold_joined
from sources.text.segmentation import STOPWORDS, segment, stem
from sources.times import RELATIVE_WORDS, TimeSpan, find_times, resolve

if TYPE_CHECKING:
    from sources.storage.contract import Search
    from sources.storage.search.engine import HitCandidate

# The whole formula, by words: each term of the query has a weight (`term_weights`). A text gets the sum of those of
# its terms, saturated by how often they occur, times the root of the share of the query that it has, plus a share for a
# title that matches, divided by what the whole query could reach (`Scorer.scores`). `QueryBoosts` then raises the odds
# for times and people that the query names. `TextSearch` adds the meaning: it replaces the score by
# `(1 - w) * score + w * cosine`, where the cosine is boosted in the same way. Last, `MessageBoost` raises or lowers the
# odds of messages.

# Term frequency saturation and length normalization as in BM25 (k1 1.2, b 0.75). The mean length is fixed at 600
# characters, about 100 words, so that sources with short and with long texts are scored alike. All four values lie in
# the middle of a flat optimum: half or double of each changes little.
_SATURATION = 1.2
_LENGTH_SHARE = 0.75
_MEAN_LENGTH_CHARS = 600
_DAMPING = _SATURATION * (1 - _LENGTH_SHARE)
_DAMPING_PER_CHAR = _SATURATION * _LENGTH_SHARE / _MEAN_LENGTH_CHARS
_TITLE_SHARE = 0.3

# Avoids a division by zero in `scale_to_range`.
_EPSILON = 1e-9


class TermStatistics(Struct, frozen=True):
    """The number of rows in all sources together that contain a term, and how often the query contains it."""

    rows_with_term: int
    count: int = 1


class Prominence(Struct, frozen=True):
    """How much more an occurrence in the prominent part of a text counts than one in the rest."""

    weight: int


TITLE_AND_BODY = Prominence(2)
MESSAGE_AND_CONTEXT = Prominence(3)


def term_weights(rows: int, terms: Sequence[TermStatistics]) -> list[float]:
    """Returns the weight of each term, which is always positive: the rarer the term among `rows`, the higher. It is the
    inverse document frequency of BM25; repeating a word in the query counts by the square root."""
    weights: list[float] = []
    for term in terms:
        others = max(rows, term.rows_with_term) - term.rows_with_term
        weights.append(log(1 + (others + 0.5) / (term.rows_with_term + 0.5)) * sqrt(term.count))
    return weights


class Scorer:
    """Scores hits by the share of the query that they contain, weighted and saturated. Titles that match add to it.
    `total` is the weight of the whole query, if not that of all terms."""

    def __init__(self, weights: Sequence[float], prominence: Prominence, total: float | None = None) -> None:
        self._weights = tuple(weights)
        self._total = sum(weights) if total is None else total
        self._prominence = prominence.weight

    def scores(
        self,
        counts: Sequence[Mapping[int, int]],
        lengths_chars: Sequence[int],
        title_shares: Mapping[int, float],
        opening_shares: Mapping[int, float],
        plain: Collection[int] = (),
    ) -> tuple[list[float], list[float], list[int]]:
        """Returns the score of each of several texts, the weight of the terms in its prominent part, and all of its
        terms as bits. Most texts contain few terms of a query, so only those are visited.

        `counts` are the numbers of occurrences of each term. The number of a text is that of its prominent part (the
        title, if there is one); the rest of it follows after the prominent parts of all texts. `lengths_chars` are the
        lengths of all indexed text. The prominent parts of `plain` texts count no more than the rest.

        `title_shares` are the shares of titles that the query contains, by the number of the text; those of titles that
        do not match are left out. `opening_shares` are those of titles that begin with the same common words as the
        query; they count as much as the text matches.
        """
        texts, total = len(lengths_chars), self._total
        saturated, in_title, matched = [0.0] * texts, [0.0] * texts, [0.0] * texts
        terms = [0] * texts
        bit = 1
        for weight, parts in zip(self._weights, counts, strict=True):
            for part, count in parts.items():
                if part >= texts:
                    index, occurrences = part - texts, count
                    if index in parts:
                        continue  # counted with the prominent part
                else:
                    index, prominence = part, 1 if part in plain else self._prominence
                    occurrences = prominence * count + parts.get(part + texts, 0)
                    in_title[index] += weight
                damping = _DAMPING + _DAMPING_PER_CHAR * lengths_chars[index]
                saturated[index] += weight * occurrences / (occurrences + damping)
                matched[index] += weight
                terms[index] |= bit
            bit <<= 1
        if total <= 0:
            return [0.0] * texts, in_title, terms
        # Repetition does not make up for missing terms: otherwise a short text that repeats one of five terms would
        # rank above a long one that contains them all.
        scores = [
            one * sqrt(weight / total) if weight < total else one
            for one, weight in zip(saturated, matched, strict=True)
        ]
        for index, share in title_shares.items():
            scores[index] += _TITLE_SHARE * in_title[index] * share
        for index, share in opening_shares.items():
            scores[index] += _TITLE_SHARE * matched[index] * share
        return [min(1.0, score / total / (1 + _TITLE_SHARE)) for score in scores], in_title, terms

    def name_score(self, terms: Sequence[int]) -> float:
        """Returns the score of a text that matches by the name of its author alone, which counts like a title without
        a text."""
        weight = sum(self._weights[term] for term in terms)
        return min(1.0, _TITLE_SHARE * weight / self._total / (1 + _TITLE_SHARE)) if self._total > 0 else 0.0


def raise_odds(score: float, factor: float) -> float:
    """Multiplies the odds of a score. Low scores grow by the factor, and no score exceeds 1."""
    return factor * score / (1 + (factor - 1) * score)


def title_share(title_stems: frozenset[str], query_stems: frozenset[str]) -> float:
    """Returns the share of a title's stems that the query contains."""
    return len(title_stems & query_stems) / len(title_stems) if title_stems else 0.0


def scale_to_range(ranks: Sequence[float]) -> list[float]:
    """Scales bm25 ranks, of which the lowest is best, to 0 for the worst and 1 for the best. Equal ranks are all 1."""
    if not ranks:
        return []
    worst, best = max(ranks), min(ranks)
    if worst == best:
        return [1.0] * len(ranks)
    return [(worst - rank) / (worst - best + _EPSILON) for rank in ranks]


# -- sender boost ------------------------------------------------------------------------------------------------------
# Ranks higher what was said by someone whom a query names.
#
# "What did Ana paint" is answered by a message from Ana. As a word her name says little: it is in every message that
# she wrote, and in the context of every reply to it, so that it is among the most common words of a conversation.

# In conversations it helps more the larger it is, up to 2. Above 1.3, chats begin to displace better answers of other
# sources about the same person.
_FACTOR = 1.3


class SenderBoost:
    """The boost of one query. A query that is nothing but a name asks for the word."""

    def __init__(self, terms: Sequence[Term]) -> None:
        # Without any, no sender can change a score.
        self.stems: frozenset[str] = _stems(terms, ROLES) if len(terms) > 1 else frozenset()
        self._factors: dict[str, float] = {"": 1.0}

    def factor(self, sender: str) -> float:
        factor = self._factors.get(sender)
        if factor is None:
            is_named = not self.stems.isdisjoint(map(stem, segment(sender).split()))
            factor = self._factors[sender] = _FACTOR if is_named else 1.0
        return factor


# -- time boost --------------------------------------------------------------------------------------------------------
# Ranks higher what was created in the times that a query mentions.
#
# A question about August is mostly answered by what was written in August, or shortly after it: "last month we ...".
# The preference is mild, because the best answer may have been written at any other time. Factors between 1.1 and 1.3
# measure the same; above, good answers of other times are lost.

_INSIDE = 1.2
# Shortly after the time, and within a whole year or since a date, which says little.
_NEAR = 1.1
_SHORTLY_AFTER = timedelta(days=10)
_WIDE = frozenset(("year", "open"))
# A person's message; an assistant's answer rarely says when something happened, and takes longer to read.
_MESSAGE_CHARS_MAX = 500
_CLOCK_CHANGE = timedelta(hours=2)
# The stored form sorts as text; these sort before and after every time.
_FIRST, _LAST = "", "~"


class BoostedPeriod(Struct, frozen=True):
    """A half-open range of stored times, and the factor for what was created in it."""

    start: str
    end: str
    factor: float


class TimeBoost:
    """The boost of one query. Without times it leaves every score as it is."""

    def __init__(self, times: Sequence[TimeSpan]) -> None:
        periods = [period for span in times for period in _periods(span)]
        # The first period that contains a time decides.
        self.periods = tuple(sorted(periods, key=lambda period: -period.factor))
        self._inside = [period for span in times for period in _periods(span)[:1]]
        lengths = [span.end - span.start for span in times if span.precision not in _WIDE and span.start and span.end]
        # What a message means is no longer than the named time: "last year" says nothing about 5 May.
        self._meant_max = max(lengths, default=timedelta()) + _CLOCK_CHANGE

    def moment(self, created_at: str, text: str) -> str:
        """Returns the time that a message is about: when it was written, unless a relative time in it means one that
        the query names. "Last Friday", written on 9 May, is 5 May."""
        if not created_at or len(text) > _MESSAGE_CHARS_MAX or self.contains(created_at):
            return created_at
        for start, end in _meant_times(created_at, text):
            # The middle is on the same day in nearly every time zone.
            middle = format_time(start + (end - start) / 2)
            if end - start <= self._meant_max and self.contains(middle):
                return middle
        return created_at

    def factor(self, created_at: str) -> float:
        return next((period.factor for period in self.periods if period.start <= created_at < period.end), 1.0)

    def contains(self, created_at: str) -> bool:
        """Returns whether a time is in one of the named times. What was created then counts as containing their
        words."""
        return any(period.start <= created_at < period.end for period in self._inside)


def _meant_times(created_at: str, text: str) -> list[tuple[datetime, datetime]]:
    """Returns the times that the relative times of a text mean, given when it was written."""
    if RELATIVE_WORDS.isdisjoint(fold(text).split()):
        return []
    written = datetime.fromisoformat(created_at)
    spans = [resolve(mention, written) for mention in find_times(text) if mention.bound == "in" and mention.counts_back]
    return [(span.start, span.end) for span in spans if span and span.start and span.end]


def _periods(span: TimeSpan) -> list[BoostedPeriod]:
    start = format_time(span.start) if span.start is not None else _FIRST
    end = format_time(span.end) if span.end is not None else _LAST
    if span.end is None or span.precision in _WIDE:
        return [BoostedPeriod(start, end, _NEAR)]
    try:
        after = format_time(span.end + _SHORTLY_AFTER)
    except OverflowError:
        after = _LAST
    return [BoostedPeriod(start, end, _INSIDE), BoostedPeriod(end, after, _NEAR)]


# -- query boosts ------------------------------------------------------------------------------------------------------
# What raises the scores of hits apart from their words and their meaning.


class BoostedMatch(Protocol):
    """`has_speakers` says whether matches of its kind can have been said by someone."""

    has_speakers: ClassVar[bool]

    @property
    def created_at(self) -> str: ...
    @property
    def speaker(self) -> str: ...
    @property
    def hit_text(self) -> str: ...


_NO_TIMES = TimeBoost(())


class QueryBoosts:
    """The boosts of one query, for its times and for the people it names. With its `prose`, if it is a
    sentence, messages have those of the second stage, too."""

    def __init__(self, times: Sequence[TimeSpan] = (), terms: Sequence[Term] = (), prose: str | None = None) -> None:
        self.time = TimeBoost(times) if times else _NO_TIMES
        self.sender = SenderBoost(terms)
        boost = None if prose is None else MessageBoost(prose, self.sender.factor)
        self.message = boost if boost is not None and boost.is_sentence else None

    def moments(self, matches: Sequence[BoostedMatch]) -> list[str]:
        """Returns the times that matches of one kind are about, for a query that names a time."""
        if not matches or not matches[0].has_speakers:
            return [match.created_at for match in matches]
        return [self.time.moment(match.created_at, match.hit_text) for match in matches]

    def apply_to(
        self, scores: list[float], matches: Sequence[BoostedMatch], moments: Sequence[str] = ()
    ) -> list[float]:
        """Returns the boosted scores of several matches of one kind. May change the given list."""
        if self.time.periods:
            times = moments or self.moments(matches)
            scores = [raise_odds(score, self.time.factor(time)) for score, time in zip(scores, times, strict=True)]
        if self.sender.stems and matches and matches[0].has_speakers:
            # Mostly, the query names none of them.
            for index, match in enumerate(matches):
                if (factor := self.sender.factor(match.speaker)) != 1:
                    scores[index] = raise_odds(scores[index], factor)
        return scores


NO_BOOSTS = QueryBoosts()
# All sources of a search need the same.
query_boosts = lru_cache(maxsize=64)(QueryBoosts)


# -- blocks of candidates ----------------------------------------------------------------------------------------------
# Scores a block of candidates together, and sorts it. Python takes most of the time of a small search here, so work is
# done once for the whole block, or for those candidates that need it.

SCORE_DIGITS = 4
# A longer message always has words that a query lacks.
_REPETITION_CHARS = 100

_by_score = attrgetter("score", "last_modified")
_by_completeness = attrgetter("has_all_terms", "score", "last_modified")
_by_id = attrgetter("id")
_scored_texts = methodcaller("scored_texts")


def _by_part(candidate: "HitCandidate") -> Any:
    return candidate.part_id or candidate.id


def sort_block(block: "list[HitCandidate]", rank: Callable[[Any], Any]) -> None:
    """Sorts candidates of one kind by rank, the highest first. Their ids order those that are otherwise equal."""
    block.sort(key=_by_part if block and block[0].has_speakers else _by_id)
    block.sort(key=rank, reverse=True)


class BlockScoring(ABC):
    @abstractmethod
    def score(self, block: "list[HitCandidate]") -> None:
        """Sets `score` and `has_all_terms` of each candidate and sorts the block."""


class ComparableScoring(BlockScoring):
    """Scores that are comparable across sources and pages. With `prefers_all_terms`, what contains all terms comes
    first."""

    def __init__(
        self,
        counter: TermCounter,
        scorer: Scorer,
        search: "Search",
        boosts: QueryBoosts,
        *,
        prefers_all_terms: bool,
        message_boost: MessageBoost | None = None,
    ) -> None:
        query = search.query
        self._counter = counter
        self._scorer = scorer
        self._boosts = boosts
        self._message_boost = message_boost
        self._time_terms = query.time_terms
        self._query_stems = _stems(query.terms)
        # The terms that the query contains, as bits.
        self._own_terms = (1 << len(query.own_terms)) - 1
        # The term that each near term may mean. Near terms follow the others.
        self._near_terms: dict[int, int] = {}
        if query.terms[-1:] and query.terms[-1].near is not None:
            self._near_terms = {index: term.near for index, term in enumerate(query.terms) if term.near is not None}
        is_by_score = query.has_operators or not (prefers_all_terms or query.preferred)
        self._rank = _by_score if is_by_score else _by_completeness
        self._opening = _opening(query.prose)
        self._terms_in_names: dict[str, tuple[int, ...]] = {"": ()}
        self._is_sorted = search.order == "relevance"

    def score(self, block: "list[HitCandidate]") -> None:
        kind, texts = block[0], len(block)
        forms, counts, lengths = _count_terms(block, self._counter)
        found = set().union(*counts)
        moments = self._boosts.moments(block) if self._boosts.time.periods else []
        if self._time_terms:
            self._add_times(moments, counts)
        if self._near_terms:
            _remove_repetition(self._near_terms, counts, texts)
        # Of candidates that match by the name of their author alone: the terms of the name.
        names: dict[int, tuple[int, ...]] = {}
        plain: list[int] = []
        if kind.has_speakers:
            self._add_senders(block, counts, names, plain)
        elif kind.has_authors:
            self._remove_authors(block, counts, names)
        shares = self._title_shares(block, forms, found)
        scores, in_title, terms = self._scorer.scores(counts, lengths, *shares, plain)
        for index, in_name in names.items():
            scores[index] = self._scorer.name_score(in_name)
            block[index].is_only_named = not self._own_terms & ~sum(1 << term for term in in_name)
        scores = self._boosts.apply_to(scores, block, moments)
        if self._message_boost is not None:
            scores = self._message_boost.apply_to(scores, block)
        own_terms = self._own_terms
        for candidate, score, bits in zip(block, scores, terms, strict=True):
            if bits & own_terms == own_terms:
                candidate.has_all_terms = True
            candidate.score = round(score, SCORE_DIGITS)
        for index in found:
            if index >= texts:
                candidate = block[index - texts]
                candidate.is_matched_in_other = True
                candidate.is_matched_aside = not in_title[index - texts]
        if self._is_sorted:
            sort_block(block, self._rank)

    def _title_shares(
        self, block: "Sequence[HitCandidate]", forms: JoinedForms, found: Collection[int]
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Returns the share of a title that the query contains, for candidates with a title that matches, and the share
        that the opening of the query is, for those whose title begins with it. Words such as "who is" or "how to" are
        too common to be searched for, but such a title announces an answer."""
        shares: dict[int, float] = {}
        opening_shares: dict[int, float] = {}
        opening = self._opening if block[0].part_id is None else ""
        if not opening and min(found, default=len(block)) >= len(block):
            return shares, opening_shares
        joined, starts = forms
        for index, candidate in enumerate(block):
            is_matched = candidate.part_id is None and index in found
            if not is_matched and not opening:
                continue
            form = joined[starts[index] : starts[index + 1]].strip()
            if is_matched:
                # Tags may be indexed with the title, but are not part of it.
                title = form if candidate.tags == "[]" else segment(candidate.title)
                shares[index] = title_share(_content_stems(title), self._query_stems)
            if opening and f"{form} ".startswith(opening):
                opening_shares[index] = opening.count(" ") / (form.count(" ") + 1)
        return shares, opening_shares

    def _add_times(self, moments: Sequence[str], counts: Sequence[TermCounts]) -> None:
        """What was created in a time of the query contains the words for it: a note of August 2023 need not say so."""
        for number, moment in enumerate(moments, len(moments)):
            if self._boosts.time.contains(moment):
                for term in self._time_terms:
                    counts[term].setdefault(number, 1)

    def _add_senders(
        self,
        block: "Sequence[HitCandidate]",
        counts: Sequence[TermCounts],
        only_names: dict[int, tuple[int, ...]],
        plain: list[int],
    ) -> None:
        """The name of a message's sender counts as one of its words if the message contains a word of the query, or the
        messages before it contain another one. Otherwise the message is merely by that person, not about them: the
        terms in the name are added to `only_names` by the number of the message. Nor do they count in the messages
        before it: a reply to a message that mentions its sender is no more about the person than any other.

        A question whose words are all in the query adds no information: it is added to `plain`.
        """
        texts = len(block)
        known = self._terms_in_names
        for index, candidate in enumerate(block):
            speaker, text = candidate.speaker, candidate.hit_text
            terms = known[speaker] if speaker in known else self._terms_in(speaker)
            if not terms:
                pass
            elif any(
                index in parts or (index + texts in parts and term not in terms) for term, parts in enumerate(counts)
            ):
                for term in terms:
                    counts[term][index + texts] = counts[term].get(index + texts, 0) + 1
            else:
                only_names[index] = terms
                for term in terms:
                    counts[term].pop(index + texts, None)
            if (
                len(text) <= _REPETITION_CHARS
                and text.rstrip().endswith(QUESTION_MARKS)
                and candidate.part_id is not None
                and _content_stems(segment(text)) <= self._query_stems
            ):
                plain.append(index)

    def _remove_authors(
        self,
        block: "Sequence[HitCandidate]",
        counts: Sequence[TermCounts],
        only_names: dict[int, tuple[int, ...]],
    ) -> None:
        """Does the same for items with an author, whose name is part of their text."""
        for index, candidate in enumerate(block):
            name = candidate.author_name
            if not name or not self._terms_in(name):
                continue
            in_name = self._counter.count(segment(name))
            other = index + len(block)
            in_text = [parts.get(index, 0) + parts.get(other, 0) for parts in counts]
            if in_text == in_name:
                only_names[index] = self._terms_in(name)
                for term in only_names[index]:
                    del counts[term][other]

    def _terms_in(self, name: str) -> tuple[int, ...]:
        terms = self._terms_in_names.get(name)
        if terms is None:
            counts = self._counter.count(segment(name))
            terms = self._terms_in_names[name] = tuple(compress(range(len(counts)), counts))
        return terms


class QueryScoring(BlockScoring):
    """tldw's score: how the rank compares with those of all matches of the query."""

    def __init__(self, counter: TermCounter, scale: Callable[[Sequence[float | None]], Sequence[float]]) -> None:
        self._counter = counter
        self._scale = scale

    def score(self, block: "list[HitCandidate]") -> None:
        scores = self._scale([candidate.bm25 for candidate in block])
        _, counts, _ = _count_terms(block, self._counter)
        found, texts = set().union(*counts), len(block)
        for index, (candidate, score) in enumerate(zip(block, scores, strict=True)):
            candidate.is_matched_in_other = index + texts in found
            candidate.is_matched_aside = candidate.is_matched_in_other and index not in found
            candidate.score = round(score, SCORE_DIGITS)


def _count_terms(
    block: "Sequence[HitCandidate]", counter: TermCounter
) -> tuple[JoinedForms, list[TermCounts], tuple[int, ...]]:
    """Returns the index forms of the block's texts, first the prominent ones and then the others, joined; how often
    each term occurs in them; and the length of both texts of each candidate."""
    prominent, other, lengths = zip(*map(_scored_texts, block), strict=True)
    if counter.has_unspaced and block[0].written_text is not None:
        written = [candidate.written_text or "" for candidate in block]
        titles = fold_joined(prominent)
        forms = titles if counter.is_unspaced else fold_joined((*prominent, *other))
        return forms, counter.count_with_letters(titles, forms, join_letters(written)), lengths
    forms = fold_joined((*prominent, *other))
    return forms, counter.count_each(forms), lengths


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
    # Word by word: that of most queries ends with the first one.
    tokens = chain.from_iterable(fold(word).split() for word in prose.split())
    words = list(takewhile(STOPWORDS.__contains__, tokens))
    return "".join(f"{word} " for word in words) if len(words) > 1 else ""


# All sources of a search need the same.
@lru_cache(maxsize=64)
def _stems(terms: tuple[Term, ...], ignored: frozenset[str] = frozenset()) -> frozenset[str]:
    """Returns the stems of all tokens of a query but those ignored."""
    tokens: set[str] = set()
    for term in terms:
        for phrase in term.word.alternatives:
            tokens.update(phrase.tokens)
    return frozenset(map(stem, tokens - ignored))


@lru_cache(maxsize=4096)
def _content_stems(form: str) -> frozenset[str]:
    return frozenset(map(stem, set(form.split()) - STOPWORDS))
