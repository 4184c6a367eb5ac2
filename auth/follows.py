"""Followed sources: folders, files and addresses that a library is kept current with. Stored in the control database,
so that a server finds them without opening the libraries of all users.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct, field, structs

from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.registry import require_printable
from config.errors import Conflict, InvalidParams, NotFound
from config.paths import UserId

T = TypeVar("T", bound=Struct)
_FLAGS = frozenset(("keeps_deleted", "writes_back", "is_confined", "needs_admin", "creates_users"))


class FollowRecord(Struct, frozen=True, kw_only=True):
    """`location` is an absolute path or an http(s) URL. `keeps_deleted` keeps items whose files were deleted;
    `writes_back` writes edited notes to their files. A confined one was added by a user without the right to read any
    file of this machine; see the setting `follow_roots`. One that `needs_admin` was added with that right, and its
    owner must still have it at every run. `deployment` is the id of the followed deployment of tldw that the source
    belongs to, and `created_with` that of the API key with which it was added."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    user_id: UserId
    location: str
    format: str | None = None
    interval_s: float | None = None
    keeps_deleted: bool = False
    writes_back: bool = False
    is_confined: bool = False
    created_at: float = 0.0
    paused_at: float | None = None
    run_requested_at: float | None = None
    deployment: str | None = None
    needs_admin: bool = False
    created_with: str | None = None

    @property
    def is_url(self) -> bool:
        return self.location.startswith(("http://", "https://"))


class Follows:
    """The followed sources of all users."""

    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def revision(self) -> int:
        """Returns a number that changes when any process changes the control database."""
        return self._database.revision()

    @control_operation("write")
    def add(self, db: ControlConnection, record: FollowRecord, per_user_max: int | None) -> FollowRecord:
        record = structs.replace(record, created_at=self._clock())
        [count] = db.execute("SELECT count(*) FROM follows WHERE user_id = ?", (record.user_id,)).fetchone()
        if per_user_max is not None and count >= per_user_max:
            raise Conflict(f"{count} sources are followed; follow_max_per_user permits {per_user_max}")
        _insert(db, "follows", record)
        return record

    async def list(self, user_id: UserId | None = None) -> Sequence[FollowRecord]:
        """Returns the followed sources of a user, or of all users, oldest first."""
        condition, parameters = ("TRUE", ()) if user_id is None else ("user_id = ?", (user_id,))
        return await self._database.read(lambda db: _select(db, "follows", FollowRecord, condition, parameters))

    async def get(self, user_id: UserId, follow_id: str) -> FollowRecord:
        records = [record for record in await self.list(user_id) if record.id == follow_id]
        if not records:
            raise NotFound("followed source", follow_id)
        return records[0]

    async def pause(self, user_id: UserId, follow_id: str) -> FollowRecord:
        return await self._update(user_id, follow_id, "paused_at = coalesce(paused_at, ?)", self._clock())

    async def resume(self, user_id: UserId, follow_id: str) -> FollowRecord:
        return await self._update(user_id, follow_id, "paused_at = ?", None)

    async def request_run(self, user_id: UserId, follow_id: str) -> FollowRecord:
        """Asks the running server to look for changes now."""
        if (await self.get(user_id, follow_id)).paused_at is not None:
            raise Conflict(f"{follow_id} is paused; resume it to have it read at once")
        return await self._update(user_id, follow_id, "run_requested_at = ?", self._clock())

    async def remove(self, user_id: UserId, follow_id: str) -> None:
        """A source of a deployment is remembered, so that it is not followed again."""
        record = await self.get(user_id, follow_id)

        def operation(db: ControlConnection) -> None:
            if record.deployment is not None:
                exclusion = (record.deployment, record.location)
                sql = "INSERT INTO deployment_exclusions (deployment, location) VALUES (?, ?) ON CONFLICT DO NOTHING"
                db.execute(sql, exclusion)
            db.execute("DELETE FROM follows WHERE user_id = ? AND id = ?", (user_id, follow_id))

        await self._database.write(operation)

    async def _update(self, user_id: UserId, follow_id: str, assignment: str, value: Any) -> FollowRecord:
        sql = f"UPDATE follows SET {assignment} WHERE user_id = ? AND id = ?"
        await self._database.write(lambda db: db.execute(sql, (value, user_id, follow_id)).close())
        return await self.get(user_id, follow_id)


def _insert(db: ControlConnection, table: str, record: "FollowRecord | Deployment") -> None:
    """The location is unique: of two that are added at the same time, one is a conflict."""
    names = record.__struct_fields__
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT DO NOTHING"
    if not db.execute(sql, structs.astuple(record)).rowcount:
        raise Conflict(f"{record.location} is already followed")


