"""Builds the searches for one concept of a memory query, in observations and in conversations.

In mode `text` a concept is a text to be found as written, and in mode `vector` a meaning. In mode `both` it is a query
that is compared by its words and its meaning.
"""

from msgspec.structs import replace

from auth.context import RequestContext
from config.settings import Settings
from server.compat.conversation_memory.arguments import MemoryQuery
from server.compat.conversation_memory.errors import memory_error
from sources.query import AllOf, AnyOf, Expression, ParsedQuery, Without, literal_text, parse_literal
from sources.search.arguments import LIMIT_MAX, SearchArguments, SourceQuery, build_query, read_query

# The index also has the messages before each message, which may belong to another exchange.
_MESSAGE_ITSELF = ("own",)
_NO_WORDS = "searched for nothing; the query contains no words"


def observation_query(query: MemoryQuery, context: RequestContext, settings: Settings) -> SourceQuery:
    [concept] = query.concepts
    return build_query(
        "observations",
        SearchArguments(query=concept, limit=query.limit),
        context,
        settings,
        parsed=_parse(query, concept, settings),
        contains=_required_text(query, concept),
        ranking=query.ranking,
    )


def message_query(query: MemoryQuery, concept: str, context: RequestContext, settings: Settings) -> SourceQuery:
    """Several words may be in neighbouring messages if the query is for conversations, but not if it is for
    exchanges."""
    return build_query(
        "chats",
        SearchArguments(query=concept, limit=LIMIT_MAX),
        context,
        settings,
        parsed=_parse(query, concept, settings),
        supported_filters=("sender",),
        order="relevance",
        date_from=query.time_range.start,
        date_to=query.time_range.end,
        by="message",
        projects=query.projects,
        contains=_required_text(query, concept),
        fields=_MESSAGE_ITSELF if query.is_single_concept else (),
        # Of several concepts, all must be there: a message that is merely near to one does not show that.
        ranking="words" if query.ranking == "fused" and not query.is_single_concept else query.ranking,
    )


def query_notes(query: SourceQuery) -> tuple[str, ...]:
    """A query of filters only is not listed, as it has no concept."""
    read_as = query.read_as if query.terms or query.search is None else _NO_WORDS
    return (f"Query interpretation: {read_as}.",) if read_as else ()


def _required_text(query: MemoryQuery, concept: str) -> str | None:
    return literal_text(concept) if query.is_literal else None


def _parse(query: MemoryQuery, concept: str, settings: Settings) -> ParsedQuery:
    if query.is_literal:
        if len(concept) > settings.query_max_chars:
            expected = f"at most {settings.query_max_chars} characters in mode text"
            raise memory_error(f"query: expected {expected}, got {len(concept)}")
        return parse_literal(concept)
    # What was searched for instead of a concept could not be reported with it.
    parsed = replace(read_query(concept, settings), relaxed=None)
    if query.ranking == "meaning":
        parsed = replace(parsed, prose=parsed.prose or concept)
    return parsed if query.is_single_concept else _require_all_words(parsed)


def _require_all_words(query: ParsedQuery) -> ParsedQuery:
    """A concept of several words must match with all of them. Operators in the query are not changed."""
    if query.has_operators or query.expression is None:
        return query
    return replace(query, expression=_all_of(query.expression), has_operators=True)


def _all_of(expression: Expression) -> Expression:
    match expression:
        case AnyOf(parts=parts):
            return AllOf(parts)
        case Without(keep=keep, drop=drop):
            return Without(_all_of(keep), drop)
        case _:
            return expression
