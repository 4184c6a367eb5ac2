"""Case-insensitive substring search over messages, newest first. Returns rowids; the caller reads the rows.

The newest messages are scanned, which finds a common text at once. A rare one is looked up in the index, if the library
has it, or all messages are scanned, block by block. PostgreSQL selects the messages that may contain the text, and
Python decides, because PostgreSQL folds fewer letters. A conversation with the text in its title contributes all of its
messages.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import re
import time
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from loguru import logger

from config.errors import FlorilegiumError
from sources.storage.contract import MessageSearch
from sources.storage.job_queue import background_jobs
from sources.storage.postgres.connection import IndexTask, LibraryConnection
from sources.storage.postgres.search.tsquery import MATCH, TENANT_MARK, quote_lexeme
from sources.storage.tables.conversation_tables import message_filter
from sources.storage.tables.sql import SAVE_STATE, Delete, Insert, SqlFilter, either, equals
from sources.storage.tables.validation import clamp_count, is_storable

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase

# -- trigrams ----------------------------------------------------------------------------------------------------------
# The index for substring searches in messages, made when a search in many messages needs it: it is larger than the
# messages themselves, and inserting a message takes several times as long.
#
# It has the trigrams of each message in case-folded form, as lexemes that begin with the tenant. PostgreSQL's own
# trigram index could not be used: row-level security keeps LIKE out of index conditions.

_SOURCE = "chats"
# How often a library is checked for whether it needs the index.
_CHECK_S = 60.0
# The row of `state` has the last message that the build has reached, or this.
STATE_NAME = "trigrams"
_COMPLETE = "complete"
_BATCH_ROWS = 500
# A message with more trigrams, of about 100,000 characters, is a candidate of every search, because a tsvector has at
# most 1 MB.
_TRIGRAMS_MAX = 30_000
_EVERY = "*"
# Trigrams of a text that are looked up; more would hardly narrow the result.
_LOOKED_UP_MAX = 50
_HAS_MANY = "SELECT 1 FROM messages OFFSET ? LIMIT 1"
_STATE = f"SELECT value FROM state WHERE name = '{STATE_NAME}'"
_LIVE = "SELECT id, content FROM messages WHERE deleted = 0 AND id = ANY(CAST(? AS BIGINT[]))"
_NEXT = "SELECT id FROM messages WHERE id > CAST(? AS BIGINT) ORDER BY id LIMIT ?"
_SAVE = Insert(
    "message_trigrams",
    "id, tsv",
    "id, CAST(tsv AS TSVECTOR) FROM unnest(CAST(? AS BIGINT[]), CAST(? AS TEXT[])) AS made (id, tsv)",
    key="id",
)


def trigram_query(text: str) -> str | None:
    """Returns the query for messages that may contain a case-folded text, or None if it is too short."""
    trigrams = islice(dict.fromkeys(_trigrams(text)), _LOOKED_UP_MAX)
    lexemes = [quote_lexeme(TENANT_MARK + trigram) for trigram in trigrams]
    return f"({' & '.join(lexemes)}) | {quote_lexeme(TENANT_MARK + _EVERY)}" if lexemes else None


def has_trigrams(connection: LibraryConnection) -> bool:
    row = connection.execute(_STATE).fetchone()
    return row is not None and row[0] == _COMPLETE


def index_trigrams(connection: LibraryConnection, rowids: Collection[int]) -> None:
    tenant = connection.tenant or ""
    remaining = iter(sorted(rowids))
    while batch := list(islice(remaining, _BATCH_ROWS)):
        connection.execute(Delete("message_trigrams", "id = ANY(CAST(? AS BIGINT[]))"), (batch,))
        ids, vectors = [], []
        for rowid, content in connection.execute(_LIVE, (batch,)):
            trigrams = set(_trigrams(content.casefold()))
            if len(trigrams) > _TRIGRAMS_MAX:
                trigrams = {_EVERY}
            ids.append(rowid)
            vectors.append(" ".join([quote_lexeme(tenant + trigram) for trigram in trigrams]))
        if ids:
            connection.execute(_SAVE, (ids, vectors))


def _trigrams(text: str) -> list[str]:
    return [text[start : start + 3] for start in range(len(text) - 2)]


class TrigramIndexBuilder(IndexTask):
    def __init__(self, database: "PostgresDatabase") -> None:
        super().__init__(database)
        self._checked_at = float("-inf")

    def start(self, messages_min: int) -> None:
        """Builds the index, if the library has more messages than that and no index, unless a build is running."""
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_S and not self.is_running:
            self._checked_at = now
            self._task = asyncio.create_task(self._build(messages_min))

    async def _build(self, messages_min: int) -> None:
        database = self._database

        def is_needed(connection: LibraryConnection) -> bool:
            has_many = connection.execute(_HAS_MANY, (messages_min,)).fetchone() is not None
            return has_many and not has_trigrams(connection)

        try:
            with background_jobs(is_maintenance=True):
                if not await database.read(_SOURCE, is_needed):
                    return
                while await database.write_vectors(_SOURCE, _build_batch):
                    pass
        except FlorilegiumError as error:
            # The next build continues after the last batch.
            logger.warning("Building the index for substring searches failed: {}", error.message)


def _build_batch(connection: LibraryConnection) -> bool:
    """Returns False if the index is complete. Two processes that build it take turns, as each batch continues after the
    last one. Writers wait for a batch, and add the messages that they change afterwards."""
    row = connection.execute(_STATE).fetchone()
    if row is not None and row[0] == _COMPLETE:
        return False
    last = 0 if row is None else int(row[0])
    rowids = [rowid for (rowid,) in connection.execute(_NEXT, (last, _BATCH_ROWS))]
    index_trigrams(connection, rowids)
    connection.execute(SAVE_STATE, (STATE_NAME, str(rowids[-1]) if rowids else _COMPLETE))
    return bool(rowids)


# -- search ------------------------------------------------------------------------------------------------------------

# Messages that are scanned at once: few at first, because a common text is in the newest.
_FIRST_BLOCK = 2_000
_BLOCK = 8_000
# Messages that are read from the index at once.
_LOOKED_UP_ROWS = 2_000
_NOT_ASCII = "octet_length({0}) <> length({0})"
# Trigrams of more characters would hardly narrow the result.
_PART_MAX_CHARS = 200
_COLUMNS = "m.id, m.created_at, m.content, m.conversation_id"
_CONVERSATION = "SELECT id FROM conversations WHERE uuid = ? AND deleted = 0"
_NEWEST_FIRST = "ORDER BY m.created_at DESC, m.id DESC"
_IS_LIVE = "JOIN conversations c ON c.id = m.conversation_id AND c.deleted = 0"
# Conversations are joined last. PostgreSQL may compare the text for each of them otherwise.
_BLOCK_SQL = f"""
    WITH block AS MATERIALIZED (
        SELECT {_COLUMNS} FROM messages m WHERE m.deleted = 0{{where}} {_NEWEST_FIRST} LIMIT ?
    ), matching AS MATERIALIZED (
        SELECT {_COLUMNS} FROM block m WHERE TRUE{{condition}}
    )
    SELECT {_COLUMNS} FROM matching m {_IS_LIVE}
    UNION ALL (SELECT id, created_at, NULL, 0 FROM block ORDER BY created_at, id LIMIT 1)
