"""The tables of the control database."""

from auth.control_database import ControlSchema

_STATEMENTS = (
    # `files` has the kinds of the user's database files, separated by spaces; NULL until those of an older version
    # are listed. `named_by` says who chose the name. `notices_seen_at` says until when the user has seen notices of
    # new keys, passkeys, connections and browsers (see `auth.notices`).
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
CONTROL_SCHEMA = ControlSchema(first_version=12, statements=_STATEMENTS)
