"""The small message bus: agents register, open threads, write in step with each other, and see no other user's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from auth.principal import READ, WRITE
from server.compat.agentchatbus.routes import bus_operations
from server.compat.agentchatbus.service import build_message_bus
from server.rest.handler import RestHandler
from tests.server.compat.agentkit.conversing import keep, post
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

THREAD = {"id", "topic", "status", "system_prompt", "created_at", "updated_at", "message_count"}
OPENED = THREAD | {"template_id", "current_seq", "reply_token", "reply_window"}
MESSAGE = {
    *("id", "thread_id", "seq", "author", "author_id", "author_name", "role", "content", "created_at"),
    *("priority", "reply_to_msg_id", "metadata"),
}


class Member:
    """A registered agent of some user."""

    def __init__(self, api: RestClient, who: str | None, registration: Any) -> None:
        self.api = api
        self.who = who
        self.id = registration["agent_id"]
        self.name = registration["name"]
        self.token = registration["token"]

    @classmethod
    async def of(cls, api: RestClient, who: str | None = "ada", **given: Any) -> "Member":
        answer = await post(api, "/api/agents/register", {"ide": "Cursor", "model": "gpt", **given}, who)
        assert answer.status == 200, answer.body
        return cls(api, who, answer.json())

    async def open_thread(self, topic: str = "Plans", **given: Any) -> Any:
        body = {"topic": topic, "creator_agent_id": self.id, **given}
        answer = await post(self.api, "/api/threads", body, self.who, X_Agent_Token=self.token)
        assert answer.status == 201, answer.body
        return answer.json()

    async def try_to_say(self, thread: str, content: str, **given: Any) -> HttpResponse:
        body = {"author": self.id, "content": content, **given}
        return await post(self.api, f"/api/threads/{thread}/messages", body, self.who, X_Agent_Token=self.token)

    async def say(self, thread: str, content: str, **given: Any) -> Any:
        answer = await self.try_to_say(thread, content, **given)
        assert answer.status == 201, answer.body
        return answer.json()


@pytest.fixture
async def agent(api: RestClient) -> Member:
    return await Member.of(api)


async def said(api: RestClient, thread: str, query: str = "", who: str | None = "ada") -> list[str]:
    return [message["content"] for message in (await api.get(f"/api/threads/{thread}/messages?{query}", who)).json()]


def error_of(answer: HttpResponse) -> Any:
    return answer.json()["detail"]


# -- being there


async def test_a_bus_says_that_it_is_there_to_anybody(api: RestClient) -> None:
    answer = await api.get("/health", None)

    assert answer.status == 200
    assert answer.json()["status"] == "ok"
    assert answer.json()["service"] == "AgentChatBus"


async def test_one_user_alone_needs_no_credential(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, jwt_secret="") as api:
        agent = await Member.of(api, None)
        thread = await agent.open_thread()
        await agent.say(thread["id"], "angular signals are here")

        found = (await api.get("/api/search?q=signals", None)).json()

    assert [row["thread_id"] for row in found["results"]] == [thread["id"]]


@pytest.mark.parametrize(
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
async def test_where_there_are_users_a_credential_is_needed(api: RestClient, method: str, path: str) -> None:
    answer = await api.request(method, path, None, {"Content-Type": "application/json"}, b"{}")

    assert (answer.status, answer.json()) == (401, {"detail": "authentication required"})


# -- agents


async def test_an_agent_registers_and_is_given_a_name_and_a_token(api: RestClient) -> None:
    answer = await post(api, "/api/agents/register", {"ide": "Cursor", "model": "gpt", "capabilities": ["review"]})

    registered = answer.json()
    assert answer.status == 200
    assert registered["name"] == "Cursor (gpt)"
    assert registered["capabilities"] == ["review"]
    assert registered["agent_id"]
    assert registered["token"]


async def test_an_agent_may_choose_its_name(api: RestClient) -> None:
    first, second = [await Member.of(api, display_name="Reviewer") for _ in range(2)]

    assert (first.name, second.name) == ("Reviewer", "Reviewer 2")


async def test_a_name_that_is_too_long_is_refused(api: RestClient) -> None:
    answer = await post(api, "/api/agents/register", {"ide": "x" * 3000, "model": "gpt"})

    assert answer.status == 400
    assert error_of(answer) == "name: got 3006 characters, expected at most 1990"


async def test_a_registration_that_lacks_something_says_what_as_the_original_does(api: RestClient) -> None:
    answer = await post(api, "/api/agents/register", {"ide": "Cursor"})

    assert answer.status == 422
    assert error_of(answer) == [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}]


async def test_an_agents_token_opens_nothing_of_another_user(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread()
    stolen = Member(api, "ben", {"agent_id": agent.id, "name": agent.name, "token": agent.token})

    refused = await post(
        api, "/api/threads", {"topic": "x", "creator_agent_id": agent.id}, "ben", X_Agent_Token=agent.token
    )
    written = await stolen.try_to_say(thread["id"], "hello")

    assert (refused.status, error_of(refused)) == (401, "Invalid agent token")
    assert (written.status, error_of(written)) == (404, "Thread not found")


# -- threads


async def test_a_thread_is_opened_with_what_the_next_message_needs(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread("Plans", system_prompt="Be brief.", metadata={"team": "blue"})

    assert set(thread) == OPENED
    assert (thread["topic"], thread["status"], thread["current_seq"]) == ("Plans", "discuss", 0)
    assert (thread["system_prompt"], thread["template_id"]) == ("Be brief.", None)
    assert set(thread["reply_window"]) == {"expires_at", "max_new_messages"}


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ({}, "X-Agent-Token header required to create thread as a registered agent"),
        ({"X_Agent_Token": "made-up"}, "Invalid agent token"),
    ],
)
async def test_a_thread_is_opened_by_agents_alone(
    api: RestClient, agent: Member, token: dict[str, str], told: str
) -> None:
    answer = await post(api, "/api/threads", {"topic": "Plans", "creator_agent_id": agent.id}, **token)

    assert (answer.status, answer.json()) == (401, {"detail": told})


async def test_threads_are_listed_those_last_written_to_first(api: RestClient, agent: Member) -> None:
    threads = [(await agent.open_thread(topic))["id"] for topic in ("One", "Two", "Three")]
    await keep(api, title="No thread")
    await agent.say(threads[0], "hello")

    listed = (await api.get("/api/threads?limit=2")).json()
    rest = (await api.get("/api/threads?limit=2&offset=2")).json()

    assert set(listed["threads"][0]) == THREAD
    assert (listed["total"], listed["has_more"], rest["has_more"]) == (3, True, False)
    assert listed["threads"][0]["id"] == threads[0]
    assert {one["id"] for page in (listed, rest) for one in page["threads"]} == set(threads)


async def test_a_thread_is_a_conversation_like_others(api: RestClient, agent: Member, ada: LibraryUser) -> None:
    thread = await agent.open_thread("Plans", metadata={"team": "blue"})
    await agent.say(thread["id"], "The zeppelin leaves at noon.")

    kept = (await api.get(f"/conversations/{thread['id']}")).json()
    [hit] = await ada.search("chats_search", "zeppelin")

    assert (kept["title"], kept["namespace"]) == ("Plans", "bus")
    assert kept["metadata"] == {"team": "blue", "creator_agent_id": agent.id}
    assert hit["id"] == thread["id"]


async def test_a_user_has_so_many_threads_and_no_more(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, bus_thread_max=2) as api:
        agent, other = await Member.of(api), await Member.of(api, "ben")
        for _ in range(2):
            await agent.open_thread()
        body = {"topic": "One too many", "creator_agent_id": agent.id}

        refused = await post(api, "/api/threads", body, X_Agent_Token=agent.token)
        await other.open_thread()

    assert refused.status == 409
    assert error_of(refused) == "there are 2 threads already; delete a conversation first"


async def test_a_topic_that_is_too_long_is_refused_by_its_name(api: RestClient, agent: Member) -> None:
    body = {"topic": "x" * 2001, "creator_agent_id": agent.id}

    refused = await post(api, "/api/threads", body, X_Agent_Token=agent.token)

    assert refused.status == 400
    assert error_of(refused).startswith("topic: ")


# -- messages


async def test_a_message_is_answered_as_it_is_kept(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread()

    message = await agent.say(
        thread["id"], "Hello", role="assistant", metadata={"mood": "good"}, mentions=["all"], priority="urgent"
    )
    [kept] = (await api.get(f"/api/threads/{thread['id']}/messages")).json()

    assert set(message) == MESSAGE
    assert message == kept
    assert (message["author"], message["author_id"]) == ("Cursor (gpt)", agent.id)
    assert (message["role"], message["content"], message["priority"]) == ("assistant", "Hello", "urgent")
    assert msgspec.json.decode(message["metadata"]) == {"mood": "good", "mentions": ["all"]}


async def test_anybody_else_writes_under_any_name(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread()
    path = f"/api/threads/{thread['id']}/messages"

    named = await post(api, path, {"author": "Grace", "content": "Hi", "author_name": "ignored"})
    unnamed = await post(api, path, {"content": "Hi"})

    assert (named.json()["author"], named.json()["author_id"], named.json()["metadata"]) == ("Grace", None, None)
    assert (unnamed.json()["author"], unnamed.json()["role"]) == ("human", "user")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ({}, "X-Agent-Token header required to post as a registered agent"),
        ({"X_Agent_Token": "made-up"}, "Invalid agent token"),
    ],
)
async def test_nobody_writes_as_a_registered_agent_without_its_token(
    api: RestClient, agent: Member, token: dict[str, str], told: str
) -> None:
    thread = await agent.open_thread()

    body = {"author": agent.id, "content": "Hi"}
    answer = await post(api, f"/api/threads/{thread['id']}/messages", body, **token)

    assert (answer.status, answer.json()) == (401, {"detail": told})
    assert answer.header("www-authenticate")
    assert await said(api, thread["id"]) == []


async def test_a_thread_that_is_not_there_is_told_before_anything_else(api: RestClient, agent: Member) -> None:
    body = {"author": agent.id, "content": "Hi", "role": "system", "reply_to_msg_id": "nowhere", "reply_token": "none"}

    answer = await post(api, "/api/threads/nowhere/messages", body)

    assert (answer.status, answer.json()) == (404, {"detail": "Thread not found"})


async def test_no_human_speaks_for_the_system(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread()

    answer = await post(api, f"/api/threads/{thread['id']}/messages", {"content": "Hi", "role": "system"})

    assert (answer.status, error_of(answer)) == (400, "role 'system' is not allowed for human messages")


async def test_an_answer_names_a_message_of_its_thread(api: RestClient, agent: Member) -> None:
    thread, other = await agent.open_thread(), await agent.open_thread()
    first = await agent.say(thread["id"], "Hello?")

    answer = await agent.say(thread["id"], "Yes?", reply_to_msg_id=first["id"])
    refused = [
        await agent.try_to_say(other["id"], "Yes?", reply_to_msg_id=first["id"]),
        await agent.try_to_say(thread["id"], "Yes?", reply_to_msg_id="nowhere"),
    ]

    assert answer["reply_to_msg_id"] == first["id"]
    assert [one.status for one in refused] == [400, 400]
    assert "expected the id of a message of this thread" in error_of(refused[0])


async def test_seq_rises_over_all_threads(api: RestClient, agent: Member) -> None:
    threads = [(await agent.open_thread())["id"] for _ in range(2)]

    said_ = [await agent.say(threads[n % 2], f"word {n}") for n in range(4)]

    assert [message["seq"] for message in said_] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("query", "found"),
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
async def test_a_thread_is_read_on_from_a_seq(api: RestClient, agent: Member, query: str, found: range) -> None:
    thread, other = [(await agent.open_thread())["id"] for _ in range(2)]
    for n in range(7):  # seq 1, 3, 5, 7, 9, 11, 13
        await agent.say(thread, f"word {n}")
        await agent.say(other, "in between")

    assert await said(api, thread, query) == [f"word {n}" for n in found]


async def test_agents_of_one_user_share_a_thread(api: RestClient, agent: Member) -> None:
    other = await Member.of(api)
    thread = (await agent.open_thread())["id"]

    await agent.say(thread, "Shall we?")
    await other.say(thread, "We shall.")

    messages = (await api.get(f"/api/threads/{thread}/messages")).json()
    assert [(one["author"], one["content"]) for one in messages] == [
        ("Cursor (gpt)", "Shall we?"),
        ("Cursor (gpt) 2", "We shall."),
    ]


# -- in step


async def test_a_message_after_one_that_was_not_read_is_refused_with_what_was_missed(
    api: RestClient, agent: Member
) -> None:
    thread = (await agent.open_thread())["id"]
    read = await agent.say(thread, "one")
    missed = [await agent.say(thread, text) for text in ("two", "three")]

    answer = await agent.try_to_say(thread, "late", expected_last_seq=read["seq"])

    assert answer.status == 409
    assert error_of(answer) == {
        "error": "SEQ_MISMATCH",
        "expected_last_seq": read["seq"],
        "current_seq": missed[-1]["seq"],
        "new_messages": missed,
        "action": "RE_READ_AND_RETRY",
    }
    assert await said(api, thread) == ["one", "two", "three"]


async def test_a_message_after_the_last_is_written_with_its_reply_token(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread()
    step = {"expected_last_seq": thread["current_seq"], "reply_token": thread["reply_token"]}
    first = await agent.say(thread["id"], "one", **step)

    synced = (await api.request("POST", f"/api/threads/{thread['id']}/sync-context", "ada")).json()
    await agent.say(thread["id"], "two", expected_last_seq=synced["current_seq"], reply_token=synced["reply_token"])

    assert synced["current_seq"] == first["seq"]
    assert await said(api, thread["id"]) == ["one", "two"]


async def test_a_reply_token_is_good_once(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread()
    await agent.say(thread["id"], "one", reply_token=thread["reply_token"])

    answer = await agent.try_to_say(thread["id"], "again", reply_token=thread["reply_token"])

    assert answer.status == 400
    assert error_of(answer)["error"] == "TOKEN_REPLAY"
    assert error_of(answer)["action"] == "CALL_SYNC_CONTEXT_THEN_RETRY"
    assert error_of(answer)["consumed_at"].endswith("+00:00")
    assert await said(api, thread["id"]) == ["one"]


async def test_a_refused_message_leaves_its_reply_token_good(api: RestClient, agent: Member) -> None:
    thread = await agent.open_thread()
    step = {"expected_last_seq": 0, "reply_token": thread["reply_token"]}
    missed = await agent.say(thread["id"], "first")

    refused = await agent.try_to_say(thread["id"], "late", **step)
    await agent.say(thread["id"], "now", **{**step, "expected_last_seq": missed["seq"]})

    assert refused.status == 409
    assert await said(api, thread["id"]) == ["first", "now"]


@pytest.mark.parametrize("token", ["made-up", "of another thread"])
async def test_a_reply_token_that_is_not_of_the_thread_is_refused(api: RestClient, agent: Member, token: str) -> None:
    thread, other = await agent.open_thread(), await agent.open_thread()
    shown = other["reply_token"] if token == "of another thread" else token

    answer = await agent.try_to_say(thread["id"], "Hi", reply_token=shown)

    assert answer.status == 400
    assert error_of(answer) == {"error": "TOKEN_INVALID", "action": "CALL_SYNC_CONTEXT_THEN_RETRY"}


async def test_a_reply_token_expires(api: RestClient) -> None:
    now, runtime = [1_800_000_000.0], api.server.runtime
    bus = build_message_bus(runtime.libraries, runtime.settings, lambda: now[0])
    doors: dict[str, list[Any]] = {}
    for operation in bus_operations(bus):
        doors.setdefault(operation.path, []).append(operation)
    routes = [Route(path, RestHandler(api.server.runtime, operations)) for path, operations in doors.items()]
    agent = await Member.of(RestClient(api.server, Starlette(routes=routes)))
    thread = await agent.open_thread()
    now[0] += api.server.runtime.settings.bus_reply_token_ttl_s

    answer = await agent.try_to_say(thread["id"], "late", reply_token=thread["reply_token"])

    assert answer.status == 400
    assert error_of(answer) == {
        "error": "TOKEN_EXPIRED",
        "expires_at": thread["reply_window"]["expires_at"],
        "action": "CALL_SYNC_CONTEXT_THEN_RETRY",
    }


async def test_where_every_message_must_be_in_step_one_that_names_none_is_refused(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, bus_sync_required=True) as api:
        agent = await Member.of(api)
        thread = await agent.open_thread()

        answer = await agent.try_to_say(thread["id"], "Hi", expected_last_seq=0)
        await agent.say(thread["id"], "Hi", expected_last_seq=0, reply_token=thread["reply_token"])

    assert answer.status == 400
    assert error_of(answer) == {
        "error": "MISSING_SYNC_FIELDS",
        "missing_fields": ["reply_token"],
        "action": "CALL_SYNC_CONTEXT_THEN_RETRY",
    }


async def test_too_many_messages_at_once_are_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_tool_per_minute=1, rate_tool_burst=3) as api:
        agent = await Member.of(api)
        thread = await agent.open_thread()
        await agent.say(thread["id"], "one")

        answer = await agent.try_to_say(thread["id"], "two")

    assert answer.status == 429
    assert answer.json()["error"] == "Rate limit exceeded"
    assert int(answer.header("retry-after") or 0) == answer.json()["retry_after"] > 0
    assert error_of(answer).endswith(f"retry after {answer.json()['retry_after']} s")


# -- two users, and less than everything


@pytest.mark.parametrize(("method", "tail"), [("GET", "messages"), ("POST", "messages"), ("POST", "sync-context")])
async def test_a_thread_of_another_user_answers_as_one_that_is_not_there(
    api: RestClient, agent: Member, method: str, tail: str
) -> None:
    thread = (await agent.open_thread())["id"]
    await agent.say(thread, "a secret")

    foreign, absent = [
        await api.request(
            method, f"/api/threads/{one}/{tail}", "ben", {"Content-Type": "application/json"}, b'{"content":"x"}'
        )
        for one in (thread, "00000000-0000-4000-8000-000000000000")
    ]

    assert foreign.told() == absent.told()
    assert (foreign.status, foreign.json()) == (404, {"detail": "Thread not found"})
    assert await said(api, thread) == ["a secret"]


async def test_no_user_counts_anothers_threads(api: RestClient, agent: Member) -> None:
    await agent.open_thread()

    assert (await api.get("/api/threads", "ben")).json() == {"threads": [], "total": 0, "has_more": False}


async def test_a_caller_who_may_only_read_writes_nothing(api: RestClient, agent: Member) -> None:
    thread = (await agent.open_thread())["id"]
    reading = {**await api.server.bearer("ada", (READ,)), "Content-Type": "application/json"}

    answers = [
        await api.request("POST", "/api/agents/register", None, reading, b'{"ide":"x","model":"y"}'),
        await api.request("POST", f"/api/threads/{thread}/messages", None, reading, b'{"content":"x"}'),
    ]

    assert [answer.status for answer in answers] == [403, 403]
    assert (await api.request("GET", f"/api/threads/{thread}/messages", None, reading)).status == 200


async def bound_key(api: RestClient, who: str, profile: str, *scopes: str) -> dict[str, str]:
    """The headers of an agent that was given a key of that user's for one profile."""
    user = await api.server.user(who)
    _, secret = await api.server.runtime.registry.create_key(user.id, "agent", scopes, profile=profile)
    return {"Authorization": f"Bearer {secret}"}


