"""The words of a library that are near to another word."""

import threading
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from sources.query import AllOf, Expression, ParsedQuery, Phrase, Prefix, Term, Word
from sources.query.parser import with_near_terms
from sources.query.words import ENDINGS, searchable_prefixes, with_other_endings, word_with_stem
from sources.storage.search.engine import SearchConnection, SearchStatistics
from sources.storage.search.text_search import LITTLE_ROWS, TextSearch
from sources.text.folding import fold
from sources.text.segmentation import UNSPACED_RUN, stem, stem_prefix

# Words of an index that are compared with a misspelled word, so that a search stays fast.
NEAR_WORDS_MAX = 50_000

# Memory for the words of all libraries that misspelled words are compared with.
SEARCH_VOCABULARY_MIB = 64

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

# -- near words --------------------------------------------------------------------------------------------------------
# Finds the words of a vocabulary that a misspelled word may mean.
#
# A vocabulary is one text: its words in order, each with a space before and after it. That takes a tenth of the memory
# of a list, and most words are ruled out by searching the text for parts of the misspelled word.

# Shorter words have too many neighbours.
NEAR_MIN_CHARS = 4
# Longer ones are encoded data rather than words.
NEAR_MAX_CHARS = 64
# From this length on, two letters may be wrong; before, one. Shorter words have unrelated words at that distance.
_TWO_EDITS_MIN_CHARS = 7
# The first part of a compound, by which others are found, and the parts around one that is in it.
COMPOUND_MIN_CHARS = 5
_COMPOUND_PART_MIN_CHARS = 3
_FIRST_PART = "haus"
# The endings that are at most one letter longer or shorter than a text of some length. Short ones are not corrected.
_ENDINGS_NEAR_LENGTH = {
    chars: [ending for ending in ENDINGS if len(ending) > 2 and abs(len(ending) - chars) <= 1]
    for chars in range(2, max(map(len, ENDINGS)) + 2)
}


def can_be_misspelled(word: str) -> bool:
    """Returns whether similar words are worth looking for: not for numbers and names of things with digits."""
    return len(word) >= NEAR_MIN_CHARS and not any(map(str.isdigit, word))


