"""The sessions of people who signed in with a browser.

A session is identified by a random secret, which the browser keeps in a cookie and the server stores as a hash. It ends
when it is not used for a while, at a fixed time after sign-in, and when the user's access is withdrawn.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal

from loguru import logger
from msgspec import Struct, structs

from auth.accounts.service import SignInFailed
from auth.context import ROLE_SCOPES, ClientId, Principal
from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.registry import UserRecord, select_user
from config.errors import StorageError
from config.paths import UserId
from config.settings import Settings

# When a session was last used is stored at most once in this time, because each change is a write to the disk.
_TOUCH_INTERVAL_S = 60.0
_TEXT_MAX_CHARS = 200
_CLIENT = ClientId("browser")


def session_cookie_name(settings: Settings) -> str:
    """Returns the name of the cookie with the secret. Browsers accept the prefix only from the host itself, over https,
    so that no other host of the domain can set the cookie (RFC 6265bis section 4.1.3)."""
    return "__Host-florilegium" if settings.base_url.startswith("https:") else "florilegium"


class BrowserSession(Struct, frozen=True):
    """A valid session. `csrf_token` must be in every form that the browser sends. With `needs_passkey`, the person has
    only entered a password so far, and the server requires a passkey, too: the session gives access to nothing."""

    id: str
    user: UserRecord
    csrf_token: str
    created_at: float
    used_at: float
    address: str
    agent: str
    needs_passkey: bool = False


# Browsers in which a user can be signed in; the one used least recently is signed out. People have a few, and browsers
# that delete cookies leave sessions behind.
_SESSIONS_MAX = 50


class BrowserSessions:
    def __init__(
        self,
        database: ControlDatabase,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        sessions_max: int = _SESSIONS_MAX,
    ) -> None:
        self._database = database
        self._idle_s = settings.browser_session_idle_s
        self._lifetime_s = settings.browser_session_lifetime_s
        self._requires_passkey = settings.password_requires_passkey
        self._sessions_max = sessions_max
        self._clock = clock

    @control_operation("write")
    def create(
        self,
        db: ControlConnection,
        user: UserRecord,
        address: str = "",
        agent: str = "",
        *,
        is_new_browser: bool = False,
        needs_passkey: bool = False,
        password_changed_at: float | None = None,
    ) -> str:
        """Starts a session and returns its secret. Sessions that have ended are deleted. At the limit, the sessions of
        the user that were used least recently end. The user's other browsers show a notice of a new one.

        Raises SignInFailed if the user signed in with a password that was set at `password_changed_at`, and it was
        changed meanwhile. A change ends the sessions that it finds; comparing a password takes so long that someone who
        knows the old one could otherwise sign in across the change.
        """
        secret, now = secrets.token_urlsafe(32), self._clock()
        row = (hashlib.sha256(secret.encode()).digest(), user.id, user.epoch, now, now, _short(address), _short(agent))
        if password_changed_at is not None:
            query = "SELECT 1 FROM passwords WHERE user_id = ? AND changed_at = ?"
            if db.execute(query, (user.id, password_changed_at)).fetchone() is None:
                raise SignInFailed(user_id=user.id)
        db.execute(
            "DELETE FROM browser_sessions WHERE used_at < ? OR created_at < ?",
            (now - self._idle_s, now - self._lifetime_s),
        )
        db.execute(
            "DELETE FROM browser_sessions WHERE user_id = ?1 AND hash NOT IN (SELECT hash FROM browser_sessions "
            "WHERE user_id = ?1 ORDER BY used_at DESC, created_at DESC LIMIT ?2)",
            (user.id, self._sessions_max - 1),
        )
        db.execute(
            "INSERT INTO browser_sessions (hash, user_id, epoch, created_at, used_at, address, agent, "
            "is_new_browser, needs_passkey) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, int(is_new_browser), int(needs_passkey)),
        )
        return secret

    async def find(self, secret: str) -> BrowserSession | None:
        """Returns the session of a secret, or None if it ended, was never created, or its user lost access."""
        digest, now = hashlib.sha256(secret.encode()).digest(), self._clock()
        session = next(iter(await self._database.read(lambda db: self._select(db, "hash = ?", digest))), None)
        if session is None:
            return None
        if now - session.used_at >= _TOUCH_INTERVAL_S:
            # On a full disk, people must still be able to read, and to withdraw access.
            try:
                await self._database.write(
                    lambda db: db.execute("UPDATE browser_sessions SET used_at = ? WHERE hash = ?", (now, digest))
                )
            except StorageError as error:
                logger.warning("cannot store when a browser session was used: {}", error.message)
        # If the setting was switched off meanwhile, the password was enough.
        needs_passkey = self._requires_passkey and session.needs_passkey
        return structs.replace(session, csrf_token=csrf_token(secret), needs_passkey=needs_passkey)

    async def user_of(self, session_id: str) -> UserRecord | None:
        """Returns the user of a session by its id, or None if it has ended."""
        sessions = await self._database.read(lambda db: self._select(db, "hash = ?", _digest(session_id)))
        return sessions[0].user if sessions else None

    async def list(self, user_id: UserId) -> Sequence[BrowserSession]:
        """Returns the valid sessions of a user, the most recently used first, without CSRF tokens."""
        return await self._database.read(lambda db: self._select(db, "user_id = ?", user_id))

    async def revoke(self, user_id: UserId, session_id: str) -> None:
        """Ends one session of the user. Does nothing if it has ended or belongs to someone else."""
        await self._delete("hash = ? AND user_id = ?", _digest(session_id), user_id)

    async def revoke_all(self, user_id: UserId) -> None:
        """Signs the user out everywhere."""
        await self._delete("user_id = ?", user_id)

    def _select(self, db: ControlConnection, condition: str, value: object) -> Sequence[BrowserSession]:
        """Returns the valid sessions that meet a condition, the most recently used first."""
        columns = "hash, user_id, epoch, created_at, used_at, address, agent, needs_passkey"
        query = f"SELECT {columns} FROM browser_sessions WHERE {condition} ORDER BY used_at DESC"  # noqa: S608 - constants only
        now, sessions = self._clock(), []
        for digest, user_id, epoch, created_at, used_at, address, agent, needs_passkey in db.execute(
            query, (value,)
        ).fetchall():
            user = select_user(db, user_id)
            is_current = now - used_at < self._idle_s and now - created_at < self._lifetime_s
            if user is not None and is_current and epoch == user.epoch and not user.is_disabled:
                sessions.append(
                    BrowserSession(
                        digest.hex(), user, "", created_at, used_at, address, agent, needs_passkey=bool(needs_passkey)
                    )
                )
        return sessions

    async def _delete(self, condition: str, *values: object) -> None:
        statement = f"DELETE FROM browser_sessions WHERE {condition}"  # noqa: S608 - constants only
        await self._database.withdraw(lambda db: db.execute(statement, values))


def browser_principal(session: BrowserSession) -> Principal:
    """Returns the principal of a person who is signed in, with the scopes of their role."""
    user = session.user
    return Principal(
        user_id=user.id,
        user_name=user.name,
        client_id=_CLIENT,
        scopes=ROLE_SCOPES[user.role],
        kind="browser",
        credential_id=session.id,
        epoch=user.epoch,
        expires_at=user.expires_at,
        signed_in_at=session.created_at,
    )


def csrf_token(secret: str) -> str:
    """Derives the token from the session's secret, so that it need not be stored and cannot be known without it."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


