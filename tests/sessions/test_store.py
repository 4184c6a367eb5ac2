"""The store of sessions: bounded, forgetful after a while, and closed to everybody but the owner."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.principal import ClientId
from config.errors import SessionNotFound, Unavailable
from config.paths import new_user_id
from sessions.session import Owner, Session, new_session_id
from sessions.store import MemorySessions

ADA: Owner = (new_user_id(), ClientId("client"), 0)
BEN: Owner = (new_user_id(), ClientId("client"), 0)


class Clock:
    """Time as the test tells it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Shelf:
    """A store with small limits and its clock."""

    def __init__(self, ttl_s: float = 10.0, max_total: int = 4, max_per_user: int = 2) -> None:
        self.clock = Clock()
        self.store = MemorySessions(ttl_s, max_total, max_per_user, self.clock)

    def create(self, owner: Owner) -> Session:
        return self.store.create(owner, "2025-11-25", "specimen", "1", {})

    def knows(self, session: Session, owner: Owner) -> bool:
        try:
            return self.store.get(session.id, owner) is session
        except SessionNotFound:
            return False


def test_a_session_is_found_by_its_owner_and_by_nobody_else() -> None:
    shelf = Shelf()
    ada, ben = shelf.create(ADA), shelf.create(BEN)

    assert shelf.knows(ada, ADA)
    assert shelf.knows(ben, BEN)
    assert not shelf.knows(ada, BEN)
    assert not shelf.knows(ben, ADA)


@pytest.mark.parametrize(
    "other", [(ADA[0], ClientId("another"), 0), (ADA[0], ADA[1], 1)], ids=["client", "access withdrawn since"]
)
def test_the_same_user_is_another_owner_by_another_client_or_epoch(other: Owner) -> None:
    shelf = Shelf()

    assert not shelf.knows(shelf.create(ADA), other)


def test_a_foreign_session_and_an_unknown_one_are_the_same_error() -> None:
    shelf = Shelf()
    session = shelf.create(ADA)

    with pytest.raises(SessionNotFound) as foreign:
        shelf.store.get(session.id, BEN)
    with pytest.raises(SessionNotFound) as unknown:
        shelf.store.get("unknown", BEN)

    assert (foreign.value.message, foreign.value.data) == (unknown.value.message, unknown.value.data)


def test_a_stranger_who_asks_does_not_keep_a_session_alive() -> None:
    shelf = Shelf(ttl_s=10)
    session = shelf.create(ADA)

    shelf.clock.now = 9
    assert not shelf.knows(session, BEN)
    shelf.clock.now = 10

    assert not shelf.knows(session, ADA)


def test_a_session_ends_when_it_was_not_used_for_its_time_and_not_before() -> None:
    shelf = Shelf(ttl_s=10)
    session = shelf.create(ADA)

    shelf.clock.now = 9.99
    assert shelf.knows(session, ADA)
    shelf.clock.now += 9.99
    assert shelf.knows(session, ADA)
    shelf.clock.now += 10

    assert not shelf.store.holds(session)
    assert not shelf.knows(session, ADA)
    assert len(shelf.store) == 0


def test_an_ended_session_is_gone_and_ending_it_again_does_no_harm() -> None:
    shelf = Shelf()
    session, other = shelf.create(ADA), shelf.create(BEN)

    shelf.store.end(session)
    shelf.store.end(session)

    assert not shelf.knows(session, ADA)
    assert shelf.knows(other, BEN)
    assert len(shelf.store) == 1


def test_a_user_at_its_limit_loses_its_own_session_unused_longest() -> None:
    shelf = Shelf(max_per_user=2)
    ben = shelf.create(BEN)
    first, second = shelf.create(ADA), shelf.create(ADA)
    assert shelf.knows(first, ADA)

    third = shelf.create(ADA)

    assert not shelf.knows(second, ADA)
    assert all(shelf.knows(session, owner) for session, owner in ((first, ADA), (third, ADA), (ben, BEN)))


def test_the_limit_for_all_refuses_the_newcomer_until_a_session_expires() -> None:
    shelf = Shelf(ttl_s=10, max_total=2, max_per_user=2)
    shelf.create(ADA)
    shelf.clock.now = 5
    shelf.create(ADA)

    with pytest.raises(Unavailable):
        shelf.create(BEN)
    shelf.clock.now = 10

    assert shelf.knows(shelf.create(BEN), BEN)


def test_a_user_may_replace_its_own_session_when_the_house_is_full() -> None:
    shelf = Shelf(max_total=2, max_per_user=1)
    shelf.create(ADA)
    shelf.create(BEN)

    assert shelf.knows(shelf.create(ADA), ADA)


def test_an_id_is_long_random_and_visible_ascii() -> None:
    ids = {new_session_id() for _ in range(100)}

    assert len(ids) == 100
    assert all(len(i) >= 43 and all("!" <= c <= "~" for c in i) for i in ids)


STEPS = st.lists(
    st.tuples(st.sampled_from(("create", "get", "end", "wait")), st.sampled_from((ADA, BEN)), st.integers(0, 7)),
    max_size=40,
)


@given(STEPS)
def test_the_limits_hold_and_no_session_changes_hands_whatever_happens(steps: list[tuple[str, Owner, int]]) -> None:
    shelf, made = Shelf(ttl_s=10, max_total=3, max_per_user=2), list[Session]()

    for action, owner, number in steps:
        _act(shelf, made, action, owner, number)
        alive = [session for session in made if shelf.store.holds(session)]
        assert len(alive) == len(shelf.store) <= 3
        assert all(sum(s.owner == user for s in alive) <= 2 for user in (ADA, BEN))


def _act(shelf: Shelf, made: list[Session], action: str, owner: Owner, number: int) -> Any:
    session = made[number % len(made)] if made else None
    match action:
        case "create":
            try:
                made.append(shelf.create(owner))
            except Unavailable:
                assert len(shelf.store) == 3
        case "get" if session is not None:
            assert shelf.knows(session, owner) == (shelf.store.holds(session) and session.owner == owner)
        case "end" if session is not None:
            shelf.store.end(session)
        case "wait":
            shelf.clock.now += number
