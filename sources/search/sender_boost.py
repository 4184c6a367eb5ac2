"""Ranks higher what was said by someone whom a query names.

"What did Ana paint" is answered by a message from Ana. As a word her name says little: it is in every message that she
wrote, and in the context of every reply to it, so that it is among the most common words of a conversation.
"""

from collections.abc import Sequence

from sources.query import Term
from sources.search.scoring import raise_odds
from sources.text.segmentation import segment
from sources.text.stemming import stem

# In conversations it helps more the larger it is, up to 2. Above 1.3, chats begin to displace better answers of other
# sources about the same person.
_FACTOR = 1.3
# Names that clients use where the sender has none.
_ROLES = frozenset(("user", "assistant", "system", "tool", "human", "ai", "bot"))


class SenderBoost:
    """The boost of one query. A query that is nothing but a name asks for the word."""

    def __init__(self, terms: Sequence[Term]) -> None:
        tokens = {token for term in terms for phrase in term.word.alternatives for token in phrase.tokens}
        self._stems = frozenset(map(stem, tokens - _ROLES)) if len(terms) > 1 else frozenset()
        self._factors: dict[str, float] = {"": 1.0}

    @property
    def is_neutral(self) -> bool:
        """Whether no sender can change a score."""
        return not self._stems

    def factor(self, sender: str) -> float:
        factor = self._factors.get(sender)
        if factor is None:
            is_named = not self._stems.isdisjoint(map(stem, segment(sender).split()))
            factor = self._factors[sender] = _FACTOR if is_named else 1.0
        return factor

    def apply(self, score: float, sender: str) -> float:
        factor = self.factor(sender)
        return score if factor == 1 else raise_odds(score, factor)
