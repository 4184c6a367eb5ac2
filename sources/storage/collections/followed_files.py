"""What is known about the files of followed sources, stored next to the items that were read from them."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Sequence
from typing import TypeVar

from sources.storage.collections.collection import UserDatabase
from sources.storage.contract import FollowedCounts, FollowedFile, FollowedItem
from sources.storage.tables.sql import NOTES_INDEX, Delete, Insert, SqlConnection, SqlRows, json_array, placeholders

T = TypeVar("T")

_SOURCE = "followed files"
_SELECT = "SELECT name, signature, fingerprint, conflicts, problem FROM followed_files WHERE follow = ?"
_INSERT_FILE = Insert("followed_files", "follow, name, signature, fingerprint, conflicts, problem")
_INSERT_ITEM = Insert("followed_items", "follow, name, kind, key, uuid", key="follow, name, kind, key")
_DELETE_FILE = Delete("followed_files", "follow = ? AND name = ?")
# The first byte after the slash at the end of a folder.
_AFTER_SLASH = b"0"


class FollowedFiles:
    """`follow` is the id of the followed source."""

    def __init__(self, database: UserDatabase) -> None:
        self._database = database

    async def files(self, follow: str, folder: bytes = b"") -> Sequence[FollowedFile]:
        """Returns all files, or those in a folder (which ends with a slash), ordered by name."""

        def work(connection: SqlConnection) -> Sequence[FollowedFile]:
            if not folder:
                return _files(connection.execute(f"{_SELECT} ORDER BY name", (follow,)))
            range_ = (follow, folder, folder[:-1] + _AFTER_SLASH)
            return _files(connection.execute(f"{_SELECT} AND name >= ? AND name < ? ORDER BY name", range_))

        return await self._database.read(_SOURCE, work)

    async def find(self, follow: str, names: Sequence[bytes]) -> Sequence[FollowedFile]:
        def work(connection: SqlConnection) -> Sequence[FollowedFile]:
            return [
                file for name in names for file in _files(connection.execute(f"{_SELECT} AND name = ?", (follow, name)))
            ]

        return await self._database.read(_SOURCE, work)

    async def items(
        self, follow: str, name: bytes, kind: str | None = None, keys: Sequence[str] = ()
    ) -> Sequence[FollowedItem]:
        """Returns all items of a file, or those of a kind with these keys."""

        def work(connection: SqlConnection) -> Sequence[FollowedItem]:
            sql = "SELECT kind, key, uuid FROM followed_items WHERE follow = ? AND name = ?"
            parameters: tuple[object, ...] = (follow, name)
            if kind is not None:
                sql += f" AND kind = ? AND key IN (SELECT value FROM {connection.dialect.listed()})"
                parameters += (kind, json_array(keys))
            return [FollowedItem(*row) for row in connection.execute(sql, parameters)]

        return await self._database.read(_SOURCE, work)

    async def other_owners(
        self, follow: str, names: Sequence[bytes], uuids: Sequence[str]
    ) -> frozenset[tuple[str, str]]:
        """Returns the kind and uuid of those stored items that come from other followed files than these, too."""
        is_own = f"i.follow = ? AND i.name IN ({placeholders(names)})" if names else "i.follow = ? AND FALSE"

        def work(connection: SqlConnection) -> frozenset[tuple[str, str]]:
            sql = (
                f"SELECT i.kind, i.uuid FROM {connection.dialect.listed()} CROSS JOIN followed_items i "
                f"WHERE i.uuid = wanted.value AND NOT ({is_own})"
            )
            return frozenset(connection.execute(sql, (json_array(uuids), follow, *names)))

        return await self._database.read(_SOURCE, work)

    async def file_of(self, follow: str, item: FollowedItem) -> bytes | None:
        """Returns the file that contains a stored item, whatever its key is."""
        sql = "SELECT name FROM followed_items WHERE uuid = ? AND kind = ? AND follow = ?"

        def work(connection: SqlConnection) -> bytes | None:
            row = connection.execute(sql, (item.uuid, item.kind, follow)).fetchone()
            return row[0] if row else None

        return await self._database.read(_SOURCE, work)

    async def counts(self, follow: str) -> FollowedCounts:
        files = (
            "SELECT count(*), CAST(coalesce(sum(conflicts), 0) AS BIGINT), count(*) FILTER (WHERE problem <> '') "
            "FROM followed_files"
        )
        items = "SELECT count(DISTINCT kind || ' ' || uuid) FROM followed_items"

        def work(connection: SqlConnection) -> FollowedCounts:
            total, conflicts, failed = connection.execute(f"{files} WHERE follow = ?", (follow,)).fetchone()
            [stored] = connection.execute(f"{items} WHERE follow = ? AND kind <> 'messages'", (follow,)).fetchone()
            return FollowedCounts(files=total, items=stored, conflicts=conflicts, failed=failed)

        return await self._database.read(_SOURCE, work)

    async def problems(self, follow: str, limit: int) -> Sequence[FollowedFile]:
        """Returns files with a conflict or a problem, ordered by name."""

        def work(connection: SqlConnection) -> Sequence[FollowedFile]:
            sql = f"{_SELECT} AND (conflicts > 0 OR problem <> '') ORDER BY name LIMIT ?"
            return _files(connection.execute(sql, (follow, limit)))

        return await self._database.read(_SOURCE, work)

    async def save(
        self, follow: str, file: FollowedFile, items: Sequence[FollowedItem], *, moved_from: bytes | None = None
    ) -> None:
        """Replaces what is known about a file. With `moved_from`, that other file is forgotten."""

        def work(connection: SqlConnection) -> None:
            for name in {file.name, moved_from} - {None}:
                _remove(connection, follow, name)
            _insert(connection, follow, file, items)

        await self._write(work)

    async def save_part(
        self, follow: str, file: FollowedFile, items: Sequence[FollowedItem], removed: Sequence[FollowedItem]
    ) -> None:
        """Saves a file of which a part was read: its other items stay."""

        def work(connection: SqlConnection) -> None:
            keys = [(follow, file.name, item.kind, item.key) for item in removed]
            connection.executemany(Delete("followed_items", "follow = ? AND name = ? AND kind = ? AND key = ?"), keys)
            connection.execute(_DELETE_FILE, (follow, file.name))
            _insert(connection, follow, file, items)

        await self._write(work)

    async def remove(self, follow: str, names: Sequence[bytes]) -> None:
        def work(connection: SqlConnection) -> None:
            for name in names:
                _remove(connection, follow, name)

        await self._write(work)

    async def retain(self, follows: Sequence[str]) -> None:
        """Forgets the files of all other followed sources."""

        def work(connection: SqlConnection) -> None:
            for table in ("followed_files", "followed_items"):
                retained = f"SELECT value FROM {connection.dialect.listed()}"
                others = f"SELECT DISTINCT follow FROM {table} WHERE follow NOT IN ({retained})"
                connection.execute(Delete(table, f"follow IN ({others})"), (json_array(follows),))

        await self._write(work)

    async def _write(self, work: Callable[[SqlConnection], None]) -> None:
        await self._database.write(_SOURCE, NOTES_INDEX, work)


def _files(rows: SqlRows) -> list[FollowedFile]:
    return [
        FollowedFile(name=name, signature=signature, fingerprint=fingerprint, conflicts=conflicts, problem=problem)
        for name, signature, fingerprint, conflicts, problem in rows
    ]


def _insert(connection: SqlConnection, follow: str, file: FollowedFile, items: Sequence[FollowedItem]) -> None:
    row = (follow, file.name, file.signature, file.fingerprint, file.conflicts, file.problem)
    connection.execute(_INSERT_FILE, row)
    rows = [(follow, file.name, item.kind, item.key, item.uuid) for item in items]
    connection.executemany(_INSERT_ITEM, rows)


def _remove(connection: SqlConnection, follow: str, name: bytes | None) -> None:
    connection.execute(_DELETE_FILE, (follow, name))
    connection.execute(Delete("followed_items", "follow = ? AND name = ?"), (follow, name))
