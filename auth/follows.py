"""Followed sources: folders, files and addresses that a library is kept current with. Stored in the control database,
so that a server finds them without opening the libraries of all users."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from auth.control_database import ControlConnection, ControlDatabase
from config.errors import Conflict, NotFound
from config.paths import UserId


class FollowRecord(Struct, frozen=True, kw_only=True):
    """`location` is an absolute path or an http(s) URL. `keeps_deleted` keeps items whose files were deleted;
    `writes_back` writes edited notes to their files. A confined one was added by a user without the right to read any
    file of this machine; see the setting `follow_roots`. One that `needs_admin` was added with that right, and its
    owner must still have it at every run. `deployment` is the id of the followed deployment of tldw that the source
    belongs to, and `created_with` that of the API key with which it was added."""

    id: str
    user_id: UserId
    location: str
    format: str | None
    interval_s: float | None
    keeps_deleted: bool
    writes_back: bool
    is_confined: bool
    created_at: float
    paused_at: float | None = None
    run_requested_at: float | None = None
    deployment: str | None = None
    needs_admin: bool = False
    created_with: str | None = None

    @property
    def is_url(self) -> bool:
        return self.location.startswith(("http://", "https://"))


_NAMES = FollowRecord.__struct_fields__
_SELECT = f"SELECT {', '.join(_NAMES)} FROM follows"
_FLAGS = ("keeps_deleted", "writes_back", "is_confined", "needs_admin")


class Follows:
    """The followed sources of all users."""

    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def revision(self) -> int:
        """Returns a number that changes when any process changes the control database."""
        return self._database.revision()

    async def add(
        self,
        user_id: UserId,
        location: str,
        *,
        format_name: str | None = None,
        interval_s: float | None = None,
        keeps_deleted: bool = False,
        writes_back: bool = False,
        is_confined: bool = False,
        deployment: str | None = None,
        needs_admin: bool = False,
        created_with: str | None = None,
        per_user_max: int | None,
    ) -> FollowRecord:
        record = FollowRecord(
            id=secrets.token_hex(8),
            user_id=user_id,
            location=location,
            format=format_name,
            interval_s=interval_s,
            keeps_deleted=keeps_deleted,
            writes_back=writes_back,
            is_confined=is_confined,
            created_at=self._clock(),
            deployment=deployment,
            needs_admin=needs_admin,
            created_with=created_with,
        )

        def operation(db: ControlConnection) -> None:
            [count] = db.execute("SELECT count(*) FROM follows WHERE user_id = ?", (user_id,)).fetchone()
            if per_user_max is not None and count >= per_user_max:
                raise Conflict(f"{count} sources are followed; follow_max_per_user permits {per_user_max}")
            values = ", ".join("?" * len(_NAMES))
            sql = f"INSERT INTO follows ({', '.join(_NAMES)}) VALUES ({values}) ON CONFLICT DO NOTHING"
            if not db.execute(sql, astuple(record)).rowcount:
                raise Conflict(f"{location} is already followed")

        await self._database.write(operation)
        return record

    async def list(self, user_id: UserId | None = None) -> Sequence[FollowRecord]:
        """Returns the followed sources of a user, or of all users, oldest first."""
        condition, parameters = ("", ()) if user_id is None else (" WHERE user_id = ?", (user_id,))
        sql = f"{_SELECT}{condition} ORDER BY created_at, id"
        return await self._database.read(lambda db: [_record(row) for row in db.execute(sql, parameters)])

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


def _record(row: Sequence[Any]) -> FollowRecord:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    values |= {name: bool(values[name]) for name in _FLAGS}
    return FollowRecord(**values)
