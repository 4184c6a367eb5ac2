"""Finds texts that are the same, or nearly so.

A text is reduced to a sketch (MinHash with one permutation): each run of three words has a number, the numbers are
distributed over 64 bins, and each bin keeps its smallest. The share of equal bins estimates the Jaccard similarity of
two texts, with a standard deviation of 5 % at the limit of 80 %. Only texts that agree in one of 16 bands of four bins
are compared: 99.98 % of the pairs at the limit, and few others. A sketch has 256 bytes, and bands are indexed one after
the other, so that memory grows by about 400 bytes with each text.
"""

import re
from array import array
from hashlib import blake2b
from zlib import crc32

from msgspec import Struct

_BINS = 64
_BAND = 4
_RUN_WORDS = 3
# Texts with fewer runs are compared as a whole: a single word would change too much of them.
_RUNS_MIN = 16
SIMILAR_SHARE = 0.8
# Of the texts that agree in a band, each is compared with at most this many. Boilerplate would make it all pairs.
_COMPARED_MAX = 20
_EMPTY = 0xFFFFFFFF
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# Scripts without spaces have a word for each character.
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")


class TextGroup(Struct, frozen=True):
    """Texts that are duplicates of the first one, by their keys. `share` is the least similarity to it."""

    keys: tuple[str, ...]
    share: float


class DuplicateFinder:
    def __init__(self) -> None:
        self._keys: list[str] = []
        self._digests: list[bytes] = []
        self._sketches: list[array[int] | None] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str, text: str) -> None:
        """Ignores case, punctuation and spaces. A text without words has no duplicates."""
        words = _WORD.findall(text.casefold())
        if not words:
            return
        self._keys.append(key)
        self._digests.append(blake2b(" ".join(words).encode(errors="replace"), digest_size=12).digest())
        runs = {
            crc32(" ".join(words[start : start + _RUN_WORDS]).encode(errors="replace"))
            for start in range(len(words) - _RUN_WORDS + 1)
        }
        bins = None
        if len(runs) >= _RUNS_MIN:
            bins = array("I", [_EMPTY] * _BINS)
            for number in runs:
                position, value = number % _BINS, number // _BINS
                bins[position] = min(bins[position], value)
        self._sketches.append(bins)

    def groups(self) -> list[TextGroup]:
        """Returns the groups, the most similar first."""
        leaders = list(range(len(self._keys)))

        def leader(index: int) -> int:
            while leaders[index] != index:
                leaders[index] = leaders[leaders[index]]
                index = leaders[index]
            return index

        def join(one: int, other: int) -> None:
            first, second = sorted((leader(one), leader(other)))
            leaders[second] = first

        same: dict[bytes, int] = {}
        for index, digest in enumerate(self._digests):
            join(same.setdefault(digest, index), index)
        for start in range(0, _BINS, _BAND):
            bands: dict[bytes, list[int]] = {}
            for index, sketch in enumerate(self._sketches):
                if sketch is None or leader(index) != index:
                    continue
                band = sketch[start : start + _BAND]
                if all(value == _EMPTY for value in band):
                    continue
                others = bands.setdefault(band.tobytes(), [])
                for other in others[:_COMPARED_MAX]:
                    if self._share(other, index) >= SIMILAR_SHARE:
                        join(other, index)
                        break
                else:
                    others.append(index)
        members: dict[int, list[int]] = {}
        for index in range(len(self._keys)):
            members.setdefault(leader(index), []).append(index)
        groups = [
            TextGroup(
                tuple(self._keys[index] for index in indexes),
                min(self._share(indexes[0], index) for index in indexes[1:]),
            )
            for indexes in members.values()
            if len(indexes) > 1
        ]
        return sorted(groups, key=lambda group: -group.share)

    def _share(self, one: int, other: int) -> float:
        if self._digests[one] == self._digests[other]:
            return 1.0
        first, second = self._sketches[one], self._sketches[other]
        if first is None or second is None:
            return 0.0
        used = [(a, b) for a, b in zip(first, second, strict=True) if a != _EMPTY or b != _EMPTY]
        # Texts that differ are never shown as the same, however similar their sketches are.
        return min(0.99, sum(a == b for a, b in used) / len(used))
