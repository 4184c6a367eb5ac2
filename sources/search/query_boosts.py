"""What raises the scores of hits apart from their words and their meaning."""

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Protocol

from sources.query import Term
from sources.search.sender_boost import SenderBoost
from sources.search.time_boost import TimeBoost
from sources.times import TimeSpan


class BoostedMatch(Protocol):
    """`has_speakers` says whether matches of its kind can have been said by someone."""

    has_speakers: ClassVar[bool]

    @property
    def created_at(self) -> str: ...
    @property
    def speaker(self) -> str: ...


class QueryBoosts:
    """The boosts of one query, for its times and for the people it names."""

    def __init__(self, times: Sequence[TimeSpan] = (), terms: Sequence[Term] = ()) -> None:
        self.time = TimeBoost(times)
        self.sender = SenderBoost(terms)

    def can_apply_to(self, kind: type[BoostedMatch]) -> bool:
        """Whether they can change the score of any match of a kind."""
        return bool(self.time.periods) or (kind.has_speakers and not self.sender.is_neutral)

    def apply(self, score: float, created_at: str, sender: str) -> float:
        if self.time.periods:
            score = self.time.apply(score, created_at)
        return self.sender.apply(score, sender) if sender else score

    def apply_to(self, scores: Sequence[float], matches: Sequence[BoostedMatch]) -> list[float]:
        """Returns the boosted scores of several matches."""
        return [
            self.apply(score, match.created_at, match.speaker) for score, match in zip(scores, matches, strict=True)
        ]


NO_BOOSTS = QueryBoosts()


@lru_cache(maxsize=64)
def query_boosts(times: tuple[TimeSpan, ...], terms: tuple[Term, ...]) -> QueryBoosts:
    """Returns the boosts of a query. All sources of a search need the same."""
    return QueryBoosts(times, terms)
