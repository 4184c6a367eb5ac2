"""The query language: what a person or a model types, read once into an expression every engine can compile."""

from sources.query.expression import AllOf, AnyOf, Expression, Phrase, Prefix, Title, Without, Word
from sources.query.filters import Filters
from sources.query.parser import ParsedQuery, Term, parse
from sources.query.reading import QueryLimits

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
    "parse",
]
