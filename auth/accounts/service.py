"""Accounts of people who sign in with a name and a password: the rules for passwords and their hashes, the limits on
guessing them, and the links that set one."""

import asyncio
import hashlib
import secrets
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from auth import registry
from auth.context import Role
from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.rate_limits import LimitKey, LimitRule, MakeLimit, RateLimit, in_process_limits, network_of
from config.errors import FlorilegiumError, InvalidParams, Overloaded
from config.paths import UserId
from config.settings import Settings

if TYPE_CHECKING:
    from argon2 import PasswordHasher

# NIST SP 800-63B asks for at least 64. Longer passwords only cost time to hash.
PASSWORD_MAX_CHARS = 256


# -- password rules ----------------------------------------------------------------------------------------------------
# What a new password must be, after NIST SP 800-63B: long enough and not easily guessed, of any characters.
#
# Passwords are normalized to NFKC, so that they work with every keyboard and operating system. Lengths are counted in
# characters (code points) after that.

_SERVICE = "florilegium"


def normalize_password(password: str) -> str:
    return unicodedata.normalize("NFKC", password)


def require_new_password(settings: Settings, password: str, user_name: str) -> None:
    """Raises InvalidParams with the reason if the password cannot be used."""
    shortest, longest = settings.password_min_chars, PASSWORD_MAX_CHARS
    # The first check bounds the work of the second: one character can become eighteen.
    length = len(password) if len(password) > longest else len(normalize_password(password))
    if not shortest <= length <= longest:
        raise InvalidParams(f"password: expected {shortest} to {longest} characters, got {length}")
    candidate = normalize_password(password).casefold()
    remainder = candidate.replace(user_name.casefold(), "").replace(_SERVICE, "")
    if candidate in _common_passwords():
        problem = "one of the most common passwords"
    elif len(set(candidate)) < 3:
        problem = "the same characters again and again"
    elif len(remainder) < 4 and remainder != candidate:
        problem = "little more than your name or the name of this service"
    else:
        return
    raise InvalidParams(f"password: expected one that is hard to guess, got {problem}")


@cache
def _common_passwords() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("common_passwords.txt").read_text("ascii").split())


T = TypeVar("T")
_RETRY_AFTER_S = 2.0


class PasswordHashes:
    def __init__(self, settings: Settings) -> None:
        self._memory_kib = settings.password_hash_memory_kib
        self._passes = settings.fixed.password_hash_passes
        self._turns = asyncio.Semaphore(settings.fixed.password_hash_jobs_max)
        self._jobs_max = settings.fixed.password_hash_jobs_max + settings.fixed.password_hash_queue_max
        self._jobs = 0

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(normalize_password(password)))

    async def verify(self, stored: str | None, password: str) -> tuple[bool, str | None]:
        """Compares a password with a stored hash. Returns whether it is correct, and a hash that replaces one that was
        made with other parameters. Without a hash, it is compared with the hash of a random password, so that the
        response takes as long."""
        # A longer one cannot be correct; one character more keeps it wrong and bounds the work.
        candidate = normalize_password(password[: PASSWORD_MAX_CHARS + 1])

        def compare() -> tuple[bool, str | None]:
            from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - see `_hasher`

            unknown_hash = self._unknown_hash  # made by the first sign-in, whether its account exists or not
            try:
                self._hasher.verify(stored or unknown_hash, candidate)
            except (VerificationError, InvalidHashError):
                return False, None
            if stored is None:
                return False, None
            is_outdated = self._hasher.check_needs_rehash(stored)
            return True, self._hasher.hash(candidate) if is_outdated else None

        return await self._run(compare)

    @cached_property
    def _hasher(self) -> "PasswordHasher":
        from argon2 import PasswordHasher  # noqa: PLC0415 - only sign-ins need it, on a thread

        return PasswordHasher(self._passes, self._memory_kib, parallelism=1)

    @cached_property
    def _unknown_hash(self) -> str:
        return self._hasher.hash(secrets.token_urlsafe(32))

    async def _run(self, function: Callable[[], T]) -> T:
        if self._jobs >= self._jobs_max:
            raise Overloaded("too many people are signing in; try again in a moment", _RETRY_AFTER_S)
        self._jobs += 1

        async def run_in_turn() -> T:
            try:
                async with self._turns:
                    return await asyncio.to_thread(function)
            finally:
                self._jobs -= 1

        # Shielded: the thread goes on when the caller is cancelled, and its turn must not end before.
        return await asyncio.shield(asyncio.ensure_future(run_in_turn()))


