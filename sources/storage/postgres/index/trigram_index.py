"""The index for substring searches in messages, built when a search in many messages needs it: it is larger than the
messages themselves, and inserting a message takes several times as long.

The index contains the folded text of messages. PostgreSQL folds ASCII letters here, and the few others that Python
folds to ASCII letters, so that a text of ASCII letters can be looked up.
"""

import asyncio
import re
import time
import unicodedata
from functools import partial
from typing import TYPE_CHECKING

from loguru import logger

from config.errors import FlorilegiumError
from config.postgres.connection import PostgresConnection
from config.postgres.sql import quote_schema
from sources.storage.job_queue import background_jobs
from sources.storage.postgres.extensions import find_extension
from sources.storage.postgres.index.index_update import IndexTask
from sources.storage.postgres.jobs import claim, release

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase


# A build that failed is tried again after this time.
_LEASE_S = 3_600
_LEASE_NAME = "trigram_lease"
_INDEX = "messages_by_trigram"
_HAS_MANY = "SELECT 1 FROM messages OFFSET ? LIMIT 1"
_IS_VALID = """SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relname = ?"""
_TRIGRAM = re.compile("[a-z0-9]{3}")
# The characters other than ASCII that fold to a text with ASCII letters.
_TO_ASCII = "ßẞİŉſǰẖẗẘẙẚ\N{KELVIN SIGN}ﬀﬁﬂﬃﬄﬅﬆ"
# The categories of characters that are the folded form of others, with the circled letters.
_FOLDED_CATEGORIES = frozenset(("Ll", "Lu", "Lt", "Lm", "Mn", "Nl"))


def folded(column: str) -> str:
    """Returns the SQL expression of a column's text with ASCII letters folded. It is part of the index, so a change of
    it needs another index."""
    replaced = column
    for character in _TO_ASCII:
        replaced = f"replace({replaced}, '{character}', '{character.casefold()}')"
    # The first condition is fast, and false for most texts.
    has_other = f"octet_length({column}) <> length({column}) AND {column} ~ '[{_TO_ASCII}]'"
    return f"lower(CASE WHEN {has_other} THEN {replaced} ELSE {column} END)"


def indexed_parts(text: str) -> list[str]:
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


def can_look_up(text: str) -> bool:
    """Whether a text has a trigram. PostgreSQL would read the whole index for one that has none, which takes longer
    than reading all messages. With the locale C, only ASCII letters and digits are part of trigrams."""
    return _TRIGRAM.search(text) is not None


def has_index(connection: PostgresConnection) -> bool:
    """Whether the index is complete."""
    row = connection.execute(_IS_VALID, (connection.schema, _INDEX)).fetchone()
    return row is not None and bool(row[0])


def needs_index(messages_min: int, connection: PostgresConnection) -> bool:
    """Whether a library has more messages than that and no index."""
    has_many = connection.execute(_HAS_MANY, (messages_min,)).fetchone() is not None
    return has_many and not has_index(connection)


def prepare_build(owner: str, connection: PostgresConnection) -> str | None:
    """Returns the statement that builds the index, or None if another process builds it or pg_trgm is not installed.
    Removes what an interrupted build left."""
    if not claim(connection, _LEASE_NAME, owner, _LEASE_S) or has_index(connection):
        return None
    extension = find_extension(connection, "pg_trgm")
    if extension is None:
        return None
    connection.execute(f"DROP INDEX IF EXISTS {_INDEX}")
    return (
        f"CREATE INDEX CONCURRENTLY {_INDEX} ON {quote_schema(connection.schema)}.messages "
        f"USING gin (({folded('content')}) {extension.schema}.gin_trgm_ops) WHERE deleted = 0"
    )


def release_build(owner: str, connection: PostgresConnection) -> None:
    release(connection, _LEASE_NAME, owner)


# -- trigram builder ---------------------------------------------------------------------------------------------------
# Builds the index for substring searches of one library in the background.

_SOURCE = "chats"
# How often a library is checked for whether it needs the index.
_CHECK_S = 60.0


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
        try:
            with background_jobs():
                if not await database.read(_SOURCE, partial(needs_index, messages_min)):
                    return
                statement = await database.write_vectors(_SOURCE, partial(prepare_build, database.process_id))
                if statement is None:
                    return
                if await database.index_builds.run(statement):
                    await database.write_vectors(_SOURCE, partial(release_build, database.process_id))
                else:
                    logger.warning("The index for substring searches could not be built; searches scan all messages")
        except FlorilegiumError as error:
            logger.warning("Building the index for substring searches failed: {}", error.message)
