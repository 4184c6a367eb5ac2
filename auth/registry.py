"""Who may use this server: users, their API keys, and the tokens that were revoked.

Every change is one transaction in the control database and is seen by every process at its next call. Secrets
are not kept here: a key is stored as its SHA-256 and shown once, when it is made.
"""

import base64
import re
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from auth.api_keys import hash_of, new_secret
from auth.arguments import require_plain, require_scopes, require_user_name
from auth.control_database import ControlDatabase
from config.errors import Conflict, InvalidParams, NotFound
from config.paths import UserId, new_user_id

Clock = Callable[[], float]

_NOT_NAME = re.compile(r"[^A-Za-z0-9._@+-]+")
_BUSY_TIMEOUT_S = 5.0
# A revoked token is remembered an hour past its expiry: well over the largest leeway that can be configured.
_REVOKED_MARGIN_S = 3600.0

_MIGRATIONS = (
    (
        """CREATE TABLE users (
            id TEXT PRIMARY KEY NOT NULL,
            name TEXT NOT NULL UNIQUE,
            issuer TEXT NOT NULL,
            subject TEXT NOT NULL,
            created_at REAL NOT NULL,
            disabled_at REAL,
            epoch INTEGER NOT NULL,
            tokens_valid_after REAL NOT NULL,
            UNIQUE (subject, issuer)
        ) WITHOUT ROWID""",
        """CREATE TABLE keys (
            id TEXT PRIMARY KEY NOT NULL,
            user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
            name TEXT NOT NULL,
            hash BLOB NOT NULL UNIQUE,
            scopes TEXT NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            revoked_at REAL,
            last_used_at REAL
        ) WITHOUT ROWID""",
        "CREATE INDEX keys_of_user ON keys (user_id)",
        """CREATE TABLE revoked_tokens (
            identity TEXT PRIMARY KEY NOT NULL,
            until REAL NOT NULL
        ) WITHOUT ROWID""",
        # Who was deleted and when: without it, an old token of a deleted user would create the user again.
        """CREATE TABLE departed (
            subject TEXT NOT NULL,
            issuer TEXT NOT NULL,
            departed_at REAL NOT NULL,
            PRIMARY KEY (subject, issuer)
        ) WITHOUT ROWID""",
    ),
    ("ALTER TABLE keys ADD COLUMN profile TEXT",),
)

_USER = "u.id, u.name, u.issuer, u.subject, u.created_at, u.disabled_at, u.epoch, u.tokens_valid_after"
_USER_QUERY = f"SELECT {_USER} FROM users u"  # noqa: S608 - made of constants alone
_KEY = "k.id, k.name, k.scopes, k.created_at, k.expires_at, k.revoked_at, k.last_used_at, k.profile"
_KEY_QUERY = f"SELECT {_KEY}, {_USER} FROM keys k JOIN users u ON u.id = k.user_id"  # noqa: S608 - as above


class UserRecord(Struct, frozen=True):
    """One user. An empty issuer stands for whichever issuer is configured.

    `epoch` counts how often access was withdrawn; a token issued before `tokens_valid_after` is void.
    """

    id: UserId
    name: str
    issuer: str
    subject: str
    created_at: float
    disabled_at: float | None
    epoch: int
    tokens_valid_after: float

    @property
    def is_disabled(self) -> bool:
        return self.disabled_at is not None


class KeyRecord(Struct, frozen=True):
    """One API key and its user; the secret is not in it. A key with a profile may do what that profile lists."""

    id: str
    user: UserRecord
    name: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    profile: str | None

    def is_good(self, now: float) -> bool:
        expired = self.expires_at is not None and now >= self.expires_at
        return self.revoked_at is None and not expired and not self.user.is_disabled