# -- throttle ----------------------------------------------------------------------------------------------------------
# Limits guessing of passwords, per account and per address, without locking people out of their accounts.
#
# A stranger who fails to sign in to an account again and again uses up the attempts that strangers have, not those of
# the browsers in which the account's owner has signed in before: each of them has attempts of its own. An attempt that
# succeeds does not count. Names that do not exist are limited like others.


class SignInFailed(FlorilegiumError, status=403):
    """The account does not exist, is disabled or has another password; callers cannot distinguish these. `user_id` is
    the user whose account it is, for the audit log only."""

    def __init__(self, message: str = "the name or the password is wrong", user_id: str = "") -> None:
        super().__init__(message)
        self.user_id = user_id


class SignInThrottle:
    def __init__(self, settings: Settings, make_limit: MakeLimit) -> None:
        what, rate = "failed sign-ins to this account", settings.rate_sign_in_account_per_minute
        burst = settings.fixed.rate_sign_in_account_burst
        self._strangers = make_limit(LimitRule("sign-in", what, rate, burst))
        self._known = make_limit(LimitRule("sign-in of browser", what, rate, burst))
        address = (settings.fixed.rate_sign_in_address_per_minute, settings.fixed.rate_sign_in_address_burst)
        self._addresses = make_limit(LimitRule("sign-in from address", "failed sign-ins", *address))

    @asynccontextmanager
    async def attempt(self, account: str, address: str, known_browser: str | None) -> AsyncIterator[None]:
        """Counts the attempt made in the block if it ends with SignInFailed. Raises RateLimited instead of starting it.
        The attempt is counted first, so that many at the same time are no way around the limit."""
        account, has_failed = account.casefold(), False
        buckets: list[tuple[RateLimit, LimitKey]] = (
            [(self._known, (account, known_browser))]
            if known_browser
            else [(self._addresses, network_of(address)), (self._strangers, account)]
        )
        for limit, key in buckets:
            await limit.take(key)
        try:
            yield
        except SignInFailed:
            has_failed = True
            raise
        finally:
            if not has_failed:
                for limit, key in buckets:
                    await limit.give_back(key)


# -- links -------------------------------------------------------------------------------------------------------------
# Single-use links that let someone without a password set one.
#
# `setup` creates the first administrator, `invitation` a user, and `reset` sets a new password. The secret is in the
# link only; its hash is stored.

# The issuer of accounts that links create. No token has it: people choose their names, and a name that is the `sub` of
# someone else at the identity provider must not lead to that person's library, or that person to theirs.
ACCOUNT_ISSUER = "urn:florilegium:account"

LinkKind = Literal["setup", "invitation", "reset"]
_LIFETIMES_S: dict[LinkKind, float] = {
    # The link that creates the first administrator is made again at each start without one.
    "setup": 86_400,
    # People who are away for a few days can still accept an invitation.
    "invitation": 7 * 86_400,
    # Someone must send the link to the user, who may be asleep.
    "reset": 86_400,
}


class LinkNotValid(FlorilegiumError, status=404):
    """The link was used, has expired, was replaced or never existed; callers cannot distinguish these."""

    def __init__(self) -> None:
        super().__init__("this link is not valid any more; ask for a new one")


