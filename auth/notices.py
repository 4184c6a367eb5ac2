"""Notices of new ways in to an account: keys, passkeys, connected applications, and browsers that were not used before.

Nothing is stored but the time up to which the owner has seen them: a notice is about something that exists, was created
later, and still gives access. Revoking it ends the notice, too.
"""

import time
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from auth.browser_sessions import BrowserSession
from auth.control_database import ControlConnection, ControlDatabase
from config.paths import UserId
from config.settings import Settings

NoticeKind = Literal["key", "passkey", "connection", "browser"]
# What is shown at once. Those that do not fit appear when the others are dismissed or revoked.
_SHOWN_MAX = 5


class Notice(Struct, frozen=True):
    """`name` is that of the key, passkey or application, or the User-Agent of a browser, whose `address` is known."""

    kind: NoticeKind
    name: str
    address: str
    created_at: float


_QUERY = """
    SELECT kind, name, address, created_at FROM (
        SELECT 'key' AS kind, name, '' AS address, created_at, user_id FROM keys
            WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
        UNION ALL SELECT 'passkey', name, '', created_at, user_id FROM passkeys
        UNION ALL SELECT 'connection', client_name, '', created_at, user_id FROM oauth_grants WHERE revoked_at IS NULL
        UNION ALL SELECT 'browser', agent, address, created_at, user_id FROM browser_sessions
            WHERE is_new_browser = 1 AND hash <> :session AND used_at > :oldest_use AND created_at > :oldest
    ) AS created
    WHERE user_id = :user AND created_at > (SELECT notices_seen_at FROM users WHERE id = :user)
    ORDER BY created_at LIMIT :shown_max"""


class Notices:
    def __init__(self, database: ControlDatabase, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    async def list(self, session: BrowserSession) -> list[Notice]:
        """Returns what the person who is signed in has not dismissed, the oldest first. A browser is not told about
        itself."""
        now = time.time()
        values = {
            "now": now,
            "user": session.user.id,
            "session": bytes.fromhex(session.id),
            "oldest_use": now - self._settings.browser_session_idle_s,
            "oldest": now - self._settings.browser_session_lifetime_s,
            "shown_max": _SHOWN_MAX,
        }
        rows = await self._database.read(lambda db: db.execute(_QUERY, values).fetchall())
        return [Notice(*row) for row in rows]

    async def dismiss(self, user_id: UserId, until: float) -> None:
        """Dismisses the notices of what was created until then: those that were shown, and none that came meanwhile."""
        until = min(until, time.time())

        def operation(db: ControlConnection) -> None:
            db.execute(
                "UPDATE users SET notices_seen_at = ?1 WHERE id = ?2 AND notices_seen_at < ?1", (until, user_id)
            ).close()

        await self._database.write(operation)


# -- key creations -----------------------------------------------------------------------------------------------------
# What was created with an API key: keys, followed sources, and links for accounts.
#
# A thief who had a key may have left them behind, so revoking the key is not enough. Applications are connected by
# people who are signed in, never with a key.

CreationKind = Literal["key", "followed source", "followed deployment", "invitation", "password reset link"]


class KeyCreation(Struct, frozen=True):
    """Something that was created with a key and still has an effect. `user_id` is its owner, if it has one."""

    kind: CreationKind
    id: str
    name: str
    created_at: float
    user_id: str | None = None


class KeyCreations:
    def __init__(self, database: ControlDatabase) -> None:
        self._database = database

    async def list(self, key_id: str) -> Sequence[KeyCreation]:
        """Returns what was created with the key, and with keys that were created with it, the oldest first."""
        return await self._database.read(lambda db: _select(db, key_id, time.time()))

    async def revoke(self, key_id: str) -> Sequence[KeyCreation]:
        """Revokes, removes or deletes all of it, and returns what it was. Items that were read from followed sources
        stay in their libraries."""

        def operation(db: ControlConnection) -> Sequence[KeyCreation]:
            now = time.time()
            creations = _select(db, key_id, now)
            for one in creations:
                match one.kind:
                    case "key":
                        db.execute("UPDATE keys SET revoked_at = ? WHERE id = ?", (now, one.id))
                    case "followed source":
                        db.execute("DELETE FROM follows WHERE id = ?", (one.id,))
                    case "followed deployment":
                        db.execute("DELETE FROM follows WHERE deployment = ?", (one.id,))
                        db.execute("DELETE FROM deployment_exclusions WHERE deployment = ?", (one.id,))
                        db.execute("DELETE FROM followed_deployments WHERE id = ?", (one.id,))
                    case "invitation" | "password reset link":
                        db.execute("DELETE FROM account_links WHERE hash = ?", (bytes.fromhex(one.id),))
            return creations

        return await self._database.withdraw(operation)


def _select(db: ControlConnection, key_id: str, now: float) -> list[KeyCreation]:
    found: list[KeyCreation] = []
    # Revoked keys count as well: what was created with them may still be there. A key is older than what it created,
    # so this ends.
    keys = [key_id]
    for creator in keys:
        for created_id, name, created_at, user_id, is_valid in db.execute(
            "SELECT id, name, created_at, user_id, revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) "
            "FROM keys WHERE created_with = ?",
            (now, creator),
        ).fetchall():
            keys.append(created_id)
            if is_valid:
                found.append(KeyCreation("key", created_id, name, created_at, user_id))
        found += [
            KeyCreation("followed source", *row)
            for row in db.execute(
                "SELECT id, location, created_at, user_id FROM follows WHERE created_with = ?", (creator,)
            ).fetchall()
        ]
        found += [
            KeyCreation("followed deployment", *row)
            for row in db.execute(
                "SELECT id, location, created_at FROM followed_deployments WHERE created_with = ?", (creator,)
            ).fetchall()
        ]
        for digest, kind, name, created_at in db.execute(
            "SELECT hash, kind, name, created_at FROM account_links "
            "WHERE created_with = ? AND used_at IS NULL AND expires_at > ?",
            (creator, now),
        ).fetchall():
            link: CreationKind = "invitation" if kind == "invitation" else "password reset link"
            found.append(KeyCreation(link, digest.hex(), name, created_at))
    return sorted(found, key=lambda one: (one.created_at, one.id))
