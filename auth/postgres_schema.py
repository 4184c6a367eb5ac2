"""The tables of the control data in PostgreSQL, as numbered migrations of the schema `florilegium`.

They have the columns of `auth.control_schema`, so that both engines run the same statements. Texts are compared by
their bytes, as in SQLite.
"""

from auth.control_database import Migration

CONTROL_SCHEMA_NAME = "florilegium"

_TYPES = {
    "TEXT": 'TEXT COLLATE "C"',
    "REAL": "DOUBLE PRECISION",
    "INTEGER": "BIGINT",
    "BLOB": "BYTEA",
}
_OWNER = "NOT NULL REFERENCES users (id) ON DELETE CASCADE"


def _table(name: str, *columns: str) -> str:
    """Returns a statement for PostgreSQL. A column has a name, a type as in SQLite, and constraints."""
    lines = []
    for column in columns:
        words = column.split(" ", 2)
        lines.append(" ".join((words[0], _TYPES.get(words[1], words[1]), *words[2:])))
    return f"CREATE TABLE {name} ({', '.join(lines)})"


POSTGRES_MIGRATIONS: tuple[Migration, ...] = (
    (
        _table(
            "users",
            "id TEXT PRIMARY KEY",
            "name TEXT NOT NULL UNIQUE",
            "issuer TEXT NOT NULL",
            "subject TEXT NOT NULL",
            "created_at REAL NOT NULL",
            "disabled_at REAL",
            "epoch INTEGER NOT NULL",
            "tokens_valid_after REAL NOT NULL",
            "files TEXT",
            "role TEXT NOT NULL DEFAULT 'writer'",
            "UNIQUE (subject, issuer)",
        ),
        # People sign in with their name in any case.
        "CREATE INDEX users_by_name ON users (lower(name))",
        _table(
            "keys",
            "id TEXT PRIMARY KEY",
            f"user_id TEXT {_OWNER}",
            "name TEXT NOT NULL",
            "hash BLOB NOT NULL UNIQUE",
            "scopes TEXT NOT NULL",
            "created_at REAL NOT NULL",
            "expires_at REAL",
            "revoked_at REAL",
            "last_used_at REAL",
            "profile TEXT",
            "sources TEXT",
        ),
        "CREATE INDEX keys_of_user ON keys (user_id)",
        _table("revoked_tokens", "identity TEXT PRIMARY KEY", "until REAL NOT NULL"),
        _table(
            "deleted_users",
            "subject TEXT NOT NULL",
            "issuer TEXT NOT NULL",
            "deleted_at REAL NOT NULL",
            "PRIMARY KEY (subject, issuer)",
        ),
        _table(
            "quotas",
            f"user_id TEXT PRIMARY KEY {_OWNER}",
            "max_bytes INTEGER",
            "max_items INTEGER",
            "import_max_bytes INTEGER",
            "max_passages INTEGER",
        ),
        _table("passwords", f"user_id TEXT PRIMARY KEY {_OWNER}", "hash TEXT NOT NULL", "changed_at REAL NOT NULL"),
        _table(
            "passkeys",
            "id BLOB PRIMARY KEY",
            f"user_id TEXT {_OWNER}",
            "name TEXT NOT NULL",
            "public_key BLOB NOT NULL",
            "sign_count INTEGER NOT NULL",
            "transports TEXT NOT NULL",
            "created_at REAL NOT NULL",
            "last_used_at REAL",
        ),
        "CREATE INDEX passkeys_of_user ON passkeys (user_id)",
        _table(
            "account_links",
            "hash BLOB PRIMARY KEY",
            "kind TEXT NOT NULL",
            "user_id TEXT REFERENCES users (id) ON DELETE CASCADE",
            "created_by TEXT REFERENCES users (id) ON DELETE CASCADE",
            "name TEXT NOT NULL",
            "role TEXT NOT NULL",
            "created_at REAL NOT NULL",
            "expires_at REAL NOT NULL",
            "used_at REAL",
        ),
        _table(
            "browser_sessions",
            "hash BLOB PRIMARY KEY",
            f"user_id TEXT {_OWNER}",
            "epoch INTEGER NOT NULL",
            "created_at REAL NOT NULL",
            "used_at REAL NOT NULL",
            "address TEXT NOT NULL",
            "agent TEXT NOT NULL",
        ),
        "CREATE INDEX browser_sessions_of_user ON browser_sessions (user_id)",
        _table("known_browsers", "hash BLOB PRIMARY KEY", f"user_id TEXT {_OWNER}", "used_at REAL NOT NULL"),
        "CREATE INDEX known_browsers_of_user ON known_browsers (user_id)",
        _table(
            "oauth_clients",
            "id TEXT PRIMARY KEY",
            "kind TEXT NOT NULL",
            "secret_hash BLOB",
            "metadata TEXT NOT NULL",
            "created_at REAL NOT NULL",
            "last_used_at REAL",
        ),
        _table(
            "oauth_grants",
            "id TEXT PRIMARY KEY",
            f"user_id TEXT {_OWNER}",
            "epoch INTEGER NOT NULL",
            "client_id TEXT NOT NULL",
            "client_name TEXT NOT NULL",
            "scopes TEXT NOT NULL",
            "profile TEXT",
            "sources TEXT",
            "resource TEXT NOT NULL",
            "redirect_uri TEXT NOT NULL",
            "created_at REAL NOT NULL",
            "last_used_at REAL",
            "revoked_at REAL",
            "auth_method TEXT NOT NULL DEFAULT 'none'",
        ),
        "CREATE INDEX oauth_grants_of_user ON oauth_grants (user_id)",
        "CREATE INDEX oauth_grants_of_client ON oauth_grants (client_id)",
        _table(
            "oauth_codes",
            "hash BLOB PRIMARY KEY",
            "grant_id TEXT NOT NULL REFERENCES oauth_grants (id) ON DELETE CASCADE",
            "redirect_uri TEXT NOT NULL",
            "code_challenge TEXT NOT NULL",
            "expires_at REAL NOT NULL",
            "used_at REAL",
        ),
        "CREATE INDEX oauth_codes_of_grant ON oauth_codes (grant_id)",
        _table(
            "oauth_tokens",
            "hash BLOB PRIMARY KEY",
            "grant_id TEXT NOT NULL REFERENCES oauth_grants (id) ON DELETE CASCADE",
            "kind TEXT NOT NULL",
            "parent BLOB",
            "scopes TEXT NOT NULL",
            "created_at REAL NOT NULL",
            "expires_at REAL NOT NULL",
            "used_at REAL",
        ),
        "CREATE INDEX oauth_tokens_of_grant ON oauth_tokens (grant_id)",
        "CREATE INDEX oauth_tokens_by_expiry ON oauth_tokens (expires_at)",
        _table(
            "oauth_device_codes",
            "hash BLOB PRIMARY KEY",
            "user_code TEXT NOT NULL UNIQUE",
            "client_id TEXT NOT NULL",
            "scopes TEXT NOT NULL",
            "resource TEXT NOT NULL",
            "expires_at REAL NOT NULL",
            "polled_at REAL",
            "interval_s REAL NOT NULL",
            "state TEXT NOT NULL",
            "grant_id TEXT REFERENCES oauth_grants (id) ON DELETE CASCADE",
        ),
        _table(
            "follows",
            "id TEXT PRIMARY KEY",
            f"user_id TEXT {_OWNER}",
            "location TEXT NOT NULL",
            "format TEXT",
            "interval_s REAL",
            "keeps_deleted INTEGER NOT NULL",
            "writes_back INTEGER NOT NULL",
            "is_confined INTEGER NOT NULL",
            "created_at REAL NOT NULL",
            "paused_at REAL",
            "run_requested_at REAL",
            "UNIQUE (user_id, location)",
        ),
        _table("oauth_assertions", "hash BLOB PRIMARY KEY", "expires_at REAL NOT NULL"),
        # The audit log, which is a file of its own in SQLite.
        _table(
            "events",
            "id INTEGER PRIMARY KEY",
            "time REAL NOT NULL",
            "action TEXT NOT NULL",
            "user_id TEXT NOT NULL",
            "client TEXT NOT NULL",
            "target TEXT NOT NULL",
            "address TEXT NOT NULL",
            "detail TEXT NOT NULL",
            "count INTEGER NOT NULL",
        ),
        "CREATE INDEX events_of_user ON events (user_id, id)",
        "CREATE INDEX events_by_time ON events (time)",
        # The schema of each user's library. A row is kept until the schema is dropped, also after its user is deleted.
        _table(
            "libraries",
            "user_id TEXT PRIMARY KEY",
            "schema_name TEXT NOT NULL UNIQUE",
            "schema_version INTEGER NOT NULL",
            "created_at REAL NOT NULL",
        ),
    ),
    # Deployments of tldw, whose users' folders are followed sources. A user who no longer follows theirs is excluded.
    (
        _table(
            "followed_deployments",
            "id TEXT PRIMARY KEY",
            "location TEXT NOT NULL UNIQUE",
            "mapping TEXT NOT NULL",
            "user_name TEXT NOT NULL",
            "creates_users INTEGER NOT NULL",
            "keeps_deleted INTEGER NOT NULL",
            "interval_s REAL",
            "created_at REAL NOT NULL",
            "paused_at REAL",
        ),
        "ALTER TABLE follows ADD COLUMN deployment TEXT",
        _table(
            "deployment_exclusions",
            "deployment TEXT NOT NULL",
            "location TEXT NOT NULL",
            "PRIMARY KEY (deployment, location)",
        ),
    ),
    # The libraries that `florilegium migrate-store` has copied here. With another `mark`, the original has changed.
    (
        _table(
            "store_copies",
            "user_id TEXT PRIMARY KEY",
            "mark TEXT NOT NULL",
            "rows INTEGER NOT NULL",
            "copied_at REAL NOT NULL",
        ),
    ),
    # Users with text to embed, the process that does it, and until when others leave it to that process.
    (_table("embedding_users", "user_id TEXT PRIMARY KEY", "process TEXT NOT NULL", "until REAL NOT NULL"),),
    # As in `auth.control_schema`: who chose the name of a user, and which followed sources need an administrator.
    (
        """ALTER TABLE users ADD COLUMN named_by TEXT COLLATE "C" NOT NULL DEFAULT 'person'""",
        "UPDATE users SET named_by = 'operator' WHERE issuer = '' OR role = 'admin'",
        """DELETE FROM follows WHERE deployment IN (SELECT id FROM followed_deployments WHERE mapping = 'id')
            AND user_id IN (SELECT id FROM users WHERE named_by = 'person')""",
        "ALTER TABLE follows ADD COLUMN needs_admin BIGINT NOT NULL DEFAULT 0",
        """UPDATE follows SET needs_admin = 1 WHERE is_confined = 0 AND deployment IS NULL
            AND user_id IN (SELECT id FROM users WHERE role = 'admin')""",
    ),
    # Until when a user has seen notices of new keys, passkeys, connections and browsers; see `auth.notices`.
    (
        "ALTER TABLE users ADD COLUMN notices_seen_at DOUBLE PRECISION NOT NULL DEFAULT 0",
        "UPDATE users SET notices_seen_at = extract(epoch FROM now())",
        "ALTER TABLE browser_sessions ADD COLUMN is_new_browser BIGINT NOT NULL DEFAULT 0",
    ),
    # The id of the API key with which it was created, if it was one; see `auth.notices`.
    (
        'ALTER TABLE keys ADD COLUMN created_with TEXT COLLATE "C"',
        'ALTER TABLE follows ADD COLUMN created_with TEXT COLLATE "C"',
        'ALTER TABLE followed_deployments ADD COLUMN created_with TEXT COLLATE "C"',
        'ALTER TABLE account_links ADD COLUMN created_with TEXT COLLATE "C"',
    ),
    # A session that a password alone has started, where a passkey is required, too.
    ("ALTER TABLE browser_sessions ADD COLUMN needs_passkey BIGINT NOT NULL DEFAULT 0",),
)
