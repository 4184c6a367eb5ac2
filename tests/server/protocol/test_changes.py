"""ChangeFeed reach the listeners they concern, once, and a slow listener uses bounded memory."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from server.protocol.catalog import BACKLOG_MAX, Change, ChangeFeed, ChangeListener
from tests.server.protocol.dispatcher_fixture import make_principal

ADA, BEN = make_principal("ada"), make_principal("ben")
NOTHING: frozenset[str] = frozenset()


async def _drain(listener: ChangeListener) -> AsyncIterator[Change]:
    while change := await listener.next(0):
        yield change


async def test_a_change_of_one_user_reaches_only_that_user() -> None:
    changes = ChangeFeed()
    uris = frozenset(("notes://1",))

    with changes.listen(ADA, NOTHING, uris) as ada, changes.listen(BEN, NOTHING, uris) as ben:
        changes.publish(Change("updated", "notes://1", ADA.user_id))

        assert await ada.next(0) == Change("updated", "notes://1", ADA.user_id)
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
        changes.publish(Change("updated", "notes://2", ADA.user_id))

        assert await ada.next(0) is None


async def test_a_uri_added_while_listening_is_delivered() -> None:
    changes, uris = ChangeFeed(), set[str]()

    with changes.listen(ADA, NOTHING, uris) as ada:
        uris.add("notes://1")
        changes.publish(Change("updated", "notes://1", ADA.user_id))

        assert await ada.next(0) == Change("updated", "notes://1", ADA.user_id)


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
            changes.publish(Change("updated", uri, ADA.user_id))
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


async def test_a_change_of_another_source_does_not_reach_a_restricted_credential() -> None:
    changes, kinds = ChangeFeed(), frozenset(("resources",))
    uris = frozenset(("chats://1", "notes://1"))

    with changes.listen(replace(ADA, sources=frozenset(("notes",))), kinds, uris) as ada:
        changes.publish(Change("updated", "chats://1", ADA.user_id, "chats"))
        changes.publish(Change("resources", user_id=ADA.user_id, source="chats"))
        changes.publish(Change("updated", "notes://1", ADA.user_id, "notes"))

        assert [change.uri async for change in _drain(ada)] == ["notes://1"]
