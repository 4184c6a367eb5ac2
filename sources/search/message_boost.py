"""The second stage of a search in chats: what a message is, and not only which words it has, changes its score.

Each feature of a message multiplies the odds of its score by a factor (`MESSAGE_WEIGHTS`). Like the score, the factors
depend on the query and the message alone, never on other hits, so that scores stay comparable. Between people, most
messages are short and many are mere reactions. With an assistant, the user's messages are questions and the answers are
long, so only one feature applies there: who of the two wrote it.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp, prod
from typing import Protocol

from msgspec import Struct

from sources.text.segmentation import STOPWORDS, segment
from sources.times import TIME_WORDS


class MessageWeights(Struct, frozen=True):
    """The logarithms of the factors. `bench.message_weights` learns them from the questions of `make bench-retrieval`;
    these are rounded. They lie in a flat optimum: half or double of each changes R@10 by less than 0.01."""

    # Between people. A message without text, a third of it at two thirds of `_INFORMATIVE_CHARS`: "Wow, great!" matches
    # through the messages before it, and tells nothing itself.
    brief: float = -0.45
    # It ends with a question, so it asks for what the query asks for.
    asks: float = -0.3
    # The query names its sender. Comes on top of `SenderBoost`, which all sources share.
    named: float = 0.45
    # The query asks when, and the message mentions a time.
    tells_when: float = 0.8
    # With an assistant: the query is about the user ("what did I …"), and the user wrote the message.
    own_words: float = 0.3


MESSAGE_WEIGHTS = MessageWeights()

# About 30 words: from here on, length says nothing about what a message is worth.
_INFORMATIVE_CHARS = 160
# Scripts with letters for syllables or words say as much in a third of the characters.
_DENSE_FROM = "\u0e00"
_DENSE_SHARE = 3
# A longer text mentions a time by chance, as long articles and answers do.
_TIMED_CHARS_MAX = 400
# Of Latin, East Asian, Arabic, Greek and Ethiopic texts.
QUESTION_MARKS = ("?", "？", "؟", "\u037e", "፧")
# Names that clients use where the sender has none.
ROLES = frozenset(("user", "assistant", "system", "tool", "human", "ai", "bot"))

# Words of queries, folded as in the index. Left out are those that mean something else as often, such as "us" and the
# Spanish "mes" (month). Words of scripts without spaces are looked for in the text.
_ASK_WHEN = """when wann quand cuando quando wanneer kiedy nar hvornar kdy cand когда коли"""
_ASK_WHEN_UNSPACED = ("什么时候", "甚麼時候", "何时", "何時", "哪天", "いつ", "เมื่อไหร่", "เมื่อไร")
_FIRST_PERSON = """
    i my me mine myself we our ours
    ich mich mir mein meine meinen meiner meinem meines wir uns unser unsere unseren unserer
    je moi mon ma nous notre nos yo mi mis nosotros nuestro nuestra eu meu minha meus minhas nosso nossa
    io mio mia miei mie noi nostro nostra ik mij mijn wij ons onze jag mig mitt mina jeg mit meg
    moj moja moje mnie moich benim bana bizim я мне меня мой моя мое мои моего моей моих мы нас наш наша наши
"""
_FIRST_PERSON_UNSPACED = ("我", "私", "僕", "俺", "ผม", "ฉัน")

_TIME_WORDS = TIME_WORDS - STOPWORDS


class RankedMessage(Protocol):
    """A message that was found, or the title of a conversation, which has no `part_id`."""

    boosts: Mapping[str, float]

    @property
    def part_id(self) -> str | None: ...
    @property
    def hit_text(self) -> str: ...
    @property
    def speaker(self) -> str: ...
    @property
    def role(self) -> str | None: ...


class MessageBoost:
    """The second stage of one query. `named` returns a number above 1 for a sender whom the query names."""

    def __init__(self, prose: str, named: Callable[[str], float], weights: MessageWeights = MESSAGE_WEIGHTS) -> None:
        words = frozenset(segment(prose).split())
        self._asks_when = _has_any(prose, words, _ASK_WHEN, _ASK_WHEN_UNSPACED)
        self._is_about_user = _has_any(prose, words, _FIRST_PERSON, _FIRST_PERSON_UNSPACED)
        # Keywords ask for messages that contain them, whatever these are: nothing is boosted for them.
        self.is_sentence = (
            self._asks_when
            or self._is_about_user
            or not words.isdisjoint(STOPWORDS)
            or prose.rstrip().endswith(QUESTION_MARKS)
        )
        self._named = named
        self._weights = weights

    def apply_to(self, scores: Sequence[float], messages: Sequence[RankedMessage]) -> list[float]:
        """Returns the scores of messages with their boosts, which explain them."""
        weights = self._weights
        boosted: list[float] = []
        for score, message in zip(scores, messages, strict=True):
            features = self.features(message)
            if not features:
                boosted.append(score)
                continue
            message.boosts = {name: exp(getattr(weights, name) * share) for name, share in features.items()}
            factor = prod(message.boosts.values())
            boosted.append(factor * score / (1 + (factor - 1) * score))  # the odds times the factor
        return boosted

    def features(self, message: RankedMessage) -> dict[str, float]:
        """Returns how much of each feature a message has, from 0 to 1, if any."""
        sender = message.speaker
        if message.part_id is None or not self.is_sentence:
            return {}
        # Importers and clients name the senders of such chats by their roles. A character has a name.
        if sender in ROLES or not sender:
            return {"own_words": 1.0} if self._is_about_user and message.role == "user" else {}
        found: dict[str, float] = {}
        text = message.hit_text
        chars = len(text)
        if chars < _INFORMATIVE_CHARS:
            if max(text, default="") >= _DENSE_FROM:
                chars = min(_INFORMATIVE_CHARS, chars * _DENSE_SHARE)
            found["brief"] = 1 - chars / _INFORMATIVE_CHARS
        if text[-1:] in QUESTION_MARKS:
            found["asks"] = 1.0
        if self._named(sender) > 1:
            found["named"] = 1.0
        if self._asks_when and chars <= _TIMED_CHARS_MAX and not _TIME_WORDS.isdisjoint(segment(text).split()):
            found["tells_when"] = 1.0
        return found


def _has_any(text: str, words: frozenset[str], spaced: str, unspaced: tuple[str, ...]) -> bool:
    return not words.isdisjoint(spaced.split()) or (not text.isascii() and any(word in text for word in unspaced))