class AccountLink(Struct, frozen=True):
    """A link that can be used. `name` is the name of its user, or empty if the person can choose one."""

    kind: LinkKind
    name: str
    role: Role
    user: registry.UserRecord | None
    expires_at: float


class PendingInvitation(Struct, frozen=True):
    """An invitation that can be used. `id` is the hash of its secret."""

    id: str
    name: str
    role: Role
    created_by: UserId | None
    created_at: float
    expires_at: float


class NewLink(Struct, frozen=True):
    """A link that was created. `path` contains the secret."""

    path: str
    expires_at: float


class AccountLinks:
    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    @control_operation("write")
    def create_setup(self, db: ControlConnection) -> NewLink | None:
        """Creates the link for the first administrator, which replaces an earlier one. Returns None if an account has a
        password or a passkey."""
        if _has_account(db):
            return None
        db.execute("DELETE FROM account_links WHERE kind = 'setup'")
        return self._insert(db, "setup", "", "admin")

    @control_operation("write")
    def create_invitation(
        self,
        db: ControlConnection,
        role: Role,
        name: str = "",
        created_by: UserId | None = None,
        created_with: str | None = None,
    ) -> NewLink:
        """Creates a link for a new user, who can choose a name unless it is set. `created_with` is the API key of the
        administrator, if it was one."""
        if name:
            registry.require_free_name(db, name)
        return self._insert(db, "invitation", name, role, created_by=created_by, created_with=created_with)

    @control_operation("write")
    def create_reset(
        self,
        db: ControlConnection,
        user: registry.UserRecord,
        created_by: UserId | None = None,
        created_with: str | None = None,
    ) -> NewLink:
        """Creates a link that sets the user's password. It replaces an earlier one."""
        db.execute("DELETE FROM account_links WHERE kind = 'reset' AND user_id = ?", (user.id,))
        return self._insert(db, "reset", user.name, user.role, user.id, created_by, created_with)

    @control_operation("read")
    def pending_invitations(self, db: ControlConnection) -> list[PendingInvitation]:
        """Returns the invitations that can be used, the newest first."""
        now = self._clock()
        rows = db.execute(
            "SELECT hash, name, role, created_by, created_at, expires_at FROM account_links "
            "WHERE kind = 'invitation' AND used_at IS NULL AND expires_at > ? ORDER BY created_at DESC",
            (now,),
        )
        pending = [PendingInvitation(digest.hex(), *rest) for digest, *rest in rows.fetchall()]
        return [one for one in pending if _may_invite(db, one.created_by)]

    async def revoke_invitation(self, invitation_id: str) -> PendingInvitation | None:
        """Deletes an invitation. Returns None if there is none that can be used."""
        pending = {one.id: one for one in await self.pending_invitations()}.get(invitation_id)
        if pending is not None:
            statement, digest = "DELETE FROM account_links WHERE hash = ?", bytes.fromhex(pending.id)
            # A link is a way in, so that this must also succeed on a full disk.
            await self._database.withdraw(lambda db: db.execute(statement, (digest,)))
        return pending

    async def find(self, kind: LinkKind, secret: str) -> AccountLink:
        """Returns the link without using it. Raises LinkNotValid."""
        return await self._database.read(lambda db: self._select(db, kind, secret))

    @control_operation("write")
    def redeem(
        self, db: ControlConnection, kind: LinkKind, secret: str, name: str, password_hash: str
    ) -> registry.UserRecord:
        """Uses the link: creates its user with that name, or sets the password of its user, who is signed out
        everywhere. Nothing changes if it fails."""
        link, now = self._select(db, kind, secret), self._clock()
        # The first administrator is the operator. Others chose their names, unless the invitation has one.
        named_by: registry.NamedBy = "operator" if kind == "setup" or link.name else "person"
        user = link.user or registry.insert_user(db, link.name or name, ACCOUNT_ISSUER, "", now, link.role, named_by)
        db.execute("UPDATE account_links SET used_at = ? WHERE hash = ?", (now, _hash(secret)))
        replace_password(db, user.id, password_hash, now)
        return user

    def _insert(
        self,
        db: ControlConnection,
        kind: LinkKind,
        name: str,
        role: Role,
        user_id: UserId | None = None,
        created_by: UserId | None = None,
        created_with: str | None = None,
    ) -> NewLink:
        secret, now = secrets.token_urlsafe(32), self._clock()
        expires_at = now + _LIFETIMES_S[kind]
        # Expired links are deleted here, so that no background task is needed.
        db.execute("DELETE FROM account_links WHERE expires_at < ?", (now,))
        db.execute(
            "INSERT INTO account_links (hash, kind, user_id, created_by, name, role, created_at, expires_at, "
            "created_with) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (_hash(secret), kind, user_id, created_by, name, role, now, expires_at, created_with),
        )
        return NewLink(f"/{kind}/{secret}", expires_at)

    def _select(self, db: ControlConnection, kind: LinkKind, secret: str) -> AccountLink:
        row = db.execute(
            "SELECT name, role, user_id, created_by, expires_at FROM account_links "
            "WHERE hash = ? AND kind = ? AND used_at IS NULL AND expires_at > ?",
            (_hash(secret), kind, self._clock()),
        ).fetchone()
        if row is None:
            raise LinkNotValid
        name, role, user_id, created_by, expires_at = row
        user = registry.select_user(db, user_id) if user_id else None
        if (user and user.is_disabled) or not _may_invite(db, created_by) or (kind == "setup" and _has_account(db)):
            raise LinkNotValid
        return AccountLink(kind, name, role, user, expires_at)


