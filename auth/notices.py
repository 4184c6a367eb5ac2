"""Notices of new ways in to an account: keys, passkeys, connected applications, and browsers that were not used before.

Nothing is stored but the time up to which the owner has seen them: a notice is about something that exists, was created
later, and still gives access. Revoking it ends the notice, too.
"""

import time
from collections.abc import Callable
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
    def __init__(self, database: ControlDatabase, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock

    async def list(self, session: BrowserSession) -> list[Notice]:
        """Returns what the person who is signed in has not dismissed, the oldest first. A browser is not told about
        itself."""
        now = self._clock()
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
        until = min(until, self._clock())

        def operation(db: ControlConnection) -> None:
            db.execute(
                "UPDATE users SET notices_seen_at = ?1 WHERE id = ?2 AND notices_seen_at < ?1", (until, user_id)
            ).close()

        await self._database.write(operation)
