"""Converts files that were written before release 0.1.0 to the first schema of that release.

From commit 2813d5c on, all versions of a file are supported. `migrate` calls this once per file, in its transaction: a
conversion that was interrupted is repeated as a whole. This module, its call and its tests can be deleted in release
0.2.0; until then, files are converted when they are first opened.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from auth.conversion import create_missing
from config.errors import StorageError
from config.paths import DatabaseKind
from sources.records import is_human_only

# The schemas of commit 2813d5c.
_OLDEST: Mapping[DatabaseKind, int] = {"chacha": 3, "media": 2, "prompts": 2}

# What versions below a number lack, and their rows, before missing tables and indexes are created.
_CHANGES: Mapping[DatabaseKind, Sequence[tuple[int, str]]] = {
    "chacha": (
        (5, "ALTER TABLE messages ADD COLUMN human_only INTEGER NOT NULL DEFAULT 0"),
        # The condition on the text spares most rows the call.
        (5, "UPDATE messages SET human_only = 1 WHERE metadata LIKE '%human%' AND is_human_only(metadata)"),
        # A title was made of the first message even if it was human-only. The hash is that of an empty title.
        (
            5,
            """UPDATE conversations SET title = '', title_seg = NULL, version = version + 1,
                content_hash = 'e3b0c44298fc1c149afbf4c8996fb924'
                WHERE title <> '' AND EXISTS (SELECT 1 FROM messages m WHERE m.conversation_id = conversations.id
                    AND m.human_only = 1 AND title IN (m.content, substr(m.content, 1, 50) || '...'))""",
        ),
        (7, "ALTER TABLE conversations ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0"),
        (7, "ALTER TABLE conversations ADD COLUMN is_archived INTEGER NOT NULL DEFAULT 0"),
        # Archived threads of the message bus were marked in their metadata.
        (
            7,
            """UPDATE conversations SET is_archived = 1, metadata = json_remove(metadata, '$._bus.status')
                WHERE metadata LIKE '%archived%' AND json_extract(metadata, '$._bus.status') = 'archived'""",
        ),
    ),
    # Reading all texts takes too long here; `index.text_index` computes the weights that are missing.
    "media": ((3, "ALTER TABLE media ADD COLUMN text_weight INTEGER"),),
    "prompts": (),
}
# Indexes that are built again afterwards, because their entries differ.
_REBUILT: Mapping[DatabaseKind, Sequence[tuple[int, str]]] = {
    "chacha": ((5, "human_only_index"), (8, "chats_index")),
    "media": (),
    "prompts": (),
}
# Indexes of messages and vectors that are created on demand. Without their state, they are created again when needed.
_ON_DEMAND = "DELETE FROM state WHERE name IN ('vectors', 'substring_index', 'exact_index', 'human_only_exact_index')"


def convert(kind: DatabaseKind, statements: Sequence[str], connection: sqlite3.Connection, version: int) -> None:
    """`statements` create the first schema. Triggers and views are dropped before anything else: those of a file from
    elsewhere must not run."""
    if version < _OLDEST[kind]:
        raise StorageError(
            f"the {kind} library has schema {version}, which no version of Florilegium since 0.1.0 can read; "
            f"expected {_OLDEST[kind]} or newer"
        )
    connection.create_function("is_human_only", 1, _is_human_only, deterministic=True)
    for row in connection.execute("SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')").fetchall():
        connection.execute('DROP {} "{}"'.format(row[0], row[1].replace('"', '""')))
    connection.execute(_ON_DEMAND)
    for below, statement in _CHANGES[kind]:
        if version < below:
            connection.execute(statement)
    create_missing(statements, connection)
    for below, index in _REBUILT[kind]:
        if version < below:
            connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")


def _is_human_only(metadata: str) -> bool:
    return is_human_only(msgspec.json.decode(metadata, type=dict))
