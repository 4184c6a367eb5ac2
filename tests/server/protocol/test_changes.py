"""News reach whom they concern, once, and a listener who is not listening costs no memory."""

from collections.abc import AsyncIterator

from config.paths import new_user_id
from server.protocol.changes import BACKLOG_MAX, Change, Changes, Listener

ADA, BEN = new_user_id(), new_user_id()
NOTHING: frozenset[str] = frozenset()


async def _drain(listener: Listener) -> AsyncIterator[Change]:
    while change := await listener.next(0):
        yield change


async def test_news_of_one_user_are_heard_by_that_user_only() -> None:
    changes = Changes()
    uris = frozenset(("notes://1",))

    with changes.listen(ADA, NOTHING, uris) as ada, changes.listen(BEN, NOTHING, uris) as ben:
        changes.publish(Change("updated", "notes://1", ADA))

        assert await ada.next(0) == Change("updated", "notes://1", ADA)
        assert await ben.next(0) is None


async def test_news_of_everybody_are_heard_by_everybody() -> None:
    changes = Changes()
    tools = frozenset(("tools",))

    with changes.listen(ADA, tools, NOTHING) as ada, changes.listen(BEN, tools, NOTHING) as ben:
        changes.publish(Change("tools"))

        assert await ada.next(0) == await ben.next(0) == Change("tools")


async def test_a_kind_or_uri_nobody_asked_for_is_not_told() -> None:
    changes = Changes()

    with changes.listen(ADA, frozenset(("tools",)), frozenset(("notes://1",))) as ada:
        changes.publish(Change("prompts"))
        changes.publish(Change("updated", "notes://2", ADA))

        assert await ada.next(0) is None


async def test_a_subscription_added_while_listening_is_heard() -> None:
    changes, uris = Changes(), set[str]()

    with changes.listen(ADA, NOTHING, uris) as ada:
        uris.add("notes://1")
        changes.publish(Change("updated", "notes://1", ADA))

        assert await ada.next(0) == Change("updated", "notes://1", ADA)


async def test_the_same_news_twice_are_told_once() -> None:
    changes = Changes()

    with changes.listen(ADA, frozenset(("tools",)), NOTHING) as ada:
        changes.publish(Change("tools"))
        changes.publish(Change("tools"))

        assert await ada.next(0) == Change("tools")
        assert await ada.next(0) is None


async def test_a_slow_listener_keeps_a_bounded_backlog_oldest_first() -> None:
    changes = Changes()
    uris = [f"notes://{n}" for n in range(BACKLOG_MAX + 10)]

    with changes.listen(ADA, NOTHING, frozenset(uris)) as ada:
        for uri in uris:
            changes.publish(Change("updated", uri, ADA))
        told = [change.uri async for change in _drain(ada)]

    assert told == uris[:BACKLOG_MAX]


async def test_who_left_hears_no_more() -> None:
    changes = Changes()
    with changes.listen(ADA, frozenset(("tools",)), NOTHING) as ada:
        pass

    changes.publish(Change("tools"))

    assert await ada.next(0) is None


def test_a_change_names_the_notification_it_becomes() -> None:
    assert Change("prompts").as_notification() == ("notifications/prompts/list_changed", {})
    assert Change("updated", "a://b").as_notification() == ("notifications/resources/updated", {"uri": "a://b"})
