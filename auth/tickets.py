"""Single-use WebSocket tickets. A browser cannot send a header with the upgrade request, so it requests a ticket first.

A ticket replaces the credential once and for a few seconds. Only its hash is kept, in this process or in Redis.
"""

import hashlib
import hmac
import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable

from auth.audit import Audit
from auth.context import Principal
from config.errors import Unauthenticated, Unavailable
from config.paths import UserId
from config.settings import Settings

_TICKET_BYTES = 32


class Tickets(ABC):
    """The unused tickets. A user may hold as many tickets as open streams, since more could not be used."""

    def __init__(self, settings: Settings) -> None:
        self._ttl_s = settings.fixed.ws_ticket_ttl_s
        self._max = settings.session_max
        self._max_per_user = settings.stream_max_per_user

    async def issue(self, principal: Principal) -> tuple[str, float]:
        """Returns a ticket for the principal and its lifetime in seconds."""
        ticket = secrets.token_urlsafe(_TICKET_BYTES)
        if not await self._add(_hash(ticket), principal):
            raise Unavailable("too many unused tickets; use one or wait until they expire", self._ttl_s)
        return ticket, self._ttl_s

    async def redeem(self, ticket: str) -> Principal:
        """Returns the principal the ticket was issued to. The ticket cannot be used again."""
        principal = await self._take(_hash(ticket))
        if principal is None:
            raise ticket_rejected()
        return principal

    @abstractmethod
    async def _add(self, digest: bytes, principal: Principal) -> bool:
        """Returns False if a limit is reached."""

    @abstractmethod
    async def _take(self, digest: bytes) -> Principal | None: ...


def ticket_rejected() -> Unauthenticated:
    return Unauthenticated("ticket not accepted", presented=True)


def _hash(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).digest()


class InProcessTickets(Tickets):
    """Uses the monotonic clock, so that tickets expire also if the clock of the system is set."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(settings)
        self._clock = clock
        # With the time at which each expires. Oldest first, so the first to expire is in front.
        self._tickets: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._per_user: Counter[UserId] = Counter()

    async def _add(self, digest: bytes, principal: Principal) -> bool:
        self._drop_expired()
        if self._per_user[principal.user_id] >= self._max_per_user or len(self._tickets) >= self._max:
            return False
        self._tickets[digest] = (principal, self._clock() + self._ttl_s)
        self._per_user[principal.user_id] += 1
        return True

    async def _take(self, digest: bytes) -> Principal | None:
        self._drop_expired()
        principal, _ = self._tickets.pop(digest, (None, 0.0))
        if principal is not None:
            self._release(principal.user_id)
        return principal

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._tickets and next(iter(self._tickets.values()))[1] <= now:
            self._release(self._tickets.popitem(last=False)[1][0].user_id)

    def _release(self, user_id: UserId) -> None:
        self._per_user[user_id] -= 1
        if not self._per_user[user_id]:
            del self._per_user[user_id]


# -- state keys --------------------------------------------------------------------------------------------------------
# Random keys that sign what a client carries from one request to the next, so that the server need not keep it.

_KEY_BYTES = 32


class StateKeys:
    """The keys of this process, one per purpose, made from one random secret. With Redis, all processes of a deployment
    have the same secret (`auth.redis`); one that replaces another is used for new signatures, and the
    earlier one is still accepted."""

    def __init__(self) -> None:
        self._secrets: tuple[bytes, ...] = (secrets.token_bytes(_KEY_BYTES),)

    @property
    def secret(self) -> bytes:
        return self._secrets[0]

    def replace(self, secret: bytes) -> None:
        if secret != self._secrets[0]:
            self._secrets = (secret, self._secrets[0])

    def for_purpose(self, purpose: str) -> tuple[bytes, ...]:
        """Returns the key for new signatures first, then those that are accepted."""
        return tuple(hmac.digest(secret, purpose.encode(), "sha256") for secret in self._secrets)


# -- rejected credentials ----------------------------------------------------------------------------------------------
# Records rejected credentials in the audit log, without letting strangers fill it.
#
# The first credential from an address is recorded at once. Further ones are counted, and their number is recorded when
# the period ends. Beyond a number of addresses per period, those of all others are counted together.

ACTION = "credential.reject"
_PERIOD_S = 3600.0
# Replaces the addresses that are not listed.
_OTHERS = "other addresses"


class RejectedCredentials:
    def __init__(self, audit: Audit, addresses_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._addresses_max = addresses_max
        self._clock = clock
        self._ends_at = 0.0
        self._addresses: set[str] = set()
        # Those that are not recorded yet.
        self._counts: Counter[str] = Counter()

    def record(self, address: str, reason: str) -> None:
        self.flush()
        if address in self._addresses:
            self._counts[address] += 1
        elif len(self._addresses) < self._addresses_max:
            self._addresses.add(address)
            self._audit.record(ACTION, "", address=address, detail=reason)
        else:
            self._counts[_OTHERS] += 1

    def flush(self, *, is_last: bool = False) -> None:
        """Records the counts of a period that has ended, or of the last one."""
        if self._clock() < self._ends_at and not is_last:
            return
        for address, count in self._counts.items():
            self._audit.record(ACTION, "", address=address, detail="repeated", count=count)
        self._addresses.clear()
        self._counts.clear()
        self._ends_at = self._clock() + _PERIOD_S
