"""Hashes passwords with Argon2id on threads.

Each hash takes tens of megabytes and milliseconds, so few run at the same time and few may wait. Hashing takes the same
time whether an account exists or not.
"""

import asyncio
import ipaddress
import secrets
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from auth.rate_limits import LimitKey, LimitRule, MakeLimit, RateLimit
from config.errors import FlorilegiumError, InvalidParams, Overloaded
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

_IPV6_PREFIX = 64


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


def network_of(address: str) -> str:
    """Returns the address, or the network of an IPv6 address: one customer of a provider has a whole one."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
