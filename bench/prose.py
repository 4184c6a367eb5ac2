"""Generates texts and queries from a random seed.

They consist of English function words and invented compounds with Zipf frequencies. Topics make some rare words
occur together, as in natural text. The same seed always gives the same texts.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import exp, log

from msgspec import Struct

from config.times import format_time_seconds
from sources.text.segmentation import STOPWORDS

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
_FIRST_PARTS = """
    air arm art back ball band bank bar barn bath bay bean bear bed bell belt bench berg bird block blood board boat
    bone book boot bow box brain brand brass bread brick brush bull bush butter cake camp car card cart cast cat
    chain chalk chart church city class clay cliff cloud club coal coat cold copper cork corn cotton court cow crab
    craft cross crow crown cup day deck deer desk dog door down drum duck dust ear earth east egg eye farm feather
    field finger fire fish flag flat flint flood floor flour flower fog foot ford forest fork fox frog fruit garden
    gas glass goat gold grain grass green ground gun hair hall hammer hand harbor hat head heart heat hen hill honey
    hook horn iron island jam jar kettle key king kitchen lake lamb lamp land lead leaf leather leg lemon light
    linen lion lock lunch man map mark market meat metal milk mill mint mirror moon moss mountain mouth mud music
    neck needle net night north oak oil onion orange oven ox paint palm pan paper park pearl pen pepper pig pin pipe
    plank plant plum pocket pond port post pot rain red rice ring river road rock roof room root rope salt sand
    school sea seed sheep shell ship shirt shoe silk silver sky smoke snow soap song soup south spoon spring stair
    star steam steel stick stone storm straw street sugar summer sun table tail tea thread thunder timber tin tool
    tooth town tree tunnel valley violin wagon wall water wax west wheat wheel whip wind window winter wolf wood
    wool word work yard
"""
_LAST_PARTS = """
    air arm art back band bank bar belt berg bird block blood board boat book boot bow box brand bread brick brush
    bush camp car card cast cat class cliff cloth coat court craft cross crow cup cut deck dog door down drop drum
    dust ear fast field fish flow foot ford glass gold grass guard gun hair hand hat head heart hen horn jar land
    leaf leg light lion lock mail man mark mouth neck net night oven pan park path pen pin point pool port post pot
    rain rock room run sea ship shot sight skin star stick stock storm sun tail tea tin tooth top town walk ward
    wash west wheel wind wood word work yard
"""
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
    """Joins two short English words to a new one. Models do not compare queries whose words their tokenizers split into
    many pieces, so words must consist of pieces that they have. Stemming removes nothing from the second parts."""
    pairs = {
        first + last for first in _FIRST_PARTS.split() for last in _LAST_PARTS.split() if first != last
    } - STOPWORDS
    return source.sample(sorted(pairs), count)


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