async def test_a_key_that_is_bound_to_a_profile_reads_as_an_agent_does(api: RestClient, agent: Member) -> None:
    thread = (await agent.open_thread())["id"]
    await agent.say(thread, "the password is mango", metadata={"visibility": "human_only"})
    bound = await bound_key(api, "ada", "bus", READ, WRITE)

    read = await api.get(f"/api/threads/{thread}/messages", None, **bound)
    found = await api.get("/api/search?q=mango", None, **bound)
    late = await post(api, f"/api/threads/{thread}/messages", {"content": "x", "expected_last_seq": 0}, None, **bound)

    assert [one["content"] for one in read.json()] == ["[human-only content hidden]"]
    assert [one["content"] for one in found.json()["results"]] == ["[human-only content hidden]"]
    assert [one["content"] for one in error_of(late)["new_messages"]] == ["[human-only content hidden]"]
    assert b"password" not in read.body + found.body + late.body


async def test_a_key_bound_to_the_bus_does_all_that_an_agent_on_it_does(api: RestClient) -> None:
    bound = await bound_key(api, "ada", "bus", READ, WRITE)

    registered = (await post(api, "/api/agents/register", {"ide": "x", "model": "y"}, None, **bound)).json()
    token = {**bound, "X_Agent_Token": registered["token"]}
    opening = {"topic": "Plans", "creator_agent_id": registered["agent_id"]}
    thread = (await post(api, "/api/threads", opening, None, **token)).json()["id"]
    step = (await post(api, f"/api/threads/{thread}/sync-context", {}, None, **bound)).json()
    words = {"author": registered["agent_id"], "content": "a galleon", "reply_token": step["reply_token"]}
    posted = await post(api, f"/api/threads/{thread}/messages", words, None, **token)

    assert posted.status == 201
    assert (await api.get("/api/search?q=galleon", None, **bound)).json()["total"] == 1
    assert (await api.get("/api/threads", None, **bound)).json()["total"] == 1
    assert (await api.get("/api/threads", "ben")).json()["total"] == 0
    assert await said(api, thread) == ["a galleon"]


