"""Threads over REST: one per topic, listed by time and status, and read in pages."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from sources.drafts import ConversationDraft
from tests.cases import each_case
from tests.server.compat.agentchatbus.bus_agent import BusAgent, contents, detail
from tests.server.compat.agentkit.conversations_api import create_conversation, post
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

THREAD = {"id", "topic", "status", "system_prompt", "created_at", "updated_at", "message_count"}


@pytest.fixture
async def agent(api: RestClient) -> BusAgent:
    return await BusAgent.register(api)


async def add_thread(user: LibraryUser, topic: str, created_at: str) -> str:
    """Adds a thread with a given time."""
    return await user.add_chat(topic, namespace="bus", created_at=created_at)


async def list_threads(api: RestClient, query: str = "", who: str = "ada") -> Any:
    response = await api.get(f"/api/threads?{query}", who)
    assert response.status == 200, response.body
    return response.json()


def topics(page: Any) -> list[str]:
    return [thread["topic"] for thread in page["threads"]]


# One thread per topic


async def test_posting_a_topic_twice_returns_the_first_thread(api: RestClient, agent: BusAgent) -> None:
    first = await agent.create_thread("Plans", system_prompt="Be brief.")
    message = await agent.post(first["id"], "hello")
    other = await BusAgent.register(api)

    second = await other.create_thread("Plans", system_prompt="Be verbose.", metadata={"team": "blue"})
    reply = await other.post(
        second["id"], "hi", expected_last_seq=second["current_seq"], reply_token=second["reply_token"]
    )

    assert (second["id"], second["system_prompt"]) == (first["id"], "Be brief.")
    assert second["current_seq"] == message["seq"] < reply["seq"]
    assert (await list_threads(api))["total"] == 1


async def test_users_have_their_own_thread_of_a_topic(api: RestClient, agent: BusAgent) -> None:
    other = await BusAgent.register(api, "ben")

    threads = [await agent.create_thread("Plans"), await other.create_thread("Plans")]

    assert threads[0]["id"] != threads[1]["id"]


async def test_concurrent_posts_of_a_topic_create_one_thread(api: RestClient, agent: BusAgent) -> None:
    threads = await asyncio.gather(*(agent.create_thread("Plans") for _ in range(8)))

    assert len({thread["id"] for thread in threads}) == 1
    assert (await list_threads(api))["total"] == 1


async def test_topic_of_a_deleted_thread_or_of_a_conversation_can_be_used(api: RestClient, agent: BusAgent) -> None:
    deleted = await agent.create_thread("Plans")
    await api.request("DELETE", f"/conversations/{deleted['id']}", "ada")
    conversation = await create_conversation(api, title="Plans")

    thread = await agent.create_thread("Plans")

    assert thread["id"] not in (deleted["id"], conversation)


async def test_existing_thread_is_returned_at_the_limit_of_threads(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, bus_thread_max=1) as api:
        agent = await BusAgent.register(api)
        first = await agent.create_thread("Plans")

        assert (await agent.create_thread("Plans"))["id"] == first["id"]


# Listing


async def test_threads_are_listed_newest_first(api: RestClient, ada: LibraryUser, agent: BusAgent) -> None:
    threads = [await add_thread(ada, f"Thread {day}", f"2026-01-{day:02}T10:00:00Z") for day in (1, 2, 3)]
    await create_conversation(api, title="No thread")
    await agent.post(threads[0], "written last")

    page = await list_threads(api)

    assert set(page["threads"][0]) == THREAD
    assert topics(page) == ["Thread 3", "Thread 2", "Thread 1"]
    assert (page["total"], page["has_more"], page["next_cursor"]) == (3, False, None)


async def test_next_cursor_is_the_before_of_the_next_page(api: RestClient, ada: LibraryUser) -> None:
    for day in range(1, 6):
        await add_thread(ada, f"Thread {day}", f"2026-01-{day:02}T10:00:00Z")

    first = await list_threads(api, "limit=2")
    second = await list_threads(api, f"limit=2&before={quote(first['next_cursor'])}")
    # A client that does not encode the cursor sends its + as a space.
    last = await list_threads(api, f"limit=2&before={second['next_cursor']}")

    assert [topics(page) for page in (first, second, last)] == [
        ["Thread 5", "Thread 4"],
        ["Thread 3", "Thread 2"],
        ["Thread 1"],
    ]
    assert first["next_cursor"] == first["threads"][-1]["created_at"] == "2026-01-04T10:00:00.000000+00:00"
    assert [(page["total"], page["has_more"]) for page in (first, second, last)] == [(5, True), (5, True), (5, False)]


async def test_threads_of_the_same_time_are_all_listed(api: RestClient, ada: LibraryUser) -> None:
    for number in range(5):
        await add_thread(ada, f"Thread {number}", "2026-01-01T10:00:00Z")

    listed, query = [], "limit=2"
    while True:
        page = await list_threads(api, query)
        listed += topics(page)
        if not page["has_more"]:
            break
        query = f"limit=2&before={quote(page['next_cursor'])}"

    assert sorted(listed) == [f"Thread {number}" for number in range(5)]


async def test_before_accepts_any_time(api: RestClient, ada: LibraryUser) -> None:
    await add_thread(ada, "Old", "2026-01-01T10:00:00Z")
    await add_thread(ada, "New", "2026-01-02T10:00:00Z")

    assert topics(await list_threads(api, "before=2026-01-02")) == ["Old"]
    assert topics(await list_threads(api, "before=2026-01-02T11:00:00%2B01:00")) == ["Old"]


async def test_invalid_cursor_is_rejected(api: RestClient) -> None:
    response = await api.get("/api/threads?before=yesterday")

    assert (response.status, detail(response)) == (400, "Invalid 'before' cursor: must be an ISO datetime string")


async def test_limit_0_lists_as_many_threads_as_allowed(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, message_page_max=3) as api:
        agent = await BusAgent.register(api)
        for _ in range(4):
            await agent.create_thread()

        pages = [await list_threads(api, query) for query in ("", "limit=0", "limit=100", "limit=1")]

    assert [(len(page["threads"]), page["has_more"]) for page in pages] == [(3, True), (3, True), (3, True), (1, True)]


@each_case(
    ("path", "field"),
    [
        ("/api/threads?offset=2", "offset"),
        ("/api/threads?stauts=done", "stauts"),
        ("/api/threads/{}/messages?after=2", "after"),
        ("/api/search?q=fox&author=ana", "author"),
    ],
)
async def test_unknown_query_parameter_is_rejected_and_named(
    api: RestClient, agent: BusAgent, path: str, field: str
) -> None:
    thread = await agent.create_thread()

    response = await api.get(path.format(thread["id"]))

    assert response.status == 422
    assert detail(response)[0]["loc"] == ["query", field]


# Status


async def set_state(api: RestClient, thread: str, state: str, who: str = "ada") -> Any:
    return await post(api, f"/api/threads/{thread}/state", {"state": state}, who)


async def test_threads_can_be_listed_by_status(api: RestClient, agent: BusAgent) -> None:
    threads = {state: (await agent.create_thread(state))["id"] for state in ("discuss", "implement", "archived")}
    for state, thread in threads.items():
        response = await set_state(api, thread, state)
        assert (response.status, response.json()) == (200, {"ok": True, "thread_id": thread, "status": state})
    await agent.create_thread("untouched")

    listed = {
        query: sorted(topics(await list_threads(api, query)))
        for query in (
            "",
            "status=discuss",
            "status=implement",
            "status=archived",
            "status=done",
            "include_archived=true",
        )
    }

    assert listed == {
        "": ["discuss", "implement", "untouched"],
        "status=discuss": ["discuss", "untouched"],
        "status=implement": ["implement"],
        "status=archived": ["archived"],
        "status=done": [],
        "include_archived=true": ["archived", "discuss", "implement", "untouched"],
    }
    assert (await list_threads(api, "status=implement"))["total"] == 1


async def test_status_is_shown_and_does_not_affect_messages_or_metadata(api: RestClient, agent: BusAgent) -> None:
    metadata = {"team": "blue", "_bus": {"status": "done"}}
    thread = await agent.create_thread(metadata=metadata, system_prompt="Be brief.")
    await set_state(api, thread["id"], "review")
    await agent.post(thread["id"], "hello")

    [listed] = (await list_threads(api))["threads"]
    conversation = (await api.get(f"/conversations/{thread['id']}")).json()

    assert thread["status"] == "discuss"
    assert (listed["status"], listed["system_prompt"]) == ("review", "Be brief.")
    assert conversation["metadata"]["team"] == "blue"


async def test_thread_can_be_archived_and_restored(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread())["id"]

    archived = await post(api, f"/api/threads/{thread}/archive", {})
    while_archived = (await list_threads(api))["total"]
    restored = await post(api, f"/api/threads/{thread}/unarchive", {})

    assert (archived.json()["status"], while_archived) == ("archived", 0)
    assert (restored.json()["status"], (await list_threads(api))["total"]) == ("discuss", 1)


@each_case("path", ["/api/threads?status=open", "/api/threads?include_archived=maybe"])
async def test_invalid_status_is_rejected(api: RestClient, path: str) -> None:
    assert (await api.get(path)).status == 422


async def test_only_threads_of_the_caller_have_a_status(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread())["id"]
    conversation = await create_conversation(api, title="No thread")

    responses = [
        await set_state(api, thread, "done", "ben"),
        await set_state(api, conversation, "done"),
        await set_state(api, "nowhere", "done"),
    ]

    assert {(response.status, detail(response)) for response in responses} == {(404, "Thread not found")}
    assert (await set_state(api, thread, "open")).status == 422
    assert topics(await list_threads(api, "status=done")) == []


# Reading messages


async def test_messages_can_be_filtered_by_priority(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread())["id"]
    for number, priority in enumerate(("normal", "urgent", "system", "urgent", "normal")):
        await agent.post(thread, f"{priority} {number}", priority=priority)

    assert await contents(api, thread, "priority=urgent") == ["urgent 1", "urgent 3"]
    assert await contents(api, thread, "priority=normal") == ["normal 0", "normal 4"]
    assert await contents(api, thread, "priority=urgent&limit=1&after_seq=2") == ["urgent 3"]
    assert (await api.get(f"/api/threads/{thread}/messages?priority=high")).status == 422


async def test_messages_come_in_pages_of_200_and_at_most_1000(api: RestClient, ada: LibraryUser) -> None:
    thread = await ada.add_chat("Long", *(f"word {number}" for number in range(1_005)), namespace="bus")
    path = f"/api/threads/{thread}/messages"

    pages = [await api.get(f"{path}{query}") for query in ("", "?limit=5000", "?after_seq=1000", "?limit=1005")]

    assert [len(page.json()) for page in pages] == [200, 1_000, 5, 1_000]
    assert [page.header("x-has-more") for page in pages] == ["true", "true", "false", "true"]
    assert pages[0].header("link") == '<?after_seq=200&limit=200>; rel="next"'
    assert pages[2].header("link") is None


async def test_link_leads_through_all_messages(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread())["id"]
    for number in range(7):
        await agent.post(thread, f"word {number}", priority="normal" if number % 3 else "urgent")

    found, query = [], "?limit=2&priority=normal"
    while query:
        page = await api.get(f"/api/threads/{thread}/messages{query}")
        found += [message["content"] for message in page.json()]
        query = (page.header("link") or "").removeprefix("<").partition(">")[0]

    assert found == ["word 1", "word 2", "word 4", "word 5"]


async def test_page_ends_at_the_size_limit(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, conversation_response_max_bytes=1_024) as api:
        agent = await BusAgent.register(api)
        thread = (await agent.create_thread())["id"]
        for _ in range(3):
            await agent.post(thread, "x" * 600)

        page = await api.get(f"/api/threads/{thread}/messages")

    assert (len(page.json()), page.header("x-has-more")) == (1, "true")


async def test_system_prompt_can_be_read_as_the_first_message(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread(system_prompt="Be brief."))["id"]
    first = await agent.post(thread, "hello")
    await agent.post(thread, "goodbye")

    with_prompt = await contents(api, thread, "include_system_prompt=true")
    later = await contents(api, thread, f"include_system_prompt=true&after_seq={first['seq']}")

    assert with_prompt == ["Be brief.", "hello", "goodbye"]
    assert later == ["goodbye"]
    assert await contents(api, thread) == ["hello", "goodbye"]


async def test_metadata_of_other_programs_does_not_break_the_list(api: RestClient, ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        for metadata in ({"_bus": "text"}, {"_bus": {"status": 7}}, {"system_prompt": ["list"]}):
            await library.chats.create(ConversationDraft(title="Odd", namespace="bus", metadata=metadata))

    page = await list_threads(api, "include_archived=1")

    assert [thread["status"] for thread in page["threads"]] == ["discuss"] * 3
    assert msgspec.json.encode(page)
