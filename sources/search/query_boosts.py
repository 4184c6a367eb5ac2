"""What raises the scores of hits apart from their words and their meaning."""

from collections.abc import Sequence

from sources.query import Term
from sources.search.sender_boost import SenderBoost
from sources.search.time_boost import TimeBoost
from sources.times import TimeSpan


class QueryBoosts:
    """The boosts of one query, for its times and for the people it names."""

    def __init__(self, times: Sequence[TimeSpan] = (), terms: Sequence[Term] = ()) -> None:
        self.time = TimeBoost(times)
        self.sender = SenderBoost(terms)
        self.is_neutral = not self.time.periods and self.sender.is_neutral

    def apply(self, score: float, created_at: str, sender: str) -> float:
        if self.time.periods:
            score = self.time.apply(score, created_at)
        return self.sender.apply(score, sender) if sender else score
