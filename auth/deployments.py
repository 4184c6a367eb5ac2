"""Followed deployments of tldw: a folder with one folder of databases for each of its users. Each of them becomes a
followed source of a user of this server. Stored in the control database, like the followed sources."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import astuple

from auth.control_database import ControlConnection, ControlDatabase
from auth.validation import require_printable
from config.errors import Conflict, InvalidParams, NotFound

UserMapping = Literal["id", "claim"]
ID_PREFIX = "tldw-"
_PLACEHOLDER = "{id}"


class Deployment(Struct, frozen=True, kw_only=True):
    """`location` is the folder with the users' folders. With the mapping `id`, the user of a folder is named as the
    template `user_name` says; with `claim`, tokens identify the user by the number of the folder. Missing users are
    created if `creates_users` is set. `created_with` is the API key with which it was added, if it was one."""

    id: str
    location: str
    mapping: UserMapping
    user_name: str
    creates_users: bool
    keeps_deleted: bool
    interval_s: float | None
    created_at: float
    paused_at: float | None = None
    created_with: str | None = None

    def name_of(self, folder: str) -> str:
        return self.user_name.replace(_PLACEHOLDER, folder)


_NAMES = Deployment.__struct_fields__
_SELECT = f"SELECT {', '.join(_NAMES)} FROM followed_deployments"
_FLAGS = ("creates_users", "keeps_deleted")


def is_deployment_id(text: str) -> bool:
    return text.startswith(ID_PREFIX)


class Deployments:
    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(
        self,
        location: str,
        *,
        mapping: UserMapping = "id",
        user_name: str = _PLACEHOLDER,
        creates_users: bool = False,
        keeps_deleted: bool = False,
        interval_s: float | None = None,
        created_with: str | None = None,
    ) -> Deployment:
        require_printable("user_name", user_name)
        if _PLACEHOLDER not in user_name:
            raise InvalidParams(f"user_name: expected a name with {_PLACEHOLDER}, got {user_name[:60]!r}")
        deployment = Deployment(
            id=ID_PREFIX + secrets.token_hex(6),
            location=location,
            mapping=mapping,
            user_name=user_name,
            creates_users=creates_users,
            keeps_deleted=keeps_deleted,
            interval_s=interval_s,
            created_at=self._clock(),
            created_with=created_with,
        )

        def operation(db: ControlConnection) -> None:
            if db.execute(f"{_SELECT} WHERE location = ?", (location,)).fetchone():
                raise Conflict(f"{location} is already followed")
            marks = ", ".join("?" * len(_NAMES))
            db.execute(f"INSERT INTO followed_deployments ({', '.join(_NAMES)}) VALUES ({marks})", astuple(deployment))

        await self._database.write(operation)
        return deployment

    async def list(self) -> Sequence[Deployment]:
        """Returns the oldest first."""
        sql = f"{_SELECT} ORDER BY created_at, id"
        return await self._database.read(lambda db: [_deployment(row) for row in db.execute(sql)])

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


def _deployment(row: Sequence[Any]) -> Deployment:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    values |= {name: bool(values[name]) for name in _FLAGS}
    return Deployment(**values)
