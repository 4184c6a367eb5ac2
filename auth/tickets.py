"""Single-use WebSocket tickets. A browser cannot send a header with the upgrade request, so it requests a ticket first.

A ticket replaces the credential once and for a few seconds. Only its hash is kept, in this process.
"""

import hashlib
import secrets
from collections import Counter, OrderedDict

from msgspec import Struct

from auth.principal import Principal
from config.errors import Unauthenticated, Unavailable
from config.paths import UserId
from config.settings import Settings

_TICKET_BYTES = 32


class _Ticket(Struct, frozen=True):
    principal: Principal
    expires_at: float


class Tickets:
    """The unused tickets. A user may hold as many tickets as open streams, since more could not be used.

    `now` is a time of the monotonic clock, so that tickets expire also if the clock of the system is set.
    """

    def __init__(self, settings: Settings) -> None:
        self._ttl_s = settings.ws_ticket_ttl_s
        self._max = settings.session_max
        self._max_per_user = settings.stream_max_per_user
        self._tickets: OrderedDict[bytes, _Ticket] = OrderedDict()  # oldest first, so the first to expire is in front
        self._per_user: Counter[UserId] = Counter()

    def issue(self, principal: Principal, now: float) -> tuple[str, float]:
        """Returns a ticket for the principal and its lifetime in seconds."""
        self._drop_expired(now)
        if self._per_user[principal.user_id] >= self._max_per_user or len(self._tickets) >= self._max:
            raise Unavailable("too many unused tickets; use one or wait until they expire", self._ttl_s)
        ticket = secrets.token_urlsafe(_TICKET_BYTES)
        self._tickets[_hash(ticket)] = _Ticket(principal, now + self._ttl_s)
        self._per_user[principal.user_id] += 1
        return ticket, self._ttl_s

    def redeem(self, ticket: str, now: float) -> Principal:
        """Returns the principal the ticket was issued to. The ticket cannot be used again."""
        self._drop_expired(now)
        entry = self._tickets.pop(_hash(ticket), None)
        if entry is None:
            raise Unauthenticated("ticket not accepted", presented=True)
        self._release(entry)
        return entry.principal

    def _drop_expired(self, now: float) -> None:
        while self._tickets and next(iter(self._tickets.values())).expires_at <= now:
            self._release(self._tickets.popitem(last=False)[1])

    def _release(self, ticket: _Ticket) -> None:
        user_id = ticket.principal.user_id
        self._per_user[user_id] -= 1
        if not self._per_user[user_id]:
            del self._per_user[user_id]


def _hash(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).digest()
