"""Finds the words of a query in a text, in every script: by their stems, by their letters, or by the signs in them."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

from sources.query import Phrase, Prefix, Word
from sources.text.folding import (
    FOLDING,
    fold,
    fold_bytewise,
    folds_bytewise,
    folds_to_lower_case,
    folds_to_single_characters,
)
from sources.text.segmentation import UNSPACED_RUN
from sources.text.stemming import stem

# -- a text prepared for finding ---------------------------------------------------------------------------------------


class View(Protocol):
    """A text with its letters folded. Offsets are the fold's; `origin` turns them into the text's."""

    text: str
    folded: str

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        """The words that begin so."""
        ...

    def word_after(self, offset: int) -> tuple[int, int]:
        """The word that follows one ending at `offset`; an empty one at the end."""
        ...

    def origin(self, offset: int) -> int:
        """Where in the text the folded character at `offset` comes from."""
        ...


class _NarrowView:
    """A text without wide letters: folded by a byte table, which puts spaces between words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold_bytewise(text)
        self._spaced = f" {self.folded} "

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        spaced, needle = self._spaced, f" {beginning}"
        at = spaced.find(needle)
        while at >= 0:
            end = spaced.find(" ", at + 1)
            yield at, end - 1
            at = spaced.find(needle, end)

    def stems(self, beginning: str, root: str, term: int) -> list[tuple[int, int, int]]:
        """The words with this stem: what nearly every query looks for in nearly every text."""
        spaced, needle = self._spaced, f" {beginning}"
        found = []
        at = spaced.find(needle)
        while at >= 0:
            end = spaced.find(" ", at + 1)
            word = spaced[at + 1 : end]
            if word == root or stem(word) == root:
                found.append((at, end - 1, term))
            at = spaced.find(needle, end)
        return found

    def word_after(self, offset: int) -> tuple[int, int]:
        return _word_after(_SPACED_WORD, self.folded, offset)

    def origin(self, offset: int) -> int:
        return offset


class _LevelView:
    """A text whose fold is its lower case; its words end where something else than a letter or digit stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text.lower()

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        return _bordered(_WORD, self.folded, beginning)

    def word_after(self, offset: int) -> tuple[int, int]:
        return _word_after(_WORD, self.folded, offset)

    def origin(self, offset: int) -> int:
        return offset


class _WideView:
    """Any other text, folded letter by letter; a letter may have become two (ß) or none (a vowel point)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text.translate(FOLDING)
        self._alignment = None if folds_to_single_characters(text) else _Alignment(text)

    def words(self, beginning: str) -> Iterator[tuple[int, int]]:
        return _bordered(_SPACED_WORD, self.folded, beginning)

    def word_after(self, offset: int) -> tuple[int, int]:
        return _word_after(_SPACED_WORD, self.folded, offset)

    def origin(self, offset: int) -> int:
        return self._alignment.origin(offset) if self._alignment else offset


class _Alignment:
    """Offsets of a fold that is longer or shorter than its text."""

    def __init__(self, text: str) -> None:
        widths = {letter: len(FOLDING[ord(letter)]) for letter in set(text)}
        uneven = sorted((at, width) for letter, width in widths.items() if width != 1 for at in places(text, letter))
        self._folded_from: list[int] = []
        self._shifts: list[int] = []
        shift = 0
        for at, width in uneven:
            shift += width - 1
            self._folded_from.append(at + 1 + shift)
            self._shifts.append(shift)

    def origin(self, offset: int) -> int:
        known = bisect_right(self._folded_from, offset)
        return offset - self._shifts[known - 1] if known else offset


# Letters of unspaced scripts end a word of any other.
_UNSPACED = UNSPACED_RUN.pattern[1:-2]
_WORD = re.compile(rf"[^\W_{_UNSPACED}]*")
_SPACED_WORD = re.compile(f"[^ {_UNSPACED}]*")


def view_of(text: str) -> View:
    if text.isascii() or folds_bytewise(text):
        return _NarrowView(text)
    return _LevelView(text) if folds_to_lower_case(text) else _WideView(text)


def _bordered(word: re.Pattern[str], folded: str, beginning: str) -> Iterator[tuple[int, int]]:
    """The words of a fold that begin so, by the pattern of what a word is made of."""
    at = folded.find(beginning)
    while at >= 0:
        end = _end(word, folded, at)
        if at == 0 or _end(word, folded, at - 1) == at - 1:
            yield at, end
        at = folded.find(beginning, max(end, at + 1))


