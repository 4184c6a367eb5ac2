"""Adds words to a query that are near to words of it, which may be misspelled or part of a compound."""

from collections.abc import Sequence

from msgspec.structs import replace

from sources.query.expression import AnyOf, Expression, Without, Word, render
from sources.query.parser import ParsedQuery, Term


def can_have_near_terms(query: ParsedQuery) -> bool:
    """Returns whether any of the words may match: only then do others add matches without changing what was asked."""
    return not query.is_literal and query.expression is not None and _is_loose(query.expression)


def with_near_terms(query: ParsedQuery, near: Sequence[Term], notes: Sequence[str]) -> ParsedQuery:
    """Returns the query with near terms, which follow its own. `notes` are added to `read_as`."""
    assert query.expression is not None
    expression = _extend(query.expression, tuple(term.word for term in near))
    before = [note for note in (query.read_as or "").split("; ") if note and not note.startswith("searched for ")]
    read_as = "; ".join([f"searched for {render(expression)}", *before, *notes])
    return replace(query, expression=expression, terms=(*query.terms, *near), read_as=read_as)


def _is_loose(expression: Expression) -> bool:
    match expression:
        case Word():
            return True
        case AnyOf(parts=parts):
            return all(isinstance(part, Word) for part in parts)
        case Without(keep=keep):
            return _is_loose(keep)
        case _:
            return False


def _extend(expression: Expression, words: tuple[Word, ...]) -> Expression:
    match expression:
        case Without(keep=keep, drop=drop):
            return Without(_extend(keep, words), drop)
        case AnyOf(parts=parts):
            return AnyOf((*parts, *words))
        case _:
            return AnyOf((expression, *words))