def _digest(session_id: str) -> bytes:
    """Returns the hash that an id names, or an impossible one."""
    try:
        return bytes.fromhex(session_id)
    except ValueError:
        return b""


def _short(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:_TEXT_MAX_CHARS]


# -- notices -----------------------------------------------------------------------------------------------------------
# Notices of new ways in to an account: keys, passkeys, connected applications, and browsers that were not used before.
#
# Nothing is stored but the time up to which the owner has seen them: a notice is about something that exists, was
# created later, and still gives access. Revoking it ends the notice, too.

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
            WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?1)
        UNION ALL SELECT 'passkey', name, '', created_at, user_id FROM passkeys
        UNION ALL SELECT 'connection', client_name, '', created_at, user_id FROM oauth_grants WHERE revoked_at IS NULL
        UNION ALL SELECT 'browser', agent, address, created_at, user_id FROM browser_sessions
            WHERE is_new_browser = 1 AND hash <> ?2 AND used_at > ?3 AND created_at > ?4
    ) AS created
    WHERE user_id = ?5 AND created_at > (SELECT notices_seen_at FROM users WHERE id = ?5)
    ORDER BY created_at LIMIT ?6"""


class Notices:
    def __init__(self, database: ControlDatabase, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    async def list(self, session: BrowserSession) -> list[Notice]:
        """Returns what the person who is signed in has not dismissed, the oldest first. A browser is not told about
        itself."""
        now = time.time()
        oldest_use = now - self._settings.browser_session_idle_s
        oldest = now - self._settings.browser_session_lifetime_s
        values = (now, bytes.fromhex(session.id), oldest_use, oldest, session.user.id, _SHOWN_MAX)
        rows = await self._database.read(lambda db: db.execute(_QUERY, values).fetchall())
        return [Notice(*row) for row in rows]

    @control_operation("write")
    def dismiss(self, db: ControlConnection, user_id: UserId, until: float) -> None:
        """Dismisses the notices of what was created until then: those that were shown, and none that came meanwhile."""
        until = min(until, time.time())
        db.execute(
            "UPDATE users SET notices_seen_at = ?1 WHERE id = ?2 AND notices_seen_at < ?1", (until, user_id)
        ).close()


# -- key creations -----------------------------------------------------------------------------------------------------
# What was created with an API key: keys, followed sources, shares, and links for accounts and groups.
#
# A thief who had a key may have left them behind, so revoking the key is not enough. Applications are connected by
# people who are signed in, never with a key.

CreationKind = Literal[
    "key",
    "followed source",
    "followed deployment",
    "invitation",
    "password reset link",
    "group invitation",
    "share",
]


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
        return await self._database.read(lambda db: _select_creations(db, key_id, time.time()))

    @control_operation("withdraw")
    def revoke(self, db: ControlConnection, key_id: str) -> Sequence[KeyCreation]:
        """Revokes, removes or deletes all of it, and returns what it was. Items that were read from followed sources
        stay in their libraries."""
        now = time.time()
        creations = _select_creations(db, key_id, now)
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
                case "group invitation":
                    db.execute("DELETE FROM group_invitations WHERE id = ?", (one.id,))
                case "share":
                    db.execute("DELETE FROM shares WHERE id = ?", (one.id,))
        return creations


def _select_creations(db: ControlConnection, key_id: str, now: float) -> list[KeyCreation]:
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
        follows = "SELECT id, location, created_at, user_id FROM follows WHERE created_with = ?"
        found += [KeyCreation("followed source", *row) for row in db.execute(follows, (creator,)).fetchall()]
        deployments = "SELECT id, location, created_at FROM followed_deployments WHERE created_with = ?"
        found += [KeyCreation("followed deployment", *row) for row in db.execute(deployments, (creator,)).fetchall()]
        shares = "SELECT id, name, created_at, owner_id FROM shares WHERE created_with = ?"
        found += [KeyCreation("share", *row) for row in db.execute(shares, (creator,)).fetchall()]
        to_groups = (
            "SELECT i.id, g.name, i.created_at, i.created_by FROM group_invitations i "
            "JOIN users g ON g.id = i.group_id WHERE i.created_with = ? AND i.expires_at > ?"
        )
        found += [KeyCreation("group invitation", *row) for row in db.execute(to_groups, (creator, now)).fetchall()]
        for digest, kind, name, created_at in db.execute(
            "SELECT hash, kind, name, created_at FROM account_links "
            "WHERE created_with = ? AND used_at IS NULL AND expires_at > ?",
            (creator, now),
        ).fetchall():
            link: CreationKind = "invitation" if kind == "invitation" else "password reset link"
            found.append(KeyCreation(link, digest.hex(), name, created_at))
    return sorted(found, key=lambda one: (one.created_at, one.id))
