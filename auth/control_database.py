"""The control database: users, keys, accounts, connections and followed sources, which all processes share.

It is a file of SQLite (`auth.sqlite_control`) or a schema of PostgreSQL (`auth.postgres_control`). Each operation is
one function that gets a connection, in one transaction. Operations use only SQL that both engines understand.
"""

import os
import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from config.paths import inherit_owner

T = TypeVar("T")
P = ParamSpec("P")
StoredT = TypeVar("StoredT", bound="_Stored")
Migration = Sequence[str]


class ControlSchema(Struct, frozen=True):
    """The statements that create the schema `first_version`, and the migrations after it. After a release, neither may
    change, because they have already run. Only append migrations."""

    first_version: int
    statements: Migration
    migrations: tuple[Migration, ...] = ()

    @property
    def newest_version(self) -> int:
        return self.first_version + len(self.migrations)

    def migrations_after(self, version: int) -> tuple[Migration, ...]:
        return self.migrations[version - self.first_version :]


class ControlRows(Protocol):
    """The rows of a statement. `rowcount` is the number of rows that it changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class ControlConnection(Protocol):
    def execute(self, sql: str, parameters: Any = (), /) -> ControlRows: ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> ControlRows: ...


class ControlDatabase(Protocol):
    """An open control database."""

    async def read(self, operation: Callable[[ControlConnection], T], /) -> T: ...

    async def write(self, operation: Callable[[ControlConnection], T], /) -> T:
        """Runs the operation in one transaction. No other write runs at the same time, in any process."""
        ...

    async def withdraw(self, operation: Callable[[ControlConnection], T], /) -> T:
        """Like `write`, for operations that withdraw access: they also succeed on a full disk if possible."""
        ...

    def revision(self) -> int:
        """Returns a number that changes after any process has changed the database. Takes microseconds."""
        ...


class _Stored(Protocol):
    _database: ControlDatabase


def control_operation(
    kind: Literal["read", "write", "withdraw"],
) -> Callable[
    [Callable[Concatenate[StoredT, ControlConnection, P], T]], Callable[Concatenate[StoredT, P], Coroutine[Any, Any, T]]
]:
    """Makes a method that gets a connection an operation of the database in `_database`, which callers await."""

    def declare(
        method: Callable[Concatenate[StoredT, ControlConnection, P], T],
    ) -> Callable[Concatenate[StoredT, P], Coroutine[Any, Any, T]]:
        @wraps(method)
        async def run(self: StoredT, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result: T = await getattr(self._database, kind)(lambda db: method(self, db, *args, **kwargs))
            return result

        return run

    return declare


# -- reserved space ----------------------------------------------------------------------------------------------------
# Space that is set aside so that access can be withdrawn on a full disk.
#
# A transaction needs a rollback journal and sometimes new pages. Both exist in advance: a file of zeros next to the
# database, which becomes the journal, and free pages in the database. SQLite takes a journal that begins with a zero
# byte for one that has ended, as `journal_mode = PERSIST` leaves it, and overwrites it, so no other writer of the disk
# can take the space in between.

# No operation that withdraws access adds more than one row to each of two tables.
_SPARE_PAGES = 16
# A journal holds every page of the database at most once, with eight bytes more, and a header.
_JOURNAL_OVERHEAD = 1.01
_STEP_BYTES = 256 * 1024


def reserve_space(control_path: Path, connection: sqlite3.Connection) -> None:
    """Sets space aside as far as the disk has room. Must not be called within a transaction."""
    with suppress(sqlite3.Error):
        if _pragma(connection, "freelist_count") < _SPARE_PAGES:
            # A table that is created and dropped leaves its pages free.
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("CREATE TABLE spare_pages (content BLOB)")
                size = _SPARE_PAGES * _pragma(connection, "page_size")
                connection.execute("INSERT INTO spare_pages VALUES (zeroblob(?))", (size,))
                connection.execute("DROP TABLE spare_pages")
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
    with suppress(OSError):
        # Creates the file, or replaces it if the database has outgrown it.
        path = _reserved_file(control_path)
        # Rounded up, so that the file is not replaced whenever the database grows by a page.
        size = (int(control_path.stat().st_size * _JOURNAL_OVERHEAD) // _STEP_BYTES + 1) * _STEP_BYTES
        if not (path.exists() and path.stat().st_size >= size):
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            inherit_owner(descriptor, path.parent)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, size)
                else:
                    for _ in range(size // _STEP_BYTES):
                        os.write(descriptor, bytes(_STEP_BYTES))
            except OSError:
                path.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)


def use_as_journal(control_path: Path) -> None:
    """Makes the reserved file the journal of the current transaction, which must hold the write lock and must not have
    written anything: then no journal is in use, neither here nor in another process."""
    with suppress(FileNotFoundError):
        _reserved_file(control_path).replace(f"{control_path}-journal")


def _reserved_file(control_path: Path) -> Path:
    return control_path.with_name(f"{control_path.name}-reserved")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


# -- control schema ----------------------------------------------------------------------------------------------------
# The tables of the control database.

_STATEMENTS = (
    # `files` has the kinds of the user's database files, separated by spaces; NULL until those of an older version
    # are listed. `named_by` says who chose the name. `notices_seen_at` says until when the user has seen notices of
    # new keys, passkeys, connections and browsers (see `auth.browser_sessions`).
    """CREATE TABLE users (
        id TEXT PRIMARY KEY NOT NULL,
        name TEXT NOT NULL UNIQUE,
        issuer TEXT NOT NULL,
        subject TEXT NOT NULL,
        created_at REAL NOT NULL,
        disabled_at REAL,
        epoch INTEGER NOT NULL,
        tokens_valid_after REAL NOT NULL,
        files TEXT,
        role TEXT NOT NULL DEFAULT 'writer',
        named_by TEXT NOT NULL DEFAULT 'person',
        notices_seen_at REAL NOT NULL DEFAULT 0,
        UNIQUE (subject, issuer)
    ) WITHOUT ROWID""",
    # `sources` has the sources that the key may use, separated by spaces; NULL means all. Here and in other tables,
    # `created_with` is the id of the API key with which the row was created, if it was one.
    """CREATE TABLE keys (
        id TEXT PRIMARY KEY NOT NULL,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        hash BLOB NOT NULL UNIQUE,
        scopes TEXT NOT NULL,
        created_at REAL NOT NULL,
        expires_at REAL,
        revoked_at REAL,
        last_used_at REAL,
        profile TEXT,
        sources TEXT,
        created_with TEXT
    ) WITHOUT ROWID""",
    "CREATE INDEX keys_of_user ON keys (user_id)",
    """CREATE TABLE revoked_tokens (
        identity TEXT PRIMARY KEY NOT NULL,
        until REAL NOT NULL
    ) WITHOUT ROWID""",
    # When users were deleted. Without it, an old token of a deleted user would create the user again.
    """CREATE TABLE deleted_users (
        subject TEXT NOT NULL,
        issuer TEXT NOT NULL,
        deleted_at REAL NOT NULL,
        PRIMARY KEY (subject, issuer)
    ) WITHOUT ROWID""",
    # NULL means the server's setting, 0 no quota.
    """CREATE TABLE quotas (
        user_id TEXT PRIMARY KEY NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        max_bytes INTEGER,
        max_items INTEGER,
        import_max_bytes INTEGER,
        max_passages INTEGER
    ) WITHOUT ROWID""",
    """CREATE TABLE passwords (
        user_id TEXT PRIMARY KEY NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        hash TEXT NOT NULL,
        changed_at REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE passkeys (
        id BLOB PRIMARY KEY NOT NULL,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        public_key BLOB NOT NULL,
        sign_count INTEGER NOT NULL,
        transports TEXT NOT NULL,
        created_at REAL NOT NULL,
        last_used_at REAL
    ) WITHOUT ROWID""",
    "CREATE INDEX passkeys_of_user ON passkeys (user_id)",
    # Single-use links: `setup` creates the first administrator, `invitation` a user, `reset` sets a password.
    """CREATE TABLE account_links (
        hash BLOB PRIMARY KEY NOT NULL,
        kind TEXT NOT NULL,
        user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
        created_by TEXT REFERENCES users (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        created_at REAL NOT NULL,
        expires_at REAL NOT NULL,
        used_at REAL,
        created_with TEXT
    ) WITHOUT ROWID""",
    # `needs_passkey`: a password alone has started the session, where a passkey is required, too.
    """CREATE TABLE browser_sessions (
        hash BLOB PRIMARY KEY NOT NULL,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        epoch INTEGER NOT NULL,
        created_at REAL NOT NULL,
        used_at REAL NOT NULL,
        address TEXT NOT NULL,
        agent TEXT NOT NULL,
        is_new_browser INTEGER NOT NULL DEFAULT 0,
        needs_passkey INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "CREATE INDEX browser_sessions_of_user ON browser_sessions (user_id)",
    # Browsers in which a user has signed in before; see `auth.accounts.service`.
    """CREATE TABLE known_browsers (
        hash BLOB PRIMARY KEY NOT NULL,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        used_at REAL NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX known_browsers_of_user ON known_browsers (user_id)",
    # `metadata` is the JSON document of RFC 7591 that the client registered.
    """CREATE TABLE oauth_clients (
        id TEXT PRIMARY KEY NOT NULL,
        kind TEXT NOT NULL,
        secret_hash BLOB,
        metadata TEXT NOT NULL,
        created_at REAL NOT NULL,
        last_used_at REAL
    ) WITHOUT ROWID""",
    # A connection: what one user allowed one client.
    """CREATE TABLE oauth_grants (
        id TEXT PRIMARY KEY NOT NULL,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        epoch INTEGER NOT NULL,
        client_id TEXT NOT NULL,
        client_name TEXT NOT NULL,
        scopes TEXT NOT NULL,
        profile TEXT,
        sources TEXT,
        resource TEXT NOT NULL,
        redirect_uri TEXT NOT NULL,
        created_at REAL NOT NULL,
        last_used_at REAL,
        revoked_at REAL,
        auth_method TEXT NOT NULL DEFAULT 'none'
    ) WITHOUT ROWID""",
    "CREATE INDEX oauth_grants_of_user ON oauth_grants (user_id)",
    "CREATE INDEX oauth_grants_of_client ON oauth_grants (client_id)",
    """CREATE TABLE oauth_codes (
        hash BLOB PRIMARY KEY NOT NULL,
        grant_id TEXT NOT NULL REFERENCES oauth_grants (id) ON DELETE CASCADE,
        redirect_uri TEXT NOT NULL,
        code_challenge TEXT NOT NULL,
        expires_at REAL NOT NULL,
        used_at REAL
    ) WITHOUT ROWID""",
    "CREATE INDEX oauth_codes_of_grant ON oauth_codes (grant_id)",
    # `parent` is the refresh token that was exchanged for this token.
    """CREATE TABLE oauth_tokens (
        hash BLOB PRIMARY KEY NOT NULL,
        grant_id TEXT NOT NULL REFERENCES oauth_grants (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        parent BLOB,
        scopes TEXT NOT NULL,
        created_at REAL NOT NULL,
        expires_at REAL NOT NULL,
        used_at REAL
    ) WITHOUT ROWID""",
    "CREATE INDEX oauth_tokens_of_grant ON oauth_tokens (grant_id)",
    "CREATE INDEX oauth_tokens_by_expiry ON oauth_tokens (expires_at)",
    """CREATE TABLE oauth_device_codes (
        hash BLOB PRIMARY KEY NOT NULL,
        user_code TEXT NOT NULL UNIQUE,
        client_id TEXT NOT NULL,
        scopes TEXT NOT NULL,
        resource TEXT NOT NULL,
        expires_at REAL NOT NULL,
        polled_at REAL,
        interval_s REAL NOT NULL,
        state TEXT NOT NULL,
        grant_id TEXT REFERENCES oauth_grants (id) ON DELETE CASCADE
    ) WITHOUT ROWID""",
    # Sources that are kept current. What was read from them is stored in the user's library.
    # Those with `needs_admin` are read only while their owner is an administrator, who may read any path.
    """CREATE TABLE follows (
        id TEXT PRIMARY KEY NOT NULL,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        location TEXT NOT NULL,
        format TEXT,
        interval_s REAL,
        keeps_deleted INTEGER NOT NULL,
        writes_back INTEGER NOT NULL,
        is_confined INTEGER NOT NULL,
        created_at REAL NOT NULL,
        paused_at REAL,
        run_requested_at REAL,
        deployment TEXT,
        needs_admin INTEGER NOT NULL DEFAULT 0,
        created_with TEXT,
        UNIQUE (user_id, location)
    ) WITHOUT ROWID""",
    # The signed tokens with which clients authenticated themselves, so that none is accepted twice.
    "CREATE TABLE oauth_assertions (hash BLOB PRIMARY KEY NOT NULL, expires_at REAL NOT NULL) WITHOUT ROWID",
    # Deployments of tldw, whose users' folders are followed sources. A user who no longer follows theirs is excluded.
    """CREATE TABLE followed_deployments (
        id TEXT PRIMARY KEY NOT NULL,
        location TEXT NOT NULL UNIQUE,
        mapping TEXT NOT NULL,
        user_name TEXT NOT NULL,
        creates_users INTEGER NOT NULL,
        keeps_deleted INTEGER NOT NULL,
        interval_s REAL,
        created_at REAL NOT NULL,
        paused_at REAL,
        created_with TEXT
    ) WITHOUT ROWID""",
    """CREATE TABLE deployment_exclusions (
        deployment TEXT NOT NULL,
        location TEXT NOT NULL,
        PRIMARY KEY (deployment, location)
    ) WITHOUT ROWID""",
)
# Groups and shares; see `auth.sharing`. Statements that both engines run.
_SHARING = (
    # A group is a row of `users`, because its library is like that of a person.
    "ALTER TABLE users ADD COLUMN kind TEXT NOT NULL DEFAULT 'person'",
    # When the credential was issued whose claims last changed the memberships of the user.
    "ALTER TABLE users ADD COLUMN claims_at REAL NOT NULL DEFAULT 0",
    # When all access of the user ends by itself, as that of a demo account does.
    "ALTER TABLE users ADD COLUMN expires_at REAL",
    # The handles of the libraries of others that the credential may use, separated by spaces. NULL means all for a key,
    # and none for a grant.
    "ALTER TABLE keys ADD COLUMN libraries TEXT",
    "ALTER TABLE oauth_grants ADD COLUMN libraries TEXT",
    # `issuer` is set while a membership comes from the claims of an identity provider, and ends with them.
    """CREATE TABLE group_members (
        group_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        added_by TEXT REFERENCES users (id) ON DELETE SET NULL,
        added_at REAL NOT NULL,
        issuer TEXT,
        PRIMARY KEY (group_id, user_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX group_members_of_user ON group_members (user_id)",
    # For a named person, or for whoever has the link whose secret has this hash.
    """CREATE TABLE group_invitations (
        id TEXT PRIMARY KEY NOT NULL,
        group_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
        hash BLOB UNIQUE,
        role TEXT NOT NULL,
        uses_left INTEGER NOT NULL,
        created_by TEXT REFERENCES users (id) ON DELETE CASCADE,
        created_at REAL NOT NULL,
        expires_at REAL NOT NULL,
        created_with TEXT
    ) WITHOUT ROWID""",
    "CREATE INDEX group_invitations_of_group ON group_invitations (group_id)",
    "CREATE INDEX group_invitations_of_user ON group_invitations (user_id)",
    # `to_id` is a person or a group.
    """CREATE TABLE shares (
        id TEXT PRIMARY KEY NOT NULL,
        owner_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        to_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        rule_by TEXT NOT NULL,
        rule_value TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at REAL NOT NULL,
        created_with TEXT,
        UNIQUE (owner_id, to_id, rule_by, rule_value)
    ) WITHOUT ROWID""",
    "CREATE INDEX shares_to ON shares (to_id)",
)
# The language models that users chose for their own questions; see `auth.model_endpoints`.
_MODELS = (
    """CREATE TABLE model_endpoints (
        user_id TEXT PRIMARY KEY NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        url TEXT NOT NULL,
        model TEXT NOT NULL,
        key TEXT NOT NULL
    ) WITHOUT ROWID""",
)
CONTROL_SCHEMA = ControlSchema(first_version=12, statements=_STATEMENTS, migrations=(_SHARING, _MODELS))
