"""Brings one file's schema up to date, inside one transaction; refuses a file that a newer program has made."""

import sqlite3
from collections.abc import Sequence

from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind
from sources.storage.sqlite.index.text_index import Segmented, TextIndex, mark_segmented

Migration = Sequence[str]


class Blueprint(Struct, frozen=True):
    """What one of a user's files is made of: its migrations, and the tables in it whose text is segmented.

    Migrations are only ever added to: what stands in them has run on somebody's file.
    """

    kind: DatabaseKind
    migrations: tuple[Migration, ...]
    segmented: tuple[Segmented, ...]

    @property
    def indexes(self) -> tuple[TextIndex, ...]:
        """Those in which the words of a library are counted."""
        return tuple(dict.fromkeys(table.index for table in self.segmented if table.is_counted))


def schema_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def is_current(blueprint: Blueprint, version: int) -> bool:
    if version > len(blueprint.migrations):
        raise StorageError(
            f"the {blueprint.kind} library has schema {version}, made by a newer version of Florilegium; "
            f"this one knows schemas up to {len(blueprint.migrations)}: upgrade it"
        )
    return version == len(blueprint.migrations)


def migrate(blueprint: Blueprint, connection: sqlite3.Connection) -> None:
    """To be run in a transaction begun as a writer, so that two processes cannot both do it."""
    version = schema_version(connection)
    if is_current(blueprint, version):
        return
    for number, statements in enumerate(blueprint.migrations[version:], start=version + 1):
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
    if version == 0:
        mark_segmented(connection)
