"""ChangeFeed reach the listeners they concern, once, and a slow listener uses bounded memory."""

from collections.abc import AsyncIterator

from config.paths import new_user_id
from server.protocol.changes import BACKLOG_MAX, Change, ChangeFeed, ChangeListener

ADA, BEN = new_user_id(), new_user_id()
NOTHING: frozenset[str] = frozenset()


async def _drain(listener: ChangeListener) -> AsyncIterator[Change]:
    while change := await listener.next(0):
        yield change


async def test_a_change_of_one_user_reaches_only_that_user() -> None:
    changes = ChangeFeed()
    uris = frozenset(("notes://1",))

    with changes.listen(ADA, NOTHING, uris) as ada, changes.listen(BEN, NOTHING, uris) as ben:
        changes.publish(Change("updated", "notes://1", ADA))

        assert await ada.next(0) == Change("updated", "notes://1", ADA)
        assert await ben.next(0) is None


async def test_a_change_without_user_reaches_everyone() -> None:
    changes = ChangeFeed()
    tools = frozenset(("tools",))

    with changes.listen(ADA, tools, NOTHING) as ada, changes.listen(BEN, tools, NOTHING) as ben:
        changes.publish(Change("tools"))

        assert await ada.next(0) == await ben.next(0) == Change("tools")


async def test_changes_outside_the_subscription_are_not_delivered() -> None:
    changes = ChangeFeed()

    with changes.listen(ADA, frozenset(("tools",)), frozenset(("notes://1",))) as ada:
        changes.publish(Change("prompts"))
        changes.publish(Change("updated", "notes://2", ADA))

        assert await ada.next(0) is None


async def test_a_uri_added_while_listening_is_delivered() -> None:
    changes, uris = ChangeFeed(), set[str]()

    with changes.listen(ADA, NOTHING, uris) as ada:
        uris.add("notes://1")
        changes.publish(Change("updated", "notes://1", ADA))

        assert await ada.next(0) == Change("updated", "notes://1", ADA)


async def test_equal_changes_are_delivered_once() -> None:
    changes = ChangeFeed()

    with changes.listen(ADA, frozenset(("tools",)), NOTHING) as ada:
        changes.publish(Change("tools"))
        changes.publish(Change("tools"))

        assert await ada.next(0) == Change("tools")
        assert await ada.next(0) is None


async def test_a_slow_listener_keeps_a_bounded_backlog_oldest_first() -> None:
    changes = ChangeFeed()
    uris = [f"notes://{n}" for n in range(BACKLOG_MAX + 10)]

    with changes.listen(ADA, NOTHING, frozenset(uris)) as ada:
        for uri in uris:
            changes.publish(Change("updated", uri, ADA))
        delivered = [change.uri async for change in _drain(ada)]

    assert delivered == uris[:BACKLOG_MAX]


async def test_a_closed_listener_receives_nothing() -> None:
    changes = ChangeFeed()
    with changes.listen(ADA, frozenset(("tools",)), NOTHING) as ada:
        pass

    changes.publish(Change("tools"))

    assert await ada.next(0) is None


def test_a_change_is_converted_to_its_notification() -> None:
    assert Change("prompts").as_notification() == ("notifications/prompts/list_changed", {})
    assert Change("updated", "a://b").as_notification() == ("notifications/resources/updated", {"uri": "a://b"})