"""
# The messages whose trigrams match, and those of conversations whose titles do.
_LOOK_UP_SQL = f"""
    WITH matching AS MATERIALIZED (
        SELECT id FROM matched_trigrams WHERE tsv @@ {MATCH}
        UNION SELECT id FROM messages WHERE conversation_id = ANY(CAST(? AS BIGINT[]))
    ), page AS MATERIALIZED (
        SELECT m.id FROM matching JOIN messages m ON m.id = matching.id {_IS_LIVE}
        WHERE m.deleted = 0{{where}} {_NEWEST_FIRST} LIMIT ?
    )
    SELECT {_COLUMNS} FROM page JOIN messages m ON m.id = page.id {_NEWEST_FIRST}
"""
# The characters other than ASCII that fold to a text with ASCII letters.
_TO_ASCII = "ßẞİŉſǰẖẗẘẙẚ\N{KELVIN SIGN}ﬀﬁﬂﬃﬄﬅﬆ"
# ASCII characters that are the normalized form of others, or that JSON escapes, in which lists are stored.
_NOT_COMPARED = ';`"\\'
# The categories of characters that are the folded form of others, with the circled letters.
_FOLDED_CATEGORIES = frozenset(("Ll", "Lu", "Lt", "Lm", "Mn", "Nl"))

# Rowid, time, content, and the rowid of the conversation.
_Message = tuple[int, str, str, int]


def find(connection: LibraryConnection, search: MessageSearch, *, is_agent: bool) -> tuple[Sequence[int], bool]:
    """Returns the rowids of messages, in order, and whether all messages were searched, because too few of them
    match."""
    limit = clamp_count(search.limit)
    if not limit or not is_storable(search.text or "") or not is_storable(search.conversation_id or ""):
        return (), False
    text = (search.text or "").casefold()
    where = message_filter(search)
    if search.conversation_id is not None:
        conversation = connection.execute(_CONVERSATION, (search.conversation_id,)).fetchone()
        if conversation is None:
            return (), False
        where &= equals("m.conversation_id", conversation[0])
    if is_agent:
        where &= SqlFilter(("m.human_only = 0",))
    titled: set[int] = set()
    if text and search.in_titles:
        condition = _column_may_contain("title", text)
        sql = f"SELECT id, title FROM conversations WHERE deleted = 0{condition.sql}"
        titles = connection.execute(sql, condition.parameters)
        titled = {rowid for rowid, title in titles if text in title.casefold()}
    found: list[int] = []
    for rows in _candidates(connection, where, text, titled):
        for rowid, _, content, conversation_id in rows:
            if not text or text in content.casefold() or conversation_id in titled:
                found.append(rowid)
        if len(found) >= limit:
            return found[:limit], False
    return found, True


def _candidates(
    connection: LibraryConnection, where: SqlFilter, text: str, titled: set[int]
) -> Iterator[list[_Message]]:
    condition = _column_may_contain("m.content", text) if text else SqlFilter()
    if titled:
        ids = SqlFilter(("m.conversation_id = ANY(CAST(? AS BIGINT[]))",), (sorted(titled),))  # type: ignore[arg-type]
        condition = either(condition, ids)
    rows, position = _scan_block(connection, where, condition, _FIRST_BLOCK)
    yield rows
    if position is not None and (match := trigram_query(text)) and has_trigrams(connection):
        while True:
            older = where & _before(position)
            sql = _LOOK_UP_SQL.format(where=older.sql)
            rows = connection.execute(sql, (match, sorted(titled), *older.parameters, _LOOKED_UP_ROWS)).fetchall()
            if not rows:
                return
            yield rows
            position = rows[-1]
    while position is not None:
        rows, position = _scan_block(connection, where & _before(position), condition, _BLOCK)
        yield rows


def _scan_block(
    connection: LibraryConnection, where: SqlFilter, condition: SqlFilter, size: int
) -> tuple[list[_Message], _Message | None]:
    """Returns those of the newest messages that meet the condition, and the oldest of all of them."""
    sql = _BLOCK_SQL.format(where=where.sql, condition=condition.sql)
    rows = connection.execute(sql, (*where.parameters, size, *condition.parameters)).fetchall()
    last = next((row for row in rows if row[2] is None), None)
    matching = [row for row in rows if row[2] is not None]
    matching.sort(key=lambda row: (row[1], row[0]), reverse=True)
    return matching, last


def _before(position: _Message) -> SqlFilter:
    return SqlFilter(("(m.created_at, m.id) < (?, CAST(? AS BIGINT))",), (position[1], position[0]))


def _column_may_contain(column: str, text: str) -> SqlFilter:
    parts = _compared_parts(text)
    if not parts:
        return SqlFilter((_NOT_ASCII.format(column),))
    return SqlFilter((" AND ".join([f"{_folded(column)} LIKE ?"] * len(parts)),), tuple(map(_pattern, parts)))


def may_contain_literal(expression: str, literal: str) -> SqlFilter:
    """Requires the text of an expression to have a part of the longest word of a text in its literal form. Characters
    that a text may have in another normalization form are not compared."""
    word = max(literal.split(), key=len, default="")
    same = ["\0" if one in _NOT_COMPARED or unicodedata.normalize("NFD", one) != one else one for one in word]
    parts = [part for piece in "".join(same).split("\0") for part in _compared_parts(piece)]
    if not parts:
        return SqlFilter()
    return SqlFilter((f"{_folded(expression)} LIKE ?",), (_pattern(max(parts, key=len)),))


def _pattern(part: str) -> str:
    escaped = re.sub(r"([\\%_])", r"\\\1", part[:_PART_MAX_CHARS])
    return f"%{escaped}%"


def _folded(column: str) -> str:
    """Returns the SQL expression of a column's text with ASCII letters folded, and the few others that Python folds to
    ASCII letters."""
    replaced = column
    for character in _TO_ASCII:
        replaced = f"replace({replaced}, '{character}', '{character.casefold()}')"
    # The first condition is fast, and false for most texts.
    has_other = f"octet_length({column}) <> length({column}) AND {column} ~ '[{_TO_ASCII}]'"
    return f"lower(CASE WHEN {has_other} THEN {replaced} ELSE {column} END)"


def _compared_parts(text: str) -> list[str]:
    """Returns the parts of a case-folded text that are in `folded` of every text that contains it. All of the text is
    one part unless it has letters of which PostgreSQL does not know other cases."""
    marked = [
        "\0"
        if not character.isascii()
        and (unicodedata.category(character) in _FOLDED_CATEGORIES or "ⓐ" <= character <= "ⓩ")
        else character
        for character in text
    ]
    return [part for part in "".join(marked).split("\0") if part]