def similar_words(word: str, edits: int, vocabularies: Sequence[str]) -> set[str]:
    """Returns the words of sorted vocabularies that a misspelled word may mean, if `edits` letters of it are wrong. A
    swap of two neighbouring letters counts as one edit."""
    from rapidfuzz import distance, process  # noqa: PLC0415 - most processes never need it

    # Every word within this distance contains one of these texts.
    # With one edit, a word still begins with its first half or ends with its second. With two, it begins with its first
    # third, or ends with its last, or one edit is in each of these, and it contains the second. An edit can also swap
    # the letters at the border of two parts. Then a word begins or ends with such a part and the other letter, unless
    # there is another edit in it: in that case it ends or begins with the part on the other side. Words that begin with
    # a text are next to each other. Each other text is searched for in the whole vocabularies, which takes most of the
    # time.
    cuts = [len(word) * number // (edits + 1) for number in range(edits + 2)]
    first, last = cuts[1], cuts[-2]
    contained = [f"{word[last:]} "]
    if edits > 1:
        contained += [f"{word[last]}{word[last - 1]}{word[last + 1 :]} ", word[first:last]]
    possible = set[str]()
    for vocabulary in vocabularies:
        for beginning in (word[:first], f"{word[: first - 1]}{word[first]}{word[first - 1]}"):
            possible.update(_words_beginning(beginning, vocabulary))
        for part in contained:
            possible.update(_words_with(part, vocabulary, len(word) - edits, len(word) + edits))
    found = process.extract(word, possible, scorer=distance.OSA.distance, score_cutoff=edits, limit=None)
    return {other for other, found_edits, _ in found if found_edits == edits and can_be_misspelled(other)}


def compounds_with(word: str, vocabularies: Sequence[str]) -> list[str]:
    """Returns the compounds that end with a word, or have it in the middle: Bett and Haus find Krankenhausbett. The
    parts next to it have to be words, too, which short ones hardly are: script does not find inscription."""
    if len(word) < NEAR_MIN_CHARS:
        return []
    least = len(word) + _COMPOUND_PART_MIN_CHARS
    found = dict.fromkeys(chain(*(_words_with(word, one, least, NEAR_MAX_CHARS) for one in vocabularies)))
    return [one for one in found if _is_compound(one, word)]


def last_part_stem(word: str) -> str:
    """Returns what the stem of a compound ends with whose last part is this word. Endings are only removed from words
    that are long enough: wasser is its own stem, and leitungswass that of Leitungswasser."""
    return stem(_FIRST_PART + word).removeprefix(_FIRST_PART)


def _is_compound(compound: str, word: str) -> bool:
    at = compound.find(word, _COMPOUND_PART_MIN_CHARS)
    while at >= 0:
        after = len(compound) - at - len(word)
        if not after or after >= _COMPOUND_PART_MIN_CHARS:
            return True
        at = compound.find(word, at + 1)
    return False


def roots_with_other_endings(word: str) -> list[str]:
    """Returns the stems that a word has if its ending is a misspelled one: appointmnet has no ending that could be
    removed, so that it is far from the stem of appointment."""
    if not word.isascii():
        return []  # the endings are English
    from rapidfuzz import distance, process  # noqa: PLC0415 - as above

    roots: dict[str, None] = {}
    for chars, endings in _ENDINGS_NEAR_LENGTH.items():
        start, tail = word[:-chars], word[-chars:]
        if len(start) > 2:
            found = process.extract(tail, endings, scorer=distance.OSA.distance, score_cutoff=1, limit=None)
            roots |= {stem(start + ending): None for ending, edits, _ in found if edits}
    return [root for root in roots if root != stem(word) and can_be_misspelled(root)]


def _words_beginning(beginning: str, vocabulary: str) -> list[str]:
    """Returns the words of a sorted vocabulary that begin with a text."""

    def compared(at: int) -> str:
        start = vocabulary.rfind(" ", 0, at + 1) + 1
        return vocabulary[start : start + len(beginning)]

    places = range(len(vocabulary) - 1)
    start = bisect_left(places, beginning, key=compared)
    return vocabulary[start : bisect_right(places, beginning, lo=start, key=compared)].split()


def _words_with(part: str, vocabulary: str, min_chars: int, max_chars: int) -> list[str]:
    """Returns the words of some lengths that contain a text, which may include the space before or after a word."""
    words = []
    at = vocabulary.find(part)
    while at >= 0:
        start, end = vocabulary.rfind(" ", 0, at + 1) + 1, vocabulary.find(" ", at + 1)
        if min_chars <= end - start <= max_chars:
            words.append(vocabulary[start:end])
        at = vocabulary.find(part, end)
    return words


# -- words of a library ------------------------------------------------------------------------------------------------

# A word and the versions of the indexes that it is looked up in.
NearWordsKey = tuple[str | bytes, ...]


class VersionedIndex(Protocol):
    """One index, as one connection sees it."""

    @property
    def table(self) -> str: ...
    @property
    def version(self) -> bytes: ...


class IndexWords(VersionedIndex, Protocol):
    """The words of one index."""

    def words_like(self, word: str, edits: int, words_max: int) -> list[str]:
        """Returns the vocabularies with the words that differ from a word in some letters."""
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

    def get(
        self, keys: Sequence[NearWordsKey], find: Callable[[Sequence[str]], Sequence[list[str]]]
    ) -> list[list[str]]:
        """Returns the near words of each key. `find` returns those of words that are not known, and is called by one
        reader at a time: all sources of a search need the same near words at about the same time. A reader that is
        stuck does not hold up the others."""
        has_lock = self._lock.acquire(timeout=_NEAR_WORDS_WAIT_MAX_S)
        try:
            words = {key: self._near_words.get(key) for key in keys}
            if unknown := [key for key, known in words.items() if known is None]:
                found = dict(zip(unknown, find([str(key[0]) for key in unknown]), strict=True))
                if len(self._near_words) + len(found) > _NEAR_WORDS_MAX:
                    self._near_words.clear()
                self._near_words |= found
                words |= found
            return [words[key] or [] for key in keys]
        finally:
            if has_lock:
                self._lock.release()


IndexT = TypeVar("IndexT", bound=VersionedIndex)


class LibraryVocabulary(Generic[IndexT]):
    """The words of several indexes of a library. At most `words_max` words of an index are compared."""

    def __init__(self, indexes: Sequence[IndexT], memory: NearWordsMemory, words_max: int) -> None:
        self._indexes = indexes
        self._memory = memory
        self._words_max = words_max
        # The indexes that contain a stem, of the stems that were counted.
        self._indexes_of: dict[str, list[IndexT]] = {}

    def near_words(self, words: Sequence[str]) -> list[list[str]]:
        """Returns for each word the nearest ones, or else compounds with it, the most frequent first."""
        # Which indexes are read depends on the credential, and two of them may have the same version.
        versions = [part for index in self._indexes for part in (index.table, index.version)]
        return self._memory.get([(word, *versions) for word in words], self._find_near_words)

    def _find_near_words(self, words: Sequence[str]) -> list[list[str]]:
        stems = self._near_stems(words)
        tokens = {near: token for own in stems for near in own if (token := word_with_stem(near))}
        texts = self._find_texts(tokens)
        spelled = [{near: _spelling(near, tokens[near], texts[near]) for near in own if near in texts} for own in stems]
        return [
            [text for near, text in own.items() if not _is_chance(word, near, text)]
            for word, own in zip(words, spelled, strict=True)
        ]

    def _near_stems(self, misspelled: Sequence[str]) -> list[list[str]]:
        """The candidates of all words are counted together, because an engine may have to ask a server."""
        found: dict[str, list[str]] = {}
        candidates = {root: self._candidates(root) for root in misspelled}
        while wanted := {root: words for root, own in candidates.items() if (words := next(own, None)) is not None}:
            by_index = zip(*wanted.values(), strict=True)
            counts = self._count_rows([list(dict.fromkeys(chain(*words))) for words in by_index])
            for index, own in zip(self._indexes, counts, strict=True):
                for word in own:
                    indexes = self._indexes_of.setdefault(word, [])
                    if index not in indexes:
                        indexes.append(index)
            for root, words in wanted.items():
                rows: Counter[str] = Counter()
                for own_words, own in zip(words, counts, strict=True):
                    rows.update({word: own[word] for word in own_words if word in own})
                if rows:
                    found[root] = sorted(rows, key=lambda word: (-rows[word], word))[:_NEAR_MAX]
                    del candidates[root]
        return [found.get(root, []) for root in misspelled]

    def _candidates(self, word: str) -> Iterator[list[list[str]]]:
        """Yields the stems of each index that a word may mean, the most similar first, and then compounds. The next
        ones are looked for only if the library has none of these."""
        root, others = stem(word), roots_with_other_endings(word)
        indexes = self._words_like(root, 1)
        near = [similar_words(root, 1, vocabularies) for vocabularies in indexes]
        for one, vocabularies in zip(near, indexes, strict=True):
            one.update([other for other in others if any(f" {other} " in words for words in vocabularies)])
        yield [*map(list, near)]
        indexes = self._words_like(root, 2)
        if len(root) >= _TWO_EDITS_MIN_CHARS:
            yield [[*similar_words(root, 2, vocabularies)] for vocabularies in indexes]
        # The stem of a compound ends with the stem of its last part; in the middle, parts are not stemmed.
        last, parts = last_part_stem(word), {word, root}
        compounds = [{other for part in parts for other in compounds_with(part, one)} for one in indexes]
        if last not in parts:
            for found, vocabularies in zip(compounds, indexes, strict=True):
                found.update([other for other in compounds_with(last, vocabularies) if other.endswith(last)])
        yield [*map(list, compounds)]

    @abstractmethod
    def _words_like(self, word: str, edits: int) -> list[list[str]]:
        """Returns the vocabularies of each index with the words that differ from a word in some letters."""

    @abstractmethod
    def _count_rows(self, words: Sequence[Sequence[str]]) -> list[dict[str, int]]:
        """Returns the number of rows of words of each index."""

    @abstractmethod
    def _find_texts(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """Returns an indexed text for each stem that contains its token, as far as there is one."""


class MultiIndexVocabulary(LibraryVocabulary[IndexWords]):
    """Asks each index for its words."""

    def _words_like(self, word: str, edits: int) -> list[list[str]]:
        return [index.words_like(word, edits, self._words_max) for index in self._indexes]

    def _count_rows(self, words: Sequence[Sequence[str]]) -> list[dict[str, int]]:
        return [index.count_rows(own) for index, own in zip(self._indexes, words, strict=True)]

    def _find_texts(self, tokens: Mapping[str, str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for near, token in tokens.items():
            text = next(filter(None, (index.find_text(token) for index in self._indexes_of[near])), None)
            if text:
                texts[near] = text
        return texts


def _is_chance(word: str, near: str, text: str) -> bool:
    """Returns whether a compound has only the stem of its last part in common with a word: Benchmark and Marker."""
    is_by_last_part = near.endswith(last_part_stem(word)) and len(near) >= len(word) + _COMPOUND_PART_MIN_CHARS
    return is_by_last_part and word not in text and stem(word) not in near


def _spelling(near: str, token: str, text: str) -> str:
    """Returns the word of a text that has this stem."""
    words, beginning = fold(text[:_TEXT_MAX_CHARS]).split(), stem_prefix(near)
    return next((word for word in words if word.startswith(beginning) and stem(word) == near), token)


def word_beginnings(word: str, rows: int, edits: int) -> tuple[str, ...]:
    """Returns the beginnings of the words to compare with a word of which `edits` letters are wrong. Its first two
    letters may be swapped."""
    if rows <= _ALL_WORDS_ROWS:
        return ("",)
    first, second = word[0], word[1]
    beginnings: tuple[str, ...] = first, second
    if rows > _ONE_LETTER_ROWS:
        beginnings = word[:2], second + first
    elif edits == 1 and first != second:
        # A word with one wrong letter that begins with the second letter goes on with one of these.
        beginnings = first, second + first, second + second, word[1:3]
    return tuple(dict.fromkeys(beginnings))


# -- vocabulary memory -------------------------------------------------------------------------------------------------
# The words of full-text indexes that are in memory, of all users.

# What a vocabulary takes in memory besides its text.
_ENTRY_BYTES = 500

# The library, the index and the beginning of the words.
_VocabularyKey = tuple[int | str, str, str]


class VocabularyMemory:
    """The vocabularies of all users that were read last, as far as they fit into `max_bytes`. Each belongs to one
    version of its index."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        # Least recently used first.
        self._vocabularies: OrderedDict[_VocabularyKey, tuple[bytes, str]] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: _VocabularyKey, version: bytes) -> str | None:
        with self._lock:
            known_version, words = self._vocabularies.get(key, (b"", ""))
            if known_version != version:
                return None
            self._vocabularies.move_to_end(key)
            return words

    def put(self, key: _VocabularyKey, version: bytes, words: str) -> None:
        with self._lock:
            self._remove(key)
            self._vocabularies[key] = version, words
            self.size_bytes += _size_bytes(words)
            while self.size_bytes > self._max_bytes:
                self._remove(next(iter(self._vocabularies)))

    def forget(self, library: object) -> None:
        """Drops the vocabularies of a library that is closed."""
        with self._lock:
            for key in [key for key in self._vocabularies if key[0] == id(library)]:
                self._remove(key)

    def _remove(self, key: _VocabularyKey) -> None:
        known = self._vocabularies.pop(key, None)
        if known is not None:
            self.size_bytes -= _size_bytes(known[1])


def _size_bytes(words: str) -> int:
    return words.__sizeof__() + _ENTRY_BYTES


# -- spelling ----------------------------------------------------------------------------------------------------------
# Adds near words to a query if it has words that the library does not contain, or is a word that matches little.
#
# An unknown word may be misspelled. It may also be part of a compound: Steuer finds Steuererklärung. The words come
# from the indexes that the search itself reads, so human-only text never affects what an agent finds.

# For how many words of a query near words are looked up.
_ATTEMPTS_MAX = 8
# How many other words of the query a near word has to occur with.
_EVIDENCE_WORDS = 2


class _Attempt(Struct, frozen=True):
    """A word of the query for which near words are looked up: its place, its token, and whether it occurs nowhere."""

    index: int
    word: Word
    token: str
    is_unknown: bool


class Spelling:
    """Looks up near words for a search that lacks words (`TextSearch.lacks_words`). At most `words_max` words of an
    index are compared."""

    def __init__(
        self, connection: SearchConnection, text_search: TextSearch, statistics: SearchStatistics, words_max: int
    ) -> None:
        self._connection = connection
        self._text_search = text_search
        self._query = text_search.search.query
        self._match_text = statistics.engine.compiler()
        self._statistics = statistics
        self._words_max = words_max

    def correct(self) -> ParsedQuery | None:
        """Returns the query with near words, or None if there are none."""
        words = [term.word for term in self._query.terms]
        # Those of the library, which are the same for all sources of a search, and can be none for human-only text.
        in_library = self._statistics.count_each_in_library(self._connection, [*map(self._match_text, words)])
        rows = [count or own for count, own in zip(in_library, self._text_search.count_terms(), strict=True)]
        known = [word for count, word in sorted(zip(rows, words, strict=True), key=itemgetter(0)) if count]
        tried: list[_Attempt] = []
        for index, (word, count) in enumerate(zip(words, rows, strict=True)):
            token = None if index in self._query.time_terms else single_token(word)
            matches_little = len(words) == 1 and in_library[index] < LITTLE_ROWS
            if token is not None and len(tried) < _ATTEMPTS_MAX and (not count or matches_little):
                tried.append(_Attempt(index, word, token, not count))
        # The words that near words have to occur with: a single word that occurs has no others. If they occur nowhere
        # together, as in half of the searches with an unknown word, no vocabulary needs to be read.
        rarest = known[:_EVIDENCE_WORDS] if len(words) > 1 else []
        others = tuple([word for word in words if word in rarest])
        if not tried or (len(others) > 1 and not self._count(AllOf(others))):
            return None
        # Each step for all words, because an engine may have to ask a server.
        compounds = self._occurring(tried, self._compounds(tried), others)
        similar = self._occurring(tried, self._similar(tried), others)
        near: list[Term] = []
        notes: list[str] = []
        for attempt, own_compounds, own_similar in zip(tried, compounds, similar, strict=True):
            notes += _notes(attempt.word.text, own_compounds, own_similar)
            count = self._query.terms[attempt.index].count
            near += [Term(one, count, near=attempt.index) for one in (*own_compounds, *own_similar)]
        return with_near_terms(self._query, near, notes) if near else None

    def _occurring(
        self, tried: Sequence[_Attempt], near: Sequence[Sequence[Word]], others: Sequence[Word]
    ) -> list[list[Word]]:
        """Returns the near words that occur together with the rarest other words of the query. Without that, a word
        that is spelled correctly and merely unknown would be taken for any similar word."""
        matches = {
            (attempt.index, word.text): self._match_text(AllOf((word, *others)))
            for attempt, words in zip(tried, near, strict=True)
            for word in words
            if others
        }
        counts = self._statistics.count_each_in_library(self._connection, [*matches.values()]) if matches else []
        missing = {key for key, count in zip(matches, counts, strict=True) if not count}
        return [
            [word for word in words if (attempt.index, word.text) not in missing]
            for attempt, words in zip(tried, near, strict=True)
        ]

    def _count(self, expression: Expression) -> int:
        [count] = self._statistics.count_each_in_library(self._connection, (self._match_text(expression),))
        return count

    def _compounds(self, tried: Sequence[_Attempt]) -> list[list[Word]]:
        """Returns for each word the compounds that begin with its token, as one word, if there are any."""
        compounds = {one.index: compound for one in tried if (compound := compound_of(one.token)) is not None}
        matches = [self._match_text(word) for word in compounds.values()]
        rows = self._statistics.count_each_in_library(self._connection, matches) if matches else []
        counts = dict(zip(compounds, rows, strict=True))
        return [[compounds[one.index]] if counts.get(one.index, 0) > self._count(one.word) else [] for one in tried]

    def _similar(self, tried: Sequence[_Attempt]) -> list[list[Word]]:
        """Returns the similar words of each word that occurs nowhere."""
        unknown = [attempt for attempt in tried if attempt.is_unknown]
        if not unknown:
            return [[] for _ in tried]
        vocabulary = self._statistics.vocabulary(self._connection, self._text_search.target.index, self._words_max)
        near = {}
        for attempt, spellings in zip(
            unknown, vocabulary.near_words([attempt.token for attempt in unknown]), strict=True
        ):
            words = [Word(spelling, (Phrase(spelling, (spelling,)),)) for spelling in spellings]
            is_inflected = any(isinstance(one, Prefix) for one in attempt.word.alternatives)
            near[attempt.index] = [with_other_endings(word) for word in words] if is_inflected else words
        return [near.get(attempt.index, []) for attempt in tried]


def compound_of(token: str) -> Word | None:
    """Returns the word for the compounds that begin with a token, if it is long enough."""
    if len(token) < COMPOUND_MIN_CHARS:
        return None
    return Word(f"{token}*", tuple(Prefix(prefix, (prefix,)) for prefix in searchable_prefixes(token)))


def single_token(word: Word) -> str | None:
    """Returns the token of a word that is a single one and may be misspelled."""
    phrase = word.alternatives[0]
    if isinstance(phrase, Prefix) or any(len(one.tokens) != 1 for one in word.alternatives):
        return None
    token = phrase.tokens[0]
    return token if can_be_misspelled(token) and not UNSPACED_RUN.search(token) else None


def _notes(text: str, compounds: Sequence[Word], words: Sequence[Word]) -> Iterator[str]:
    if compounds:
        yield f"searched for words that begin with {text} too"
    if words:
        yield f"did you mean {' or '.join(word.text for word in words)}? ({text} is in no item)"
