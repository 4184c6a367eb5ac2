"""How often the words of a query stand in a text, counted on its index form: lower case, words between spaces.

Only the places where a word can be are looked at, so that scoring a page of hits costs a fraction of finding it.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from sources.query import Phrase, Prefix, Term, Word
from sources.text.folding import fold
from sources.text.segmentation import segment
from sources.text.stemming import stem


class Counter:
    """The terms of one query, prepared to be counted in many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._words = [_counted(term.word) for term in terms]

    def count(self, form: str) -> list[int]:
        """For each term how often it occurs."""
        spaced = f" {form} "
        return [word.count(spaced) for word in self._words]

    def count_each(self, forms: Sequence[str]) -> list[tuple[int, ...]]:
        """The same for many texts, which are looked through as one."""
        texts = _Texts(forms)
        return list(zip(*[word.count_each(texts) for word in self._words], strict=True))


class _Texts:
    """Texts one after the other, each with a space before it, and where those spaces are."""

    def __init__(self, forms: Sequence[str]) -> None:
        self.spaced = " ".join(["", *forms, ""])
        self.starts = list(accumulate([len(form) + 1 for form in forms[:-1]], initial=0))
        self.forms = forms


def _start(root: str) -> str:
    """How every word with this stem begins. Stemming may change the last letter (happy: happi) or add one (hoping:
    hope), and no other."""
    return " " + (root[:-1] if len(root) > 2 and root.isascii() else root)


def best_field(fields: Mapping[str, str], counter: Counter) -> tuple[str, str] | None:
    """The field with most of the query's words, and its text; the first that says anything where none has any."""
    filled = [(name, text) for name, text in fields.items() if text]
    if len(filled) < 2:
        return filled[0] if filled else None
    # Folding is enough for all but other scripts and parts of identifiers, and costs a fraction of segmenting.
    return _fullest(filled, counter, fold) or _fullest(filled, counter, segment) or filled[0]


def _fullest(fields: Sequence[tuple[str, str]], counter: Counter, form: Callable[[str], str]) -> tuple[str, str] | None:
    best, found = (0, 0), None
    for field in fields:
        counts = counter.count(form(field[1]))
        held = (sum(map(bool, counts)), sum(counts))
        if held > best:
            best, found = held, field
    return found


class _Needle(ABC):
    """What is counted."""

    @abstractmethod
    def count(self, spaced: str) -> int:
        """How often it is in a text that has a space before each word and after the last."""

    def count_each(self, texts: _Texts) -> list[int]:
        return [self.count(f" {form} ") for form in texts.forms]


class _Stem(_Needle):
    """One word, in all the forms that have its stem."""

    def __init__(self, token: str) -> None:
        self._stem = stem(token)
        self._start = _start(self._stem)

    def count(self, spaced: str) -> int:
        return len(self._places(spaced))

    def count_each(self, texts: _Texts) -> list[int]:
        counts = [0] * len(texts.forms)
        for place in self._places(texts.spaced):
            counts[bisect_right(texts.starts, place) - 1] += 1
        return counts

    def _places(self, spaced: str) -> list[int]:
        start, wanted = self._start, self._stem
        found = []
        at = spaced.find(start)
        while at >= 0:
            end = spaced.find(" ", at + 1)
            word = spaced[at + 1 : end]
            if word == wanted or stem(word) == wanted:
                found.append(at)
            at = spaced.find(start, end)
        return found


class _Stump(_Needle):
    """All words that begin so."""

    def __init__(self, token: str) -> None:
        self._start = f" {token}"

    def count(self, spaced: str) -> int:
        return spaced.count(self._start)


class _Row(_Needle):
    """Words that follow one another; the last may be only the beginning of one."""

    def __init__(self, tokens: Sequence[str], *, is_open: bool) -> None:
        self._stems = [stem(token) for token in tokens]
        self._last = tokens[-1] if is_open else None
        self._start = _start(self._stems[0])

    def count(self, spaced: str) -> int:
        if self._start not in spaced:
            return 0
        words = spaced.split()
        size = len(self._stems)
        return sum(self._begins(words, at) for at in range(len(words) - size + 1))

    def _begins(self, words: Sequence[str], at: int) -> bool:
        first, *rest = self._stems
        if stem(words[at]) != first:
            return False
        *middle, last = range(1, len(self._stems))
        if any(stem(words[at + step]) != self._stems[step] for step in middle):
            return False
        return words[at + last].startswith(self._last) if self._last else stem(words[at + last]) == rest[-1]


class _Most(_Needle):
    """Of a word's alternatives the one that occurs most: they overlap."""

    def __init__(self, needles: Sequence[_Needle]) -> None:
        self._needles = needles

    def count(self, spaced: str) -> int:
        return max([needle.count(spaced) for needle in self._needles])


def _counted(word: Word) -> _Needle:
    needles = [_needle(phrase) for phrase in word.alternatives]
    return needles[0] if len(needles) == 1 else _Most(needles)


def _needle(phrase: Phrase | Prefix) -> _Needle:
    is_open = isinstance(phrase, Prefix)
    if len(phrase.tokens) != 1:
        return _Row(phrase.tokens, is_open=is_open)
    return _Stump(phrase.tokens[0]) if is_open else _Stem(phrase.tokens[0])
