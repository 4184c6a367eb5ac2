"""The words of a library that are near to another word."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sources.query.prefixes import word_with_stem
from sources.search.near_words import compounds_with, similar_words
from sources.text.folding import fold
from sources.text.stemming import stem

# How many near words are tried for a word that is unknown.
_NEAR_MAX = 3
# How much of a text is searched for the spelling of a stem.
_TEXT_MAX_CHARS = 100_000
# Misspelled words whose near words are kept: the searches of other sources and other pages need them again.
_NEAR_WORDS_MAX = 50
_NEAR_WORDS_WAIT_MAX_S = 0.5
# All words are read of indexes with at most this many rows, those with the same first letter up to the second number,
# and those with the same first two letters of larger indexes.
_ALL_WORDS_ROWS = 1_000
_ONE_LETTER_ROWS = 20_000

# A word and the versions of the indexes that it is looked up in.
NearWordsKey = tuple[str | bytes, ...]


class IndexWords(Protocol):
    """The words of one index, as one connection sees it."""

    @property
    def table(self) -> str: ...
    @property
    def version(self) -> bytes: ...
    def words_like(self, word: str, words_max: int) -> str:
        """Returns the words that may be near to a word, each with a space before and after it."""
        ...

    def count_rows(self, words: Sequence[str]) -> dict[str, int]:
        """Returns the number of rows of each of these words that has any."""
        ...

    def find_text(self, token: str) -> str | None:
        """Returns the indexed text of a row that contains a token."""
        ...


class NearWordsMemory:
    """The near words of the words that were looked up last. All readers of a library share it."""

    def __init__(self) -> None:
        self._near_words: dict[NearWordsKey, list[str]] = {}
        self._lock = threading.Lock()

    def get(self, key: NearWordsKey, find: Callable[[], list[str]]) -> list[str]:
        """Returns what `find` returns, which is called by one reader at a time: all sources of a search need the same
        near words at about the same time. A reader that is stuck does not hold up the others."""
        has_lock = self._lock.acquire(timeout=_NEAR_WORDS_WAIT_MAX_S)
        try:
            words = self._near_words.get(key)
            if words is None:
                if len(self._near_words) >= _NEAR_WORDS_MAX:
                    self._near_words.clear()
                words = self._near_words[key] = find()
            return words
        finally:
            if has_lock:
                self._lock.release()


class LibraryVocabulary:
    """The words of several indexes of a library. At most `words_max` words of an index are compared."""

    def __init__(self, indexes: Sequence[IndexWords], memory: NearWordsMemory, words_max: int) -> None:
        self._indexes = indexes
        self._memory = memory
        self._words_max = words_max
        # The indexes that contain a stem, of the stems that were counted.
        self._indexes_of: dict[str, list[IndexWords]] = {}

    def near_words(self, root: str) -> list[str]:
        """Returns words whose stems are nearest to a stem, or else compounds that end with it, the most frequent
        first."""
        # Which indexes are read depends on the credential, and two of them may have the same version.
        key: NearWordsKey = (root, *[part for index in self._indexes for part in (index.table, index.version)])
        return self._memory.get(key, lambda: self._find_near_words(root))

    def _find_near_words(self, root: str) -> list[str]:
        tokens = {near: token for near in self._near_stems(root) if (token := word_with_stem(near))}
        texts = self._find_texts(tokens)
        return [_spelling(near, token, texts[near]) for near, token in tokens.items() if near in texts]

    def _near_stems(self, root: str) -> list[str]:
        vocabularies = self._words_like(root)
        similar = [similar_words(root, vocabulary) for vocabulary in vocabularies]
        for edits in sorted({edits for one in similar for edits in one.values()}):
            near = [[other for other, number in one.items() if number == edits] for one in similar]
            if stems := self._most_frequent(near):
                return stems
        return self._most_frequent([compounds_with(root, vocabulary) for vocabulary in vocabularies])

    def _most_frequent(self, words: Sequence[Sequence[str]]) -> list[str]:
        rows: Counter[str] = Counter()
        for index, counts in zip(self._indexes, self._count_rows(words), strict=True):
            rows.update(counts)
            for word in counts:
                self._indexes_of.setdefault(word, []).append(index)
        return sorted(rows, key=lambda word: (-rows[word], word))[:_NEAR_MAX]

    def _words_like(self, word: str) -> list[str]:
        """Returns the words of each index that may be near to a word."""
        return [index.words_like(word, self._words_max) for index in self._indexes]

    def _count_rows(self, words: Sequence[Sequence[str]]) -> list[dict[str, int]]:
        """Returns the number of rows of words of each index."""
        return [index.count_rows(own) for index, own in zip(self._indexes, words, strict=True)]

    def _find_texts(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """Returns an indexed text for each stem that contains its token, as far as there is one."""
        texts: dict[str, str] = {}
        for near, token in tokens.items():
            text = next(filter(None, (index.find_text(token) for index in self._indexes_of[near])), None)
            if text:
                texts[near] = text
        return texts


def _spelling(near: str, token: str, text: str) -> str:
    """Returns the word of a text that has this stem."""
    return next((word for word in fold(text[:_TEXT_MAX_CHARS]).split() if stem(word) == near), token)


def word_beginnings(word: str, rows: int) -> tuple[str, ...]:
    """Returns the beginnings of the words to compare with a word. Its first two letters may be swapped."""
    if rows <= _ALL_WORDS_ROWS:
        return ("",)
    if rows <= _ONE_LETTER_ROWS:
        return tuple(dict.fromkeys((word[0], word[1])))
    return tuple(dict.fromkeys((word[:2], word[1] + word[0])))
