"""Splits query text into lexemes: bare words, quoted text, operators, brackets and filters.

Accepts any text: what is not an operator or a filter is a bare word, and an unmatched quotation mark is a lexeme too.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from sources.query.command_lines import is_option, is_part_of_command


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


class OptionLexeme(Struct, frozen=True):
    """A word after a dash that is an option of a command and not an exclusion, without the dash."""

    text: str


class UnsupportedSyntax(Struct, frozen=True):
    """Syntax of other query languages that has no meaning here: NEAR and a leading caret."""

    syntax: str


Lexeme = BareWord | QuotedText | FilterLexeme | Symbol | UnmatchedQuote | OptionLexeme | UnsupportedSyntax

FILTER_NAMES = ("source", "tag", "type", "sender", "after", "before", "title")

# Characters that word processors, other languages and East Asian keyboards use instead of the ASCII ones of the query
# language.
_ASCII_MARKS = str.maketrans(
    dict.fromkeys("“”„‟«»‹›＂「」『』｢｣《》〈〉〝〞〟❝❞", '"') | {"（": "(", "）": ")", "：": ":", "＊": "*"}
)

_APOSTROPHE = r"’(?=\w)"

# A minus excludes only at the start of a word and before a letter, a quotation mark or a bracket: -5 is a number,
# fox-trot a word, --flag an option. A quotation never starts right after a digit: 5" is a length. Between Hebrew
# letters, a quotation mark is part of an acronym. ‘ and ’ are quotation marks only around words, since ’ is also the
# apostrophe.
_LEXEME = re.compile(
    rf"""
      (?-i:AND\s++)? (?P<negated> (?<![^\s(]) - | (?-i:NOT\s++) )?
      (?P<filter> {"|".join(FILTER_NAMES)} ) : (?: "(?P<quoted_value> [^"]* )" | (?P<value> [^\s"()]+ ) )
      (?-i:\s+AND(?=\s))?
    | (?P<smiley> (?<!\S) [:;=] ['-]? [()]+ (?!\w) )
    | (?<![^\s(]) (?-i:NEAR) \s*+ \( (?P<near> [^()]* ) \)
    | (?<![^\s(]) (?P<caret> \^ ) (?= ["\w] )
    | (?<![^\s(]) - (?P<dashed> [^\W\d_] [^\s"()]* )
    | (?P<minus> (?<![^\s(]) - (?= ["(] ) )
    | (?<!\d) "(?P<quoted> [^"]* )"
    | (?<!\w) [‘‚] (?= (?: [^\w‘‚"’] | {_APOSTROPHE} )*+ \w )
      (?P<single_quoted> (?: [^‘‚"’] | {_APOSTROPHE} )*+ ) [’‘] (?!\w)
    | (?P<bracket> [()] )
    | (?P<word> (?: [^\s"()] | (?<=[\u05d0-\u05ea])"(?=[\u05d0-\u05ea]) )+ )
    | (?P<quote> " )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DISTANCE = re.compile(r",\s*\d+\s*$")


def lexemes(text: str) -> Iterator[Lexeme]:
    """Yields the lexemes of a query in order."""
    text = text.translate(_ASCII_MARKS)
    is_command = False
    for match in _LEXEME.finditer(text):
        for lexeme in _lexemes_of(match, is_command=is_command):
            is_command = is_command or _is_command(lexeme)
            yield lexeme


def _is_command(lexeme: Lexeme) -> bool:
    return isinstance(lexeme, OptionLexeme) or (isinstance(lexeme, BareWord) and is_part_of_command(lexeme.text))


def _lexemes_of(found: re.Match[str], *, is_command: bool) -> Iterator[Lexeme]:
    """`is_command`: whether a command or an option precedes the match."""
    match found.lastgroup:
        case "near":
            yield UnsupportedSyntax("NEAR")
            yield from lexemes(_DISTANCE.sub("", found["near"]))
        case "dashed" if is_command or is_option(found["dashed"]):
            yield OptionLexeme(found["dashed"])
        case "dashed":
            yield Symbol("NOT")
            yield BareWord(found["dashed"])
        case "smiley":
            pass
        case _:
            yield _lexeme(found)


def _lexeme(match: re.Match[str]) -> Lexeme:
    if match["word"] is not None:
        return _word_or_operator(match["word"])
    if match["quoted"] is not None:
        return QuotedText(match["quoted"])
    if match["single_quoted"] is not None:
        return QuotedText(match["single_quoted"])
    if match["filter"] is not None:
        quoted = match["quoted_value"]
        value = match["value"] if quoted is None else quoted
        return FilterLexeme(match["filter"].lower(), value, quoted is not None, match["negated"] is not None)
    if match["minus"] is not None:
        return Symbol("NOT")
    if match["bracket"] is not None:
        return Symbol("(" if match["bracket"] == "(" else ")")
    return UnsupportedSyntax("^") if match["caret"] is not None else UnmatchedQuote()


def _word_or_operator(text: str) -> BareWord | Symbol:
    """Only upper-case operators are operators; `and` and `or` are words."""
    match text:
        case "AND" | "OR" | "NOT":
            return Symbol(text)
        case _:
            return BareWord(text)
