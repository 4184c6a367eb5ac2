"""The event stream of the bus: what happens in a user's own threads, for a limited number of connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import Struct

from auth.context import READ
from tests.live import HTTP_OPTIONS, LiveServer, live, make_settings
from tests.server.compat.agentchatbus.bus_agent import BusAgent
from tests.server.compat.agentkit.conversations_api import HELLO, create_conversation, post
from tests.server.rest.rest_client import RestClient, rest_client_of

WAIT_MAX_S = 60


class BusServer(Struct, frozen=True):
    server: LiveServer
    api: RestClient
    client: httpx2.AsyncClient

    @asynccontextmanager
    async def events(self, headers: dict[str, str]) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        async with self.client.stream("GET", "/events", headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _read_events(response)


async def _read_events(response: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    """Yields the type and payload of each event."""
    async for line in response.aiter_lines():
        assert not line.startswith(("event:", "id:")), "browsers would not pass it to onmessage"
        if line.startswith("data: "):
            event = msgspec.json.decode(line.removeprefix("data: "))
            yield event["type"], event["payload"]


async def next_event(events: AsyncIterator[tuple[str, Any]]) -> tuple[str, Any]:
    return await asyncio.wait_for(anext(events), WAIT_MAX_S)


@pytest.fixture
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BusServer]:
    settings = make_settings(
        tmp_path_factory.mktemp("bus"),
        conversation_events_interval_ms=50,
        conversation_events_max_s=30,
        message_page_max=2,  # several pages of threads
        stream_max_per_user=1,
    )
    async with (
        live(settings) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS, base_url=server.url) as client,
    ):
        yield BusServer(server, rest_client_of(server), client)


async def test_a_user_receives_what_happens_in_their_own_threads(bus: BusServer) -> None:
    ada, ben = await BusAgent.register(bus.api), await BusAgent.register(bus.api, "ben")
    old, other, *_ = [await ada.create_thread(f"Old {number}") for number in range(5)]
    for content in ("before 1", "before 2"):
        await ada.post(old["id"], content)

    async with bus.events(await bus.server.bearer("ada")) as events:
        connected = await next_event(events)
        await ben.post((await ben.create_thread("Secret of Ben"))["id"], "hunter2")
        await create_conversation(bus.api, *HELLO)  # not a thread of the bus
        posted = await ada.post(old["id"], "A galleon.")
        first = await next_event(events)
        created = await ada.create_thread("New")
        second = await next_event(events)
        await post(bus.api, f"/api/threads/{other['id']}/state", {"state": "review"})
        third = await next_event(events)
        await bus.api.request("DELETE", f"/conversations/{created['id']}", "ada")
        fourth = await next_event(events)
        again = await ada.post(old["id"], "The second.")
        fifth = await next_event(events)

    assert connected == ("connected", {})
    assert (first[0], first[1]["id"], first[1]["content"]) == ("msg.new", posted["id"], "A galleon.")
    assert (first[1]["thread_id"], first[1]["seq"]) == (old["id"], posted["seq"])
    assert (second[0], second[1]["id"], second[1]["topic"]) == ("thread.created", created["id"], "New")
    assert (third[0], third[1]["id"], third[1]["status"]) == ("thread.state", other["id"], "review")
    assert fourth == ("thread.deleted", {"thread_id": created["id"]})
    assert (fifth[0], fifth[1]["id"]) == ("msg.new", again["id"])


async def test_archiving_an_old_thread_is_an_event(bus: BusServer) -> None:
    """The order of the list is by modification, which archiving is not, so the thread stays far from the first page."""
    ada = await BusAgent.register(bus.api)
    old, *_ = [await ada.create_thread(f"Old {number}") for number in range(6)]

    async with bus.events(await bus.server.bearer("ada")) as events:
        await next_event(events)
        await post(bus.api, f"/api/threads/{old['id']}/archive", {})
        archived = await next_event(events)
        await post(bus.api, f"/api/threads/{old['id']}/unarchive", {})
        restored = await next_event(events)

    assert (archived[0], archived[1]["id"], archived[1]["status"]) == ("thread.state", old["id"], "archived")
    assert (restored[0], restored[1]["id"], restored[1]["status"]) == ("thread.state", old["id"], "discuss")


async def test_streams_of_a_user_are_limited(bus: BusServer) -> None:
    ada, ben = await bus.server.bearer("ada"), await bus.server.bearer("ben")

    async with bus.events(ada) as events:
        await next_event(events)
        refused = await bus.client.get("/events", headers=ada)
        async with bus.events(ben) as events_of_ben:
            connected = await next_event(events_of_ben)

    assert (refused.status_code, "1 open streams" in refused.text) == (503, True)
    assert connected == ("connected", {})


async def test_a_restricted_key_does_not_receive_human_only_messages(bus: BusServer) -> None:
    ada = await BusAgent.register(bus.api)
    thread = await ada.create_thread("Plans")
    user = await bus.server.user("ada")
    _, key = await bus.server.runtime.registry.create_key(user.id, "agents", [READ], profile="bus")

    async with bus.events({"Authorization": f"Bearer {key}"}) as events:
        await next_event(events)
        await ada.post(thread["id"], "For people: hunter2", metadata={"visibility": "human_only"})
        await ada.post(thread["id"], "For all.")
        received = [await next_event(events)]
        while received[-1][1]["content"] != "For all.":
            received.append(await next_event(events))

    assert "hunter2" not in str(received)


async def test_the_stream_needs_a_credential_and_ends_after_its_time(api: RestClient) -> None:
    response = await api.get("/events")

    assert (response.status, response.body.count(b'"connected"')) == (200, 1)
    assert (await api.get("/events", None)).status == 401
