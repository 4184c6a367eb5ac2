"""Query text into a `ParsedQuery`. Nothing that can be typed raises, and nothing means the whole library: what has no
word in it is no expression. Whatever was not read as it stands is told in `read_as`."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from config.text import replace_unstorable
from sources.query.expression import AllOf, AnyOf, Expression, Phrase, Title, Without, Word
from sources.query.filters import FilterReader, Filters
from sources.query.grammar import Branch, Leaf, Negation, Titled, Tree, grow, is_explicit
from sources.query.lexer import Chunk, Quoted, lexemes
from sources.query.reading import QueryLimits, Reading
from sources.query.words import inflected, is_foreign, is_plain_word, is_weak, is_weak_word
from sources.text.stemming import stem


class Term(Struct, frozen=True):
    """A word to score and to highlight, and how often the query names it."""

    word: Word
    count: int


class ParsedQuery(Struct, frozen=True):
    """A query as it was read. Without an expression there is nothing to find, and `read_as` says why.

    `explicit`: the query holds AND or OR, so words side by side are all required; otherwise any of them will do.
    """

    expression: Expression | None
    terms: tuple[Term, ...]
    filters: Filters
    read_as: str | None
    explicit: bool
    truncated: bool


_DEFAULT_LIMITS = QueryLimits()
# What may stand after a word and says nothing about it.
_PAUSES = ".,;!?"
_NO_FILTERS = Filters()


def parse(text: str, limits: QueryLimits = _DEFAULT_LIMITS) -> ParsedQuery:
    """What a query means, whatever it is."""
    return _parse_words(text, limits) or _parse_any(text, limits)


def _parse_words(text: str, limits: QueryLimits) -> ParsedQuery | None:
    """What most people type, words and nothing else, read without lexer and grammar; nothing for any other text."""
    chunks = [chunk.rstrip(_PAUSES) for chunk in text.split()]
    if len(text) > limits.max_chars or not all(map(is_plain_word, chunks)):
        return None
    chosen = [chunk for chunk in chunks if not is_weak_word(chunk)] or chunks
    counts: dict[str, int] = {}
    words: dict[str, Word] = {}
    for chunk in chosen:
        root = stem(token := chunk.lower())
        counts[root] = counts.get(root, 0) + 1
        if root not in words:
            words[root] = Word(chunk, (Phrase(chunk, (token,)),))
    if not 0 < len(words) <= limits.max_terms:
        return None
    return ParsedQuery(
        expression=_any_of(tuple(words.values())),
        terms=tuple([Term(word, counts[root]) for root, word in words.items()]),
        filters=_NO_FILTERS,
        read_as=None,
        explicit=False,
        truncated=False,
    )


def _parse_any(text: str, limits: QueryLimits) -> ParsedQuery:
    reading = Reading(limits)
    reader = FilterReader(reading.note)
    tree = grow(reader.read(lexemes(_cut(text, reading))), limits.max_nesting, reading.note)
    expression = _Lowering(reading, tree).lower(tree) if tree is not None else None
    return ParsedQuery(
        expression=expression,
        terms=tuple(Term(word, count) for word, count in reading.counted(_positive_words(expression))),
        filters=reader.filters,
        read_as=reading.read_as(expression),
        explicit=tree is not None and expression is not None and is_explicit(tree),
        truncated=reading.is_truncated,
    )


def _cut(text: str, reading: Reading) -> str:
    limit = reading.limits.max_chars
    if len(text) > limit:
        reading.note_cut(f"only the first {limit} characters were read")
    return replace_unstorable(text[:limit], " ")


class _Lowering:
    """A tree of signs and leaves into an expression of words."""

    def __init__(self, reading: Reading, tree: Tree) -> None:
        self._reading = reading
        self._is_foreign = is_foreign([chunk.text for chunk in _chunks(tree)])

    def lower(self, tree: Tree) -> Expression | None:
        return self._obey(tree, self._found) if is_explicit(tree) else self._gather(tree)

    def _found(self, leaf: Chunk | Quoted) -> Word | None:
        """A leaf to be found; in a language the index does not stem, with other endings too."""
        word = self._reading.literal(leaf)
        return inflected(word) if word and self._is_foreign and isinstance(leaf, Chunk) else word

    def _excluded(self, leaf: Chunk | Quoted) -> Word | None:
        """A leaf to be excluded: exactly itself."""
        return self._reading.literal(leaf)

    # -- no AND, no OR: any word will do -------------------------------------------------------------------------------

    def _gather(self, tree: Tree) -> Expression | None:
        """Any of the loose words; what is quoted or named as title was meant and is required."""
        parts = list(_side_by_side(tree))
        admitted = self._reading.admitted
        titles = admitted(word for part in parts if isinstance(part, Titled) if (word := self._found(part.leaf)))
        quoted = admitted(word for part in parts if isinstance(part, Quoted) if (word := self._found(part)))
        words = admitted(self._loose_words(parts, are_optional=bool(titles or quoted)))
        return self._subtract(_require([Title(word) for word in titles], quoted, words), parts)

    def _loose_words(self, parts: Sequence[Tree], *, are_optional: bool) -> list[Word]:
        """Stop words are left out when anything else is there to be found."""
        found = [item for part in parts if isinstance(part, Chunk) for item in self._reading.loose(part.text)]
        strong = [item for item in found if not item.is_weak]
        chosen = strong or ([] if are_optional else found)
        return [inflected(item.word) if self._is_foreign else item.word for item in chosen]

    # -- AND or OR: every operator is obeyed ---------------------------------------------------------------------------

    def _obey(self, tree: Tree, read: "_ReadLeaf") -> Expression | None:
        match tree:
            case Branch(operator="OR", parts=parts):
                options = [option for part in parts if (option := self._obey(part, read)) is not None]
                return _any_of(options) if options else None
            case Branch(operator=operator, parts=parts):
                kept = [part for part in parts if not isinstance(part, Negation)]
                found = [part for branch in kept if (part := self._obey(branch, read)) is not None]
                strong = found if operator == "AND" else _without_weak(found)
                return self._subtract(_all_of(strong), parts)
            case Negation():
                return self._subtract(None, (tree,))
            case Titled(leaf=leaf):
                word = read(leaf)
                return Title(word) if word and self._reading.admit(word) else None
            case Chunk() | Quoted():
                word = read(tree)
                return word if word and self._reading.admit(word) else None

    def _subtract(self, keep: Expression | None, parts: Sequence[Tree]) -> Expression | None:
        """`keep` without what the negations among the parts name."""
        named = [self._obey(part.part, self._excluded) for part in parts if isinstance(part, Negation)]
        dropped = [drop for drop in named if drop is not None]
        if keep is None and dropped:
            self._reading.note("what is excluded needs something to be excluded from")
        return Without(keep, _any_of(dropped)) if keep is not None and dropped else keep


_ReadLeaf = Callable[[Chunk | Quoted], Word | None]


def _without_weak(found: Sequence[Expression]) -> Sequence[Expression]:
    return [part for part in found if not (isinstance(part, Word) and is_weak(part))] or found


def _chunks(tree: Tree) -> Iterator[Chunk]:
    match tree:
        case Chunk():
            yield tree
        case Branch(parts=parts):
            for part in parts:
                yield from _chunks(part)
        case Negation(part=part) | Titled(leaf=part):
            yield from _chunks(part)
        case Quoted():
            pass


def _side_by_side(tree: Tree) -> Iterator[Leaf | Negation]:
    """The leaves and exclusions of a tree that has no AND and no OR: its brackets mean nothing."""
    if isinstance(tree, Branch):
        for part in tree.parts:
            yield from _side_by_side(part)
    else:
        yield tree


def _positive_words(expression: Expression | None) -> Iterator[Word]:
    match expression:
        case Word():
            yield expression
        case Title(word=word):
            yield word
        case AnyOf(parts=parts) | AllOf(parts=parts):
            for part in parts:
                yield from _positive_words(part)
        case Without(keep=keep):
            yield from _positive_words(keep)
        case None:
            pass


def _require(titles: Sequence[Title], quoted: Sequence[Word], words: Sequence[Word]) -> Expression | None:
    """Titles restrict like filters. Beside a quotation loose words only rank: a hit need not hold any of them."""
    ranked = [*quoted, *words] if quoted else words
    optional = [_any_of(ranked)] if words else []
    return _all_of([*titles, *quoted, *optional])


def _any_of(parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _all_of(parts: Sequence[Expression]) -> Expression | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return AllOf(tuple(parts))
