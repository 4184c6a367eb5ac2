"""Subscriptions to changes, in both eras."""

from typing import Any

import pytest

from config.errors import InvalidParams, Unavailable
from tests.cases import each_case
from tests.server.protocol.dispatcher_fixture import DispatcherClient, make_dispatcher, make_principal
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


@each_case("notifications", [None, [], "all", {"resourceSubscriptions": "a://1"}, {"resourceSubscriptions": [1]}])
async def test_malformed_subscriptions_are_rejected(ada: DispatcherClient, notifications: Any) -> None:
    with pytest.raises(InvalidParams):
        await ada.modern("subscriptions/listen", {"notifications": notifications})