def replace_password(db: ControlConnection, user_id: UserId, password_hash: str, now: float) -> None:
    """Sets the password, and ends what was granted with the earlier one: the sessions in browsers, the memory of
    browsers, and links that set the password."""
    db.execute(
        "INSERT INTO passwords (user_id, hash, changed_at) VALUES (?, ?, ?) "
        "ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash, changed_at = excluded.changed_at",
        (user_id, password_hash, now),
    )
    db.execute("DELETE FROM browser_sessions WHERE user_id = ?", (user_id,))
    db.execute("DELETE FROM known_browsers WHERE user_id = ?", (user_id,))
    db.execute("DELETE FROM account_links WHERE user_id = ? AND used_at IS NULL", (user_id,))


def _has_account(db: ControlConnection) -> bool:
    """Returns whether anyone can sign in without an identity provider."""
    statement = "SELECT EXISTS (SELECT 1 FROM passwords) OR EXISTS (SELECT 1 FROM passkeys)"
    return bool(db.execute(statement).fetchone()[0])


def _may_invite(db: ControlConnection, user_id: UserId | None) -> bool:
    """Returns whether the creator of a link, or the operator if there is none, could still create it."""
    user = registry.select_user(db, user_id) if user_id else None
    return user_id is None or (user is not None and not user.is_disabled and user.role == "admin")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


# A browser is remembered for half a year after its last sign-in, so that failed sign-ins elsewhere do not lock its
# user out.
KNOWN_BROWSER_LIFETIME_S = 180 * 86_400

_UPSERT_BROWSER = (
    "INSERT INTO known_browsers (hash, user_id, used_at) VALUES (?, ?, ?) "
    "ON CONFLICT (hash) DO UPDATE SET user_id = excluded.user_id, used_at = excluded.used_at"
)


