"""The tables of the control database, as numbered migrations."""

import sqlite3

from auth.control_database import Migration

MIGRATIONS: tuple[Migration, ...] = (
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
        # When users were deleted: without it, an old token of a deleted user would create the user again.
        """CREATE TABLE departed (
            subject TEXT NOT NULL,
            issuer TEXT NOT NULL,
            departed_at REAL NOT NULL,
            PRIMARY KEY (subject, issuer)
        ) WITHOUT ROWID""",
    ),
    ("ALTER TABLE keys ADD COLUMN profile TEXT",),
    (
        "ALTER TABLE departed RENAME TO deleted_users",
        "ALTER TABLE deleted_users RENAME COLUMN departed_at TO deleted_at",
    ),
    # The kinds of the user's database files, separated by spaces; NULL until the files of an older version are listed.
    ("ALTER TABLE users ADD COLUMN files TEXT",),
    # Accounts, browser sessions, and the connections that people grant to OAuth clients. Secrets are stored as hashes.
    (
        "ALTER TABLE users ADD COLUMN role TEXT NOT NULL DEFAULT 'writer'",
        """UPDATE users SET role = 'admin' WHERE id IN
            (SELECT user_id FROM keys WHERE ' ' || scopes || ' ' LIKE '% admin %' AND revoked_at IS NULL)""",
        # The sources that the key may use, separated by spaces; NULL means all.
        "ALTER TABLE keys ADD COLUMN sources TEXT",
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
            used_at REAL
        ) WITHOUT ROWID""",
        """CREATE TABLE browser_sessions (
            hash BLOB PRIMARY KEY NOT NULL,
            user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
            epoch INTEGER NOT NULL,
            created_at REAL NOT NULL,
            used_at REAL NOT NULL,
            address TEXT NOT NULL,
            agent TEXT NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX browser_sessions_of_user ON browser_sessions (user_id)",
        # Browsers in which a user has signed in before; see `auth.accounts.passwords`.
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
            revoked_at REAL
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
    ),
    # Sources that are kept current. What was read from them is stored in the user's library.
    (
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
            UNIQUE (user_id, location)
        ) WITHOUT ROWID""",
    ),
    # How a client authenticates itself, and the signed tokens with which it did, so that none is accepted twice.
    (
        "ALTER TABLE oauth_grants ADD COLUMN auth_method TEXT NOT NULL DEFAULT 'none'",
        "CREATE TABLE oauth_assertions (hash BLOB PRIMARY KEY NOT NULL, expires_at REAL NOT NULL) WITHOUT ROWID",
    ),
    # Deployments of tldw, whose users' folders are followed sources. A user who no longer follows theirs is excluded.
    (
        """CREATE TABLE followed_deployments (
            id TEXT PRIMARY KEY NOT NULL,
            location TEXT NOT NULL UNIQUE,
            mapping TEXT NOT NULL,
            user_name TEXT NOT NULL,
            creates_users INTEGER NOT NULL,
            keeps_deleted INTEGER NOT NULL,
            interval_s REAL,
            created_at REAL NOT NULL,
            paused_at REAL
        ) WITHOUT ROWID""",
        "ALTER TABLE follows ADD COLUMN deployment TEXT",
        """CREATE TABLE deployment_exclusions (
            deployment TEXT NOT NULL,
            location TEXT NOT NULL,
            PRIMARY KEY (deployment, location)
        ) WITHOUT ROWID""",
    ),
    # Who chose the name of a user, and which followed sources need an administrator as owner. Users of an issuer chose
    # their names, or their identity provider did, unless the operator says otherwise; administrators may read any path.
    (
        "ALTER TABLE users ADD COLUMN named_by TEXT NOT NULL DEFAULT 'person'",
        "UPDATE users SET named_by = 'operator' WHERE issuer = '' OR role = 'admin'",
        """DELETE FROM follows WHERE deployment IN (SELECT id FROM followed_deployments WHERE mapping = 'id')
            AND user_id IN (SELECT id FROM users WHERE named_by = 'person')""",
        "ALTER TABLE follows ADD COLUMN needs_admin INTEGER NOT NULL DEFAULT 0",
        """UPDATE follows SET needs_admin = 1 WHERE is_confined = 0 AND deployment IS NULL
            AND user_id IN (SELECT id FROM users WHERE role = 'admin')""",
    ),
    # Until when a user has seen notices of new keys, passkeys, connections and browsers; see `auth.notices`.
    (
        "ALTER TABLE users ADD COLUMN notices_seen_at REAL NOT NULL DEFAULT 0",
        "UPDATE users SET notices_seen_at = CAST(strftime('%s', 'now') AS REAL)",
        "ALTER TABLE browser_sessions ADD COLUMN is_new_browser INTEGER NOT NULL DEFAULT 0",
    ),
    # The id of the API key with which it was created, if it was one; see `auth.notices`.
    (
        "ALTER TABLE keys ADD COLUMN created_with TEXT",
        "ALTER TABLE follows ADD COLUMN created_with TEXT",
        "ALTER TABLE followed_deployments ADD COLUMN created_with TEXT",
        "ALTER TABLE account_links ADD COLUMN created_with TEXT",
    ),
    # A session that a password alone has started, where a passkey is required, too.
    ("ALTER TABLE browser_sessions ADD COLUMN needs_passkey INTEGER NOT NULL DEFAULT 0",),
)
CONTROL_SCHEMA = len(MIGRATIONS)


def migrate_control_to(control: sqlite3.Connection, version: int) -> None:
    """Creates the tables of a schema version in an empty database."""
    for statements in MIGRATIONS[:version]:
        for statement in statements:
            control.execute(statement)
