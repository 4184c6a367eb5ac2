"""Users, their API keys and revoked tokens.

Every change is one transaction in the control database, and every process sees it at its next call. A key is stored as
its SHA-256 hash and shown once, when it is created.
"""

import base64
import hashlib
import re
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from msgspec import Struct

from auth.context import ROLE_SCOPES, SCOPES, Role
from auth.control_database import CONTROL_SCHEMA, ControlConnection, ControlDatabase, control_operation
from auth.library_files import record_existing_files
from auth.postgres_control import PostgresControlDatabase
from auth.sqlite_control import SqliteControlDatabase, storage_errors
from config.errors import Conflict, InvalidParams, NotFound
from config.paths import DataRoot, UserId, copies_before_migration, new_user_id
from config.postgres.connection import ConnectionOptions

# -- credentials -------------------------------------------------------------------------------------------------------
# API keys, and the credentials of the authorization server (`auth.oauth`): how they are generated, recognized and
# hashed. Only the hash is stored or compared. The prefixes let people and secret scanners tell them apart, and keep one
# kind from being tried as another.

PREFIX = "flo_"

# 256 random bits are 43 characters of base64url without padding. A secret of that size cannot be guessed, so plain
# SHA-256 is enough; a slow password hash would only slow down legitimate callers.
_SECRET_BYTES = 32
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def generate_credential(prefix: str) -> str:
    """Returns a new credential, to be shown to its owner once."""
    return prefix + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")


def is_credential(text: str, prefix: str) -> bool:
    """Whether the text has the form of a credential of that kind."""
    return text.startswith(prefix) and _SECRET.match(text, len(prefix)) is not None


def hash_credential(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()


def has_key_prefix(credential: str) -> bool:
    """Whether the credential claims to be an API key. Such a credential is never tried as a JWT."""
    return credential.startswith(PREFIX)


def generate_id(prefix: str) -> str:
    return prefix + base64.b32encode(secrets.token_bytes(10)).decode().lower()


# OpenID Connect Core section 2: `sub` has at most 255 characters.
TEXT_MAX_CHARS = 255

_USER_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,128}\Z")
_SOURCE_NAME = re.compile(r"[a-z][a-z0-9]{0,15}\Z")


def is_printable_text(text: str) -> bool:
    """Whether the text can be stored, logged and displayed unchanged: no control characters and no lone surrogates."""
    return 0 < len(text) <= TEXT_MAX_CHARS and text.isprintable()


def require_printable(field: str, text: str) -> None:
    if not is_printable_text(text):
        raise InvalidParams(f"{field}: expected 1 to {TEXT_MAX_CHARS} printable characters, got {text[:40]!r}")


def require_user_name(name: str) -> None:
    if not _USER_NAME.match(name):
        raise InvalidParams(f"name: expected 1 to 128 of the characters A-Z a-z 0-9 . _ @ + -, got {name[:40]!r}")


