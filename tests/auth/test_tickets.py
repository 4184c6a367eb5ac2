"""WebSocket tickets: single use, short lifetime, bound to one principal."""

import pytest

from auth.principal import READ, ClientId, Principal
from auth.tickets import Tickets
from config.errors import Unauthenticated, Unavailable
from config.paths import new_user_id
from tests.auth.auth_fixture import NOW, make_settings


def principal(name: str) -> Principal:
    return Principal(new_user_id(), name, ClientId("browser"), frozenset({READ}), "jwt", f"token of {name}")


ALICE, BOB = principal("alice"), principal("bob")


def test_ticket_returns_its_principal_once() -> None:
    tickets = Tickets(make_settings())
    alice_ticket, expires_in_s = tickets.issue(ALICE, NOW)
    bob_ticket, _ = tickets.issue(BOB, NOW)

    assert expires_in_s == 30
    assert tickets.redeem(bob_ticket, NOW) == BOB
    assert tickets.redeem(alice_ticket, NOW) == ALICE
    with pytest.raises(Unauthenticated) as raised:
        tickets.redeem(alice_ticket, NOW)
    assert raised.value.presented


def test_ticket_expires() -> None:
    tickets = Tickets(make_settings(ws_ticket_ttl_s=10))
    early, _ = tickets.issue(ALICE, NOW)
    late, _ = tickets.issue(ALICE, NOW + 5)

    with pytest.raises(Unauthenticated):
        tickets.redeem(early, NOW + 10)
    assert tickets.redeem(late, NOW + 14.9) == ALICE


@pytest.mark.parametrize("text", ["", "x", "\ud800", "A" * 43, "A" * 100_000])
def test_unknown_ticket_is_rejected(text: str) -> None:
    tickets = Tickets(make_settings())
    tickets.issue(ALICE, NOW)

    with pytest.raises(Unauthenticated):
        tickets.redeem(text, NOW)


def test_ticket_limit_applies_per_user() -> None:
    tickets = Tickets(make_settings(stream_max_per_user=2))
    first, _ = tickets.issue(ALICE, NOW)
    tickets.issue(ALICE, NOW)

    with pytest.raises(Unavailable):
        tickets.issue(ALICE, NOW)
    tickets.issue(BOB, NOW)
    tickets.redeem(first, NOW)
    tickets.issue(ALICE, NOW)


def test_expired_tickets_free_capacity() -> None:
    tickets = Tickets(make_settings(stream_max_per_user=1, session_max=2, ws_ticket_ttl_s=10))
    tickets.issue(ALICE, NOW)
    tickets.issue(BOB, NOW)
    with pytest.raises(Unavailable):
        tickets.issue(principal("carol"), NOW + 9)

    tickets.issue(ALICE, NOW + 10)
    tickets.issue(principal("carol"), NOW + 10)


def test_ticket_itself_is_not_kept() -> None:
    tickets = Tickets(make_settings())
    ticket, _ = tickets.issue(ALICE, NOW)

    assert ticket not in repr(vars(tickets))
