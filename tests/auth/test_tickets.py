"""The contract of WebSocket tickets: single use, short lifetime, bound to one principal."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from auth.context import READ, ClientId, Principal
from auth.redis import RedisTickets, open_redis
from auth.tickets import InProcessTickets, Tickets
from config.errors import Unauthenticated, Unavailable
from config.paths import new_user_id
from tests.auth.auth_fixture import FakeClock, make_settings
from tests.cases import each_case
from tests.servers.aging import age_keys

Advance = Callable[[float], Awaitable[None]]
OpenTickets = Callable[..., Any]


def principal(name: str) -> Principal:
    return Principal(
        new_user_id(),
        name,
        ClientId("browser"),
        frozenset({READ}),
        "jwt",
        f"token of {name}",
        sources=frozenset(["notes"]),
    )


ALICE, BOB = principal("alice"), principal("bob")


@pytest.fixture(params=["in this process", "in Redis"])
def open_tickets(request: pytest.FixtureRequest, clock: FakeClock) -> OpenTickets:
    """Every implementation; each must pass the tests below."""

    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    @asynccontextmanager
    async def in_process(**changes: Any) -> AsyncIterator[tuple[Tickets, Advance]]:
        yield InProcessTickets(make_settings(**changes), clock), advance

    @asynccontextmanager
    async def in_redis(**changes: Any) -> AsyncIterator[tuple[Tickets, Advance]]:
        settings = make_settings(**request.getfixturevalue("redis_settings"), **changes)
        async with open_redis(settings) as connection:
            yield RedisTickets(connection, settings), partial(age_keys, connection)

    return in_process if request.param == "in this process" else in_redis


async def test_ticket_returns_its_principal_once(open_tickets: OpenTickets) -> None:
    async with open_tickets() as (tickets, _):
        alice_ticket, expires_in_s = await tickets.issue(ALICE)
        bob_ticket, _ = await tickets.issue(BOB)

        assert expires_in_s == 30
        assert await tickets.redeem(bob_ticket) == BOB
        assert await tickets.redeem(alice_ticket) == ALICE
        with pytest.raises(Unauthenticated) as raised:
            await tickets.redeem(alice_ticket)
        assert raised.value.presented


async def test_ticket_expires(open_tickets: OpenTickets) -> None:
    async with open_tickets(ws_ticket_ttl_s=100) as (tickets, advance):
        early, _ = await tickets.issue(ALICE)
        await advance(50)
        late, _ = await tickets.issue(ALICE)
        await advance(50)

        with pytest.raises(Unauthenticated):
            await tickets.redeem(early)
        assert await tickets.redeem(late) == ALICE


@each_case("text", ["", "x", "\ud800", "A" * 43, "A" * 100_000, "x\r\nFLUSHALL"])
async def test_unknown_ticket_is_rejected(open_tickets: OpenTickets, text: str) -> None:
    async with open_tickets() as (tickets, _):
        await tickets.issue(ALICE)

        with pytest.raises(Unauthenticated):
            await tickets.redeem(text)


async def test_ticket_limit_applies_per_user(open_tickets: OpenTickets) -> None:
    async with open_tickets(stream_max_per_user=2) as (tickets, _):
        first, _ = await tickets.issue(ALICE)
        await tickets.issue(ALICE)

        with pytest.raises(Unavailable):
            await tickets.issue(ALICE)
        await tickets.issue(BOB)
        await tickets.redeem(first)
        await tickets.issue(ALICE)


async def test_expired_tickets_free_capacity(open_tickets: OpenTickets) -> None:
    async with open_tickets(stream_max_per_user=1, session_max=2, ws_ticket_ttl_s=100) as (tickets, advance):
        await tickets.issue(ALICE)
        await tickets.issue(BOB)
        await advance(50)
        with pytest.raises(Unavailable):
            await tickets.issue(principal("carol"))

        await advance(50)
        await tickets.issue(ALICE)
        await tickets.issue(principal("carol"))


async def test_ticket_itself_is_not_kept(clock: FakeClock) -> None:
    tickets = InProcessTickets(make_settings(), clock)
    ticket, _ = await tickets.issue(ALICE)

    assert ticket not in repr(vars(tickets))


async def test_ticket_of_one_process_is_accepted_once_by_all_together(redis_settings: dict[str, Any]) -> None:
    settings = make_settings(**redis_settings)
    async with open_redis(settings) as one, open_redis(settings) as other:
        issuing, redeeming = RedisTickets(one, settings), RedisTickets(other, settings)
        ticket, _ = await issuing.issue(ALICE)

        assert await redeeming.redeem(ticket) == ALICE
        for tickets in (issuing, redeeming):
            with pytest.raises(Unauthenticated):
                await tickets.redeem(ticket)
