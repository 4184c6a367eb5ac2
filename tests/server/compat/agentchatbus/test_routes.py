"""The message bus over REST: registration, threads, synchronized posts, and isolation between users."""

from pathlib import Path

import msgspec
import pytest

from auth.context import READ, WRITE
from server.app import build_app
from server.compat.agentchatbus.agents import REPLY_TOKEN_LIMITS
from server.compat.agentchatbus.service import MessageBus
from server.metrics import Metrics
from tests.cases import each_case
from tests.server.compat.agentchatbus.bus_agent import BusAgent, contents, detail
from tests.server.compat.agentkit.conversations_api import create_conversation, post
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

THREAD = {"id", "topic", "status", "system_prompt", "created_at", "updated_at", "message_count"}
OPENED = THREAD | {"template_id", "current_seq", "reply_token", "reply_window"}
MESSAGE = {
    *("id", "thread_id", "seq", "author", "author_id", "author_name", "role", "content", "created_at"),
    *("priority", "reply_to_msg_id", "metadata"),
}


@pytest.fixture
async def agent(api: RestClient) -> BusAgent:
    return await BusAgent.register(api)


# Access


async def test_health_check_needs_no_credential(api: RestClient) -> None:
    response = await api.get("/health", None)

    assert response.status == 200
    assert response.json()["status"] == "ok"
    assert response.json()["service"] == "AgentChatBus"


async def test_single_user_server_needs_no_credential(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, jwt_secret="") as api:
        agent = await BusAgent.register(api, None)
        thread = await agent.create_thread()
        await agent.post(thread["id"], "angular signals are here")

        results = (await api.get("/api/search?q=signals", None)).json()

    assert [row["thread_id"] for row in results["results"]] == [thread["id"]]


@each_case(
    ("method", "path"),
    [
        ("GET", "/api/search?q=fox"),
        ("GET", "/api/threads"),
        ("POST", "/api/threads"),
        ("POST", "/api/agents/register"),
        ("GET", "/api/threads/x/messages"),
        ("POST", "/api/threads/x/messages"),
        ("POST", "/api/threads/x/sync-context"),
    ],
)
async def test_multi_user_server_requires_a_credential(api: RestClient, method: str, path: str) -> None:
    response = await api.request(method, path, None, {"Content-Type": "application/json"}, b"{}")

    assert (response.status, response.json()) == (401, {"detail": "authentication required"})


# Agents


async def test_registration_returns_a_name_and_a_token(api: RestClient) -> None:
    response = await post(api, "/api/agents/register", {"ide": "Cursor", "model": "gpt", "capabilities": ["review"]})

    registered = response.json()
    assert response.status == 200
    assert registered["name"] == "Cursor (gpt)"
    assert registered["capabilities"] == ["review"]
    assert registered["agent_id"]
    assert registered["token"]


async def test_agent_can_choose_its_display_name(api: RestClient) -> None:
    first, second = [await BusAgent.register(api, display_name="Reviewer") for _ in range(2)]

    assert (first.name, second.name) == ("Reviewer", "Reviewer 2")


async def test_too_long_agent_name_is_rejected(api: RestClient) -> None:
    response = await post(api, "/api/agents/register", {"ide": "x" * 3000, "model": "gpt"})

    assert response.status == 400
    assert detail(response) == "name: expected at most 1990 characters, got 3006"


async def test_registration_without_model_is_rejected_with_fastapis_422(api: RestClient) -> None:
    response = await post(api, "/api/agents/register", {"ide": "Cursor"})

    assert response.status == 422
    assert detail(response) == [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}]


