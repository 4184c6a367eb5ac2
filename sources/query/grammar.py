"""Builds a syntax tree from lexemes.

NOT binds closest, then AND, then OR. Adjacent words without an operator form one branch. Operators and brackets that do
not fit are skipped with a note, so every sequence of lexemes gives a tree, or none if it contains no leaf.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from sources.query.lexer import BareWord, QuotedText, Symbol

# -- expression --------------------------------------------------------------------------------------------------------
# The meaning of a query, as a closed union of frozen values.
#
# Leaves carry the index tokens to search for, so an engine only quotes and joins them. Tokens are folded but not
# stemmed, because the index stems them itself. Hashes are cached, because expressions are the keys of several caches
# that every source of a search uses. No value contains itself, so the garbage collector need not visit the hundreds of
# them that a query in a script without spaces has.


class Phrase(Struct, frozen=True, cache_hash=True, gc=False):
    """Tokens that are consecutive in the index, or a single token. `text` is how the phrase is written."""

    text: str
    tokens: tuple[str, ...]


class Prefix(Struct, frozen=True, cache_hash=True, gc=False):
    """Like `Phrase`, but the last token is only the beginning of one."""

    text: str
    tokens: tuple[str, ...]


class Word(Struct, frozen=True, cache_hash=True, gc=False):
    """A search term. It matches if any of its alternatives does."""

    text: str
    alternatives: tuple[Phrase | Prefix, ...]


class Title(Struct, frozen=True, cache_hash=True, gc=False):
    """A word that matches only in the title of an item."""

    word: Word


class AnyOf(Struct, frozen=True, cache_hash=True, gc=False):
    """Two or more parts of which at least one must match."""

    parts: tuple["Expression", ...]


class AllOf(Struct, frozen=True, cache_hash=True, gc=False):
    """Two or more parts that must all match."""

    parts: tuple["Expression", ...]


class Without(Struct, frozen=True, cache_hash=True, gc=False):
    """Matches what `keep` matches and `drop` does not. There is no bare negation: it would match the whole library."""

    keep: "Expression"
    drop: "Expression"


Expression = Word | Title | AnyOf | AllOf | Without


def render(expression: Expression) -> str:
    """Returns the expression in the syntax of the query language."""
    match expression:
        case Word(text=text):
            return f'"{text}"' if " " in text else text
        case Title(word=word):
            return f"title:{render(word)}"
        case AnyOf(parts=parts):
            # A Vietnamese word is searched with and without its marks, and both look the same.
            return " OR ".join(dict.fromkeys(_render_part(part) for part in parts))
        case AllOf(parts=parts):
            return " AND ".join(_render_part(part) for part in parts)
        case Without(keep=keep, drop=drop):
            return f"{_render_part(keep)} NOT {_render_part(drop)}"


def _render_part(part: Expression) -> str:
    return render(part) if isinstance(part, Word | Title) else f"({render(part)})"


# -- notes -------------------------------------------------------------------------------------------------------------
# Notes on the parts of a query that were not taken literally.

_NOTHING = "searched for nothing"
_NO_WORDS = "the query contains no words"
_FILTER_ONLY = "filter only, newest first"


class QueryNotes:
    """Collects the notes of one parse, each once, and renders them as the `read_as` of the response."""

    def __init__(self) -> None:
        self.is_truncated = False
        self._notes: dict[str, None] = {}

    def copy(self) -> "QueryNotes":
        notes = QueryNotes()
        notes.is_truncated = self.is_truncated
        notes._notes = dict(self._notes)
        return notes

    def add(self, note: str) -> None:
        self._notes[note] = None

    def add_truncation(self, note: str) -> None:
        self.is_truncated = True
        self.add(note)

    def read_as(self, expression: Expression | None, *, has_filters: bool) -> str | None:
        """Returns what was searched for and the notes, or None if the query was taken literally."""
        if expression is not None:
            return f"searched for {render(expression)}; {'; '.join(self._notes)}" if self._notes else None
        if has_filters:
            return "; ".join((_FILTER_ONLY, *self._notes))
        return f"{_NOTHING}; {'; '.join(self._notes) or _NO_WORDS}"


def with_filters(read_as: str) -> str:
    """Returns `read_as` of a query without words for a search that other arguments restrict."""
    return read_as.replace(_NOTHING, _FILTER_ONLY, 1).removesuffix(f"; {_NO_WORDS}")


class TitleLeaf(Struct, frozen=True):
    """The value of a `title:` filter."""

    leaf: BareWord | QuotedText


class Branch(Struct, frozen=True):
    """Parts joined by an operator, or ADJACENT without one."""

    operator: Literal["AND", "OR", "ADJACENT"]
    parts: tuple["Tree", ...]


class Negation(Struct, frozen=True):
    """A part to exclude."""

    part: "Tree"


Leaf = BareWord | QuotedText | TitleLeaf
Tree = Leaf | Branch | Negation

_BRACKETS = (Symbol("("), Symbol(")"))
_JOINING = (Symbol("AND"), Symbol("OR"))
_ENDING = (*_JOINING, Symbol(")"))


def build_tree(items: Iterable[Tree | Symbol], max_nesting: int, notes: QueryNotes) -> Tree | None:
    """Returns the tree of the items, or None if they contain no leaf."""
    return _TreeBuilder(_balance_brackets(list(items), max_nesting, notes), notes).build()


def has_operators(tree: Tree) -> bool:
    """Returns whether the tree contains AND or OR outside of exclusions."""
    match tree:
        case Branch(operator="AND" | "OR"):
            return True
        case Branch(parts=parts):
            return any(has_operators(part) for part in parts)
        case _:
            return False


def without_exclusions(tree: Tree) -> Tree | None:
    """Returns the tree without its exclusions, or None if nothing else is left."""
    match tree:
        case Negation():
            return None
        case Branch(operator=operator, parts=parts):
            kept = tuple(part for part in map(without_exclusions, parts) if part is not None)
            return Branch(operator, kept) if len(kept) > 1 else kept[0] if kept else None
        case _:
            return tree


def without_operators(tree: Tree) -> Tree:
    """Returns the tree with its leaves and exclusions side by side."""
    leaves = [*flatten(tree)]
    return Branch("ADJACENT", tuple(leaves)) if len(leaves) > 1 else leaves[0]


def flatten(tree: Tree) -> Iterator[Leaf | Negation]:
    """Yields the leaves and exclusions of a tree, whatever joins them."""
    if isinstance(tree, Branch):
        for part in tree.parts:
            yield from flatten(part)
    else:
        yield tree


def _balance_brackets(items: Sequence[Tree | Symbol], max_nesting: int, notes: QueryNotes) -> list[Tree | Symbol]:
    """Removes unmatched brackets and those nested too deep."""
    partner: dict[int, int] = {}
    open_brackets: list[int] = []
    unmatched = 0
    for index, item in enumerate(items):
        if item == Symbol("("):
            open_brackets.append(index)
        elif item == Symbol(")") and open_brackets:
            start = open_brackets.pop()
            if len(open_brackets) < max_nesting:
                partner |= {start: index, index: start}
            else:
                notes.add(f"ignored brackets nested more than {max_nesting} deep")
        elif item == Symbol(")"):
            unmatched += 1
    if unmatched or open_brackets:
        notes.add("ignored an unmatched bracket")
    return [item for index, item in enumerate(items) if item not in _BRACKETS or index in partner]


class _TreeBuilder:
    """A recursive descent parser for balanced brackets. Its depth is limited by `_balance_brackets`."""

    def __init__(self, items: Sequence[Tree | Symbol], notes: QueryNotes) -> None:
        self._items = items
        self._index = 0
        self._notes = notes

    def build(self) -> Tree | None:
        return self._any_of()

    def _any_of(self) -> Tree | None:
        parts = [self._all_of()]
        while self._accept("OR"):
            parts.append(self._all_of())
        return self._join("OR", parts)

    def _all_of(self) -> Tree | None:
        parts = [self._adjacent()]
        while self._accept("AND"):
            parts.append(self._adjacent())
        return self._join("AND", parts)

    def _adjacent(self) -> Tree | None:
        parts: list[Tree | None] = []
        while not (self._index == len(self._items) or self._items[self._index] in _ENDING):
            is_negated = False
            while self._accept("NOT"):
                is_negated = not is_negated
            operand_part = self._group_or_leaf()
            if operand_part is None and is_negated:
                self._notes.add("ignored NOT (it needs a term after it)")
            operand = Negation(operand_part) if operand_part is not None and is_negated else operand_part
            parts.append(operand)
        return self._join("ADJACENT", [part for part in parts if part is not None])

    def _group_or_leaf(self) -> Tree | None:
        if self._accept("("):
            part = self._any_of()
            self._accept(")")
            return part
        if self._index == len(self._items):
            return None
        item = self._items[self._index]
        if isinstance(item, Symbol):
            return None
        self._index += 1
        return item

    def _accept(self, symbol: Literal["AND", "OR", "NOT", "(", ")"]) -> bool:
        if self._index < len(self._items) and self._items[self._index] == Symbol(symbol):
            self._index += 1
            return True
        return False

    def _join(self, operator: Literal["AND", "OR", "ADJACENT"], parts: Sequence[Tree | None]) -> Tree | None:
        operands = tuple(part for part in parts if part is not None)
        if len(operands) < len(parts) and len(parts) > 1:
            self._notes.add(f"ignored {operator} (it needs a term on each side)")
        if len(operands) < 2:
            return operands[0] if operands else None
        return Branch(operator, operands)
