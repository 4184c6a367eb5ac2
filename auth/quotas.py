"""Quotas of single users, which replace those of the settings. Stored with the users in the control database."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.registry import select_user
from auth.sqlite_control import storage_errors
from config.errors import NotFound
from config.paths import UserId
from config.settings import Settings


class QuotaOverrides(Struct, frozen=True, kw_only=True):
    """None means the quota of the settings, 0 no quota."""

    max_bytes: int | None = None
    max_items: int | None = None
    import_max_bytes: int | None = None
    max_passages: int | None = None


_NO_OVERRIDES = QuotaOverrides()


class UserLimits(Struct, frozen=True, kw_only=True):
    """The quotas that apply to a user; 0 means no limit, except for `import_max_bytes`."""

    max_bytes: int
    max_items: int
    import_max_bytes: int
    max_passages: int


_COLUMNS = ", ".join(QuotaOverrides.__struct_fields__)
_VALUES = ", ".join("?" for _ in QuotaOverrides.__struct_fields__)
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in QuotaOverrides.__struct_fields__)
_CACHED_USERS_MAX = 10_000
# Most users have no quota of their own. Up to this many are read together.
_OWN_QUOTAS_MAX = 1_000


class Quotas:
    """Cached until any process changes the control database."""

    def __init__(self, database: ControlDatabase, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._limits: dict[UserId, UserLimits] = {}
        self._revision: int | None = None
        # Those of all users who have any, unless they are too many.
        self._own: dict[UserId, QuotaOverrides] | None = None

    def use_settings(self, settings: Settings) -> None:
        self._settings = settings
        self._limits.clear()

    async def limits(self, user_id: UserId) -> UserLimits:
        revision = self._database.revision()
        if revision != self._revision:
            # One query for all users, and not one for each of them after every change of the database.
            self._own = await self._database.read(_select_all)
            self._revision = revision
            self._limits.clear()
        if len(self._limits) > _CACHED_USERS_MAX:
            self._limits.clear()
        limits = self._limits.get(user_id)
        if limits is None:
            own = await self.overrides(user_id) if self._own is None else self._own.get(user_id, _NO_OVERRIDES)
            limits = self._limits[user_id] = apply_overrides(self._settings, own)
        return limits

    async def overrides(self, user_id: UserId) -> QuotaOverrides:
        sql = f"SELECT {_COLUMNS} FROM quotas WHERE user_id = ?"  # noqa: S608 - constants
        row = await self._database.read(lambda db: db.execute(sql, (user_id,)).fetchone())
        return _overrides(row) if row else _NO_OVERRIDES

    @control_operation("write")
    def set(self, db: ControlConnection, user_id: UserId, overrides: QuotaOverrides) -> None:
        if select_user(db, user_id) is None:
            raise NotFound("user", user_id)
        values = [getattr(overrides, name) for name in QuotaOverrides.__struct_fields__]
        db.execute(
            f"INSERT INTO quotas (user_id, {_COLUMNS}) VALUES (?, {_VALUES}) "  # noqa: S608 - constants
            f"ON CONFLICT (user_id) DO UPDATE SET {_ASSIGNMENTS}",
            (user_id, *values),
        )


def apply_overrides(settings: Settings, overrides: QuotaOverrides = _NO_OVERRIDES) -> UserLimits:
    own_import_max = overrides.import_max_bytes
    return UserLimits(
        max_bytes=settings.user_max_bytes if overrides.max_bytes is None else overrides.max_bytes,
        max_items=settings.user_max_items if overrides.max_items is None else overrides.max_items,
        max_passages=settings.user_max_passages if overrides.max_passages is None else overrides.max_passages,
        # The setting also protects the disk, so that a quota can only be lower.
        import_max_bytes=min(own_import_max or settings.import_max_bytes, settings.import_max_bytes),
    )


def _select_all(db: ControlConnection) -> dict[UserId, QuotaOverrides] | None:
    """Returns None if there are too many."""
    sql = f"SELECT user_id, {_COLUMNS} FROM quotas LIMIT {_OWN_QUOTAS_MAX + 1}"  # noqa: S608 - constants
    rows = db.execute(sql).fetchall()
    if len(rows) > _OWN_QUOTAS_MAX:
        return None
    return {UserId(user_id): _overrides(values) for user_id, *values in rows}


def _overrides(values: Sequence[int | None]) -> QuotaOverrides:
    return QuotaOverrides(**dict(zip(QuotaOverrides.__struct_fields__, values, strict=True)))


def read_own_max_bytes(control_path: Path) -> dict[UserId, int]:
    """Returns the quotas of bytes that were set for single users, from a control database of any version, without
    migrating it."""
    with storage_errors(), closing(sqlite3.connect(f"{control_path.as_uri()}?mode=ro", uri=True)) as control:
        if not control.execute("SELECT 1 FROM sqlite_schema WHERE name = 'quotas'").fetchone():
            return {}
        rows = control.execute("SELECT user_id, max_bytes FROM quotas WHERE max_bytes IS NOT NULL")
        return {UserId(user_id): max_bytes for user_id, max_bytes in rows}


def describe_limits(limits: UserLimits) -> str:
    """Returns the quotas as the audit log has them."""
    return " ".join(f"{name}={getattr(limits, name)}" for name in UserLimits.__struct_fields__)
