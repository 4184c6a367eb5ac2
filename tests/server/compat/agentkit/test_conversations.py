"""The conversations API: what clients of the seed system find, and what they find only of their own."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from auth.principal import READ, SCOPES
from sources.drafts import MessageDraft
from tests.server.compat.agentkit.conversing import HELLO, found, ids, keep, post
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
SUMMARY = {"id", "session_id", "title", "namespace", "created_at", "updated_at", "message_count", "metadata"}
MESSAGE = {
    *("id", "conversation_id", "role", "content", "model", "tool_used", "attachments", "citations", "timestamp"),
    # Ours: whether it is on the path that a reader follows, and what it answers.
    *("is_canonical", "parent_id"),
}


def dated(day: int, **more: Any) -> dict[str, Any]:
    return {"created_at": f"2026-03-{day:02}T08:30:00Z", **more}


# -- list ---------------------------------------------------------------------------------------------------------


async def test_a_list_has_the_documented_shape(api: RestClient) -> None:
    made = await keep(api, *HELLO, session_id="s-1", title="Greetings", metadata={"mood": "good"})

    answer = (await api.get("/conversations?limit=10&offset=0")).json()

    (row,) = answer["conversations"]
    assert set(answer) == {"conversations", "total", "limit", "offset"}
    assert (answer["total"], answer["limit"], answer["offset"]) == (1, 10, 0)
    assert set(row) == SUMMARY
    assert (row["id"], row["session_id"], row["title"], row["namespace"]) == (made, "s-1", "Greetings", "default")
    assert (row["message_count"], row["metadata"]) == (2, {"mood": "good"})
    assert TIME.fullmatch(row["created_at"])
    assert TIME.fullmatch(row["updated_at"])


async def test_a_list_is_paged_newest_first_and_tells_the_true_total(api: RestClient, ada: LibraryUser) -> None:
    made = [await ada.add_chat(f"Talk {day}", **dated(day)) for day in range(1, 8)]

    pages = [(await api.get(f"/conversations?limit=3&offset={offset}")).json() for offset in (0, 3, 6, 9)]

    assert [row["id"] for page in pages for row in page["conversations"]] == made[::-1]
    assert [page["total"] for page in pages] == [7] * 4


async def test_fifty_conversations_are_a_page_unless_another_limit_is_asked_for(
    api: RestClient, ada: LibraryUser
) -> None:
    for n in range(52):
        await ada.add_chat(f"Talk {n}")

    answer = (await api.get("/conversations")).json()

    assert (len(answer["conversations"]), answer["limit"], answer["total"]) == (50, 50, 52)


@pytest.mark.parametrize(
    ("asked", "limit", "offset"),
    [("limit=0", 1, 0), ("limit=-1", 1, 0), ("limit=999999", 200, 0), ("offset=-5", 50, 0), ("limit=7", 7, 0)],
)
async def test_limits_and_offsets_are_moved_into_what_is_allowed_and_told(
    api: RestClient, asked: str, limit: int, offset: int
) -> None:
    answer = (await api.get(f"/conversations?{asked}")).json()

    assert (answer["limit"], answer["offset"]) == (limit, offset)


async def test_a_list_is_narrowed_by_namespace(api: RestClient) -> None:
    work = await keep(api, *HELLO, namespace="work")
    await keep(api, *HELLO)

    answer = (await api.get("/conversations?namespace=work")).json()

    assert ([row["id"] for row in answer["conversations"]], answer["total"]) == ([work], 1)
    assert (await api.get("/conversations?namespace=")).json()["total"] == 2


async def test_a_list_is_narrowed_by_a_part_of_title_or_id(api: RestClient) -> None:
    tea = await keep(api, title="Über 100% Darjeeling")
    cake = await keep(api, title="100 cakes")

    assert await ids(api, f"search={quote('ÜBER')}") == [tea]
    assert await ids(api, "search=100%25") == [tea]
    assert await ids(api, f"search={cake[3:20]}") == [cake]
    assert await ids(api, "search=coffee") == []


# -- detail -------------------------------------------------------------------------------------------------------


async def test_a_conversation_has_the_documented_shape_with_its_messages_oldest_first(api: RestClient) -> None:
    made = await keep(api, *HELLO, title="Greetings")

    answer = (await api.get(f"/conversations/{made}")).json()

    assert set(answer) == SUMMARY | {"messages"}
    assert [set(message) for message in answer["messages"]] == [MESSAGE, MESSAGE]
    assert [(m["role"], m["content"], m["model"], m["tool_used"]) for m in answer["messages"]] == [
        ("user", "Hello", None, None),
        ("assistant", "Hi there!", "gemini-2.0-flash-001", "idle"),
    ]
    assert {message["conversation_id"] for message in answer["messages"]} == {made}
    assert [message["attachments"] + message["citations"] for message in answer["messages"]] == [[], []]
    assert all(TIME.fullmatch(message["timestamp"]) for message in answer["messages"])


async def test_a_conversation_that_is_not_there_is_not_found(api: RestClient) -> None:
    answer = await api.get("/conversations/7a1e0b52-0000-4000-8000-000000000000")

    assert (answer.status, answer.json()["error"]["message"]) == (404, "Conversation not found")


async def test_a_long_conversation_is_read_on_where_the_answer_ended(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, conversation_messages_max=4, message_page_max=3) as api:
        made = await keep(api, *({"role": "user", "content": f"turn {n}"} for n in range(10)))
        told: list[str] = []
        offset: int | None = 0
        while offset is not None:
            part = (await api.get(f"/conversations/{made}?messages_offset={offset}")).json()
            told += [message["content"] for message in part["messages"]]
            assert part["message_count"] == 10
            offset = part.get("next_messages_offset")

    assert told == [f"turn {n}" for n in range(10)]


async def test_an_answer_ends_before_its_text_grows_too_large_but_never_before_one_message(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, conversation_response_max_bytes=1024) as api:
        made = await keep(api, *({"role": "user", "content": str(n) * 2000} for n in range(3)))

        part = (await api.get(f"/conversations/{made}?messages_offset=1")).json()

    assert ([m["content"][0] for m in part["messages"]], part["next_messages_offset"]) == (["1"], 2)


async def test_deleted_messages_leave_no_hole_in_what_is_read(api: RestClient, ada: LibraryUser) -> None:
    made = await keep(api, *({"role": "user", "content": f"turn {n}"} for n in range(6)))
    before = (await api.get(f"/conversations/{made}")).json()["messages"]
    async with ada.libraries.library(ada.context) as library:
        await library.chats.delete_message(before[2]["id"])

    after = (await api.get(f"/conversations/{made}?messages_limit=3")).json()

    assert [message["content"] for message in after["messages"]] == ["turn 0", "turn 1", "turn 3"]
    assert (after["message_count"], after["next_messages_offset"]) == (5, 3)


async def test_what_did_not_change_is_not_sent_again(api: RestClient) -> None:
    made = await keep(api, *HELLO)
    for path in ("/conversations", f"/conversations/{made}", "/conversations/search/messages?query=Hello"):
        first = await api.get(path)
        again = await api.get(path, if_none_match=first.header("etag") or "")
        assert (again.status, again.body) == (304, b"")

    etag = (await api.get(f"/conversations/{made}")).header("etag") or ""
    await api.request("PUT", f"/conversations/{made}?title=Other", "ada")

    assert (await api.get(f"/conversations/{made}", if_none_match=etag)).status == 200


# -- rename and delete --------------------------------------------------------------------------------------------


async def test_a_conversation_is_renamed(api: RestClient) -> None:
    made = await keep(api, *HELLO)

    answer = await api.request("PUT", f"/conversations/{made}?title=New+Title", "ada")

    assert (answer.status, answer.json()) == (200, {"success": True, "conversation_id": made})
    assert (await api.get(f"/conversations/{made}")).json()["title"] == "New Title"


async def test_renaming_without_a_title_keeps_it_and_counts_as_a_change(api: RestClient, ada: LibraryUser) -> None:
    made = await ada.add_chat("Old", **dated(1))
    before = (await api.get(f"/conversations/{made}")).json()

    answer = await api.request("PUT", f"/conversations/{made}", "ada")

    after = (await api.get(f"/conversations/{made}")).json()
    assert (answer.status, after["title"]) == (200, "Old")
    assert after["updated_at"] > before["updated_at"]


@pytest.mark.parametrize("purge", ["", "?purge=true"])
async def test_what_was_deleted_is_found_nowhere(api: RestClient, ada: LibraryUser, purge: str) -> None:
    made = await keep(api, {"role": "user", "content": "the galleon sailed at dawn"}, title="A galleon")

    answer = await api.request("DELETE", f"/conversations/{made}{purge}", "ada")

    assert (answer.status, answer.json()) == (200, {"success": True, "conversation_id": made})
    assert (await api.get(f"/conversations/{made}")).status == 404
    assert (await api.request("DELETE", f"/conversations/{made}{purge}", "ada")).status == 404
    assert (await api.request("PUT", f"/conversations/{made}?title=x", "ada")).status == 404
    assert (await api.request("POST", f"/conversations/{made}/export", "ada")).status == 404
    assert (await api.get("/conversations")).json()["total"] == 0
    assert await found(api, "galleon") == []
    assert await ada.search("chats_search", "galleon") == []
    assert await ada.search("knowledge_search", "galleon") == []
    assert b"galleon" not in (await api.get("/conversations/export")).body


async def test_what_was_purged_gives_its_id_back_and_what_was_only_deleted_does_not(api: RestClient) -> None:
    statuses = []
    for identity, query in (("c-1", ""), ("c-2", "?purge=true")):
        await keep(api, *HELLO, id=identity)
        await api.request("DELETE", f"/conversations/{identity}{query}", "ada")
        statuses.append((await post(api, "/conversations", {"id": identity})).status)

    assert statuses == [409, 201]


async def test_what_was_deleted_can_still_be_purged_once_and_by_nobody_else(api: RestClient) -> None:
    for who in ("ada", "ben"):
        await keep(api, *HELLO, who=who, id="c-1")
        await api.request("DELETE", "/conversations/c-1", who)
    await keep(api, *HELLO, id="c-2")
    await api.request("DELETE", "/conversations/c-2", "ada")

    purged = [(await api.request("DELETE", "/conversations/c-1?purge=true", "ada")).status for _ in range(2)]
    foreign, unknown = [
        await api.request("DELETE", f"/conversations/{one}?purge=true", "ben") for one in ("c-2", "c-3")
    ]

    assert purged == [200, 404]
    assert (foreign.status, unknown.status) == (404, 404)
    assert anonymous(foreign, "c-2") == anonymous(unknown, "c-3")
    # An id is given back by nothing but a purge: Ada's was, and neither what Ben has nor what he asked for.
    assert (await post(api, "/conversations", {"id": "c-1"}, "ada")).status == 201
    assert (await post(api, "/conversations", {"id": "c-1"}, "ben")).status == 409
    assert (await post(api, "/conversations", {"id": "c-2"}, "ada")).status == 409


# -- search -------------------------------------------------------------------------------------------------------


async def test_messages_are_found_by_a_part_of_their_text_newest_first(api: RestClient) -> None:
    said = ("Tell me about Python", "PYTHONs are snakes", "100% of cats")
    for n, text in enumerate(said):
        await keep(api, {"role": "user", "content": text, "timestamp": f"2026-03-0{n + 1}T08:30:00Z"})

    assert await found(api, "python") == ["PYTHONs are snakes", "Tell me about Python"]
    assert await found(api, "100%25") == ["100% of cats"]
    assert await found(api, "0%25_of") == []
    assert await found(api, "") == list(reversed(said))


async def test_found_messages_have_the_documented_shape(api: RestClient) -> None:
    await keep(api, *HELLO)

    answer = (await api.get("/conversations/search/messages?query=hi+there&limit=50")).json()

    (message,) = answer["messages"]
    assert set(message) == MESSAGE
    assert (message["model"], answer["total"], answer["has_more"]) == ("gemini-2.0-flash-001", 1, False)


async def test_a_title_is_no_message(api: RestClient) -> None:
    await keep(api, *HELLO, title="Greetings")

    assert await found(api, "Greetings") == []


async def test_a_search_is_kept_to_one_conversation_and_to_a_limit(api: RestClient) -> None:
    first, second = [await keep(api, *HELLO, *HELLO) for _ in range(2)]

    of_one = (await api.get(f"/conversations/search/messages?query=hello&conversation_id={second}")).json()
    limited = (await api.get("/conversations/search/messages?query=hello&limit=3")).json()
    nowhere = (await api.get("/conversations/search/messages?query=hello&conversation_id=none")).json()

    assert {message["conversation_id"] for message in of_one["messages"]} == {second} != {first}
    assert (limited["total"], limited["has_more"]) == (3, True)
    assert nowhere["messages"] == []


# -- export -------------------------------------------------------------------------------------------------------


async def export(api: RestClient, conversation: str, query: str = "", who: str = "ada") -> HttpResponse:
    return await api.request("POST", f"/conversations/{conversation}/export{query}", who)


@pytest.mark.parametrize("query", ["", "?format=json"])
async def test_an_export_as_json_is_the_whole_conversation(api: RestClient, query: str) -> None:
    made = await keep(api, *HELLO, title="Greetings")

    answer = await export(api, made, query)

    assert answer.header("content-type") == "application/json"
    assert answer.json() == (await api.get(f"/conversations/{made}")).json()


async def test_an_export_as_text_is_as_documented(api: RestClient, ada: LibraryUser) -> None:
    spoken = [MessageDraft(role=m["role"], content=m["content"], model=m.get("model")) for m in HELLO]
    made = await ada.add_chat("My Conversation", *spoken, **dated(9))

    answer = (await export(api, made, "?format=txt")).json()

    assert answer == {
        "content": (
            "Conversation: My Conversation\nCreated: 2026-03-09T08:30:00.000000+00:00\nNamespace: default\n"
            f"{'=' * 50}\n\nUSER: Hello\n\nASSISTANT: Hi there!\n  (Model: gemini-2.0-flash-001)\n"
        ),
        "format": "txt",
    }


async def test_an_export_as_markdown_is_as_documented(api: RestClient, ada: LibraryUser) -> None:
    spoken = [MessageDraft(role=m["role"], content=m["content"], model=m.get("model")) for m in HELLO]
    made = await ada.add_chat("My Conversation", *spoken, **dated(9))

    answer = (await export(api, made, "?format=md")).json()

    assert answer == {
        "content": (
            "# My Conversation\n\n**Created:** 2026-03-09T08:30:00.000000+00:00\n**Namespace:** default\n"
            "**Messages:** 2\n\n---\n\n### 👤 User\n\nHello\n\n"
            "### 🤖 Assistant\n*Model: gemini-2.0-flash-001*\n\nHi there!\n"
        ),
        "format": "md",
    }


REGENERATED = (
    MessageDraft(role="user", content="Threads?", uuid="u-1"),
    MessageDraft(role="assistant", content="Use gather.", parent_id="u-1"),
    MessageDraft(role="assistant", content="Use a xylophone.", parent_id="u-1", is_canonical=False),
)


async def test_a_message_says_whether_it_is_on_the_path_and_what_it_answers(api: RestClient, ada: LibraryUser) -> None:
    made = await ada.add_chat("Asyncio", *REGENERATED)

    messages = (await api.get(f"/conversations/{made}")).json()["messages"]
    [found] = (await api.get("/conversations/search/messages?query=xylophone")).json()["messages"]

    assert [one["is_canonical"] for one in messages] == [True, True, False]
    assert [one["parent_id"] for one in messages] == [None, "u-1", "u-1"]
    assert found == messages[2]
    assert (await export(api, made)).json()["messages"] == messages


@pytest.mark.parametrize(
    ("form", "spoken"),
    [
        ("txt", "ASSISTANT: Use gather.\n\nASSISTANT (alternate branch): Use a xylophone.\n"),
        ("md", "### 🤖 Assistant\n\nUse gather.\n\n### 🤖 Assistant (alternate branch)\n\nUse a xylophone.\n"),
    ],
)
async def test_an_export_for_people_marks_what_is_beside_the_path(
    api: RestClient, ada: LibraryUser, form: str, spoken: str
) -> None:
    made = await ada.add_chat("Asyncio", *REGENERATED)

    assert (await export(api, made, f"?format={form}")).json()["content"].endswith(spoken)


async def test_any_other_format_is_refused(api: RestClient) -> None:
    answer = await export(api, await keep(api, *HELLO), "?format=pdf")

    assert (answer.status, answer.json()["detail"]) == (400, "Invalid format. Supported: json, txt, md")


@pytest.mark.parametrize("form", ["json", "txt", "md"])
async def test_an_export_of_many_pages_is_whole(tmp_path: Path, form: str) -> None:
    async with open_rest_client(tmp_path, message_page_max=3) as api:
        said = [f'turn {n} "\\\n\u2028\U0001f600' for n in range(20)]
        made = await keep(api, *({"role": "user", "content": text} for text in said), title="T")

        answer = (await export(api, made, f"?format={form}")).json()

    text = "".join(m["content"] for m in answer["messages"]) if form == "json" else answer["content"]
    assert [text.count(turn) for turn in said] == [1] * 20


# -- whose --------------------------------------------------------------------------------------------------------


ROUTES = (
    ("GET", "/conversations/{}"),
    ("PUT", "/conversations/{}?title=Mine"),
    ("DELETE", "/conversations/{}"),
    ("DELETE", "/conversations/{}?purge=true"),
    ("POST", "/conversations/{}/export?format=json"),
    ("POST", "/conversations/{}/export?format=md"),
    ("GET", "/conversations/search/messages?query=Hello&conversation_id={}"),
    ("GET", "/conversations?search={}"),
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_conversation_of_another_is_as_one_that_does_not_exist(api: RestClient, method: str, path: str) -> None:
    made = await keep(api, *HELLO, session_id="s-1")
    absent = "0" * len(made)

    foreign, unknown = [await api.request(method, path.format(one), "ben") for one in (made, absent)]

    assert foreign.status == unknown.status
    assert anonymous(foreign, made) == anonymous(unknown, absent)
    assert (await api.get(f"/conversations/{made}")).json()["title"] == "Hello"


async def test_neither_of_two_users_lists_counts_or_finds_what_the_other_said(api: RestClient) -> None:
    for who, times in (("ada", 3), ("ben", 1)):
        for n in range(times):
            await keep(api, {"role": "user", "content": f"a secret of {who}"}, who=who, session_id=f"s-{n}")

    assert set(await found(api, "secret", "ben")) == {"a secret of ben"}
    assert [(await api.get("/conversations", who)).json()["total"] for who in ("ada", "ben")] == [3, 1]


def anonymous(answer: HttpResponse, identity: str) -> tuple[int, str]:
    """What an answer says when ids, times and the id of the request are taken out."""
    text = answer.body.decode().replace(identity, "ID")
    return answer.status, re.sub(rf'{TIME.pattern}|"request_id":"[^"]*"', "", text)


@pytest.mark.parametrize(
    ("method", "path"), [*ROUTES[1:4], ("POST", "/conversations"), ("POST", "/conversations/import")]
)
async def test_a_key_that_may_only_read_changes_nothing(api: RestClient, method: str, path: str) -> None:
    made = await keep(api, *HELLO)

    answer = await api.request(method, path.format(made), None, await api.server.bearer("ada", (READ,)))

    assert answer.status == 403
    assert answer.json()["error"]["code"] == "FORBIDDEN"
    assert (await api.get(f"/conversations/{made}")).json()["title"] == "Hello"


@pytest.mark.parametrize(
    ("profile", "statuses"),
    [("compact", [200, 200, 200, 403]), ("letta", [403, 403, 200, 403]), ("full", [200, 200, 200, 200])],
)
async def test_a_key_bound_to_a_profile_opens_what_the_tools_of_the_profile_tell(
    api: RestClient, profile: str, statuses: list[int]
) -> None:
    made = await keep(api, *HELLO)
    user = await api.server.user("ada")
    _, key = await api.server.runtime.registry.create_key(user.id, "k", SCOPES, profile=profile)
    asked = (
        ("GET", "/conversations"),
        ("GET", f"/conversations/{made}"),
        ("GET", "/conversations/search/messages?query=x"),
        ("PUT", f"/conversations/{made}?title=x"),
    )

    answers = [await api.request(*one, None, {"Authorization": f"Bearer {key}"}) for one in asked]

    assert [answer.status for answer in answers] == statuses


# -- refusals -----------------------------------------------------------------------------------------------------


async def test_a_refusal_is_in_the_known_envelope_with_a_detail_beside_it(api: RestClient) -> None:
    answer = await api.get("/conversations/none", x_request_id="mine")

    body = answer.json()
    stamp = body["error"].pop("timestamp")
    assert TIME.fullmatch(stamp)
    assert body == {
        "success": False,
        "error": {
            "code": "NOT_FOUND",
            "message": "Conversation not found",
            "details": {"status_code": 404, "path": "/conversations/none"},
            "retry_after": None,
        },
        "request_id": "mine",
        "detail": "Conversation not found",
    }
    assert answer.header("x-request-id") == "mine"


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/conversations/search/messages", {"type": "missing", "loc": ["query", "query"], "msg": "Field required"}),
        (
            "/conversations?limit=many",
            {
                "type": "value_error",
                "loc": ["query", "limit"],
                "msg": "limit: expected `int`, got `str`",
            },
        ),
    ],
)
async def test_an_input_that_cannot_be_read_is_refused_as_fastapi_does(
    api: RestClient, path: str, fault: dict[str, Any]
) -> None:
    answer = await api.get(path)

    assert (answer.status, answer.json()["detail"]) == (422, [fault])
    assert answer.json()["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("path", ["/conversations/a/b", "/conversations/", "/namespaces/a/b/c"])
async def test_a_path_that_is_not_served_is_refused_in_the_same_envelope(api: RestClient, path: str) -> None:
    answer = await api.get(path)

    assert (answer.status, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


async def test_a_rate_that_is_used_up_says_when_to_come_back(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_user_per_minute=1, rate_user_burst=1) as api:
        await api.get("/conversations")
        refused = await api.get("/conversations")

    assert (refused.status, refused.json()["error"]["code"]) == (429, "RATE_LIMIT_EXCEEDED")
    assert str(refused.json()["error"]["retry_after"]) == refused.header("retry-after")


@pytest.mark.parametrize("path", ["/conversations", "/conversations/x", "/conversations/export"])
async def test_without_a_credential_nothing_is_told(api: RestClient, path: str) -> None:
    answer = await api.get(path, None)

    assert (answer.status, answer.json()["error"]["code"]) == (401, "UNAUTHORIZED")


async def test_more_streams_than_a_user_may_have_are_refused_in_good_form(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, stream_max_per_user=1) as api:
        made = await keep(api, *HELLO)
        principal = (await api.reader("ada")).context.principal
        with api.server.runtime.open_streams.enter(principal):
            refused = await export(api, made)
        allowed = await export(api, made)

    assert (refused.status, refused.json()["error"]["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert allowed.status == 200
