"""Lexemes into a tree. NOT binds closest, then AND, then OR; words side by side are joined by nothing yet. A sign that
joins nothing is skipped and noted, so every list of lexemes has a tree or is empty."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from sources.query.lexer import Chunk, Quoted, Sign


class Titled(Struct, frozen=True):
    """`title:` and what it applies to."""

    leaf: Chunk | Quoted


class Branch(Struct, frozen=True):
    """Parts joined by an operator that was written, or standing BESIDE one another."""

    operator: Literal["AND", "OR", "BESIDE"]
    parts: tuple["Tree", ...]


class Negation(Struct, frozen=True):
    """What is to be excluded."""

    part: "Tree"


Leaf = Chunk | Quoted | Titled
Tree = Leaf | Branch | Negation
Note = Callable[[str], None]

_BRACKETS = (Sign("("), Sign(")"))
_JOINTS = (Sign("AND"), Sign("OR"))
_ENDS = (*_JOINTS, Sign(")"))


def grow(found: Iterable[Tree | Sign], max_nesting: int, note: Note) -> Tree | None:
    """The tree of what was found, or nothing when that holds no leaf."""
    return _Grammar(_balance(list(found), max_nesting, note), note).read()


def is_explicit(tree: Tree) -> bool:
    """Whether an AND or OR was written in it, other than to say what is excluded."""
    match tree:
        case Branch(operator="AND" | "OR"):
            return True
        case Branch(parts=parts):
            return any(is_explicit(part) for part in parts)
        case _:
            return False


def _balance(found: Sequence[Tree | Sign], max_nesting: int, note: Note) -> list[Tree | Sign]:
    """The same without brackets that have no partner, and without those nested too deep to follow."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    alone = 0
    for at, item in enumerate(found):
        if item == Sign("("):
            opened.append(at)
        elif item == Sign(")") and opened:
            start = opened.pop()
            if len(opened) < max_nesting:
                partner |= {start: at, at: start}
            else:
                note(f"brackets nested deeper than {max_nesting} were ignored")
        elif item == Sign(")"):
            alone += 1
    # Without AND and OR brackets group nothing: a smile at the end of a sentence is not worth a word.
    if (alone or opened) and any(item in _JOINTS for item in found):
        note("a bracket without a partner was ignored")
    return [item for at, item in enumerate(found) if item not in _BRACKETS or at in partner]


class _Grammar:
    """Recursive descent over balanced brackets; its depth is the nesting that `_balance` allowed."""

    def __init__(self, items: Sequence[Tree | Sign], note: Note) -> None:
        self._items = items
        self._at = 0
        self._note = note

    def read(self) -> Tree | None:
        return self._either()

    def _either(self) -> Tree | None:
        parts = [self._together()]
        while self._take("OR"):
            parts.append(self._together())
        return self._join("OR", parts)

    def _together(self) -> Tree | None:
        parts = [self._beside()]
        while self._take("AND"):
            parts.append(self._beside())
        return self._join("AND", parts)

    def _beside(self) -> Tree | None:
        parts: list[Tree | None] = []
        while not self._is_at_end():
            parts.append(self._operand())
        return self._join("BESIDE", [part for part in parts if part is not None])

    def _operand(self) -> Tree | None:
        is_negated = False
        while self._take("NOT"):
            is_negated = not is_negated
        part = self._group_or_leaf()
        if part is None and is_negated:
            self._note("NOT excluded nothing and was ignored")
        return Negation(part) if part is not None and is_negated else part

    def _group_or_leaf(self) -> Tree | None:
        if self._take("("):
            part = self._either()
            self._take(")")
            return part
        if self._at == len(self._items):
            return None
        item = self._items[self._at]
        if isinstance(item, Sign):
            return None
        self._at += 1
        return item

    def _is_at_end(self) -> bool:
        return self._at == len(self._items) or self._items[self._at] in _ENDS

    def _take(self, sign: Literal["AND", "OR", "NOT", "(", ")"]) -> bool:
        if self._at < len(self._items) and self._items[self._at] == Sign(sign):
            self._at += 1
            return True
        return False

    def _join(self, operator: Literal["AND", "OR", "BESIDE"], parts: Sequence[Tree | None]) -> Tree | None:
        found = tuple(part for part in parts if part is not None)
        if len(found) < len(parts) and len(parts) > 1:
            self._note(f"{operator} joined nothing and was ignored")
        if len(found) < 2:
            return found[0] if found else None
        return Branch(operator, found)