class Registry:
    """The users, keys and revocations of one deployment."""

    def __init__(self, database: ControlDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, clock: Clock = time.time, busy_timeout_s: float = _BUSY_TIMEOUT_S
    ) -> AsyncIterator[Self]:
        async with ControlDatabase.open(path, _MIGRATIONS, busy_timeout_s) as database:
            yield cls(database, clock)

    def revision(self) -> int:
        """A number that changes when any process changes the registry; see `ControlDatabase.revision`."""
        return self._database.revision()

    # Users

    async def add_user(self, name: str, issuer: str = "", subject: str = "") -> UserRecord:
        """Create a user, known to tokens as `subject` (the name, if not given) of `issuer`."""
        require_user_name(name)
        subject = subject or name
        _require_identity(issuer, subject)

        def job(db: sqlite3.Connection) -> UserRecord:
            if _user(db, "u.name = ?", name):
                raise Conflict(f"a user named {name!r} exists already")
            if _user(db, "u.subject = ? AND u.issuer = ?", subject, issuer):
                raise Conflict(f"a user with the subject {subject!r} exists already")
            return _insert_user(db, name, issuer, subject, self._clock())

        return await self._database.write(job)

    async def ensure_user(self, issuer: str, subject: str) -> UserRecord:
        """The user with that identity, created if absent under a name made from the subject.

        However many callers and processes ask at once, one user results.
        """
        _require_identity(issuer, subject)
        found = await self.user_by_identity(issuer, subject)
        if found:
            return found

        def job(db: sqlite3.Connection) -> UserRecord:
            rival = _user(db, "u.subject = ? AND u.issuer = ?", subject, issuer)
            if rival:
                return rival
            return _insert_user(db, _free_name(db, subject), issuer, subject, self._clock())

        return await self._database.write(job)

    async def user_by_id(self, user_id: UserId) -> UserRecord | None:
        return await self._database.read(lambda db: _user(db, "u.id = ?", user_id))

    async def user_by_name(self, name: str) -> UserRecord | None:
        return await self._database.read(lambda db: _user(db, "u.name = ?", name))

    async def user_by_identity(self, issuer: str, subject: str) -> UserRecord | None:
        return await self._database.read(lambda db: _user(db, "u.subject = ? AND u.issuer = ?", subject, issuer))

    async def list_users(self) -> list[UserRecord]:
        return await self._database.read(
            lambda db: [UserRecord(*row) for row in db.execute(f"{_USER_QUERY} ORDER BY u.name")]
        )

    async def disable_user(self, user_id: UserId) -> UserRecord:
        """Withdraw all access at once and for good: keys, tokens issued so far, whatever is bound to the epoch."""

        def job(db: sqlite3.Connection) -> UserRecord:
            now = self._clock()
            db.execute(
                "UPDATE users SET disabled_at = coalesce(disabled_at, ?), epoch = epoch + 1, "
                "tokens_valid_after = ? WHERE id = ?",
                (now, now, user_id),
            )
            db.execute("UPDATE keys SET revoked_at = ? WHERE user_id = ? AND revoked_at IS NULL", (now, user_id))
            return _existing_user(db, user_id)

        return await self._database.write(job)

    async def enable_user(self, user_id: UserId) -> UserRecord:
        """Let the user in again, with new keys and with tokens issued from now on.

        Not with those issued meanwhile: an issuer whose clock is ahead dates a token from before the disabling
        after it.
        """

        def job(db: sqlite3.Connection) -> UserRecord:
            db.execute(
                "UPDATE users SET disabled_at = NULL, tokens_valid_after = ? WHERE id = ? AND disabled_at IS NOT NULL",
                (self._clock(), user_id),
            )
            return _existing_user(db, user_id)

        return await self._database.write(job)

    async def delete_user(self, user_id: UserId) -> UserRecord:
        """Forget the user and its keys. When the identity left is kept, so that its old tokens stay void."""

        def job(db: sqlite3.Connection) -> UserRecord:
            user = _existing_user(db, user_id)
            db.execute(
                "INSERT OR REPLACE INTO departed (subject, issuer, departed_at) VALUES (?, ?, ?)",
                (user.subject, user.issuer, self._clock()),
            )
            db.execute("DELETE FROM users WHERE id = ?", (user_id,))
            return user

        return await self._database.write(job)

    async def departed_at(self, issuer: str, subject: str) -> float:
        """When a user with that identity was last deleted; 0.0 if never."""
        return await self._database.read(lambda db: _departed_at(db, issuer, subject))

    # API keys

    async def create_key(
        self,
        user_id: UserId,
        name: str,
        scopes: Iterable[str],
        expires_at: float | None = None,
        profile: str | None = None,
    ) -> tuple[KeyRecord, str]:
        """A new key and its secret. This is the only time that anyone can see the secret."""
        require_plain("name", name)
        if profile is not None:
            require_plain("profile", profile)
        granted = require_scopes(scopes)
        secret = new_secret()
        key_id = "k_" + base64.b32encode(secrets.token_bytes(10)).decode().lower()

        def job(db: sqlite3.Connection) -> KeyRecord:
            now = self._clock()
            if expires_at is not None and expires_at <= now:
                raise InvalidParams("expires_at: got a time in the past, expected one in the future")
            user = _existing_user(db, user_id)
            if user.is_disabled:
                raise Conflict(f"the user {user.name!r} is disabled; enable the user before making a key")
            db.execute(
                "INSERT INTO keys (id, user_id, name, hash, scopes, created_at, expires_at, profile) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (key_id, user_id, name, hash_of(secret), " ".join(sorted(granted)), now, expires_at, profile),
            )
            return _existing_key(db, key_id)

        return await self._database.write(job), secret

    async def key_by_hash(self, key_hash: bytes) -> KeyRecord | None:
        return await self._database.read(lambda db: _key(db, "k.hash = ?", key_hash))

    async def key_by_id(self, key_id: str) -> KeyRecord | None:
        return await self._database.read(lambda db: _key(db, "k.id = ?", key_id))

    async def list_keys(self, user_id: UserId | None = None) -> list[KeyRecord]:
        """The keys of one user, or of all."""
        query = f"{_KEY_QUERY} WHERE ?1 IS NULL OR k.user_id = ?1 ORDER BY u.name, k.created_at, k.id"
        return await self._database.read(lambda db: [_key_record(row) for row in db.execute(query, (user_id,))])

    async def revoke_key(self, key_id: str) -> KeyRecord:
        def job(db: sqlite3.Connection) -> KeyRecord:
            db.execute("UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (self._clock(), key_id))
            return _existing_key(db, key_id)

        return await self._database.write(job)

    async def touch_keys(self, used_at: Mapping[str, float]) -> None:
        """Write down when keys were last used, many at once. A time never goes back."""
        rows = [(at, key_id) for key_id, at in used_at.items()]

        def job(db: sqlite3.Connection) -> None:
            db.executemany("UPDATE keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?", rows)

        await self._database.write(job)

    # Tokens

    async def revoke_token(self, identity: str, until: float) -> None:
        """Void one token, named by its `jti` or by its `Claims.identity`, which expires at `until`."""
        require_plain("identity", identity)

        def job(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM revoked_tokens WHERE until < ?", (self._clock() - _REVOKED_MARGIN_S,))
            db.execute(
                "INSERT INTO revoked_tokens (identity, until) VALUES (?, ?) "
                "ON CONFLICT (identity) DO UPDATE SET until = max(until, excluded.until)",
                (identity, until),
            )

        await self._database.write(job)

    async def user_of_token(self, user_id: UserId, identity: str) -> UserRecord | None:
        """The user a token was accepted for; None if the user is gone or the token revoked."""
        condition = "u.id = ? AND NOT EXISTS (SELECT 1 FROM revoked_tokens WHERE identity = ?)"
        return await self._database.read(lambda db: _user(db, condition, user_id, identity))


def _user(db: sqlite3.Connection, condition: str, *values: object) -> UserRecord | None:
    row = db.execute(f"{_USER_QUERY} WHERE {condition}", values).fetchone()
    return UserRecord(*row) if row else None


def _existing_user(db: sqlite3.Connection, user_id: UserId) -> UserRecord:
    user = _user(db, "u.id = ?", user_id)
    if user is None:
        raise NotFound("user", user_id)
    return user


def _insert_user(db: sqlite3.Connection, name: str, issuer: str, subject: str, now: float) -> UserRecord:
    user_id = new_user_id()
    db.execute(
        "INSERT INTO users (id, name, issuer, subject, created_at, epoch, tokens_valid_after) "
        "VALUES (?, ?, ?, ?, ?, 0, ?)",
        (user_id, name, issuer, subject, now, _departed_at(db, issuer, subject)),
    )
    return _existing_user(db, user_id)


def _departed_at(db: sqlite3.Connection, issuer: str, subject: str) -> float:
    """An empty issuer, on either side, can be any issuer, so it matches all of them."""
    row = db.execute(
        "SELECT coalesce(max(departed_at), 0.0) FROM departed WHERE subject = ?1 AND (issuer IN (?2, '') OR ?2 = '')",
        (subject, issuer),
    ).fetchone()
    return float(row[0])


def _free_name(db: sqlite3.Connection, subject: str) -> str:
    """Two subjects can look alike once reduced to a name's characters; the second gets a random ending."""
    name = _NOT_NAME.sub("-", subject).strip("-")[:100] or "user"
    return f"{name}-{secrets.token_hex(8)}" if _user(db, "u.name = ?", name) else name


def _key(db: sqlite3.Connection, condition: str, value: object) -> KeyRecord | None:
    row = db.execute(f"{_KEY_QUERY} WHERE {condition}", (value,)).fetchone()
    return _key_record(row) if row else None


def _existing_key(db: sqlite3.Connection, key_id: str) -> KeyRecord:
    key = _key(db, "k.id = ?", key_id)
    if key is None:
        raise NotFound("key", key_id)
    return key


def _key_record(row: tuple[Any, ...]) -> KeyRecord:
    key_id, name, scopes, created_at, expires_at, revoked_at, last_used_at, profile, *user = row
    return KeyRecord(
        id=key_id,
        user=UserRecord(*user),
        name=name,
        scopes=frozenset(scopes.split()),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=last_used_at,
        profile=profile,
    )


def _require_identity(issuer: str, subject: str) -> None:
    require_plain("subject", subject)
    if issuer:
        require_plain("issuer", issuer)
