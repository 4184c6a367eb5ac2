"""The conversations API: AgentKit's formats, and isolation between users."""

import io
import re
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from auth.context import READ, SCOPES
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.compat.agentkit.conversations_api import (
    HELLO,
    conversation_ids,
    create_conversation,
    post,
    search_contents,
)
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
SUMMARY = {
    *("id", "session_id", "title", "namespace", "created_at", "updated_at", "message_count", "metadata"),
    # Our additions.
    *("pinned", "archived"),
}
MESSAGE = {
    *("id", "conversation_id", "role", "content", "model", "tool_used", "attachments", "citations", "timestamp"),
    # Our additions: whether it is on the main branch, which message it answers, who wrote it, other data, and its
    # number on the message bus.
    *("is_canonical", "parent_id", "sender", "metadata", "seq"),
}


def without_seq(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every library numbers its messages itself, so an export has no numbers."""
    return [{name: value for name, value in message.items() if name != "seq"} for message in messages]


def dated(day: int, **more: Any) -> dict[str, Any]:
    return {"created_at": f"2026-03-{day:02}T08:30:00Z", **more}


# List


async def test_list_has_the_documented_shape(api: RestClient) -> None:
    conversation = await create_conversation(
        api, *HELLO, session_id="s-1", title="Greetings", metadata={"mood": "good"}
    )

    response = (await api.get("/conversations?limit=10&offset=0")).json()

    (row,) = response["conversations"]
    assert set(response) == {"conversations", "total", "limit", "offset"}
    assert (response["total"], response["limit"], response["offset"]) == (1, 10, 0)
    assert set(row) == SUMMARY
    assert (row["id"], row["session_id"], row["title"], row["namespace"]) == (
        conversation,
        "s-1",
        "Greetings",
        "default",
    )
    assert (row["message_count"], row["metadata"]) == (2, {"mood": "good"})
    assert TIME.fullmatch(row["created_at"])
    assert TIME.fullmatch(row["updated_at"])


async def test_list_is_paged_newest_first_with_the_exact_total(api: RestClient, ada: LibraryUser) -> None:
    conversations = [await ada.add_chat(f"Talk {day}", **dated(day)) for day in range(1, 8)]

    pages = [(await api.get(f"/conversations?limit=3&offset={offset}")).json() for offset in (0, 3, 6, 9)]

    assert [row["id"] for page in pages for row in page["conversations"]] == conversations[::-1]
    assert [page["total"] for page in pages] == [7] * 4


async def test_default_page_has_fifty_conversations(api: RestClient, ada: LibraryUser) -> None:
    for n in range(52):
        await ada.add_chat(f"Talk {n}")

    response = (await api.get("/conversations")).json()

    assert (len(response["conversations"]), response["limit"], response["total"]) == (50, 50, 52)


@each_case(
    ("query", "limit", "offset"),
    [("limit=0", 1, 0), ("limit=-1", 1, 0), ("limit=999999", 200, 0), ("offset=-5", 50, 0), ("limit=7", 7, 0)],
)
async def test_limit_and_offset_are_clamped_and_returned(api: RestClient, query: str, limit: int, offset: int) -> None:
    response = (await api.get(f"/conversations?{query}")).json()

    assert (response["limit"], response["offset"]) == (limit, offset)


async def test_list_can_be_filtered_by_namespace(api: RestClient) -> None:
    work = await create_conversation(api, *HELLO, namespace="work")
    await create_conversation(api, *HELLO)

    response = (await api.get("/conversations?namespace=work")).json()

    assert ([row["id"] for row in response["conversations"]], response["total"]) == ([work], 1)
    assert (await api.get("/conversations?namespace=")).json()["total"] == 2


async def test_list_can_be_filtered_by_part_of_title_or_id(api: RestClient) -> None:
    tea = await create_conversation(api, title="Über 100% Darjeeling")
    cake = await create_conversation(api, title="100 cakes")

    assert await conversation_ids(api, f"search={quote('ÜBER')}") == [tea]
    assert await conversation_ids(api, "search=100%25") == [tea]
    assert await conversation_ids(api, f"search={cake[3:20]}") == [cake]
    assert await conversation_ids(api, "search=coffee") == []


# Detail


async def test_conversation_has_the_documented_shape_with_messages_oldest_first(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO, title="Greetings")

    response = (await api.get(f"/conversations/{conversation}")).json()

    assert set(response) == SUMMARY | {"messages"}
    assert [set(message) for message in response["messages"]] == [MESSAGE, MESSAGE]
    assert [(m["role"], m["content"], m["model"], m["tool_used"]) for m in response["messages"]] == [
        ("user", "Hello", None, None),
        ("assistant", "Hi there!", "gemini-2.0-flash-001", "idle"),
    ]
    assert {message["conversation_id"] for message in response["messages"]} == {conversation}
    assert [message["attachments"] + message["citations"] for message in response["messages"]] == [[], []]
    assert all(TIME.fullmatch(message["timestamp"]) for message in response["messages"])


async def test_missing_conversation_is_not_found(api: RestClient) -> None:
    response = await api.get("/conversations/7a1e0b52-0000-4000-8000-000000000000")

    assert (response.status, response.json()["error"]["message"]) == (404, "Conversation not found")


async def test_long_conversation_can_be_read_in_parts(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, conversation_messages_max=4, message_page_max=3) as api:
        conversation = await create_conversation(api, *({"role": "user", "content": f"turn {n}"} for n in range(10)))
        contents: list[str] = []
        offset: int | None = 0
        while offset is not None:
            part = (await api.get(f"/conversations/{conversation}?messages_offset={offset}")).json()
            contents += [message["content"] for message in part["messages"]]
            assert part["message_count"] == 10
            offset = part.get("next_messages_offset")

    assert contents == [f"turn {n}" for n in range(10)]


async def test_response_size_is_limited_but_has_at_least_one_message(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, conversation_response_max_bytes=1024) as api:
        conversation = await create_conversation(api, *({"role": "user", "content": str(n) * 2000} for n in range(3)))

        part = (await api.get(f"/conversations/{conversation}?messages_offset=1")).json()

    assert ([m["content"][0] for m in part["messages"]], part["next_messages_offset"]) == (["1"], 2)


async def test_deleted_messages_leave_no_gap(api: RestClient, ada: LibraryUser) -> None:
    conversation = await create_conversation(api, *({"role": "user", "content": f"turn {n}"} for n in range(6)))
    before = (await api.get(f"/conversations/{conversation}")).json()["messages"]
    async with ada.libraries.library(ada.context) as library:
        await library.chats.delete_message(before[2]["id"])

    after = (await api.get(f"/conversations/{conversation}?messages_limit=3")).json()

    assert [message["content"] for message in after["messages"]] == ["turn 0", "turn 1", "turn 3"]
    assert (after["message_count"], after["next_messages_offset"]) == (5, 3)


async def test_unchanged_response_is_304(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)
    for path in ("/conversations", f"/conversations/{conversation}", "/conversations/search/messages?query=Hello"):
        first = await api.get(path)
        again = await api.get(path, if_none_match=first.header("etag") or "")
        assert (again.status, again.body) == (304, b"")

    etag = (await api.get(f"/conversations/{conversation}")).header("etag") or ""
    await api.request("PUT", f"/conversations/{conversation}?title=Other", "ada")

    assert (await api.get(f"/conversations/{conversation}", if_none_match=etag)).status == 200


# Rename and delete


async def test_conversation_can_be_renamed(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)

    response = await api.request("PUT", f"/conversations/{conversation}?title=New+Title", "ada")

    assert (response.status, response.json()) == (200, {"success": True, "conversation_id": conversation})
    assert (await api.get(f"/conversations/{conversation}")).json()["title"] == "New Title"


async def test_renaming_without_a_title_only_changes_the_modification_time(api: RestClient, ada: LibraryUser) -> None:
    conversation = await ada.add_chat("Old", **dated(1))
    before = (await api.get(f"/conversations/{conversation}")).json()

    response = await api.request("PUT", f"/conversations/{conversation}", "ada")

    after = (await api.get(f"/conversations/{conversation}")).json()
    assert (response.status, after["title"]) == (200, "Old")
    assert after["updated_at"] > before["updated_at"]


@each_case("purge", ["", "?purge=true"])
async def test_deleted_conversation_is_found_nowhere(api: RestClient, ada: LibraryUser, purge: str) -> None:
    conversation = await create_conversation(
        api, {"role": "user", "content": "the galleon sailed at dawn"}, title="A galleon"
    )

    response = await api.request("DELETE", f"/conversations/{conversation}{purge}", "ada")

    assert (response.status, response.json()) == (200, {"success": True, "conversation_id": conversation})
    assert (await api.get(f"/conversations/{conversation}")).status == 404
    assert (await api.request("DELETE", f"/conversations/{conversation}{purge}", "ada")).status == 404
    assert (await api.request("PUT", f"/conversations/{conversation}?title=x", "ada")).status == 404
    assert (await api.request("POST", f"/conversations/{conversation}/export", "ada")).status == 404
    assert (await api.get("/conversations")).json()["total"] == 0
    assert await search_contents(api, "galleon") == []
    assert await ada.search("chats_search", "galleon") == []
    assert await ada.search("knowledge_search", "galleon") == []
    assert b"galleon" not in (await api.get("/conversations/export")).body


async def test_purge_releases_the_id_and_delete_does_not(api: RestClient) -> None:
    statuses = []
    for conversation_id, query in (("c-1", ""), ("c-2", "?purge=true")):
        await create_conversation(api, *HELLO, id=conversation_id)
        await api.request("DELETE", f"/conversations/{conversation_id}{query}", "ada")
        statuses.append((await post(api, "/conversations", {"id": conversation_id})).status)

    assert statuses == [409, 201]


async def test_deleted_conversation_can_be_purged_once_by_its_owner(api: RestClient) -> None:
    for who in ("ada", "ben"):
        await create_conversation(api, *HELLO, who=who, id="c-1")
        await api.request("DELETE", "/conversations/c-1", who)
    await create_conversation(api, *HELLO, id="c-2")
    await api.request("DELETE", "/conversations/c-2", "ada")

    purged = [(await api.request("DELETE", "/conversations/c-1?purge=true", "ada")).status for _ in range(2)]
    foreign, unknown = [
        await api.request("DELETE", f"/conversations/{one}?purge=true", "ben") for one in ("c-2", "c-3")
    ]

    assert purged == [200, 404]
    assert (foreign.status, unknown.status) == (404, 404)
    assert anonymous(foreign, "c-2") == anonymous(unknown, "c-3")
    # Only a purge releases an id: Ada's is free; Ben's deleted one and the one he tried to purge are not.
    assert (await post(api, "/conversations", {"id": "c-1"}, "ada")).status == 201
    assert (await post(api, "/conversations", {"id": "c-1"}, "ben")).status == 409
    assert (await post(api, "/conversations", {"id": "c-2"}, "ada")).status == 409


# Search


async def test_messages_are_found_by_part_of_their_text_newest_first(api: RestClient) -> None:
    contents = ("Tell me about Python", "PYTHONs are snakes", "100% of cats")
    for n, text in enumerate(contents):
        await create_conversation(api, {"role": "user", "content": text, "timestamp": f"2026-03-0{n + 1}T08:30:00Z"})

    assert await search_contents(api, "python") == ["PYTHONs are snakes", "Tell me about Python"]
    assert await search_contents(api, "100%25") == ["100% of cats"]
    assert await search_contents(api, "0%25_of") == []
    assert await search_contents(api, "") == list(reversed(contents))


async def test_search_results_have_the_documented_shape(api: RestClient) -> None:
    await create_conversation(api, *HELLO)

    response = (await api.get("/conversations/search/messages?query=hi+there&limit=50")).json()

    (message,) = response["messages"]
    assert set(message) == MESSAGE
    assert (message["model"], response["total"], response["has_more"]) == ("gemini-2.0-flash-001", 1, False)


async def test_title_is_not_searched_as_a_message(api: RestClient) -> None:
    await create_conversation(api, *HELLO, title="Greetings")

    assert await search_contents(api, "Greetings") == []


async def test_search_can_be_restricted_to_a_conversation_and_a_limit(api: RestClient) -> None:
    first, second = [await create_conversation(api, *HELLO, *HELLO) for _ in range(2)]

    of_one = (await api.get(f"/conversations/search/messages?query=hello&conversation_id={second}")).json()
    limited = (await api.get("/conversations/search/messages?query=hello&limit=3")).json()
    nowhere = (await api.get("/conversations/search/messages?query=hello&conversation_id=none")).json()

    assert {message["conversation_id"] for message in of_one["messages"]} == {second} != {first}
    assert (limited["total"], limited["has_more"]) == (3, True)
    assert nowhere["messages"] == []


# Export


async def export(api: RestClient, conversation: str, query: str = "", who: str = "ada") -> HttpResponse:
    return await api.request("POST", f"/conversations/{conversation}/export{query}", who)


@each_case("query", ["", "?format=json"])
async def test_json_export_is_the_whole_conversation(api: RestClient, query: str) -> None:
    conversation = await create_conversation(api, *HELLO, title="Greetings")

    response = await export(api, conversation, query)

    assert response.header("content-type") == "application/json"
    shown = (await api.get(f"/conversations/{conversation}")).json()
    assert response.json() == shown | {"tags": [], "messages": without_seq(shown["messages"])}


async def test_text_export_has_the_documented_format(api: RestClient, ada: LibraryUser) -> None:
    messages = [MessageDraft(role=m["role"], content=m["content"], model=m.get("model")) for m in HELLO]
    conversation = await ada.add_chat("My Conversation", *messages, **dated(9))

    response = (await export(api, conversation, "?format=txt")).json()

    assert response == {
        "content": (
            "Conversation: My Conversation\nCreated: 2026-03-09T08:30:00.000000+00:00\nNamespace: default\n"
            f"{'=' * 50}\n\nUSER: Hello\n\nASSISTANT: Hi there!\n  (Model: gemini-2.0-flash-001)\n"
        ),
        "format": "txt",
    }


async def test_markdown_export_has_the_documented_format(api: RestClient, ada: LibraryUser) -> None:
    messages = [MessageDraft(role=m["role"], content=m["content"], model=m.get("model")) for m in HELLO]
    conversation = await ada.add_chat("My Conversation", *messages, **dated(9))

    response = (await export(api, conversation, "?format=md")).json()

    assert response == {
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


async def test_message_has_is_canonical_and_parent_id(api: RestClient, ada: LibraryUser) -> None:
    conversation = await ada.add_chat("Asyncio", *REGENERATED)

    messages = (await api.get(f"/conversations/{conversation}")).json()["messages"]
    [hit] = (await api.get("/conversations/search/messages?query=xylophone")).json()["messages"]

    assert [one["is_canonical"] for one in messages] == [True, True, False]
    assert [one["parent_id"] for one in messages] == [None, "u-1", "u-1"]
    assert hit == messages[2]
    assert (await export(api, conversation)).json()["messages"] == without_seq(messages)


@pytest.mark.parametrize(
    ("export_format", "expected"),
    [
        ("txt", "ASSISTANT: Use gather.\n\nASSISTANT (alternate branch): Use a xylophone.\n"),
        ("md", "### 🤖 Assistant\n\nUse gather.\n\n### 🤖 Assistant (alternate branch)\n\nUse a xylophone.\n"),
    ],
)
async def test_text_and_markdown_exports_mark_alternate_branches(
    api: RestClient, ada: LibraryUser, export_format: str, expected: str
) -> None:
    conversation = await ada.add_chat("Asyncio", *REGENERATED)

    assert (await export(api, conversation, f"?format={export_format}")).json()["content"].endswith(expected)


async def test_exported_json_is_imported_with_senders_metadata_and_tags(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    secret = MessageDraft(sender="Ana", content="the password is mango", metadata={"audience": "human", "seen": [1]})
    conversation = await ada.add_chat("Talk", secret, "understood", tags=("work",))
    exported = (await export(api, conversation)).body

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("talk.json", exported)
    headers = {"Content-Type": "application/zip"}
    response = await api.request("POST", "/conversations/import", "ben", headers, archive.getvalue())

    assert response.json()["created"] == 1
    assert (await export(api, conversation, who="ben")).body == exported
    hidden, shown = (await ben.call("chats_get", conversation_id=conversation))["content"].split("\n")[::2]
    assert (hidden, shown) == ("Ana: [human-only content hidden]", "Guide: understood")
    assert await ben.search("msg_search", "mango") == []


@each_case("export_format", ["txt", "md"])
async def test_text_and_markdown_exports_mark_human_only_messages(
    api: RestClient, ada: LibraryUser, export_format: str
) -> None:
    secret = MessageDraft(role="user", content="the password is mango", metadata={"human_only": True})
    conversation = await ada.add_chat("Talk", secret, "understood")

    content = (await export(api, conversation, f"?format={export_format}")).json()["content"]

    assert [line for line in content.splitlines() if "(human-only)" in line] == [
        {"txt": "USER (human-only): the password is mango", "md": "### 👤 User (human-only)"}[export_format]
    ]


async def test_unsupported_export_format_is_rejected(api: RestClient) -> None:
    response = await export(api, await create_conversation(api, *HELLO), "?format=pdf")

    assert (response.status, response.json()["detail"]) == (400, "Invalid format. Supported: json, txt, md")


@each_case("export_format", ["json", "txt", "md"])
async def test_export_of_many_pages_is_complete(tmp_path: Path, export_format: str) -> None:
    async with open_rest_client(tmp_path, message_page_max=3) as api:
        contents = [f'turn {n} "\\\n\u2028\U0001f600' for n in range(20)]
        conversation = await create_conversation(
            api, *({"role": "user", "content": text} for text in contents), title="T"
        )

        response = (await export(api, conversation, f"?format={export_format}")).json()

    text = "".join(m["content"] for m in response["messages"]) if export_format == "json" else response["content"]
    assert [text.count(turn) for turn in contents] == [1] * 20


# Isolation


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
async def test_conversation_of_another_user_looks_nonexistent(api: RestClient, method: str, path: str) -> None:
    conversation = await create_conversation(api, *HELLO, session_id="s-1")
    absent = "0" * len(conversation)

    foreign, unknown = [await api.request(method, path.format(one), "ben") for one in (conversation, absent)]

    assert foreign.status == unknown.status
    assert anonymous(foreign, conversation) == anonymous(unknown, absent)
    assert (await api.get(f"/conversations/{conversation}")).json()["title"] == "Hello"


async def test_users_do_not_list_count_or_find_each_others_messages(api: RestClient) -> None:
    for who, times in (("ada", 3), ("ben", 1)):
        for n in range(times):
            await create_conversation(
                api, {"role": "user", "content": f"a secret of {who}"}, who=who, session_id=f"s-{n}"
            )

    assert set(await search_contents(api, "secret", "ben")) == {"a secret of ben"}
    assert [(await api.get("/conversations", who)).json()["total"] for who in ("ada", "ben")] == [3, 1]


def anonymous(response: HttpResponse, conversation_id: str) -> tuple[int, str]:
    """Returns the status and body without ids, times and the request id."""
    text = response.body.decode().replace(conversation_id, "ID")
    return response.status, re.sub(rf'{TIME.pattern}|"request_id":"[^"]*"', "", text)


@each_case(("method", "path"), [*ROUTES[1:4], ("POST", "/conversations"), ("POST", "/conversations/import")])
async def test_read_only_key_cannot_write(api: RestClient, method: str, path: str) -> None:
    conversation = await create_conversation(api, *HELLO)

    response = await api.request(method, path.format(conversation), None, await api.server.bearer("ada", (READ,)))

    assert response.status == 403
    assert response.json()["error"]["code"] == "FORBIDDEN"
    assert (await api.get(f"/conversations/{conversation}")).json()["title"] == "Hello"


@each_case(
    ("profile", "statuses"),
    [("compact", [200, 200, 200, 403]), ("letta", [403, 403, 200, 403]), ("full", [200, 200, 200, 200])],
)
async def test_profile_key_can_use_the_operations_of_its_tools(
    api: RestClient, profile: str, statuses: list[int]
) -> None:
    conversation = await create_conversation(api, *HELLO)
    user = await api.server.user("ada")
    _, key = await api.server.runtime.registry.create_key(user.id, "k", SCOPES, profile=profile)
    requests = (
        ("GET", "/conversations"),
        ("GET", f"/conversations/{conversation}"),
        ("GET", "/conversations/search/messages?query=x"),
        ("PUT", f"/conversations/{conversation}?title=x"),
    )

    responses = [await api.request(*one, None, {"Authorization": f"Bearer {key}"}) for one in requests]

    assert [response.status for response in responses] == statuses


# Errors


async def test_error_has_agentkits_envelope_and_a_detail(api: RestClient) -> None:
    response = await api.get("/conversations/none", x_request_id="mine")

    body = response.json()
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
    assert response.header("x-request-id") == "mine"


@each_case(
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
async def test_invalid_input_is_rejected_with_fastapis_422(api: RestClient, path: str, fault: dict[str, Any]) -> None:
    response = await api.get(path)

    assert (response.status, response.json()["detail"]) == (422, [fault])
    assert response.json()["error"]["code"] == "VALIDATION_ERROR"


@each_case("path", ["/conversations/a/b", "/conversations/", "/namespaces/a/b/c"])
async def test_unknown_path_returns_the_same_envelope(api: RestClient, path: str) -> None:
    response = await api.get(path)

    assert (response.status, response.json()["error"]["code"]) == (404, "NOT_FOUND")


async def test_rate_limit_error_says_when_to_retry(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_user_per_minute=1, rate_user_burst=1) as api:
        await api.get("/conversations")
        rejected = await api.get("/conversations")

    assert (rejected.status, rejected.json()["error"]["code"]) == (429, "RATE_LIMIT_EXCEEDED")
    assert str(rejected.json()["error"]["retry_after"]) == rejected.header("retry-after")


@each_case("path", ["/conversations", "/conversations/x", "/conversations/export"])
async def test_missing_credential_is_rejected_with_401(api: RestClient, path: str) -> None:
    response = await api.get(path, None)

    assert (response.status, response.json()["error"]["code"]) == (401, "UNAUTHORIZED")


async def test_too_many_streams_are_rejected_with_503(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, stream_max_per_user=1) as api:
        conversation = await create_conversation(api, *HELLO)
        principal = (await api.library_user("ada")).context.principal
        with api.server.runtime.open_streams.enter(principal):
            rejected = await export(api, conversation)
        allowed = await export(api, conversation)

    assert (rejected.status, rejected.json()["error"]["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert allowed.status == 200
