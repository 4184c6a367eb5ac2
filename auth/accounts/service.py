"""Accounts of people who sign in with a name and a password."""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from auth.accounts.links import AccountLinks, LinkKind, replace_password
from auth.accounts.passwords import PasswordHashes, SignInFailed, SignInThrottle, require_new_password
from auth.control_database import ControlConnection, ControlDatabase
from auth.rate_limits import MakeLimit, in_process_limits
from auth.registry import UserRecord, require_user_name, select_user_by_name
from config.paths import UserId
from config.settings import Settings

# A browser is remembered for half a year after its last sign-in, so that failed sign-ins elsewhere do not lock its
# user out.
KNOWN_BROWSER_LIFETIME_S = 180 * 86_400

_UPSERT_BROWSER = (
    "INSERT INTO known_browsers (hash, user_id, used_at) VALUES (?, ?, ?) "
    "ON CONFLICT (hash) DO UPDATE SET user_id = excluded.user_id, used_at = excluded.used_at"
)


class RememberedBrowser(NamedTuple):
    """`secret` recognizes the browser when the user signs in again. It is new if the user has only used others before;
    the first browser of a user is not."""

    secret: str
    is_new: bool


class Accounts:
    def __init__(
        self,
        settings: Settings,
        database: ControlDatabase,
        make_limit: MakeLimit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._database = database
        self._clock = clock
        self._hashes = PasswordHashes(settings)
        self._throttle = SignInThrottle(settings, make_limit or in_process_limits())
        self.links = AccountLinks(database, clock)

    async def sign_in(self, name: str, password: str, address: str, browser: str = "") -> UserRecord:
        """Returns the user with that name and password. `browser` is the secret of a browser that was used before.

        Raises SignInFailed after the same work for every reason, and RateLimited.
        """
        name = name.strip()
        user, stored = await self._database.read(lambda db: _select_password(db, name))
        known_browser = await self._find_browser(browser, user)
        # Without an account a hash is compared, too, so that the time does not tell whether there is one.
        async with self._throttle.attempt(name, address, known_browser):
            check = await self._hashes.verify(stored, password)
            if not check.is_correct or user is None or user.is_disabled:
                raise SignInFailed(user_id=user.id if user else "")
        if check.new_hash is not None:
            # Stores a hash with the current parameters, unless the password was changed meanwhile.
            statement = "UPDATE passwords SET hash = ? WHERE user_id = ? AND hash = ?"
            await self._database.write(lambda db: db.execute(statement, (check.new_hash, user.id, stored)))
        return user

    async def change_password(self, user: UserRecord, password: str, new_password: str, address: str) -> None:
        """Replaces the password and signs the user out everywhere."""
        _, stored = await self._database.read(lambda db: _select_password(db, user.name))
        # A stolen session must not be enough to guess the password.
        async with self._throttle.attempt(user.name, address, "session"):
            if not (await self._hashes.verify(stored, password)).is_correct:
                raise SignInFailed(user_id=user.id)
        require_new_password(self._settings, new_password, user.name)
        new_hash = await self._hashes.hash(new_password)
        await self._database.withdraw(lambda db: replace_password(db, user.id, new_hash, self._clock()))

    async def has_password(self, user_id: UserId) -> bool:
        statement = "SELECT EXISTS (SELECT 1 FROM passwords WHERE user_id = ?)"
        return await self._database.read(lambda db: bool(db.execute(statement, (user_id,)).fetchone()[0]))

    async def redeem_link(self, kind: LinkKind, secret: str, name: str, password: str) -> UserRecord:
        """Uses a link to create an account with a password, or to set the password of an account."""
        link = await self.links.find(kind, secret)
        name = link.name or name.strip()
        require_user_name(name)
        require_new_password(self._settings, password, name)
        return await self.links.redeem(kind, secret, name, await self._hashes.hash(password))

    async def remember_browser(self, user: UserRecord, browser: str) -> RememberedBrowser:
        """Remembers the browser in which the user signs in. An unknown secret is replaced, because someone else may
        have planted it."""
        is_known = await self._find_browser(browser, user) is not None
        secret, now = browser if is_known else secrets.token_urlsafe(32), self._clock()
        digest = _browser_hash(secret, user.id)

        def operation(db: ControlConnection) -> bool:
            oldest = now - KNOWN_BROWSER_LIFETIME_S
            db.execute("DELETE FROM known_browsers WHERE used_at < ?", (oldest,))
            [count] = db.execute("SELECT count(*) FROM known_browsers WHERE user_id = ?", (user.id,)).fetchone()
            db.execute(_UPSERT_BROWSER, (digest, user.id, now))
            return bool(count)

        has_others = await self._database.write(operation)
        return RememberedBrowser(secret, is_new=not is_known and has_others)

    async def _find_browser(self, browser: str, user: UserRecord | None) -> str | None:
        """Returns an id of the browser if the user has signed in with it before."""
        if user is None or not browser:
            return None
        digest, oldest = _browser_hash(browser, user.id), self._clock() - KNOWN_BROWSER_LIFETIME_S
        statement = "SELECT EXISTS (SELECT 1 FROM known_browsers WHERE hash = ? AND used_at >= ?)"
        is_known = await self._database.read(lambda db: bool(db.execute(statement, (digest, oldest)).fetchone()[0]))
        return digest.hex() if is_known else None


def _select_password(db: ControlConnection, name: str) -> tuple[UserRecord | None, str | None]:
    user = select_user_by_name(db, name)
    row = db.execute("SELECT hash FROM passwords WHERE user_id = ?", (user.id if user else "",)).fetchone()
    return user, row[0] if row else None


def _browser_hash(secret: str, user_id: UserId) -> bytes:
    """One secret can be used for several users of a browser, and no row says that they share one."""
    return hashlib.sha256(f"{user_id} {secret}".encode()).digest()
