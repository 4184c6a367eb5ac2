"""Generates texts and queries from a random seed.

They consist of English function words and invented content words with Zipf frequencies. Topics make some rare words
occur together, as in natural text. The same seed always gives the same texts.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import exp, log

from msgspec import Struct

from config.times import format_time_seconds
from sources.text.stemming import STOPWORDS

CONTENT_WORDS = 30_000
TOPICS = 2_000
_TOPIC_WORDS = 40
# Every fifth word of a text belongs to its topic.
_TOPIC_EVERY = 5
# The most common content words belong to no topic.
_TOPIC_RANK_MIN = 200
_SENTENCE_WORDS = 12
_PARAGRAPH_SENTENCES = 5
# In order of frequency. The other function words follow in alphabetical order.
_MOST_COMMON_WORDS = (
    "the",
    "of",
    "and",
    "to",
    "a",
    "in",
    "that",
    "is",
    "was",
    "he",
    "for",
    "it",
    "with",
    "as",
    "his",
    "on",
)
MOST_COMMON_WORD = _MOST_COMMON_WORDS[0]
_OPENINGS = ("what did she get from the", "how is the", "when was the", "who will be at the", "where do we have")
# Zipf's law with Mandelbrot's shift, which limits the share of the first words.
_SHIFT = 2.7
_TABLE_SLOTS = 1_000_000


class Vocabulary(Struct, frozen=True):
    """`table` contains each word in proportion to its frequency; choosing from it is faster than a weighted choice."""

    content_words: tuple[str, ...]
    table: tuple[str, ...]
    topics: tuple[tuple[str, ...], ...]


class Prose:
    """Generates prose. Instances with the same seed share a vocabulary; their texts also depend on `stream`."""

    def __init__(self, seed: int, stream: str = "texts") -> None:
        self._vocabulary = _vocabulary(seed)
        self._random = random.Random(f"{seed} {stream}")

    def text(self, words: int) -> str:
        chosen = self._random.choices(self._vocabulary.table, k=words)
        topical = chosen[::_TOPIC_EVERY]
        chosen[::_TOPIC_EVERY] = self._random.choices(self._topic(), k=len(topical))
        return _punctuate(chosen)

    def title(self) -> str:
        return self.words(4).capitalize()

    def tags(self) -> tuple[str, ...]:
        return tuple(self._random.sample(self._vocabulary.content_words[:50], 2))

    def time(self) -> str:
        """Returns a time within three years."""
        time = datetime(2023, 1, 1, tzinfo=UTC) + timedelta(seconds=self._random.randrange(3 * 365 * 86_400))
        return format_time_seconds(time.timestamp())

    def words(self, count: int) -> str:
        """Returns a query of words of one topic, which occur together in some texts."""
        return " ".join(self._random.sample(self._topic(), count))

    def question(self) -> str:
        """Returns a question in natural language: four content words among function words."""
        first, second, third, fourth = self.words(4).split()
        opening = self._random.choice(_OPENINGS)
        return f"{opening} {first} {second} of the {third} and {fourth}?"

    def _topic(self) -> tuple[str, ...]:
        return self._random.choice(self._vocabulary.topics)


@lru_cache
def _vocabulary(seed: int) -> Vocabulary:
    source = random.Random(seed)
    content_words = _invent(source, CONTENT_WORDS)
    function_words = [*_MOST_COMMON_WORDS, *sorted(STOPWORDS.difference(_MOST_COMMON_WORDS))]
    topics = tuple(_topic(source, content_words) for _ in range(TOPICS))
    return Vocabulary(tuple(content_words), tuple(_frequency_table([*function_words, *content_words])), topics)


def _topic(source: random.Random, content_words: Sequence[str]) -> tuple[str, ...]:
    """Chooses words evenly over the orders of magnitude of frequency."""
    least, most = log(_TOPIC_RANK_MIN), log(len(content_words))
    ranks = dict.fromkeys(int(exp(source.uniform(least, most))) for _ in range(_TOPIC_WORDS * 2))
    return tuple(content_words[rank] for rank in [*ranks][:_TOPIC_WORDS])


def _invent(source: random.Random, count: int) -> list[str]:
    """Invents words of two or three syllables, which end in a vowel that stemming does not remove."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    closing = [syllable for syllable in syllables if syllable[1] in "aou"]
    invented: dict[str, None] = {}
    while len(invented) < count:
        middle = source.choice(syllables) if len(invented) >= count // 30 else ""
        invented[f"{source.choice(syllables)}{middle}{source.choice(closing)}"] = None
    return [word for word in invented if word not in STOPWORDS]


def _frequency_table(words: Sequence[str]) -> list[str]:
    weights = [1 / (rank + _SHIFT) for rank in range(1, len(words) + 1)]
    total = sum(weights)
    table: list[str] = []
    for word, weight in zip(words, weights, strict=True):
        table += [word] * max(1, round(_TABLE_SLOTS * weight / total))
    return table


def _punctuate(words: Sequence[str]) -> str:
    sentences = [
        " ".join(words[start : start + _SENTENCE_WORDS]).capitalize() + "."
        for start in range(0, len(words), _SENTENCE_WORDS)
    ]
    paragraphs = [
        " ".join(sentences[start : start + _PARAGRAPH_SENTENCES])
        for start in range(0, len(sentences), _PARAGRAPH_SENTENCES)
    ]
    return "\n\n".join(paragraphs)
