"""Plain bm25 over texts, to compare searches with. It has the constants of most programs, k1 1.2 and b 0.75."""

from collections import Counter
from collections.abc import Mapping
from math import log
from statistics import fmean

from sources.text.segmentation import STOPWORDS, stem, tokenize

_SATURATION = 1.2
_LENGTH_SHARE = 0.75


class PlainBm25:
    """Words are stemmed as in the index, and stop words are left out."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._counts = {key: Counter(_words(text)) for key, text in texts.items()}
        self._lengths = {key: sum(counts.values()) for key, counts in self._counts.items()}
        self._mean_length = fmean(self._lengths.values())
        self._rows = Counter(word for counts in self._counts.values() for word in counts)

    def search(self, query: str, depth: int) -> list[str]:
        """Returns the keys of the best texts that have a word of the query."""
        words = set(_words(query))
        scores = {key: self._score(key, words) for key, counts in self._counts.items() if not words.isdisjoint(counts)}
        return sorted(scores, key=lambda key: -scores[key])[:depth]

    def _score(self, key: str, words: set[str]) -> float:
        counts = self._counts[key]
        damping = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * self._lengths[key] / self._mean_length)
        return sum(
            self._weight(word) * counts[word] * (1 + _SATURATION) / (counts[word] + damping)
            for word in words
            if word in counts
        )

    def _weight(self, word: str) -> float:
        rows = self._rows[word]
        return log(1 + (len(self._counts) - rows + 0.5) / (rows + 0.5))


def _words(text: str) -> list[str]:
    return [stem(token) for token in tokenize(text) if token not in STOPWORDS and len(token) > 1]