async def test_agent_token_grants_nothing_to_another_user(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread()
    stolen = BusAgent(api, "ben", {"agent_id": agent.id, "name": agent.name, "token": agent.token})

    rejected = await post(
        api, "/api/threads", {"topic": "x", "creator_agent_id": agent.id}, "ben", X_Agent_Token=agent.token
    )
    written = await stolen.try_post(thread["id"], "hello")

    assert (rejected.status, detail(rejected)) == (401, "Invalid agent token")
    assert (written.status, detail(written)) == (404, "Thread not found")


# Threads


async def test_created_thread_includes_its_sync_context(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread("Plans", system_prompt="Be brief.", metadata={"team": "blue"})

    assert set(thread) == OPENED
    assert (thread["topic"], thread["status"], thread["current_seq"]) == ("Plans", "discuss", 0)
    assert (thread["system_prompt"], thread["template_id"]) == ("Be brief.", None)
    assert set(thread["reply_window"]) == {"expires_at", "max_new_messages"}


@each_case(
    ("token", "message"),
    [
        ({}, "X-Agent-Token header required to create thread as a registered agent"),
        ({"X_Agent_Token": "made-up"}, "Invalid agent token"),
    ],
)
async def test_creating_a_thread_requires_a_valid_agent_token(
    api: RestClient, agent: BusAgent, token: dict[str, str], message: str
) -> None:
    response = await post(api, "/api/threads", {"topic": "Plans", "creator_agent_id": agent.id}, **token)

    assert (response.status, response.json()) == (401, {"detail": message})


async def test_thread_is_also_a_conversation(api: RestClient, agent: BusAgent, ada: LibraryUser) -> None:
    thread = await agent.create_thread("Plans", metadata={"team": "blue"})
    await agent.post(thread["id"], "The zeppelin leaves at noon.")

    conversation = (await api.get(f"/conversations/{thread['id']}")).json()
    [hit] = await ada.search("chats_search", "zeppelin")

    assert (conversation["title"], conversation["namespace"]) == ("Plans", "bus")
    assert conversation["metadata"] == {"team": "blue", "creator_agent_id": agent.id}
    assert hit["id"] == thread["id"]


async def test_thread_limit_applies_per_user(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, bus_thread_max=2) as api:
        agent, other = await BusAgent.register(api), await BusAgent.register(api, "ben")
        for _ in range(2):
            await agent.create_thread()
        body = {"topic": "One too many", "creator_agent_id": agent.id}

        rejected = await post(api, "/api/threads", body, X_Agent_Token=agent.token)
        await other.create_thread()

    assert rejected.status == 409
    assert detail(rejected) == "the limit of 2 threads is reached; delete a conversation first"


async def test_too_long_topic_is_rejected_and_named(api: RestClient, agent: BusAgent) -> None:
    body = {"topic": "x" * 2001, "creator_agent_id": agent.id}

    rejected = await post(api, "/api/threads", body, X_Agent_Token=agent.token)

    assert rejected.status == 400
    assert detail(rejected).startswith("topic: ")


# Messages


async def test_posted_message_is_returned_as_stored(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread()

    message = await agent.post(
        thread["id"], "Hello", role="assistant", metadata={"mood": "good"}, mentions=["all"], priority="urgent"
    )
    [stored] = (await api.get(f"/api/threads/{thread['id']}/messages")).json()

    assert set(message) == MESSAGE
    assert message == stored
    assert (message["author"], message["author_id"]) == ("Cursor (gpt)", agent.id)
    assert (message["role"], message["content"], message["priority"]) == ("assistant", "Hello", "urgent")
    assert msgspec.json.decode(message["metadata"]) == {"mood": "good", "mentions": ["all"]}


async def test_unregistered_author_can_post_under_any_name(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread()
    path = f"/api/threads/{thread['id']}/messages"

    named = await post(api, path, {"author": "Grace", "content": "Hi", "author_name": "ignored"})
    unnamed = await post(api, path, {"content": "Hi"})

    assert (named.json()["author"], named.json()["author_id"], named.json()["metadata"]) == ("Grace", None, None)
    assert (unnamed.json()["author"], unnamed.json()["role"]) == ("human", "user")


@each_case(
    ("token", "message"),
    [
        ({}, "X-Agent-Token header required to post as a registered agent"),
        ({"X_Agent_Token": "made-up"}, "Invalid agent token"),
    ],
)
async def test_posting_as_a_registered_agent_requires_its_token(
    api: RestClient, agent: BusAgent, token: dict[str, str], message: str
) -> None:
    thread = await agent.create_thread()

    body = {"author": agent.id, "content": "Hi"}
    response = await post(api, f"/api/threads/{thread['id']}/messages", body, **token)

    assert (response.status, response.json()) == (401, {"detail": message})
    assert response.header("www-authenticate")
    assert await contents(api, thread["id"]) == []


async def test_missing_thread_is_reported_before_any_other_error(api: RestClient, agent: BusAgent) -> None:
    body = {"author": agent.id, "content": "Hi", "role": "system", "reply_to_msg_id": "nowhere", "reply_token": "none"}

    response = await post(api, "/api/threads/nowhere/messages", body)

    assert (response.status, response.json()) == (404, {"detail": "Thread not found"})


async def test_human_cannot_post_with_role_system(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread()

    response = await post(api, f"/api/threads/{thread['id']}/messages", {"content": "Hi", "role": "system"})

    assert (response.status, detail(response)) == (400, "role 'system' is not allowed for human messages")


async def test_reply_must_name_a_message_of_its_thread(api: RestClient, agent: BusAgent) -> None:
    thread, other = await agent.create_thread(), await agent.create_thread()
    first = await agent.post(thread["id"], "Hello?")

    response = await agent.post(thread["id"], "Yes?", reply_to_msg_id=first["id"])
    rejected = [
        await agent.try_post(other["id"], "Yes?", reply_to_msg_id=first["id"]),
        await agent.try_post(thread["id"], "Yes?", reply_to_msg_id="nowhere"),
    ]

    assert response["reply_to_msg_id"] == first["id"]
    assert [one.status for one in rejected] == [400, 400]
    assert "expected the id of a message of this thread" in detail(rejected[0])


async def test_seq_increases_across_threads(api: RestClient, agent: BusAgent) -> None:
    threads = [(await agent.create_thread())["id"] for _ in range(2)]

    messages = [await agent.post(threads[n % 2], f"word {n}") for n in range(4)]

    assert [message["seq"] for message in messages] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", range(7)),
        ("after_seq=0&limit=3", range(3)),
        ("after_seq=3", range(2, 7)),
        ("after_seq=12&limit=1", range(6, 7)),
        ("after_seq=13", range(0)),
        ("after_seq=99", range(0)),
        ("after_seq=-5&limit=0", range(1)),
    ],
)
async def test_messages_can_be_read_after_a_seq(api: RestClient, agent: BusAgent, query: str, expected: range) -> None:
    thread, other = [(await agent.create_thread())["id"] for _ in range(2)]
    for n in range(7):  # seq 1, 3, 5, 7, 9, 11, 13
        await agent.post(thread, f"word {n}")
        await agent.post(other, "in between")

    assert await contents(api, thread, query) == [f"word {n}" for n in expected]


async def test_agents_of_one_user_share_threads(api: RestClient, agent: BusAgent) -> None:
    other = await BusAgent.register(api)
    thread = (await agent.create_thread())["id"]

    await agent.post(thread, "Shall we?")
    await other.post(thread, "We shall.")

    messages = (await api.get(f"/api/threads/{thread}/messages")).json()
    assert [(one["author"], one["content"]) for one in messages] == [
        ("Cursor (gpt)", "Shall we?"),
        ("Cursor (gpt) 2", "We shall."),
    ]


# Synchronization


async def test_post_after_unread_messages_is_rejected_with_those_messages(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread())["id"]
    read = await agent.post(thread, "one")
    missed = [await agent.post(thread, text) for text in ("two", "three")]

    response = await agent.try_post(thread, "late", expected_last_seq=read["seq"])

    assert response.status == 409
    assert detail(response) == {
        "error": "SEQ_MISMATCH",
        "expected_last_seq": read["seq"],
        "current_seq": missed[-1]["seq"],
        "new_messages": missed,
        "action": "RE_READ_AND_RETRY",
    }
    assert await contents(api, thread) == ["one", "two", "three"]


async def test_post_with_current_seq_and_reply_token_is_written(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread()
    sync = {"expected_last_seq": thread["current_seq"], "reply_token": thread["reply_token"]}
    first = await agent.post(thread["id"], "one", **sync)

    synced = (await api.request("POST", f"/api/threads/{thread['id']}/sync-context", "ada")).json()
    await agent.post(thread["id"], "two", expected_last_seq=synced["current_seq"], reply_token=synced["reply_token"])

    assert synced["current_seq"] == first["seq"]
    assert await contents(api, thread["id"]) == ["one", "two"]


async def test_reply_token_can_be_used_once(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread()
    await agent.post(thread["id"], "one", reply_token=thread["reply_token"])

    response = await agent.try_post(thread["id"], "again", reply_token=thread["reply_token"])

    assert response.status == 400
    assert detail(response)["error"] == "TOKEN_REPLAY"
    assert detail(response)["action"] == "CALL_SYNC_CONTEXT_THEN_RETRY"
    assert detail(response)["consumed_at"].endswith("+00:00")
    assert await contents(api, thread["id"]) == ["one"]


async def test_rejected_post_does_not_consume_its_reply_token(api: RestClient, agent: BusAgent) -> None:
    thread = await agent.create_thread()
    sync = {"expected_last_seq": 0, "reply_token": thread["reply_token"]}
    missed = await agent.post(thread["id"], "first")

    rejected = await agent.try_post(thread["id"], "late", **sync)
    await agent.post(thread["id"], "now", **{**sync, "expected_last_seq": missed["seq"]})

    assert rejected.status == 409
    assert await contents(api, thread["id"]) == ["first", "now"]


@each_case("token", ["made-up", "of another thread"])
async def test_reply_token_of_another_thread_is_rejected(api: RestClient, agent: BusAgent, token: str) -> None:
    thread, other = await agent.create_thread(), await agent.create_thread()
    presented = other["reply_token"] if token == "of another thread" else token

    response = await agent.try_post(thread["id"], "Hi", reply_token=presented)

    assert response.status == 400
    assert detail(response) == {"error": "TOKEN_INVALID", "action": "CALL_SYNC_CONTEXT_THEN_RETRY"}


async def test_expired_reply_token_is_rejected(api: RestClient) -> None:
    now, runtime = [1_800_000_000.0], api.server.runtime
    bus = MessageBus(runtime.libraries, runtime.settings, lambda: now[0])
    app = build_app(msgspec.structs.replace(runtime, bus=bus), Metrics())
    agent = await BusAgent.register(RestClient(api.server, app))
    thread = await agent.create_thread()
    now[0] += REPLY_TOKEN_LIMITS.ttl_s

    response = await agent.try_post(thread["id"], "late", reply_token=thread["reply_token"])

    assert response.status == 400
    assert detail(response) == {
        "error": "TOKEN_EXPIRED",
        "expires_at": thread["reply_window"]["expires_at"],
        "action": "CALL_SYNC_CONTEXT_THEN_RETRY",
    }


async def test_post_without_sync_fields_is_rejected_when_sync_is_required(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, bus_sync_required=True) as api:
        agent = await BusAgent.register(api)
        thread = await agent.create_thread()

        response = await agent.try_post(thread["id"], "Hi", expected_last_seq=0)
        await agent.post(thread["id"], "Hi", expected_last_seq=0, reply_token=thread["reply_token"])

    assert response.status == 400
    assert detail(response) == {
        "error": "MISSING_SYNC_FIELDS",
        "missing_fields": ["reply_token"],
        "action": "CALL_SYNC_CONTEXT_THEN_RETRY",
    }


async def test_rate_limited_post_returns_the_time_to_wait(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_tool_per_minute=1, rate_tool_burst=2) as api:
        agent = await BusAgent.register(api)
        thread = await agent.create_thread()
        for text in ("one", "two"):
            await agent.post(thread["id"], text)

        response = await agent.try_post(thread["id"], "three")

    assert response.status == 429
    assert response.json()["error"] == "Rate limit exceeded"
    assert int(response.header("retry-after") or 0) == response.json()["retry_after"] > 0
    assert detail(response).endswith(f"retry after {response.json()['retry_after']} s")


# Isolation and restricted credentials


@each_case(("method", "tail"), [("GET", "messages"), ("POST", "messages"), ("POST", "sync-context")])
async def test_thread_of_another_user_looks_nonexistent(
    api: RestClient, agent: BusAgent, method: str, tail: str
) -> None:
    thread = (await agent.create_thread())["id"]
    await agent.post(thread, "a secret")

    foreign, absent = [
        await api.request(
            method, f"/api/threads/{one}/{tail}", "ben", {"Content-Type": "application/json"}, b'{"content":"x"}'
        )
        for one in (thread, "00000000-0000-4000-8000-000000000000")
    ]

    assert foreign.comparable() == absent.comparable()
    assert (foreign.status, foreign.json()) == (404, {"detail": "Thread not found"})
    assert await contents(api, thread) == ["a secret"]


async def test_threads_of_another_user_are_not_counted(api: RestClient, agent: BusAgent) -> None:
    await agent.create_thread()

    assert (await api.get("/api/threads", "ben")).json() == {
        "threads": [],
        "total": 0,
        "has_more": False,
        "next_cursor": None,
    }


async def test_read_only_credential_cannot_write(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread())["id"]
    reading = {**await api.server.bearer("ada", (READ,)), "Content-Type": "application/json"}

    responses = [
        await api.request("POST", "/api/agents/register", None, reading, b'{"ide":"x","model":"y"}'),
        await api.request("POST", f"/api/threads/{thread}/messages", None, reading, b'{"content":"x"}'),
    ]

    assert [response.status for response in responses] == [403, 403]
    assert (await api.request("GET", f"/api/threads/{thread}/messages", None, reading)).status == 200


async def profile_key(api: RestClient, who: str, profile: str, *scopes: str) -> dict[str, str]:
    """Returns the headers of an agent with a key that is restricted to a profile."""
    user = await api.server.user(who)
    _, secret = await api.server.runtime.registry.create_key(user.id, "agent", scopes, profile=profile)
    return {"Authorization": f"Bearer {secret}"}


async def test_profile_key_reads_human_only_messages_redacted(api: RestClient, agent: BusAgent) -> None:
    thread = (await agent.create_thread())["id"]
    images = [{"url": "https://example.com/password.png"}]
    await agent.post(thread, "the password is mango", metadata={"visibility": "human_only"}, images=images)
    key = await profile_key(api, "ada", "bus", READ, WRITE)

    read = await api.get(f"/api/threads/{thread}/messages", None, **key)
    searched = await api.get("/api/search?q=mango", None, **key)
    late = await post(api, f"/api/threads/{thread}/messages", {"content": "x", "expected_last_seq": 0}, None, **key)

    assert [one["content"] for one in read.json()] == ["[human-only content hidden]"]
    assert [one["metadata"] for one in read.json()] == ['{"human_only":true}']
    assert (searched.json()["results"], searched.json()["total"]) == ([], 0)
    assert [one["content"] for one in detail(late)["new_messages"]] == ["[human-only content hidden]"]
    assert b"password" not in read.body + searched.body + late.body


async def test_bus_profile_key_can_use_the_whole_bus(api: RestClient) -> None:
    key = await profile_key(api, "ada", "bus", READ, WRITE)

    registered = (await post(api, "/api/agents/register", {"ide": "x", "model": "y"}, None, **key)).json()
    token = {**key, "X_Agent_Token": registered["token"]}
    opening = {"topic": "Plans", "creator_agent_id": registered["agent_id"]}
    thread = (await post(api, "/api/threads", opening, None, **token)).json()["id"]
    sync = (await post(api, f"/api/threads/{thread}/sync-context", {}, None, **key)).json()
    words = {"author": registered["agent_id"], "content": "a galleon", "reply_token": sync["reply_token"]}
    posted = await post(api, f"/api/threads/{thread}/messages", words, None, **token)

    assert posted.status == 201
    assert (await api.get("/api/search?q=galleon", None, **key)).json()["total"] == 1
    assert (await api.get("/api/threads", None, **key)).json()["total"] == 1
    assert (await api.get("/api/threads", "ben")).json()["total"] == 0
    assert await contents(api, thread) == ["a galleon"]


@each_case(
    ("method", "path"),
    [
        ("GET", "/conversations"),
        ("POST", "/conversations"),
        ("DELETE", "/conversations/{}"),
        ("POST", "/conversations/{}/messages"),
        ("GET", "/namespaces"),
        ("POST", "/api/v1/search"),
        ("POST", "/api/v1/import?name=x"),
        ("POST", "/v1/chat/completions"),
    ],
)
async def test_bus_profile_key_cannot_use_other_operations(api: RestClient, method: str, path: str) -> None:
    talk = await create_conversation(api, title="No thread")
    key = await profile_key(api, "ada", "bus", READ, WRITE)

    response = await api.request(method, path.format(talk), None, {**key, "Content-Type": "application/json"}, b"{}")

    assert response.status == 403
    assert b"not part of the profile 'bus'" in response.body


async def test_bus_profile_key_can_post_only_in_threads(api: RestClient) -> None:
    talk = await create_conversation(api, title="No thread")
    key = await profile_key(api, "ada", "bus", READ, WRITE)

    responses = [
        await post(api, f"/api/threads/{one}/{tail}", body, None, **key)
        for one in (talk, "00000000-0000-4000-8000-000000000000")
        for tail, body in (("messages", {"content": "x"}), ("sync-context", {}))
    ]

    assert {(response.status, response.body) for response in responses} == {(404, b'{"detail":"Thread not found"}')}
    assert await contents(api, talk) == []


@each_case(
    ("profile", "scopes", "can_search", "can_write"),
    [
        ("bus", (READ,), True, False),
        ("default", (READ, WRITE), True, True),
        ("full", (READ, WRITE), True, True),
        ("compact", (READ, WRITE), True, False),
        ("letta", (READ, WRITE), False, False),
        ("research", (READ, WRITE), False, False),
        ("memory", (READ, WRITE), False, False),
    ],
)
async def test_keys_of_other_profiles_search_and_write_as_their_tools_allow(
    api: RestClient, profile: str, scopes: tuple[str, ...], can_search: bool, can_write: bool
) -> None:
    key = await profile_key(api, "ada", profile, *scopes)

    searched = await api.get("/api/search?q=galleon", None, **key)
    registered = await post(api, "/api/agents/register", {"ide": "x", "model": "y"}, None, **key)

    assert searched.status == (200 if can_search else 403)
    assert registered.status == (200 if can_write else 403)
