"""Hashes passwords with Argon2id on threads.

Each hash takes tens of megabytes and milliseconds, so few run at the same time and few may wait. Hashing takes the same
time whether an account exists or not.
"""

import asyncio
import secrets
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from auth.accounts.password_rules import normalize_password
from config.errors import Overloaded
from config.settings import Settings

if TYPE_CHECKING:
    from argon2 import PasswordHasher

T = TypeVar("T")
_RETRY_AFTER_S = 2.0


class PasswordCheck(Struct, frozen=True):
    """The result of a verification. `new_hash` replaces a hash that was made with other parameters."""

    is_correct: bool
    new_hash: str | None = None


_WRONG = PasswordCheck(is_correct=False)


class PasswordHashes:
    def __init__(self, settings: Settings) -> None:
        self._memory_kib = settings.password_hash_memory_kib
        self._passes = settings.password_hash_passes
        self._max_chars = settings.password_max_chars
        self._turns = asyncio.Semaphore(settings.password_hash_jobs_max)
        self._jobs_max = settings.password_hash_jobs_max + settings.password_hash_queue_max
        self._jobs = 0

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(normalize_password(password)))

    async def verify(self, stored: str | None, password: str) -> PasswordCheck:
        """Compares a password with a stored hash. Without one, it is compared with the hash of a random password, so
        that the response takes as long."""
        if len(password) > self._max_chars:
            password = password[: self._max_chars + 1]  # cannot be correct
        return await self._run(lambda: self._verify(stored, normalize_password(password)))

    def _verify(self, stored: str | None, password: str) -> PasswordCheck:
        from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - see `_hasher`

        unknown_hash = self._unknown_hash  # made by the first sign-in, whether its account exists or not
        try:
            self._hasher.verify(stored or unknown_hash, password)
        except (VerificationError, InvalidHashError):
            return _WRONG
        if stored is None:
            return _WRONG
        is_outdated = self._hasher.check_needs_rehash(stored)
        return PasswordCheck(is_correct=True, new_hash=self._hasher.hash(password) if is_outdated else None)

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
        # Shielded: the thread goes on when the caller is cancelled, and its turn must not end before.
        return await asyncio.shield(asyncio.ensure_future(self._run_in_turn(function)))

    async def _run_in_turn(self, function: Callable[[], T]) -> T:
        try:
            async with self._turns:
                return await asyncio.to_thread(function)
        finally:
            self._jobs -= 1
