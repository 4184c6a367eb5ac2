"""One user's library on behalf of one client, on any engine, and what it knows about followed files."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import NotFound
from sources.drafts import CharacterDraft
from sources.records import OBSERVATION, Character
from sources.storage.collections import items
from sources.storage.collections.chats import Chats
from sources.storage.collections.collection import (
    ItemCollection,
    StorageSettings,
    UserDatabase,
    read_method,
    write_method,
)
from sources.storage.contract import FollowedCounts, FollowedFile, FollowedItem, LibraryUsage
from sources.storage.quota import UserQuota
from sources.storage.shared_part import permitted_sources
from sources.storage.tables.kind_tables import PLAIN_TABLES
from sources.storage.tables.sql import Delete, Insert, SqlConnection, SqlRows, json_array, placeholders

# -- followed files ----------------------------------------------------------------------------------------------------
# What is known about the files of followed sources, stored next to the items that were read from them.

_SELECT = "SELECT name, signature, fingerprint, conflicts, problem FROM followed_files WHERE follow = ?"
_INSERT_FILE = Insert("followed_files", "follow, name, signature, fingerprint, conflicts, problem")
_INSERT_ITEM = Insert("followed_items", "follow, name, kind, key, uuid", key="follow, name, kind, key")
_DELETE_FILE = Delete("followed_files", "follow = ? AND name = ?")
# The first byte after the slash at the end of a folder.
_AFTER_SLASH = b"0"


class FollowedFiles:
    """`follow` is the id of the followed source."""

    source = "followed files"

    def __init__(self, database: UserDatabase) -> None:
        self._database = database

    @read_method
    def files(self, connection: SqlConnection, follow: str, folder: bytes = b"") -> Sequence[FollowedFile]:
        """Returns all files, or those in a folder (which ends with a slash), ordered by name."""
        if not folder:
            return _files(connection.execute(f"{_SELECT} ORDER BY name", (follow,)))
        range_ = (follow, folder, folder[:-1] + _AFTER_SLASH)
        return _files(connection.execute(f"{_SELECT} AND name >= ? AND name < ? ORDER BY name", range_))

    @read_method
    def find(self, connection: SqlConnection, follow: str, names: Sequence[bytes]) -> Sequence[FollowedFile]:
        return [
            file for name in names for file in _files(connection.execute(f"{_SELECT} AND name = ?", (follow, name)))
        ]

    @read_method
    def items(
        self, connection: SqlConnection, follow: str, name: bytes, kind: str | None = None, keys: Sequence[str] = ()
    ) -> Sequence[FollowedItem]:
        """Returns all items of a file, or those of a kind with these keys."""
        sql = "SELECT kind, key, uuid FROM followed_items WHERE follow = ? AND name = ?"
        parameters: tuple[object, ...] = (follow, name)
        if kind is not None:
            sql += f" AND kind = ? AND key IN (SELECT value FROM {connection.dialect.listed()})"
            parameters += (kind, json_array(keys))
        return [FollowedItem(*row) for row in connection.execute(sql, parameters)]

    @read_method
    def other_owners(
        self, connection: SqlConnection, follow: str, names: Sequence[bytes], uuids: Sequence[str]
    ) -> frozenset[tuple[str, str]]:
        """Returns the kind and uuid of those stored items that come from other followed files than these, too."""
        is_own = f"i.follow = ? AND i.name IN ({placeholders(names)})" if names else "i.follow = ? AND FALSE"
        sql = (
            f"SELECT i.kind, i.uuid FROM {connection.dialect.listed()} CROSS JOIN followed_items i "
            f"WHERE i.uuid = wanted.value AND NOT ({is_own})"
        )
        return frozenset(connection.execute(sql, (json_array(uuids), follow, *names)))

    @read_method
    def file_of(self, connection: SqlConnection, follow: str, item: FollowedItem) -> bytes | None:
        """Returns the file that contains a stored item, whatever its key is."""
        sql = "SELECT name FROM followed_items WHERE uuid = ? AND kind = ? AND follow = ?"
        row = connection.execute(sql, (item.uuid, item.kind, follow)).fetchone()
        return row[0] if row else None

    @read_method
    def counts(self, connection: SqlConnection, follow: str) -> FollowedCounts:
        files = (
            "SELECT count(*), CAST(coalesce(sum(conflicts), 0) AS BIGINT), count(*) FILTER (WHERE problem <> '') "
            "FROM followed_files"
        )
        items = "SELECT count(DISTINCT kind || ' ' || uuid) FROM followed_items"
        total, conflicts, failed = connection.execute(f"{files} WHERE follow = ?", (follow,)).fetchone()
        [stored] = connection.execute(f"{items} WHERE follow = ? AND kind <> 'messages'", (follow,)).fetchone()
        return FollowedCounts(files=total, items=stored, conflicts=conflicts, failed=failed)

    @read_method
    def problems(self, connection: SqlConnection, follow: str, limit: int) -> Sequence[FollowedFile]:
        """Returns files with a conflict or a problem, ordered by name."""
        sql = f"{_SELECT} AND (conflicts > 0 OR problem <> '') ORDER BY name LIMIT ?"
        return _files(connection.execute(sql, (follow, limit)))

    @write_method
    def save(
        self,
        connection: SqlConnection,
        follow: str,
        file: FollowedFile,
        items: Sequence[FollowedItem],
        *,
        moved_from: bytes | None = None,
    ) -> None:
        """Replaces what is known about a file. With `moved_from`, that other file is forgotten."""
        for name in {file.name, moved_from} - {None}:
            _remove(connection, follow, name)
        _insert(connection, follow, file, items)

    @write_method
    def save_part(
        self,
        connection: SqlConnection,
        follow: str,
        file: FollowedFile,
        items: Sequence[FollowedItem],
        removed: Sequence[FollowedItem],
    ) -> None:
        """Saves a file of which a part was read: its other items stay."""
        keys = [(follow, file.name, item.kind, item.key) for item in removed]
        connection.executemany(Delete("followed_items", "follow = ? AND name = ? AND kind = ? AND key = ?"), keys)
        connection.execute(_DELETE_FILE, (follow, file.name))
        _insert(connection, follow, file, items)

    @write_method
    def remove(self, connection: SqlConnection, follow: str, names: Sequence[bytes]) -> None:
        for name in names:
            _remove(connection, follow, name)

    @write_method
    def retain(self, connection: SqlConnection, follows: Sequence[str]) -> None:
        """Forgets the files of all other followed sources."""
        for table in ("followed_files", "followed_items"):
            retained = f"SELECT value FROM {connection.dialect.listed()}"
            others = f"SELECT DISTINCT follow FROM {table} WHERE follow NOT IN ({retained})"
            connection.execute(Delete(table, f"follow IN ({others})"), (json_array(follows),))


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


def collection_classes(stored: type[Any], chats: type[Any]) -> Mapping[str, type[Any]]:
    """Returns the classes of an engine's collections by source: `stored`, its way to store and search, joined with what
    each kind adds. Most kinds need no more than their declaration."""
    kinds: dict[str, type[Any]] = {
        **dict.fromkeys(PLAIN_TABLES, ItemCollection),
        "notes": items.Notes,
        "media": items.Media,
        "prompts": items.Prompts,
        "observations": items.Observations,
    }
    classes = {kind: type(f"{stored.__name__}Of{kind.__name__}", (stored, kind), {}) for kind in kinds.values()}
    return {**{source: classes[kind] for source, kind in kinds.items()}, "chats": chats}


class StoredLibrary:
    """Implements `Library` of the storage contract, except for `corpus`. `collections` are the classes of an engine by
    source, and `database` is what they read and write. `tables` has what is not an item."""

    collections: Mapping[str, type[Any]]

    def __init__(
        self, database: Any, tables: UserDatabase, quota: UserQuota, settings: StorageSettings, context: RequestContext
    ) -> None:
        self._database = database
        self._tables = tables
        self._quota = quota
        # Those that the caller's credential permits; None for all.
        self._sources = permitted_sources(context)
        self._settings = settings if self._sources is None else replace(settings, sources=self._sources)
        self._context = context

    def collection(self, source: str) -> Any:
        if self._sources is not None:
            self._require_source(source)
        if source not in self.collections:
            raise NotFound("source", source)
        context = self._context
        return self.collections[source](
            source, self._database, self._settings, context.client_id, is_agent=context.is_agent
        )

    @property
    def notes(self) -> items.Notes:
        notes: items.Notes = self.collection("notes")
        return notes

    @property
    def media(self) -> items.Media:
        media: items.Media = self.collection("media")
        return media

    @property
    def chats(self) -> Chats:
        chats: Chats = self.collection("chats")
        return chats

    @property
    def characters(self) -> ItemCollection[Character, CharacterDraft, int]:
        characters: ItemCollection[Character, CharacterDraft, int] = self.collection("characters")
        return characters

    @property
    def prompts(self) -> items.Prompts:
        prompts: items.Prompts = self.collection("prompts")
        return prompts

    @property
    def observations(self) -> items.Observations:
        observations: items.Observations = self.collection("observations")
        return observations

    @property
    def agents(self) -> items.Agents:
        self._require_source("chats")
        return items.Agents(self._tables, self._settings.limits)

    @property
    def bookmarks(self) -> items.Bookmarks:
        return items.Bookmarks(self._tables, self._settings.limits)

    @property
    def followed_files(self) -> FollowedFiles:
        return FollowedFiles(self._tables)

    async def usage(self) -> LibraryUsage:
        return await self._quota.usage()

    async def require_room(self) -> None:
        async with self._quota.room(1):
            pass

    def _require_source(self, name: str) -> None:
        """Raises NotFound if the caller's credential is restricted to other sources. What sessions learned and what
        agents on the bus write are conversations too."""
        name = "chats" if name == OBSERVATION.source else name
        if self._sources is not None and name not in self._sources:
            raise NotFound("source", name)