def _select(
    db: ControlConnection, table: str, record: type[T], condition: str = "TRUE", parameters: Sequence[str] = ()
) -> Sequence[T]:
    names = record.__struct_fields__
    sql = f"SELECT {', '.join(names)} FROM {table} WHERE {condition} ORDER BY created_at, id"
    rows = [dict(zip(names, row, strict=True)) for row in db.execute(sql, parameters)]
    # The engines store flags as numbers.
    return [record(**{name: bool(row[name]) if name in _FLAGS else row[name] for name in names}) for row in rows]


# -- deployments -------------------------------------------------------------------------------------------------------
# Followed deployments of tldw: a folder with one folder of databases for each of its users. Each of them becomes a
# followed source of a user of this server. Stored in the control database, like the followed sources.

UserMapping = Literal["id", "claim"]
ID_PREFIX = "tldw-"
_PLACEHOLDER = "{id}"


class Deployment(Struct, frozen=True, kw_only=True):
    """`location` is the folder with the users' folders. With the mapping `id`, the user of a folder is named as the
    template `user_name` says; with `claim`, tokens identify the user by the number of the folder. Missing users are
    created if `creates_users` is set. `created_with` is the API key with which it was added, if it was one."""

    id: str = field(default_factory=lambda: ID_PREFIX + secrets.token_hex(6))
    location: str
    mapping: UserMapping = "id"
    user_name: str = _PLACEHOLDER
    creates_users: bool = False
    keeps_deleted: bool = False
    interval_s: float | None = None
    created_at: float = 0.0
    paused_at: float | None = None
    created_with: str | None = None

    def name_of(self, folder: str) -> str:
        return self.user_name.replace(_PLACEHOLDER, folder)


def is_deployment_id(text: str) -> bool:
    return text.startswith(ID_PREFIX)


class Deployments:
    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(self, deployment: Deployment) -> Deployment:
        require_printable("user_name", deployment.user_name)
        if _PLACEHOLDER not in deployment.user_name:
            raise InvalidParams(f"user_name: expected a name with {_PLACEHOLDER}, got {deployment.user_name[:60]!r}")
        deployment = structs.replace(deployment, created_at=self._clock())
        await self._database.write(lambda db: _insert(db, "followed_deployments", deployment))
        return deployment

    async def list(self) -> Sequence[Deployment]:
        """Returns the oldest first."""
        return await self._database.read(lambda db: _select(db, "followed_deployments", Deployment))

    async def get(self, deployment_id: str) -> Deployment:
        for deployment in await self.list():
            if deployment.id == deployment_id:
                return deployment
        raise NotFound("followed deployment", deployment_id)

    async def pause(self, deployment_id: str) -> Deployment:
        return await self._set_paused(deployment_id, self._clock())

    async def resume(self, deployment_id: str) -> Deployment:
        """Resumes the sources of all of its users."""
        return await self._set_paused(deployment_id, None)

    async def request_run(self, deployment_id: str) -> Deployment:
        """Asks the running server to look for changes now."""
        sql = "UPDATE follows SET run_requested_at = ? WHERE deployment = ?"
        await self._database.write(lambda db: db.execute(sql, (self._clock(), deployment_id)).close())
        return await self.get(deployment_id)

    async def remove(self, deployment_id: str) -> Deployment:
        """Ends following for all of its users. Their items stay."""
        deployment = await self.get(deployment_id)

        def operation(db: ControlConnection) -> None:
            for table in ("follows", "deployment_exclusions"):
                db.execute(f"DELETE FROM {table} WHERE deployment = ?", (deployment_id,))
            db.execute("DELETE FROM followed_deployments WHERE id = ?", (deployment_id,))

        await self._database.write(operation)
        return deployment

    async def excluded(self, deployment_id: str) -> frozenset[str]:
        """Returns the locations that their users no longer follow."""
        sql = "SELECT location FROM deployment_exclusions WHERE deployment = ?"
        return await self._database.read(
            lambda db: frozenset(location for (location,) in db.execute(sql, (deployment_id,)))
        )

    async def _set_paused(self, deployment_id: str, paused_at: float | None) -> Deployment:
        def operation(db: ControlConnection) -> None:
            for table, column in (("followed_deployments", "id"), ("follows", "deployment")):
                db.execute(f"UPDATE {table} SET paused_at = ? WHERE {column} = ?", (paused_at, deployment_id))

        await self._database.write(operation)
        return await self.get(deployment_id)
