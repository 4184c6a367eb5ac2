"""Query text into lexemes: chunks between spaces, quotations, operators, brackets and filters. Nothing is refused:
what is not an operator here is a chunk, and a quotation mark without a partner is reported and skipped."""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct


class Chunk(Struct, frozen=True):
    """Characters between spaces, as typed."""

    text: str


class Quoted(Struct, frozen=True):
    """Characters between quotation marks, as typed."""

    text: str


class Filter(Struct, frozen=True):
    """`name:value` of a known name. An AND beside it is part of it: filters restrict anyway."""

    name: str
    value: str
    is_quoted: bool
    is_negated: bool


class Sign(Struct, frozen=True):
    """An operator or a bracket; a leading minus is NOT."""

    sign: Literal["AND", "OR", "NOT", "(", ")"]


class LoneQuote(Struct, frozen=True):
    """A quotation mark without a partner."""


Lexeme = Chunk | Quoted | Filter | Sign | LoneQuote

FILTER_NAMES = ("source", "tag", "type", "sender", "after", "before", "title")

# Marks that word processors and East Asian keyboards put where the language has ASCII ones.
_ASCII_MARKS = str.maketrans("“”„‟«»＂（）：＊", '"""""""():*')

# A minus excludes only where a word begins, and before a letter, a quotation or a bracket: -5 is a number, fox-trot a
# word, --flag an option. A quotation never begins right after a digit: 5" is a length.
_LEXEME = re.compile(
    rf"""
      (?-i:AND\s+)? (?P<negated> (?<![^\s(]) - | (?-i:NOT\s+) )?
      (?P<filter> {"|".join(FILTER_NAMES)} ) : (?: "(?P<quoted_value> [^"]* )" | (?P<value> [^\s"()]+ ) )
      (?-i:\s+AND(?=\s))?
    | (?P<minus> (?<![^\s(]) - (?= [^\W\d_] | ["(] ) )
    | (?<!\d) "(?P<quoted> [^"]* )"
    | (?P<quote> " )
    | (?P<bracket> [()] )
    | (?P<chunk> [^\s"()]+ )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def lexemes(text: str) -> Iterator[Lexeme]:
    """The lexemes of a query in their order."""
    for match in _LEXEME.finditer(text.translate(_ASCII_MARKS)):
        yield _lexeme(match)


def _lexeme(match: re.Match[str]) -> Lexeme:
    if match["chunk"] is not None:
        return _chunk_or_operator(match["chunk"])
    if match["quoted"] is not None:
        return Quoted(match["quoted"])
    if match["filter"] is not None:
        quoted = match["quoted_value"]
        value = match["value"] if quoted is None else quoted
        return Filter(match["filter"].lower(), value, quoted is not None, match["negated"] is not None)
    if match["minus"] is not None:
        return Sign("NOT")
    if match["bracket"] is not None:
        return Sign("(" if match["bracket"] == "(" else ")")
    return LoneQuote()


def _chunk_or_operator(chunk: str) -> Chunk | Sign:
    """Only upper-case operators are operators; `and` and `or` are words."""
    match chunk:
        case "AND" | "OR" | "NOT":
            return Sign(chunk)
        case _:
            return Chunk(chunk)
