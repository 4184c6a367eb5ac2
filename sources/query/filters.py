"""Extracts the filters from a query. Text that only looks like a filter is treated as words, and a note says so."""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from sources.query.grammar import Negation, QueryNotes, TitleLeaf, Tree
from sources.query.lexer import (
    FILTER_NAMES,
    BareWord,
    FilterLexeme,
    Lexeme,
    OptionLexeme,
    QuotedText,
    Symbol,
    UnmatchedQuote,
    UnsupportedSyntax,
    lexemes,
)
from sources.times import TimeMention, TimeSpan, find_times, read_time

_UNKNOWN_FILTER = re.compile(r"([^\W\d_]{2,}):[^\s:/]")


class Filters(Struct, frozen=True):
    """Restrictions other than words. An item must have every tag, and one of the sources, libraries, types and senders.

    `after` begins with the named time and `before` ends before it: after:2024-05-01 before:2024-05-02 is the first of
    May. `during` is the time of a query that consists of nothing else.
    """

    sources: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    after: TimeMention | None = None
    before: TimeMention | None = None
    during: TimeSpan | None = None

    @property
    def restricts_items(self) -> bool:
        """Whether the filters select items. A source or a library alone does not, because that would match all of
        it."""
        return bool(self.tags or self.types or self.senders or self.after or self.before or self.during)


class FilterExtractor:
    """Collects the filters among the lexemes of a query and passes the others on."""

    def __init__(self, notes: QueryNotes) -> None:
        self.filters = Filters()
        self._notes = notes

    def extract(self, lexemes: Iterable[Lexeme]) -> Iterator[Tree | Symbol]:
        """Yields the lexemes that are not filters."""
        for lexeme in lexemes:
            match lexeme:
                case UnmatchedQuote():
                    self._notes.add("ignored an unmatched quotation mark")
                case UnsupportedSyntax(syntax=syntax):
                    self._notes.add(f"ignored {syntax} (it has no meaning here)")
                case OptionLexeme(text=text):
                    self._notes.add(f"treated -{text} as text (an option of a command; NOT {text} excludes it)")
                    yield BareWord(text)
                case FilterLexeme():
                    yield from self._apply(lexeme)
                case BareWord(text=text):
                    # Adds a note if a word looks like a filter.
                    if ":" in text:
                        name = text.removesuffix(":").lower()
                        if name in FILTER_NAMES:
                            self._notes.add(f"treated {name}: as a word (it has no value)")
                        elif unknown := _UNKNOWN_FILTER.match(text):
                            self._notes.add(f"treated {unknown[1]}: as a word (it is not a filter)")
                    yield lexeme
                case _:
                    yield lexeme

    def _apply(self, lexeme: FilterLexeme) -> Iterator[Tree]:
        """Adds a filter. Yields it instead if it must be treated as words."""
        match lexeme.name:
            case "title":
                leaf = TitleLeaf(QuotedText(lexeme.value) if lexeme.is_quoted else BareWord(lexeme.value))
                yield Negation(leaf) if lexeme.is_negated else leaf
            case _ if lexeme.is_negated:
                self._notes.add(f"ignored -{lexeme.name}:{lexeme.value} (only words and titles can be excluded)")
            case "after" | "before":
                yield from self._apply_date(lexeme.name, lexeme.value)
            case _:
                values = [lexeme.value] if lexeme.is_quoted else lexeme.value.split(",")
                field = "libraries" if lexeme.name == "library" else f"{lexeme.name}s"
                current: tuple[str, ...] = getattr(self.filters, field)
                new = [value.strip() for value in values if value.strip()]
                self.filters = replace(self.filters, **{field: tuple(dict.fromkeys([*current, *new]))})

    def _apply_date(self, name: str, value: str) -> Iterator[Tree]:
        parsed = read_time(value)
        if parsed is None:
            self._notes.add(f"treated {name}:{value} as words (expected a date such as 2024-05-31, yesterday or 7d)")
            yield BareWord(f"{name}:{value}")
        else:
            self.filters = replace(self.filters, **{name: parsed})


# -- mentions ----------------------------------------------------------------------------------------------------------
# Finds the times that a query mentions in its bare words. Quotations, filters and exclusions are taken literally.

# Without any of these, a query consists of bare words.
_SYNTAX = re.compile(r"""["():“”„‟«»＂（）：]|(?<!\S)-|\bNOT\b""")


def mentioned_times(text: str) -> tuple[TimeMention, ...]:
    if not _SYNTAX.search(text):
        return find_times(text)
    return tuple(mention for run in _bare_runs(text) for mention in find_times(run))


def _bare_runs(text: str) -> Iterator[str]:
    """Yields the longest runs of words without other syntax between them."""
    run: list[str] = []
    is_excluded = False
    for lexeme in lexemes(text):
        if isinstance(lexeme, BareWord) and not is_excluded:
            run.append(lexeme.text)
            continue
        yield " ".join(run)
        run = []
        is_excluded = lexeme == Symbol("NOT")
    yield " ".join(run)
