"""How often the words of a query stand in a text, counted on its index form: lower case, words between spaces.

Only the places where a word can be are looked at, so that scoring a page of hits costs a fraction of finding it.
"""

from collections.abc import Callable, Mapping, Sequence

from sources.query import Phrase, Prefix, Term, Word
from sources.segment import fold, segment, stem


class Counter:
    """The terms of one query, prepared to be counted in many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._counts = [_count_of(term.word) for term in terms]

    def count(self, form: str) -> list[int]:
        """For each term how often it occurs."""
        spaced = f" {form} "
        return [count(spaced) for count in self._counts]


def _count_of(word: Word) -> Callable[[str], int]:
    """Of a word's alternatives the one that occurs most counts: they overlap."""
    needles = [_needle(phrase) for phrase in word.alternatives]
    if len(needles) == 1:
        return needles[0].count
    return lambda spaced: max([needle.count(spaced) for needle in needles])


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


class _Stem:
    """One word, in all the forms that have its stem."""

    def __init__(self, token: str) -> None:
        self._stem = stem(token)
        self._start = _start(self._stem)

    def count(self, spaced: str) -> int:
        start, wanted, found = self._start, self._stem, 0
        at = spaced.find(start)
        while at >= 0:
            end = spaced.find(" ", at + 1)
            word = spaced[at + 1 : end]
            found += word == wanted or stem(word) == wanted
            at = spaced.find(start, end)
        return found


class _Stump:
    """All words that begin so."""

    def __init__(self, token: str) -> None:
        self._start = f" {token}"

    def count(self, spaced: str) -> int:
        return spaced.count(self._start)


class _Row:
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


_Needle = _Stem | _Stump | _Row


def _needle(phrase: Phrase | Prefix) -> _Needle:
    is_open = isinstance(phrase, Prefix)
    if len(phrase.tokens) != 1:
        return _Row(phrase.tokens, is_open=is_open)
    return _Stump(phrase.tokens[0]) if is_open else _Stem(phrase.tokens[0])
