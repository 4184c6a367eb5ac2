"""Single-use WebSocket tickets: a browser cannot send a header with the upgrade, so it buys a ticket first.

A ticket stands in for the credential once and for seconds; only its hash is kept, in this process's memory.
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
    """The tickets not yet used. A user may hold as many as streams; more could not be used anyway."""

    def __init__(self, settings: Settings) -> None:
        self._ttl_s = settings.ws_ticket_ttl_s
        self._max = settings.session_max
        self._max_per_user = settings.stream_max_per_user
        self._waiting: OrderedDict[bytes, _Ticket] = OrderedDict()  # oldest first, hence soonest to expire first
        self._held: Counter[UserId] = Counter()

    def issue(self, principal: Principal, now: float) -> tuple[str, float]:
        """A ticket for this principal, and the seconds within which it must be used."""
        self._drop_expired(now)
        if self._held[principal.user_id] >= self._max_per_user or len(self._waiting) >= self._max:
            raise Unavailable("too many unused tickets; use one or wait until they expire", self._ttl_s)
        ticket = secrets.token_urlsafe(_TICKET_BYTES)
        self._waiting[_hash(ticket)] = _Ticket(principal, now + self._ttl_s)
        self._held[principal.user_id] += 1
        return ticket, self._ttl_s

    def redeem(self, ticket: str, now: float) -> Principal:
        """The principal that bought the ticket, which is then spent."""
        self._drop_expired(now)
        held = self._waiting.pop(_hash(ticket), None)
        if held is None:
            raise Unauthenticated("ticket not accepted", presented=True)
        self._release(held)
        return held.principal

    def _drop_expired(self, now: float) -> None:
        while self._waiting and next(iter(self._waiting.values())).expires_at <= now:
            self._release(self._waiting.popitem(last=False)[1])

    def _release(self, ticket: _Ticket) -> None:
        self._held[ticket.principal.user_id] -= 1
        if not self._held[ticket.principal.user_id]:
            del self._held[ticket.principal.user_id]


def _hash(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).digest()