class PasswordSignIn(Struct, frozen=True):
    """Someone who entered the right password, and when that was set."""

    user: registry.UserRecord
    password_changed_at: float


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

    async def sign_in(self, name: str, password: str, address: str, browser: str = "") -> PasswordSignIn:
        """Returns the user with that name and password. `browser` is the secret of a browser that was used before.

        Raises SignInFailed after the same work for every reason, and RateLimited.
        """
        name = name.strip()
        user, stored, changed_at = await self._database.read(lambda db: _select_password(db, name))
        known_browser = await self._find_browser(browser, user)
        # Without an account a hash is compared, too, so that the time does not tell whether there is one.
        async with self._throttle.attempt(name, address, known_browser):
            is_correct, new_hash = await self._hashes.verify(stored, password)
            if not is_correct or user is None or user.is_disabled:
                raise SignInFailed(user_id=user.id if user else "")
        if new_hash is not None:
            # Stores a hash with the current parameters, unless the password was changed meanwhile.
            statement = "UPDATE passwords SET hash = ? WHERE user_id = ? AND hash = ?"
            await self._database.write(lambda db: db.execute(statement, (new_hash, user.id, stored)))
        return PasswordSignIn(user, changed_at)

    async def change_password(self, user: registry.UserRecord, password: str, new_password: str, address: str) -> None:
        """Replaces the password and signs the user out everywhere."""
        _, stored, changed_at = await self._database.read(lambda db: _select_password(db, user.name))
        # A stolen session must not be enough to guess the password.
        async with self._throttle.attempt(user.name, address, "session"):
            is_correct, _ = await self._hashes.verify(stored, password)
            if not is_correct:
                raise SignInFailed(user_id=user.id)
        require_new_password(self._settings, new_password, user.name)
        new_hash = await self._hashes.hash(new_password)

        def operation(db: ControlConnection) -> None:
            # Whoever knows the old password must not replace the one that was set while it was compared.
            if _select_password(db, user.name)[2] != changed_at:
                raise SignInFailed(user_id=user.id)
            replace_password(db, user.id, new_hash, self._clock())

        await self._database.withdraw(operation)

    async def has_password(self, user_id: UserId) -> bool:
        statement = "SELECT EXISTS (SELECT 1 FROM passwords WHERE user_id = ?)"
        return await self._database.read(lambda db: bool(db.execute(statement, (user_id,)).fetchone()[0]))

    async def redeem_link(self, kind: LinkKind, secret: str, name: str, password: str) -> registry.UserRecord:
        """Uses a link to create an account with a password, or to set the password of an account."""
        link = await self.links.find(kind, secret)
        name = link.name or name.strip()
        registry.require_user_name(name)
        require_new_password(self._settings, password, name)
        return await self.links.redeem(kind, secret, name, await self._hashes.hash(password))

    async def remember_browser(self, user: registry.UserRecord, browser: str) -> tuple[str, bool]:
        """Remembers the browser in which the user signs in. Returns the secret that recognizes it next time, and
        whether it is new to a user who has used others before. An unknown secret is replaced, because someone else may
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
        return secret, not is_known and has_others

    async def _find_browser(self, browser: str, user: registry.UserRecord | None) -> str | None:
        """Returns an id of the browser if the user has signed in with it before."""
        if user is None or not browser:
            return None
        digest, oldest = _browser_hash(browser, user.id), self._clock() - KNOWN_BROWSER_LIFETIME_S
        statement = "SELECT EXISTS (SELECT 1 FROM known_browsers WHERE hash = ? AND used_at >= ?)"
        is_known = await self._database.read(lambda db: bool(db.execute(statement, (digest, oldest)).fetchone()[0]))
        return digest.hex() if is_known else None


def _select_password(db: ControlConnection, name: str) -> tuple[registry.UserRecord | None, str | None, float]:
    """Returns the user, the hash of the password, and when it was set."""
    user = registry.select_user_by_name(db, name)
    query = "SELECT hash, changed_at FROM passwords WHERE user_id = ?"
    row = db.execute(query, (user.id if user else "",)).fetchone()
    return (user, row[0], row[1]) if row else (user, None, 0.0)


def _browser_hash(secret: str, user_id: UserId) -> bytes:
    """One secret can be used for several users of a browser, and no row says that they share one."""
    return hashlib.sha256(f"{user_id} {secret}".encode()).digest()
