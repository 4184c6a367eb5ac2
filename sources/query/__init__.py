"""The query language: parses query text into an expression that every engine can compile."""

from sources.query.filters import Filters
from sources.query.grammar import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word, with_filters
from sources.query.lexer import QueryLimits
from sources.query.parser import ParsedQuery, Term, literal_text, parse, parse_literal

__all__ = [
    "AllOf",
    "AnyOf",
    "Expression",
    "Filters",
    "ParsedQuery",
    "Phrase",
    "Prefix",
    "QueryLimits",
    "Term",
    "Title",
    "Without",
    "Word",
    "literal_text",
    "parse",
    "parse_literal",
    "with_filters",
]
