"""Subscriptions to changes, in both eras."""

import asyncio
from typing import Any

import pytest

from config.errors import (
    InvalidParams,
    Unavailable,
)
from server.protocol.catalog import SUBSCRIPTION_KEY, Change
from tests.cases import each_case
from tests.server.protocol.dispatcher_fixture import (
    DispatcherClient,
    FakeStreams,
    RecordingPeer,
    make_dispatcher,
    make_principal,
)
from tests.server.sample_catalog import SampleCatalog


@pytest.fixture
def ada(samples: SampleCatalog) -> DispatcherClient:
    return DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))


async def test_subscriptions_of_a_session_are_limited(samples: SampleCatalog) -> None:
    client = DispatcherClient(make_dispatcher(samples.catalog, page_size=2), make_principal("ada"))

    for uri in ("a://1", "a://2"):
        await client.legacy("resources/subscribe", {"uri": uri})
    with pytest.raises(Unavailable):
        await client.legacy("resources/subscribe", {"uri": "a://3"})
    await client.legacy("resources/unsubscribe", {"uri": "a://1"})

    assert client.session.subscriptions == {"a://2"}


async def test_subscribing_again_at_the_limit_is_accepted(samples: SampleCatalog) -> None:
    client = DispatcherClient(make_dispatcher(samples.catalog, page_size=1), make_principal("ada"))
    await client.legacy("resources/subscribe", {"uri": "a://1"})

    assert await client.legacy("resources/subscribe", {"uri": "a://1"}) == {}


async def test_listening_acknowledges_and_then_sends_the_subscribed_changes(samples: SampleCatalog) -> None:
    peer, streams, ada = RecordingPeer(), FakeStreams(), make_principal("ada")
    client = DispatcherClient(make_dispatcher(samples.catalog, streams=streams), ada, peer)
    requested = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["a://1"]}

    listening = asyncio.create_task(client.modern("subscriptions/listen", {"notifications": requested}))
    await peer.wait_for(1)
    for change in (
        Change("tools"),
        Change("prompts"),
        Change("updated", "a://1", make_principal("ben").user_id),
        Change("updated", "a://1", ada.user_id),
    ):
        samples.catalog.changes.publish(change)
    await peer.wait_for(3)
    streams.closed = True
    result = await asyncio.wait_for(listening, 5)

    assert [message["method"] for message in peer.messages] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    accepted = {"toolsListChanged": True, "resourceSubscriptions": ["a://1"]}
    assert peer.messages[0]["params"]["notifications"] == accepted
    assert all(message["params"]["_meta"] == {SUBSCRIPTION_KEY: 1} for message in peer.messages)
    assert result["_meta"][SUBSCRIPTION_KEY] == 1
    assert streams.entered == []


@each_case("notifications", [None, [], "all", {"resourceSubscriptions": "a://1"}, {"resourceSubscriptions": [1]}])
async def test_malformed_subscriptions_are_rejected(ada: DispatcherClient, notifications: Any) -> None:
    with pytest.raises(InvalidParams):
        await ada.modern("subscriptions/listen", {"notifications": notifications})