def require_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Returns the scopes as a set, which must not be empty and must contain known scopes only."""
    requested = frozenset(scopes)
    if not requested or not requested <= set(SCOPES):
        unknown = " ".join(sorted(requested - set(SCOPES))) or "none"
        raise InvalidParams(f"scopes: expected one or more of {' '.join(SCOPES)}, got {unknown[:40]!r}")
    return requested


Clock = Callable[[], float]
# A file of SQLite, or a database of PostgreSQL.
ControlLocation = Path | ConnectionOptions
NamedBy = Literal["operator", "person"]
OwnerKind = Literal["person", "group"]

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._@+-]+")
# Names that differ only by case are easily mistaken for each other. They are ASCII. No two people or groups have the
# same name.
_SAME_NAME = "lower(u.name) = lower(?)"
# No credential can sign in as a group.
_IS_PERSON = "u.kind = 'person'"
_BUSY_TIMEOUT_S = 5.0
# A revocation is kept for an hour after the token's expiry, well beyond the largest configurable leeway.
_REVOKED_MARGIN_S = 3600.0


def read_users(control_path: Path) -> list[tuple[UserId, str]]:
    """Returns the ids and names of all users of a control database of any version, without migrating it."""
    with storage_errors(), closing(sqlite3.connect(f"{control_path.as_uri()}?mode=ro", uri=True)) as control:
        return [
            (UserId(user_id), name) for user_id, name in control.execute("SELECT id, name FROM users ORDER BY name")
        ]


def read_control_schema(control_path: Path) -> int:
    """Returns the schema version of a control database without migrating it."""
    with storage_errors(), closing(sqlite3.connect(f"{control_path.as_uri()}?mode=ro", uri=True)) as control:
        version: int = control.execute("PRAGMA user_version").fetchone()[0]
        return version


def delete_from_copies(control_path: Path, user_id: UserId) -> None:
    """Deletes a purged user and its keys from the copies that are kept from before migrations."""
    for copy in copies_before_migration(control_path):
        with storage_errors(), closing(sqlite3.connect(copy)) as control:
            control.execute("PRAGMA secure_delete = ON")
            control.execute("PRAGMA foreign_keys = ON")  # deletes the rows of other tables that belong to the user
            # On a full disk there may be no space for a journal. Deleting overwrites pages that exist.
            control.execute("PRAGMA journal_mode = MEMORY")
            with control:
                control.execute("DELETE FROM keys WHERE user_id = ?", (user_id,))
                control.execute("DELETE FROM users WHERE id = ?", (user_id,))


class UserRecord(Struct, frozen=True):
    """One user, or a group, which owns a library as a person does. An empty issuer means the configured issuer.

    At `expires_at`, all access ends by itself. `epoch` counts how often access was withdrawn. Tokens
    issued before `tokens_valid_after` are rejected. `role` limits the scopes of all credentials of the user. `named_by`
    says who chose the name: the operator, or the person or their identity provider. Folders that are named after users
    belong only to users whom the operator named.
    """

    id: UserId
    name: str
    issuer: str
    subject: str
    created_at: float
    disabled_at: float | None
    epoch: int
    tokens_valid_after: float
    role: Role
    named_by: NamedBy
    kind: OwnerKind = "person"
    expires_at: float | None = None

    @property
    def is_disabled(self) -> bool:
        return self.disabled_at is not None or (self.expires_at is not None and time.time() >= self.expires_at)


class KeyRecord(Struct, frozen=True):
    """An API key and its user, without the secret. A key with a profile can only use the tools of that profile, a key
    with sources only those sources, and a key with libraries only those of others with these handles. `created_with` is
    the key with which it was created, if it was one."""

    id: str
    user: UserRecord
    name: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    profile: str | None
    sources: frozenset[str] | None = None
    created_with: str | None = None
    libraries: frozenset[str] | None = None

    def is_valid(self, now: float) -> bool:
        is_expired = self.expires_at is not None and now >= self.expires_at
        return self.revoked_at is None and not is_expired and not self.user.is_disabled


# Columns in the order of the fields, so that rows can be unpacked into records.
_USER_COLUMNS = ", ".join(f"u.{name}" for name in UserRecord.__struct_fields__)
_USER_QUERY = f"SELECT {_USER_COLUMNS} FROM users u"  # noqa: S608 - constants only
_HAS_IDENTITY = f"u.subject = ? AND u.issuer = ? AND {_IS_PERSON}"
_IS_NOT_REVOKED = "NOT EXISTS (SELECT 1 FROM revoked_tokens WHERE identity = ?)"
_KEY_FIELDS = tuple(name for name in KeyRecord.__struct_fields__ if name != "user")
_KEY_COLUMNS = ", ".join(f"k.{name}" for name in _KEY_FIELDS)
_KEY_QUERY = f"SELECT {_KEY_COLUMNS}, {_USER_COLUMNS} FROM keys k JOIN users u ON u.id = k.user_id"  # noqa: S608 - as above


class Registry:
    """The users, keys and revocations of one deployment."""

    def __init__(self, database: ControlDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        location: ControlLocation,
        *,
        clock: Clock = time.time,
        busy_timeout_s: float = _BUSY_TIMEOUT_S,
        waits_for_servers: bool = False,
    ) -> AsyncIterator[Self]:
        """With `waits_for_servers`, access that is withdrawn has ended in all processes when the operation returns."""
        if isinstance(location, ConnectionOptions):
            postgres = PostgresControlDatabase.open(location, busy_timeout_s, waits_for_servers=waits_for_servers)
            async with postgres as database:
                yield cls(database, clock)
            return
        # A file of SQLite tells every process at its next call that it was changed, so there is nothing to wait for.
        data_root = DataRoot(location.parent)
        data_root.require_control()
        async with SqliteControlDatabase.open(location, CONTROL_SCHEMA, busy_timeout_s) as file:
            await file.read(partial(record_existing_files, data_root))
            yield cls(file, clock)

    @property
    def database(self) -> ControlDatabase:
        """The database, for the accounts, browser sessions and connections that are stored with the users."""
        return self._database

    # Users

    async def add_user(self, name: str, issuer: str = "", subject: str = "", role: Role = "writer") -> UserRecord:
        """Creates a user for the operator, identified in tokens by `issuer` and `subject` (by default the name)."""
        return await self._database.write(
            lambda db: insert_user(db, name, issuer, subject, self._clock(), role, "operator")
        )

    async def ensure_user(
        self, issuer: str, subject: str, name: str = "", role: Role = "writer", named_by: NamedBy = "person"
    ) -> UserRecord:
        """Returns the user with that identity, creating it if necessary under a name derived from `name`, by default
        from the subject.

        Concurrent calls, also from several processes, create one user.
        """
        _require_identity(issuer, subject)
        user = await self.user_by_identity(issuer, subject)
        if user:
            return user

        def operation(db: ControlConnection) -> UserRecord:
            existing = _user(db, _HAS_IDENTITY, subject, issuer)
            if existing:
                return existing
            # A name derived from the text, with a random suffix if it is taken.
            new_name = _NOT_IN_A_NAME.sub("-", name or subject).strip("-")[:100] or "user"
            if _user(db, _SAME_NAME, new_name):
                new_name = f"{new_name}-{secrets.token_hex(8)}"
            return insert_user(db, new_name, issuer, subject, self._clock(), role, named_by)

        return await self._database.write(operation)

    async def user_by_id(self, user_id: UserId) -> UserRecord | None:
        return await self._database.read(lambda db: select_user(db, user_id))

    async def user_by_name(self, name: str) -> UserRecord | None:
        return await self._database.read(lambda db: _user(db, f"u.name = ? AND {_IS_PERSON}", name))

    async def owner_by_name(self, name: str) -> UserRecord | None:
        """Returns the person or the group with that name."""
        return await self._database.read(lambda db: _user(db, "u.name = ?", name))

    async def user_by_identity(self, issuer: str, subject: str) -> UserRecord | None:
        return await self._database.read(lambda db: _user(db, _HAS_IDENTITY, subject, issuer))

    async def user_of_claims(self, issuer: str, subject: str, configured_issuer: str) -> UserRecord | None:
        """Looks for the exact identity first, then for a user without an issuer, which means the configured issuer."""
        condition, values = _claims_condition(issuer, subject, configured_issuer)
        return await self._database.read(lambda db: _user(db, condition, *values))

    async def user_of_new_token(
        self, issuer: str, subject: str, configured_issuer: str, identity: str
    ) -> UserRecord | None:
        """Like `user_of_claims`, for a token that was verified. Returns None if it was revoked, too."""
        condition, values = _claims_condition(issuer, subject, configured_issuer)
        return await self._database.read(lambda db: _user(db, f"{_IS_NOT_REVOKED} AND {condition}", identity, *values))

    async def list_users(self) -> list[UserRecord]:
        return [one for one in await self.list_owners() if one.kind == "person"]

    async def list_owners(self) -> list[UserRecord]:
        """Returns the users and the groups."""
        return await self._database.read(
            lambda db: [UserRecord(*row) for row in db.execute(f"{_USER_QUERY} ORDER BY u.name")]
        )

    @control_operation("withdraw")
    def set_role(self, db: ControlConnection, user_id: UserId, role: Role) -> UserRecord:
        """Sets the role, which limits the scopes of all credentials of the user from the next call on."""
        db.execute("UPDATE users SET role = ? WHERE id = ?", (role, user_id))
        return _existing_user(db, user_id)

    @control_operation("write")
    def confirm_name(self, db: ControlConnection, user_id: UserId) -> UserRecord:
        """Records that the operator agrees with the name that a person has."""
        db.execute("UPDATE users SET named_by = 'operator' WHERE id = ?", (user_id,))
        return _existing_user(db, user_id)

    @control_operation("withdraw")
    def disable_user(self, db: ControlConnection, user_id: UserId) -> UserRecord:
        """Permanently withdraws all access granted so far: keys, tokens and everything bound to the epoch."""
        _withdraw_access(db, user_id, self._clock())
        return _existing_user(db, user_id)

    @control_operation("write")
    def expire_user(self, db: ControlConnection, user_id: UserId, expires_at: float) -> UserRecord:
        """Ends all access of the user at that time."""
        db.execute("UPDATE users SET expires_at = ? WHERE id = ?", (expires_at, user_id))
        return _existing_user(db, user_id)

    @control_operation("write")
    def enable_user(self, db: ControlConnection, user_id: UserId) -> UserRecord:
        """Enables the user again, with new keys and with tokens issued from now on.

        Tokens issued while the user was disabled stay invalid: an issuer whose clock is ahead may have dated an earlier
        token into that time. What an account had that has expired ends here: nothing was written when its time came.
        """
        if (user := _existing_user(db, user_id)).is_disabled and user.disabled_at is None:
            _withdraw_access(db, user_id, self._clock())
        db.execute(
            "UPDATE users SET disabled_at = NULL, expires_at = NULL, tokens_valid_after = ? "
            "WHERE id = ? AND (disabled_at IS NOT NULL OR expires_at IS NOT NULL)",
            (self._clock(), user_id),
        )
        return _existing_user(db, user_id)

    @control_operation("withdraw")
    def delete_user(self, db: ControlConnection, user_id: UserId) -> UserRecord:
        """Deletes the user and its keys. The time of deletion is kept, so that old tokens stay invalid."""
        return remove_user_row(db, user_id, self._clock())

    async def user_deleted_at(self, issuer: str, subject: str) -> float:
        """Returns when a user with that identity was last deleted, or 0.0 if never."""
        return await self._database.read(lambda db: _deleted_at(db, issuer, subject))

    # API keys

    async def create_key(
        self,
        user_id: UserId,
        name: str,
        scopes: Iterable[str],
        expires_at: float | None = None,
        profile: str | None = None,
        sources: Iterable[str] | None = None,
        created_with: str | None = None,
        libraries: Iterable[str] | None = None,
    ) -> tuple[KeyRecord, str]:
        """Returns a new key and its secret, which cannot be retrieved later. `sources` restricts the key to these, and
        `libraries` to the user's own library and those of others with these handles."""
        require_printable("name", name)
        if profile is not None:
            require_printable("profile", profile)
        granted = require_scopes(scopes)
        permitted = None
        if sources is not None:
            # Which sources exist depends on the server.
            names = sorted(set(sources))
            invalid = next((one for one in names if not _SOURCE_NAME.match(one)), None)
            if not names or invalid is not None:
                raise InvalidParams(f"sources: expected one or more names of sources, got {(invalid or '')[:40]!r}")
            permitted = " ".join(names)
        secret, key_id = generate_credential(PREFIX), generate_id("k_")

        def operation(db: ControlConnection) -> KeyRecord:
            now = self._clock()
            if expires_at is not None and expires_at <= now:
                raise InvalidParams("expires_at: expected a time in the future, got one in the past")
            user = _existing_user(db, user_id)
            if user.kind == "group":
                raise Conflict(f"{user.name!r} is a group; only people have keys")
            if user.is_disabled:
                raise Conflict(f"user {user.name!r} is disabled; enable the user before creating a key")
            # A scope that no credential of the user can have.
            if beyond := " ".join(sorted(granted - ROLE_SCOPES[user.role])):
                allowed = " ".join(sorted(ROLE_SCOPES[user.role]))
                raise InvalidParams(
                    f"scopes: {user.name} has the role {user.role}, which allows {allowed}; got {beyond}"
                )
            allowed_libraries = None if libraries is None else " ".join(sorted(set(libraries)))
            values = (key_id, user_id, name, hash_credential(secret), " ".join(sorted(granted)), now, expires_at)
            db.execute(
                "INSERT INTO keys (id, user_id, name, hash, scopes, created_at, expires_at, profile, sources, "
                "created_with, libraries) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, profile, permitted, created_with, allowed_libraries),
            )
            return _existing_key(db, key_id)

        return await self._database.write(operation), secret

    async def key_by_hash(self, key_hash: bytes) -> KeyRecord | None:
        return await self._database.read(lambda db: _key(db, "k.hash = ?", key_hash))

    async def key_by_id(self, key_id: str) -> KeyRecord | None:
        return await self._database.read(lambda db: _key(db, "k.id = ?", key_id))

    async def list_keys(self, user_id: UserId | None = None) -> list[KeyRecord]:
        """Returns the keys of one user, or of all users."""
        query = f"{_KEY_QUERY} WHERE k.user_id = ?1 OR ?1 IS NULL ORDER BY u.name, k.created_at, k.id"
        return await self._database.read(lambda db: [_key_record(row) for row in db.execute(query, (user_id,))])

    @control_operation("withdraw")
    def revoke_key(self, db: ControlConnection, key_id: str) -> KeyRecord:
        db.execute("UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (self._clock(), key_id))
        return _existing_key(db, key_id)

    async def delete_key(self, key_id: str) -> None:
        """Deletes a key. Revoked keys stay in lists; this is for keys that were never shown."""
        await self._database.withdraw(lambda db: db.execute("DELETE FROM keys WHERE id = ?", (key_id,)))

    @control_operation("write")
    def touch_keys(self, db: ControlConnection, used_at: Mapping[str, float]) -> None:
        """Updates the last-used times of many keys at once. A time never moves backwards."""
        rows = [(at, key_id) for key_id, at in used_at.items()]
        db.executemany("UPDATE keys SET last_used_at = ?1 WHERE id = ?2 AND coalesce(last_used_at, 0) < ?1", rows)

    # Tokens

    @control_operation("withdraw")
    def revoke_token(self, db: ControlConnection, identity: str, until: float) -> None:
        """Revokes a token until it expires. `identity` is its `jti` or `Claims.identity`."""
        require_printable("identity", identity)
        db.execute("DELETE FROM revoked_tokens WHERE until < ?", (self._clock() - _REVOKED_MARGIN_S,))
        db.execute(
            "INSERT INTO revoked_tokens (identity, until) VALUES (?, ?) "
            "ON CONFLICT (identity) DO UPDATE SET until = excluded.until "
            "WHERE revoked_tokens.until < excluded.until",
            (identity, until),
        )

    async def user_of_token(self, user_id: UserId, identity: str) -> UserRecord | None:
        """Returns the user of a verified token, or None if the user was deleted or the token revoked."""
        return await self._database.read(lambda db: _user(db, f"{_IS_NOT_REVOKED} AND u.id = ?", identity, user_id))


def _withdraw_access(db: ControlConnection, user_id: UserId, now: float) -> None:
    db.execute(
        "UPDATE users SET disabled_at = coalesce(disabled_at, ?1), epoch = epoch + 1, tokens_valid_after = ?1 "
        "WHERE id = ?2",
        (now, user_id),
    )
    db.execute("UPDATE keys SET revoked_at = ? WHERE user_id = ? AND revoked_at IS NULL", (now, user_id))


def select_user(db: ControlConnection, user_id: str) -> UserRecord | None:
    """Returns a user within an operation on the database."""
    return _user(db, "u.id = ?", user_id)


def select_user_by_name(db: ControlConnection, name: str) -> UserRecord | None:
    """Returns the user with a name, in upper or lower case, within an operation on the database."""
    return _user(db, f"{_SAME_NAME} AND {_IS_PERSON}", name)


def select_group(db: ControlConnection, name: str) -> UserRecord | None:
    """Returns the group with a handle, or else with a name, in upper or lower case."""
    condition = f"({_SAME_NAME} OR u.subject = ?) AND u.kind = 'group' ORDER BY u.subject = ? DESC"
    return _user(db, condition, name, name, name)


def remove_user_row(db: ControlConnection, user_id: UserId, now: float) -> UserRecord:
    """Deletes a user within an operation on the database, and keeps the time of it."""
    user = _existing_user(db, user_id)
    db.execute(
        "INSERT INTO deleted_users (subject, issuer, deleted_at) VALUES (?, ?, ?) "
        "ON CONFLICT (subject, issuer) DO UPDATE SET deleted_at = excluded.deleted_at",
        (user.subject, user.issuer, now),
    )
    db.execute("DELETE FROM users WHERE id = ?", (user_id,))
    return user


def insert_user(
    db: ControlConnection,
    name: str,
    issuer: str,
    subject: str,
    now: float,
    role: Role,
    named_by: NamedBy,
    kind: OwnerKind = "person",
) -> UserRecord:
    """Creates a user or a group within an operation on the database. Raises Conflict if the name or the identity
    exists."""
    require_free_name(db, name)
    subject = subject or name
    _require_identity(issuer, subject)
    if _user(db, "u.subject = ? AND u.issuer = ?", subject, issuer):
        raise Conflict(f"a user with the subject {subject!r} already exists")
    user_id = new_user_id()
    db.execute(
        "INSERT INTO users (id, name, issuer, subject, created_at, epoch, tokens_valid_after, files, role, "
        "named_by, notices_seen_at, kind) VALUES (?, ?, ?, ?, ?, 0, ?, '', ?, ?, ?, ?)",
        (user_id, name, issuer, subject, now, _deleted_at(db, issuer, subject), role, named_by, now, kind),
    )
    return _existing_user(db, user_id)


def require_free_name(db: ControlConnection, name: str) -> None:
    """Raises Conflict if a person or a group has the name."""
    require_user_name(name)
    if other := _user(db, _SAME_NAME, name):
        differs = "" if other.name == name else "; names must differ in more than upper and lower case"
        kind = "group" if other.kind == "group" else "user"
        raise Conflict(f"a {kind} named {other.name!r} already exists{differs}")


def _user(db: ControlConnection, condition: str, *values: object) -> UserRecord | None:
    row = db.execute(f"{_USER_QUERY} WHERE {condition}", values).fetchone()
    return UserRecord(*row) if row else None


def _claims_condition(issuer: str, subject: str, configured_issuer: str) -> tuple[str, tuple[str, ...]]:
    """The user without an issuer is the last in the order of the texts."""
    issuers = (issuer, "") if issuer == configured_issuer else (issuer, issuer)
    condition = f"u.subject = ? AND u.issuer IN (?, ?) AND {_IS_PERSON} ORDER BY u.issuer DESC LIMIT 1"
    return condition, (subject, *issuers)


def _existing_user(db: ControlConnection, user_id: UserId) -> UserRecord:
    user = select_user(db, user_id)
    if user is None:
        raise NotFound("user", user_id)
    return user


def _deleted_at(db: ControlConnection, issuer: str, subject: str) -> float:
    """An empty issuer, in the argument or in the table, matches every issuer."""
    row = db.execute(
        "SELECT coalesce(max(deleted_at), 0.0) FROM deleted_users "
        "WHERE subject = ?1 AND (issuer IN (?2, '') OR ?2 = '')",
        (subject, issuer),
    ).fetchone()
    return float(row[0])


def _key(db: ControlConnection, condition: str, value: object) -> KeyRecord | None:
    row = db.execute(f"{_KEY_QUERY} WHERE {condition}", (value,)).fetchone()
    return _key_record(row) if row else None


def _existing_key(db: ControlConnection, key_id: str) -> KeyRecord:
    key = _key(db, "k.id = ?", key_id)
    if key is None:
        raise NotFound("key", key_id)
    return key


def _key_record(row: tuple[Any, ...]) -> KeyRecord:
    values = dict(zip(_KEY_FIELDS, row, strict=False))
    user = UserRecord(*row[len(_KEY_FIELDS) :])
    for name in ("scopes", "sources", "libraries"):
        values[name] = None if values[name] is None else frozenset(values[name].split())
    return KeyRecord(user=user, **values)


def _require_identity(issuer: str, subject: str) -> None:
    require_printable("subject", subject)
    if issuer:
        require_printable("issuer", issuer)
