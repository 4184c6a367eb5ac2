"""Reads a query as one literal text, without operators and filters."""

from config.text import replace_unstorable
from sources.query.filters import Filters
from sources.query.limits import QueryLimits
from sources.query.notes import QueryNotes
from sources.query.parser import ParsedQuery, Term
from sources.query.words import limit_tokens, phrase_word

_QUOTATION_MARK = '"'
_DEFAULT_LIMITS = QueryLimits()


def literal_text(text: str) -> str:
    """Returns the text to find: the query without the quotation marks around it."""
    text = replace_unstorable(text, " ").strip()
    is_quoted = text.count(_QUOTATION_MARK) == 2 and text[0] == text[-1] == _QUOTATION_MARK
    return text[1:-1].strip() if is_quoted else text


def parse_literal(text: str, limits: QueryLimits = _DEFAULT_LIMITS) -> ParsedQuery:
    """Returns the query for the phrase that a literal text is in the index.

    The index ignores punctuation and word endings and the phrase is limited, so the search must also require the text
    itself (`Search.contains`).
    """
    phrase = phrase_word(literal_text(text))
    word = phrase and limit_tokens(phrase, limits.max_phrase_tokens)
    return ParsedQuery(
        expression=word,
        terms=(Term(word, 1),) if word else (),
        filters=Filters(),
        read_as=QueryNotes().read_as(word, has_filters=False),
        has_operators=False,
        is_truncated=False,
    )
