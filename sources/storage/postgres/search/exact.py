"""Searches messages by their exact words, with FTS5's query language.

PostgreSQL finds the messages that contain the words of the expression, in any form, and Python evaluates the expression
in these.
"""

from unicodedata import normalize

from msgspec.structs import replace

from config.postgres.connection import PostgresConnection
from sources.query import AllOf, AnyOf, Expression, Phrase, Word
from sources.query.words import prefix_word
from sources.storage.contract import ExactSearch
from sources.storage.postgres.index.entries import CHAT_ENTRIES, HUMAN_ONLY_ENTRIES, EntryKind
from sources.storage.postgres.search.tsquery import MATCH, compile_tsquery, for_index, tsquery, with_labels
from sources.storage.search.exact_expression import (
    ExactMatches,
    ExactNode,
    ExactOperation,
    Near,
    Term,
    TextCounts,
    match_texts,
    merge_matches,
    parse,
    run_expression,
)
from sources.storage.tables.validation import clamp_count, is_storable
from sources.text.segmentation import UNSPACED_RUN, segment

# Messages in which the expression is evaluated at once: some hundred milliseconds.
_CANDIDATES_MAX = 5_000
# Tokens of a phrase that are looked up; more would hardly narrow the result.
_TOKENS_MAX = 4
_VOICING_MARKS = "\u3099\u309a"
_LONGER_SPELLINGS = {"net": ("dotnet",)}
# The label of a message's own text.
_OWN = "B"
_NOTHING = Word("", (Phrase("", ()),))
# Entries are read first, because PostgreSQL may compare all of them with each message otherwise.
_CANDIDATES = f"""
    WITH matching AS MATERIALIZED (SELECT id FROM matched_entries WHERE tsv @@ {MATCH})
    SELECT m.id, m.content FROM matching JOIN messages m ON m.id = matching.id{{}} ORDER BY m.id DESC LIMIT ?
"""  # noqa: S608 - constants only
_IN_CONVERSATION = " AND m.conversation_id = (SELECT c.id FROM conversations c WHERE c.uuid = ?)"
# The numbers of messages, of all and of those that contain each phrase. Of common phrases, not all are counted.
_COUNTS = f"""
    SELECT (SELECT count(*) FROM index_entries WHERE kind = ? AND id > 0), ARRAY(
        SELECT (SELECT count(*) FROM (
            SELECT 1 FROM matched_entries WHERE tsv @@ {tsquery("phrase.match")} LIMIT {_CANDIDATES_MAX}) AS counted)
        FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS phrase (match, place) ORDER BY phrase.place)
"""  # noqa: S608 - constants only


def find(
    connection: PostgresConnection, search: ExactSearch, ranked_rows_max: int, *, is_agent: bool
) -> tuple[ExactMatches, bool]:
    """Returns the matches, and whether all messages were searched."""
    expression, read_as = run_expression(search, parse)
    limit = clamp_count(search.limit)
    if expression is None or not is_storable(search.conversation_id or ""):
        return ExactMatches(read_as=read_as), True
    candidates_max = min(ranked_rows_max, _CANDIDATES_MAX)
    found = ExactMatches()
    is_complete = True
    for kind in (CHAT_ENTRIES,) if is_agent else (CHAT_ENTRIES, HUMAN_ONLY_ENTRIES):
        condition, parameters = "", [_match(expression.node, kind)]
        if search.conversation_id is not None:
            condition = _IN_CONVERSATION
            parameters.append(search.conversation_id)
        rows = connection.execute(_CANDIDATES.format(condition), (*parameters, candidates_max + 1)).fetchall()
        counts = None
        if len(rows) <= candidates_max:
            counts = TextCounts(0, ())
            if rows:
                phrases = [_match(phrase, kind) for phrase in expression.counted]
                counts = TextCounts(*connection.execute(_COUNTS, (kind.number, phrases)).fetchall()[0])
        is_complete = is_complete and counts is not None
        matches = match_texts(expression, rows, limit, counts)
        found = matches if kind is CHAT_ENTRIES else merge_matches(found, matches, limit)
    return replace(found, read_as=read_as), is_complete or len(found.matches) >= search.limit


def _match(node: ExactNode, kind: EntryKind) -> str:
    """The query for every message that matches, and others."""
    return with_labels(for_index(compile_tsquery(_contains(node)), kind.prefix), _OWN)


def _contains(node: ExactNode) -> Expression:
    match node:
        case Near(phrases=phrases):
            words = [word for phrase in phrases for term in phrase[:_TOKENS_MAX] if (word := _word(term)) is not None]
            return AllOf(tuple(words)) if len(words) > 1 else words[0] if words else _NOTHING
        case ExactOperation(operator="NOT", left=left):
            return _contains(left)
        case ExactOperation(operator=operator, left=left, right=right):
            parts = (_contains(left), _contains(right))
            return AnyOf(parts) if operator == "OR" else AllOf(parts)


def _word(term: Term) -> Word | None:
    token, is_prefix = term
    # Folding divides Korean syllables into letters.
    token = normalize("NFC", token)
    if is_prefix or UNSPACED_RUN.fullmatch(token):
        # Of scripts without spaces the index has pairs of letters, each of which begins with one letter. Folding
        # removes the voicing marks of Japanese letters, which the index keeps.
        variants = [normalize("NFC", token + mark) for mark in ("", *_VOICING_MARKS)]
        words = [prefix_word(variant) for variant in variants if len(variant) == len(token)]
        found = tuple(prefix for word in words if word is not None for prefix in word.alternatives)
        return Word(token, found) if found else None
    # A single letter may be that of C++ or C#, and `net` that of .NET, which are indexed as words.
    spellings = [token, *_LONGER_SPELLINGS.get(token, ())]
    if len(token) == 1 and token.isascii():
        spellings += [f"{token}plusplus", f"{token}sharp"]
    return Word(token, tuple(Phrase(one, tuple(segment(one).split())) for one in spellings))