def _word_after(word: re.Pattern[str], folded: str, offset: int) -> tuple[int, int]:
    for start in range(offset, len(folded)):
        if (end := _end(word, folded, start)) > start:
            return start, end
    return len(folded), len(folded)


def _end(word: re.Pattern[str], folded: str, start: int) -> int:
    match = word.match(folded, start)
    return match.end() if match else start


def places(text: str, part: str, end: int | None = None) -> Iterator[int]:
    at = text.find(part, 0, end)
    while at >= 0:
        yield at
        at = text.find(part, at + 1, end)


# -- what is looked for ------------------------------------------------------------------------------------------------


# Where a term was found in a text: start, end, term. A bare tuple: a long text has hundreds, and they are sorted.
Match = tuple[int, int, int]


class Needle(Protocol):
    @property
    def probes(self) -> tuple[str, ...]:
        """Letters of which some stand, as written, wherever this is found; they tell where a long text is worth
        reading."""
        ...

    def find(self, view: View) -> list[Match]: ...


class _Words:
    """One word or several in a row, each by its stem; the last may be only the beginning of one."""

    def __init__(self, term: int, parts: Sequence[str], *, is_open: bool) -> None:
        self._term = term
        self._stems = [stem(part) for part in (parts[:-1] if is_open else parts)]
        self._open = parts[-1] if is_open else None
        self._is_plain = len(self._stems) == 1 and not is_open
        self._beginning = _first_letters(self._stems[0]) if self._stems else parts[-1]
        self.probes = _cases(self._beginning)

    def find(self, view: View) -> list[Match]:
        if self._is_plain and isinstance(view, _NarrowView):
            return view.stems(self._beginning, self._stems[0], self._term)
        found: list[Match] = []
        for start, end in view.words(self._beginning):
            last = self._row_end(view, start, end)
            if last:
                found.append((view.origin(start), view.origin(last), self._term))
        return found

    def _row_end(self, view: View, start: int, end: int) -> int:
        """Where the row ends that begins with this word, or 0 when it is another."""
        for at, wanted in enumerate(self._stems):
            if at:
                start, end = view.word_after(end)
            if stem(view.folded[start:end]) != wanted:
                return 0
        if self._open is None or not self._stems:
            return end
        start, end = view.word_after(end)
        return end if view.folded.startswith(self._open, start) else 0


class _Letters:
    """Letters of unspaced scripts, wherever they stand; what else is in the row follows at whatever distance."""

    def __init__(self, term: int, parts: Sequence[str]) -> None:
        self._term = term
        self._pattern = re.compile(r"[\W_]*".join(map(re.escape, parts)))
        self.probes = _cases(parts[0])

    def find(self, view: View) -> list[Match]:
        matches = self._pattern.finditer(view.folded)
        return [(view.origin(match.start()), view.origin(match.end()), self._term) for match in matches]


class _Signs:
    """What folding takes away, looked for in the text itself: C++, .NET, emoji."""

    def __init__(self, term: int, written: str) -> None:
        self._term = term
        self.probes = _cases(written)

    def find(self, view: View) -> list[Match]:
        return [(at, at + len(form), self._term) for form in self.probes for at in places(view.text, form)]


_PARTS = re.compile(f"{UNSPACED_RUN.pattern}|[^ {_UNSPACED}]+")


def _widest(word: Word) -> list[Phrase | Prefix]:
    """The alternatives of a word without those that a shorter beginning finds anyway."""
    stumps = [found for found in word.alternatives if isinstance(found, Prefix) and len(found.tokens) == 1]
    return [
        found
        for found in word.alternatives
        if len(found.tokens) != 1
        or not any(found.tokens[0].startswith(stump.tokens[0]) for stump in stumps if stump != found)
    ]


def needles_of(term: int, word: Word) -> list[Needle]:
    """What finds a word of a query, whose place in it is `term`."""
    return [_needle(term, wanted) for wanted in _widest(word)]


def _needle(term: int, wanted: Phrase | Prefix) -> Needle:
    parts = _PARTS.findall(fold(wanted.text))
    if any(UNSPACED_RUN.match(part) for part in parts):
        return _Letters(term, parts)
    if set(wanted.tokens) != set(parts):
        return _Signs(term, wanted.text)
    return _Words(term, parts, is_open=isinstance(wanted, Prefix))


def _first_letters(root: str) -> str:
    """The letters that all words with this stem begin with. Stemming may have changed the last one (happy: happi,
    shaping: shape, visibility: visibl) and no other."""
    return root[:-1] if len(root) > 2 and root.endswith(("i", "e", "bl")) else root


def _cases(written: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((written, written.lower(), written.capitalize(), written.upper())))
