"""The index for substring searches in messages, made when a search in many messages needs it: it is larger than the
messages themselves, and inserting a message takes several times as long.

It has the trigrams of each message in case-folded form, as lexemes that begin with the tenant. PostgreSQL's own trigram
index could not be used: row-level security keeps LIKE out of index conditions.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import time
from collections.abc import Collection
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from loguru import logger

from config.errors import FlorilegiumError
from sources.storage.job_queue import background_jobs
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.jobs import IndexTask, claim, release
from sources.storage.postgres.search.tsquery import TENANT_MARK, quote_lexeme
from sources.storage.tables.sql import SAVE_STATE, Delete, Insert

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase

_SOURCE = "chats"
# How often a library is checked for whether it needs the index.
_CHECK_S = 60.0
# A build that failed is tried again after this time.
_LEASE_S = 3_600
_LEASE_NAME = "trigram_lease"
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
    """Whether the index is complete."""
    row = connection.execute(_STATE).fetchone()
    return row is not None and row[0] == _COMPLETE


def index_trigrams(connection: LibraryConnection, rowids: Collection[int]) -> None:
    """Makes the trigrams of these messages again."""
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
    """Builds the index of one library in the background."""

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
        owner = database.process_id

        def is_needed(connection: LibraryConnection) -> bool:
            has_many = connection.execute(_HAS_MANY, (messages_min,)).fetchone() is not None
            return has_many and not has_trigrams(connection)

        try:
            with background_jobs(is_maintenance=True):
                if not await database.read(_SOURCE, is_needed):
                    return
                while await database.write_vectors(_SOURCE, partial(_build_batch, owner)):
                    pass
        except FlorilegiumError as error:
            # The next build continues after the last batch.
            logger.warning("Building the index for substring searches failed: {}", error.message)


def _build_batch(owner: str, connection: LibraryConnection) -> bool:
    """Returns False if the index is complete, or another process builds it. Writers wait for each batch, and add the
    messages that they change afterwards."""
    if not claim(connection, _LEASE_NAME, owner, _LEASE_S):
        return False
    row = connection.execute(_STATE).fetchone()
    last = 0 if row is None or row[0] == _COMPLETE else int(row[0])
    rowids = [rowid for (rowid,) in connection.execute(_NEXT, (last, _BATCH_ROWS))]
    if rowids:
        index_trigrams(connection, rowids)
        connection.execute(SAVE_STATE, (STATE_NAME, str(rowids[-1])))
        return True
    connection.execute(SAVE_STATE, (STATE_NAME, _COMPLETE))
    release(connection, _LEASE_NAME, owner)
    return False
