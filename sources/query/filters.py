"""The filters of a query, taken out from among its words. What looks like a filter and is none is read as words, and
that is noted."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from sources.query.grammar import Negation, Titled, Tree
from sources.query.lexer import FILTER_NAMES, Chunk, Filter, Lexeme, LoneQuote, Quoted, Sign

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_OTHER_FILTER = re.compile(r"([^\W\d_]{2,}):[^\s:/]")


class Filters(Struct, frozen=True):
    """What limits a search besides words. An item must have every tag, and one of the sources, types and senders.

    Days are UTC and whole: `after` begins with its first moment, `before` ends with its first moment, so that
    after:2024-05-01 before:2024-05-02 is the first of May.
    """

    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    after: date | None = None
    before: date | None = None


class FilterReader:
    """Passes the lexemes of a query through and keeps its filters."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.filters = Filters()
        self._note = note

    def read(self, found: Iterable[Lexeme]) -> Iterator[Tree | Sign]:
        for lexeme in found:
            match lexeme:
                case LoneQuote():
                    self._note("a quotation mark without a partner was ignored")
                case Filter():
                    yield from self._apply(lexeme)
                case Chunk(text=chunk):
                    self._note_likeness(chunk)
                    yield lexeme
                case _:
                    yield lexeme

    def _note_likeness(self, chunk: str) -> None:
        if ":" not in chunk:
            return
        name = chunk.removesuffix(":").lower()
        if name in FILTER_NAMES:
            self._note(f"{name}: has no value and was read as a word")
        elif other := _OTHER_FILTER.match(chunk):
            self._note(f"{other[1]}: is not a filter and was read as a word")

    def _apply(self, found: Filter) -> Iterator[Tree]:
        """Takes a filter up; yields what turns out to be words."""
        match found.name:
            case "title":
                leaf = Titled(Quoted(found.value) if found.is_quoted else Chunk(found.value))
                yield Negation(leaf) if found.is_negated else leaf
            case _ if found.is_negated:
                self._note(f"{found.name}:{found.value} cannot be excluded and was ignored")
            case "after" | "before":
                yield from self._apply_day(found.name, found.value)
            case _:
                self._add_values(f"{found.name}s", [found.value] if found.is_quoted else found.value.split(","))

    def _apply_day(self, name: str, value: str) -> Iterator[Tree]:
        day = _day(value)
        if day is None:
            self._note(f"{name}:{value} is not a day like 2024-05-31 and was read as words")
            yield Chunk(f"{name}:{value}")
        else:
            self.filters = replace(self.filters, **{name: day})

    def _add_values(self, field: str, values: Iterable[str]) -> None:
        known: tuple[str, ...] = getattr(self.filters, field)
        added = [value.strip() for value in values if value.strip()]
        self.filters = replace(self.filters, **{field: tuple(dict.fromkeys([*known, *added]))})


def _day(value: str) -> date | None:
    """An ISO day, or the day of an ISO moment."""
    match = _DAY.match(value)
    if match is None or value[10:11] not in {"", "T"}:
        return None
    try:
        return date.fromisoformat(match[0])
    except ValueError:
        return None
