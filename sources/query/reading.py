"""One query while it is being read: its words under the limits, and the notes on whatever was not taken literally."""

from collections.abc import Iterable

from msgspec import Struct

from sources.query.expression import Expression, Phrase, Word, render
from sources.query.lexer import Chunk, Quoted
from sources.query.words import Loose, beginning, literal, loose, quotation
from sources.text.segmentation import UNSPACED_RUN
from sources.text.stemming import stem


class QueryLimits(Struct, frozen=True):
    """How much of a query is read; what goes over is left out and told."""

    max_chars: int = 1_000
    max_terms: int = 32
    max_nesting: int = 8
    max_prefixes: int = 4
    min_prefix_chars: int = 3
    max_phrase_tokens: int = 16


class Reading:
    """Counts words, beginnings and phrases against the limits and gathers what has to be told."""

    def __init__(self, limits: QueryLimits) -> None:
        self.limits = limits
        self.is_truncated = False
        self._notes: dict[str, None] = {}
        self._counts: dict[_Stems, int] = {}
        self._prefixes = 0

    # -- what is told --------------------------------------------------------------------------------------------------

    def note(self, sentence: str) -> None:
        self._notes[sentence] = None

    def note_cut(self, sentence: str) -> None:
        self.is_truncated = True
        self.note(sentence)

    def read_as(self, expression: Expression | None) -> str | None:
        if expression is None:
            return f"nothing ({'; '.join(self._notes) or 'the query holds no word'})"
        return f"{render(expression)} ({'; '.join(self._notes)})" if self._notes else None

    # -- leaves to words -----------------------------------------------------------------------------------------------

    def literal(self, leaf: Chunk | Quoted) -> Word | None:
        match leaf:
            case Quoted(text=text):
                word = quotation(text)
            case Chunk(text=text) if "*" in text:
                word = self._starred(text)
            case Chunk(text=text):
                word = literal(text)
        return word and self._shorten(word)

    def loose(self, chunk: str) -> list[Loose]:
        if "*" not in chunk:
            return [Loose(self._shorten(found.word), found.is_weak) for found in loose(chunk)]
        word = self.literal(Chunk(chunk))
        return [Loose(word, is_weak=False)] if word else []

    def _starred(self, chunk: str) -> Word | None:
        """A star at the end of a long enough word asks for its beginnings; any other star is punctuation."""
        plain = literal(chunk.replace("*", " "))
        stump = chunk[:-1]
        if plain is None or UNSPACED_RUN.search(stump):
            return plain  # a run is found wherever it stands, so its beginning is too
        if "*" in stump or not chunk.endswith("*"):
            self.note("* only works at the end of a word")
            return plain
        return self._stump(stump) or plain

    def _stump(self, stump: str) -> Word | None:
        word = beginning(stump)
        if word is None or len(word.alternatives[0].tokens[-1]) < self.limits.min_prefix_chars:
            self.note(f"* needs at least {self.limits.min_prefix_chars} letters before it")
            return None
        if self._prefixes == self.limits.max_prefixes:
            self.note_cut(f"only the first {self.limits.max_prefixes} words with * were read as beginnings")
            return None
        self._prefixes += 1
        return word

    def _shorten(self, word: Word) -> Word:
        limit = self.limits.max_phrase_tokens
        if all(len(found.tokens) <= limit for found in word.alternatives):
            return word
        self.note_cut(f"only the first {limit} words of a phrase were read")
        return Word(word.text, tuple(Phrase(found.text, found.tokens[:limit]) for found in word.alternatives))

    # -- words to terms ------------------------------------------------------------------------------------------------

    def admit(self, word: Word) -> bool:
        """Counts a word; false when it is a new one and the query has its full number."""
        stems = _stems(word)
        if stems not in self._counts and len(self._counts) == self.limits.max_terms:
            self.note_cut(f"only the first {self.limits.max_terms} terms were read")
            return False
        self._counts[stems] = self._counts.get(stems, 0) + 1
        return True

    def admitted(self, words: Iterable[Word]) -> list[Word]:
        """The words the limit lets in, each once, however often and with whatever ending it is named."""
        found: dict[_Stems, Word] = {}
        for word in words:
            if self.admit(word):
                found.setdefault(_stems(word), word)
        return list(found.values())

    def counted(self, words: Iterable[Word]) -> list[tuple[Word, int]]:
        """Words with the same stems once, and how often the query names them."""
        found: dict[_Stems, Word] = {}
        for word in words:
            found.setdefault(_stems(word), word)
        return [(word, self._counts[stems]) for stems, word in found.items()]


_Stems = tuple[tuple[type, tuple[str, ...]], ...]


def _stems(word: Word) -> _Stems:
    return tuple((type(found), tuple(stem(token) for token in found.tokens)) for found in word.alternatives)
