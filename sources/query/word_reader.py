"""Turns the leaves of a syntax tree into words, within the limits of a query."""

from collections.abc import Iterable

from sources.query.expression import Word
from sources.query.lexer import BareWord, QuotedText
from sources.query.limits import QueryLimits
from sources.query.notes import QueryNotes
from sources.query.prefixes import prefix_word
from sources.query.words import LooseWord, limit_tokens, literal_word, loose_words, phrase_word
from sources.text.segmentation import UNSPACED_RUN
from sources.text.stemming import stem


class WordReader:
    """Reads words and counts terms, prefixes and phrase lengths against the limits."""

    def __init__(self, limits: QueryLimits, notes: QueryNotes) -> None:
        self._limits = limits
        self._notes = notes
        self._counts: dict[_Stems, int] = {}
        self._prefixes = 0

    # -- leaves to words -----------------------------------------------------------------------------------------------

    def read_literal(self, leaf: BareWord | QuotedText) -> Word | None:
        """Returns the literal word of a leaf, or None for mere punctuation."""
        match leaf:
            case QuotedText(text=text):
                word = phrase_word(text)
            case BareWord(text=text) if "*" in text:
                word = self._read_starred(text)
            case BareWord(text=text):
                word = literal_word(text)
        return word and self._shorten(word)

    def read_loose(self, text: str) -> list[LooseWord]:
        """Returns the words of which any may match."""
        if "*" not in text:
            return [LooseWord(self._shorten(loose.word), loose.is_weak) for loose in loose_words(text)]
        word = self.read_literal(BareWord(text))
        return [LooseWord(word, is_weak=False)] if word else []

    def _read_starred(self, text: str) -> Word | None:
        """A star at the end of a long enough word makes it a prefix; any other star is punctuation."""
        plain = literal_word(text.replace("*", " "))
        prefix = text[:-1]
        if plain is None or UNSPACED_RUN.search(prefix):
            return plain  # unspaced runs match anywhere in a text, so they already match as prefixes
        if "*" in prefix or not text.endswith("*"):
            self._notes.add("ignored * (it works only at the end of a word)")
            return plain
        return self._read_prefix(prefix) or plain

    def _read_prefix(self, prefix: str) -> Word | None:
        word = prefix_word(prefix)
        if word is None or len(word.alternatives[0].tokens[-1]) < self._limits.min_prefix_chars:
            self._notes.add(f"ignored * (it needs at least {self._limits.min_prefix_chars} letters before it)")
            return None
        if self._prefixes == self._limits.max_prefixes:
            self._notes.add_truncation(f"used * only in the first {self._limits.max_prefixes} words that end with it")
            return None
        self._prefixes += 1
        return word

    def _shorten(self, word: Word) -> Word:
        limit = self._limits.max_phrase_tokens
        limited = limit_tokens(word, limit)
        if limited is not word:
            self._notes.add_truncation(f"used only the first {limit} words of a phrase")
        return limited

    # -- words to terms ------------------------------------------------------------------------------------------------

    def admit(self, word: Word) -> bool:
        """Counts a word. Returns False if it is a new one and the query already has the maximum number of terms."""
        stems = _stems(word)
        if stems not in self._counts and len(self._counts) == self._limits.max_terms:
            self._notes.add_truncation(f"used only the first {self._limits.max_terms} terms")
            return False
        self._counts[stems] = self._counts.get(stems, 0) + 1
        return True

    def admit_all(self, words: Iterable[Word]) -> list[Word]:
        """Counts words and returns those within the limit; of words with the same stems, only the first."""
        admitted: dict[_Stems, Word] = {}
        for word in words:
            if self.admit(word):
                admitted.setdefault(_stems(word), word)
        return list(admitted.values())

    def count_terms(self, words: Iterable[Word]) -> list[tuple[Word, int]]:
        """Returns the words with distinct stems, each with the number of times the query contains it."""
        distinct: dict[_Stems, Word] = {}
        for word in words:
            distinct.setdefault(_stems(word), word)
        return [(word, self._counts[stems]) for stems, word in distinct.items()]


_Stems = tuple[tuple[type, tuple[str, ...]], ...]


def _stems(word: Word) -> _Stems:
    return tuple((type(phrase), tuple(stem(token) for token in phrase.tokens)) for phrase in word.alternatives)
