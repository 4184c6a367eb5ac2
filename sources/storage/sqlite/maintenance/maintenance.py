"""What an operator does with the files of one user: see whether they are up to date, bring them there, make their
full-text indexes anew from the rows. Works beside a running server, whose writers wait meanwhile."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind, DataRoot, UserId
from sources.storage.sqlite.connection.connection import Job, JobConnection
from sources.storage.sqlite.connection.errors import translate
from sources.storage.sqlite.connection.open import Engine, File, connect_writer
from sources.storage.sqlite.index.text_index import mark_segmented, renew
from sources.storage.sqlite.schema.chacha import CHACHA
from sources.storage.sqlite.schema.media import MEDIA
from sources.storage.sqlite.schema.migrations import Blueprint, schema_version
from sources.storage.sqlite.schema.prompts import PROMPTS
from sources.storage.sqlite.search.exact import EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX

BLUEPRINTS: dict[DatabaseKind, Blueprint] = {blueprint.kind: blueprint for blueprint in (CHACHA, MEDIA, PROMPTS)}
_BEFORE_ALL = -(2**63)
_DEADLINE_S = 24 * 3600.0


class Standing(Struct, frozen=True):
    """The schema of one file, and the newest that this program knows."""

    kind: DatabaseKind
    schema: int
    known: int

    @property
    def is_current(self) -> bool:
        return self.schema == self.known

    @property
    def is_newer(self) -> bool:
        return self.schema > self.known


def standings(data_root: DataRoot, user_id: UserId) -> list[Standing]:
    """Of the files in which there is something; nothing is changed. One of no bytes is made when it is first used."""
    found = []
    for kind, blueprint in BLUEPRINTS.items():
        path: Path = getattr(data_root.paths_of(user_id), kind)
        if path.exists() and path.stat().st_size:
            with _errors(kind), closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
                found.append(Standing(kind, schema_version(connection), len(blueprint.migrations)))
    return found


def upgrade(data_root: DataRoot, user_id: UserId, kind: DatabaseKind, engine: Engine) -> None:
    """Bring one file up to date, after a copy of it was made; a file of a newer program is refused."""
    with _writer(data_root, user_id, kind, engine):
        pass


def reindex(data_root: DataRoot, user_id: UserId, kind: DatabaseKind, engine: Engine) -> int:
    """Make the indexes of one file anew, in one transaction; how many entries they have."""
    blueprint = BLUEPRINTS[kind]
    with _writer(data_root, user_id, kind, engine) as connection:
        job = Job(lambda opened: _rebuild(blueprint, opened), time.monotonic() + _DEADLINE_S)
        return connection.perform(job, "BEGIN IMMEDIATE")


def _rebuild(blueprint: Blueprint, connection: JobConnection) -> int:
    indexes = tuple(dict.fromkeys(table.index for table in blueprint.segmented))
    for index in indexes:
        # What waits to be carried over is told to forget what a damaged index may not hold.
        connection.execute(f"DELETE FROM {index.table}_queue")
        connection.execute(f"INSERT INTO {index.table} ({index.table}) VALUES ('rebuild')")
    for table in blueprint.segmented:
        last: int | None = _BEFORE_ALL
        while last is not None:
            last = renew(table, last, connection)
    mark_segmented(connection)
    if blueprint is CHACHA:
        for made in (SUBSTRING_INDEX, EXACT_INDEX):
            made.remake(connection)
    counts = (connection.execute(f"SELECT count(*) FROM {index.table}_docsize").fetchone()[0] for index in indexes)
    return sum(counts)


@contextmanager
def _writer(data_root: DataRoot, user_id: UserId, kind: DatabaseKind, engine: Engine) -> Iterator[JobConnection]:
    file = File(BLUEPRINTS[kind], lambda: data_root.ensure_database(user_id, kind))
    with _errors(kind), closing(connect_writer(file, engine, time.monotonic() + _DEADLINE_S)) as connection:
        yield connection


@contextmanager
def _errors(kind: DatabaseKind) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        told = translate(error, kind, int(_DEADLINE_S * 1000))
        raise StorageError(f"the {kind} library: {told.message}") from error
