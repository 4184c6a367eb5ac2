"""Splits query text into lexemes: bare words, quoted text, operators, brackets and filters.

Accepts any text: what is not an operator or a filter is a bare word, and an unmatched quotation mark is a lexeme too.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct


class BareWord(Struct, frozen=True):
    """Text between spaces, as typed."""

    text: str


class QuotedText(Struct, frozen=True):
    """Text between quotation marks, as typed."""

    text: str


class FilterLexeme(Struct, frozen=True):
    """`name:value` with a known name. Includes an adjacent AND, because filters always restrict the search."""

    name: str
    value: str
    is_quoted: bool
    is_negated: bool


class Symbol(Struct, frozen=True):
    """An operator or a bracket. A leading minus is NOT."""

    symbol: Literal["AND", "OR", "NOT", "(", ")"]


class UnmatchedQuote(Struct, frozen=True):
    """A quotation mark without a counterpart."""


Lexeme = BareWord | QuotedText | FilterLexeme | Symbol | UnmatchedQuote

FILTER_NAMES = ("source", "tag", "type", "sender", "after", "before", "title")

# Characters that word processors and East Asian keyboards produce instead of the ASCII ones of the query language.
_ASCII_MARKS = str.maketrans("“”„‟«»＂（）：＊", '"""""""():*')

# A minus excludes only at the start of a word and before a letter, a quotation mark or a bracket: -5 is a number,
# fox-trot a word, --flag an option. A quotation never starts right after a digit: 5" is a length.
_LEXEME = re.compile(
    rf"""
      (?-i:AND\s++)? (?P<negated> (?<![^\s(]) - | (?-i:NOT\s++) )?
      (?P<filter> {"|".join(FILTER_NAMES)} ) : (?: "(?P<quoted_value> [^"]* )" | (?P<value> [^\s"()]+ ) )
      (?-i:\s+AND(?=\s))?
    | (?P<minus> (?<![^\s(]) - (?= [^\W\d_] | ["(] ) )
    | (?<!\d) "(?P<quoted> [^"]* )"
    | (?P<quote> " )
    | (?P<bracket> [()] )
    | (?P<word> [^\s"()]+ )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def lexemes(text: str) -> Iterator[Lexeme]:
    """Yields the lexemes of a query in order."""
    for match in _LEXEME.finditer(text.translate(_ASCII_MARKS)):
        yield _lexeme(match)


def _lexeme(match: re.Match[str]) -> Lexeme:
    if match["word"] is not None:
        return _word_or_operator(match["word"])
    if match["quoted"] is not None:
        return QuotedText(match["quoted"])
    if match["filter"] is not None:
        quoted = match["quoted_value"]
        value = match["value"] if quoted is None else quoted
        return FilterLexeme(match["filter"].lower(), value, quoted is not None, match["negated"] is not None)
    if match["minus"] is not None:
        return Symbol("NOT")
    if match["bracket"] is not None:
        return Symbol("(" if match["bracket"] == "(" else ")")
    return UnmatchedQuote()


def _word_or_operator(text: str) -> BareWord | Symbol:
    """Only upper-case operators are operators; `and` and `or` are words."""
    match text:
        case "AND" | "OR" | "NOT":
            return Symbol(text)
        case _:
            return BareWord(text)
