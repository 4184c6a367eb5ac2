"""The session store: bounded, expiring, and visible to the owner only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.principal import ClientId, Owner
from config.errors import SessionNotFound, Unavailable
from config.paths import new_user_id
from sessions.session import Session, new_session_id
from sessions.store import InProcessSessionStore

ADA = Owner(new_user_id(), ClientId("client"), 0)
BEN = Owner(new_user_id(), ClientId("client"), 0)


class StoreFixture:
    """A store with small limits and a clock that the test advances."""

    def __init__(self, ttl_s: float = 10.0, max_total: int = 4, max_per_user: int = 2) -> None:
        self.now = 0.0
        self.store = InProcessSessionStore(ttl_s, max_total, max_per_user, lambda: self.now)

    def create(self, owner: Owner) -> Session:
        return self.store.create(owner, "2025-11-25", "specimen", "1", {})

    def finds(self, session: Session, owner: Owner) -> bool:
        try:
            return self.store.get(session.id, owner) is session
        except SessionNotFound:
            return False


def test_session_is_found_by_its_owner_only() -> None:
    fixture = StoreFixture()
    ada, ben = fixture.create(ADA), fixture.create(BEN)

    assert fixture.finds(ada, ADA)
    assert fixture.finds(ben, BEN)
    assert not fixture.finds(ada, BEN)
    assert not fixture.finds(ben, ADA)


@pytest.mark.parametrize(
    "other",
    [ADA._replace(client_id=ClientId("another")), ADA._replace(epoch=1)],
    ids=["client", "access withdrawn since"],
)
def test_another_client_or_epoch_of_the_same_user_is_another_owner(other: Owner) -> None:
    fixture = StoreFixture()

    assert not fixture.finds(fixture.create(ADA), other)


def test_foreign_session_and_unknown_session_raise_the_same_error() -> None:
    fixture = StoreFixture()
    session = fixture.create(ADA)

    with pytest.raises(SessionNotFound) as foreign:
        fixture.store.get(session.id, BEN)
    with pytest.raises(SessionNotFound) as unknown:
        fixture.store.get("unknown", BEN)

    assert (foreign.value.message, foreign.value.data) == (unknown.value.message, unknown.value.data)


def test_access_by_another_owner_does_not_extend_the_idle_time() -> None:
    fixture = StoreFixture(ttl_s=10)
    session = fixture.create(ADA)

    fixture.now = 9
    assert not fixture.finds(session, BEN)
    fixture.now = 10

    assert not fixture.finds(session, ADA)


def test_session_expires_after_its_idle_time_and_not_before() -> None:
    fixture = StoreFixture(ttl_s=10)
    session = fixture.create(ADA)

    fixture.now = 9.99
    assert fixture.finds(session, ADA)
    fixture.now += 9.99
    assert fixture.finds(session, ADA)
    fixture.now += 10

    assert not fixture.store.holds(session)
    assert not fixture.finds(session, ADA)
    assert len(fixture.store) == 0


def test_ended_session_is_gone_and_ending_it_again_is_harmless() -> None:
    fixture = StoreFixture()
    session, other = fixture.create(ADA), fixture.create(BEN)

    fixture.store.end(session)
    fixture.store.end(session)

    assert not fixture.finds(session, ADA)
    assert fixture.finds(other, BEN)
    assert len(fixture.store) == 1


def test_user_at_the_limit_loses_the_least_recently_used_session() -> None:
    fixture = StoreFixture(max_per_user=2)
    ben = fixture.create(BEN)
    first, second = fixture.create(ADA), fixture.create(ADA)
    assert fixture.finds(first, ADA)

    third = fixture.create(ADA)

    assert not fixture.finds(second, ADA)
    assert all(fixture.finds(session, owner) for session, owner in ((first, ADA), (third, ADA), (ben, BEN)))


def test_total_limit_rejects_new_sessions_until_one_expires() -> None:
    fixture = StoreFixture(ttl_s=10, max_total=2, max_per_user=2)
    fixture.create(ADA)
    fixture.now = 5
    fixture.create(ADA)

    with pytest.raises(Unavailable):
        fixture.create(BEN)
    fixture.now = 10

    assert fixture.finds(fixture.create(BEN), BEN)


def test_user_can_replace_an_own_session_at_the_total_limit() -> None:
    fixture = StoreFixture(max_total=2, max_per_user=1)
    fixture.create(ADA)
    fixture.create(BEN)

    assert fixture.finds(fixture.create(ADA), ADA)


def test_session_id_is_long_random_and_visible_ascii() -> None:
    ids = {new_session_id() for _ in range(100)}

    assert len(ids) == 100
    assert all(len(i) >= 43 and all("!" <= c <= "~" for c in i) for i in ids)


STEPS = st.lists(
    st.tuples(st.sampled_from(("create", "get", "end", "wait")), st.sampled_from((ADA, BEN)), st.integers(0, 7)),
    max_size=40,
)


@given(STEPS)
def test_limits_and_ownership_hold_for_any_sequence_of_calls(steps: list[tuple[str, Owner, int]]) -> None:
    fixture, created = StoreFixture(ttl_s=10, max_total=3, max_per_user=2), list[Session]()

    for action, owner, number in steps:
        _run_step(fixture, created, action, owner, number)
        alive = [session for session in created if fixture.store.holds(session)]
        assert len(alive) == len(fixture.store) <= 3
        assert all(sum(s.owner == user for s in alive) <= 2 for user in (ADA, BEN))


def _run_step(fixture: StoreFixture, created: list[Session], action: str, owner: Owner, number: int) -> None:
    session = created[number % len(created)] if created else None
    match action:
        case "create":
            try:
                created.append(fixture.create(owner))
            except Unavailable:
                assert len(fixture.store) == 3
        case "get" if session is not None:
            assert fixture.finds(session, owner) == (fixture.store.holds(session) and session.owner == owner)
        case "end" if session is not None:
            fixture.store.end(session)
        case "wait":
            fixture.now += number