@pytest.mark.parametrize(
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
async def test_a_key_bound_to_the_bus_does_nothing_else(api: RestClient, method: str, path: str) -> None:
    talk = await keep(api, title="No thread")
    bound = await bound_key(api, "ada", "bus", READ, WRITE)

    answer = await api.request(method, path.format(talk), None, {**bound, "Content-Type": "application/json"}, b"{}")

    assert answer.status == 403
    assert b"outside the profile 'bus'" in answer.body


async def test_a_key_bound_to_the_bus_writes_in_threads_and_in_no_other_conversation(api: RestClient) -> None:
    talk = await keep(api, title="No thread")
    bound = await bound_key(api, "ada", "bus", READ, WRITE)

    answers = [
        await post(api, f"/api/threads/{one}/{tail}", body, None, **bound)
        for one in (talk, "00000000-0000-4000-8000-000000000000")
        for tail, body in (("messages", {"content": "x"}), ("sync-context", {}))
    ]

    assert {(answer.status, answer.body) for answer in answers} == {(404, b'{"detail":"Thread not found"}')}
    assert await said(api, talk) == []


@pytest.mark.parametrize(
    ("profile", "scopes", "may_search", "may_write"),
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
async def test_a_key_of_another_profile_finds_what_its_tools_find_and_writes_where_it_may_write_anyway(
    api: RestClient, profile: str, scopes: tuple[str, ...], may_search: bool, may_write: bool
) -> None:
    bound = await bound_key(api, "ada", profile, *scopes)

    searched = await api.get("/api/search?q=galleon", None, **bound)
    registered = await post(api, "/api/agents/register", {"ide": "x", "model": "y"}, None, **bound)

    assert searched.status == (200 if may_search else 403)
    assert registered.status == (200 if may_write else 403)
