"""`bus_connect`, `msg_post` and `msg_list` as agents call them."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec

from auth.context import READ
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.clients import message, modern_headers, modern_params, text_of
from tests.server.compat.agentchatbus.bus_agent import BusAgent, contents
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

HIDDEN = "[human-only content hidden]"
CONNECTION = {"agent", "thread", "messages", "has_more", "current_seq", "reply_token", "reply_window"}


async def connect(user: LibraryUser, topic: str = "Plans", **arguments: Any) -> Any:
    return await user.call("bus_connect", thread_name=topic, ide="Cursor", model="gpt", **arguments)


def sync_of(response: Any) -> dict[str, Any]:
    """Returns the sync fields for the next message, from a connection or a posted message."""
    return {"expected_last_seq": response["current_seq"], "reply_token": response["reply_token"]}


def message_of(connection: Any, content: str, **fields: Any) -> dict[str, Any]:
    """Returns the arguments of `msg_post` for the agent of a connection."""
    thread_id, author = connection["thread"]["thread_id"], connection["agent"]["agent_id"]
    return {"thread_id": thread_id, "author": author, "content": content, **fields}


async def post(user: LibraryUser, connection: Any, content: str, **fields: Any) -> Any:
    return await user.call("msg_post", **message_of(connection, content, **(fields or sync_of(connection))))


async def error_of(user: LibraryUser, tool: str, **arguments: Any) -> Any:
    result = await user.request("tools/call", name=tool, arguments=arguments)
    assert result["isError"] is True
    assert msgspec.json.decode(text_of(result)) == result["structuredContent"]
    return result["structuredContent"]


async def blocks(user: LibraryUser, **arguments: Any) -> list[str]:
    result = await user.request("tools/call", name="msg_list", arguments=arguments)
    assert "isError" not in result, text_of(result)
    return [block.get("text", block["type"]) for block in result["content"]]


async def json_messages(user: LibraryUser, **arguments: Any) -> tuple[list[Any], bool]:
    """Returns the messages and whether there are more."""
    result = await user.request("tools/call", name="msg_list", arguments={"return_format": "json", **arguments})
    structured = result["structuredContent"]
    assert msgspec.json.decode(result["content"][0]["text"]) == structured["messages"]
    return structured["messages"], structured["has_more"]


# bus_connect


async def test_connecting_registers_an_agent_and_creates_the_thread(ada: LibraryUser) -> None:
    connection = await connect(ada, system_prompt="Be brief.")

    agent, thread = connection["agent"], connection["thread"]
    assert set(connection) == CONNECTION
    assert (agent["name"], agent["registered"], agent["is_administrator"]) == ("Cursor (gpt)", True, True)
    assert "ADMINISTRATOR" in agent["role_assignment"]
    assert (thread["topic"], thread["status"], thread["created"]) == ("Plans", "discuss", True)
    assert thread["system_prompt"] == "Be brief."
    assert thread["administrator"] == {"agent_id": agent["agent_id"], "name": "Cursor (gpt)"}
    assert [(one["seq"], one["role"], one["content"]) for one in connection["messages"]] == [(0, "system", "Be brief.")]
    assert (connection["current_seq"], connection["has_more"]) == (0, False)
    listed = ada.dispatcher.catalog.tools["bus_connect"].as_listed()
    jsonschema_rs.validate(listed["outputSchema"], connection)


async def test_second_agent_joins_as_participant_and_reads_the_messages(ada: LibraryUser) -> None:
    first = await connect(ada)
    posted = await post(ada, first, "First message", role="assistant", **sync_of(first))

    second = await connect(ada)

    assert second["thread"]["thread_id"] == first["thread"]["thread_id"]
    assert second["thread"]["created"] is False
    assert second["agent"]["agent_id"] != first["agent"]["agent_id"]
    assert second["agent"]["is_administrator"] is False
    assert "PARTICIPANT" in second["agent"]["role_assignment"]
    assert first["agent"]["agent_id"] in second["agent"]["role_assignment"]
    [message] = second["messages"]
    assert set(message) == {"seq", "author", "role", "content", "created_at"}
    assert (message["seq"], message["author"], message["role"]) == (posted["seq"], "Cursor (gpt)", "assistant")
    assert second["current_seq"] == posted["seq"]


async def test_thread_can_be_joined_by_its_id(ada: LibraryUser, ben: LibraryUser) -> None:
    thread_id = (await connect(ada))["thread"]["thread_id"]
    conversation = await ada.add_chat("No thread", "hello")

    joined = await ada.call("bus_connect", thread_id=thread_id)

    assert (joined["thread"]["topic"], joined["agent"]["name"]) == ("Plans", "Unknown IDE (Unknown Model)")
    for user, identity in ((ben, thread_id), (ada, conversation), (ada, "nowhere")):
        assert await error_of(user, "bus_connect", thread_id=identity) == {"error": "Thread not found"}


async def test_agent_is_resumed_by_its_id_and_token(ada: LibraryUser, ben: LibraryUser) -> None:
    first = await connect(ada)
    await post(ada, first, "one")
    credentials = {"agent_id": first["agent"]["agent_id"], "token": first["agent"]["token"]}

    resumed = await connect(ada, after_seq=1, **credentials)

    assert resumed["agent"] == first["agent"]
    assert resumed["messages"] == []
    for wrong in ({**credentials, "token": "made-up"}, {"agent_id": credentials["agent_id"]}, {"token": "made-up"}):
        error = await error_of(ada, "bus_connect", thread_name="Plans", **wrong)
        assert error["error"].startswith("Failed to resume agent")
    error = await error_of(ben, "bus_connect", thread_name="Plans", **credentials)
    assert error["error"].startswith("Failed to resume agent")


@each_case("arguments", [{}, {"thread_name": "  "}])
async def test_connecting_requires_a_thread(ada: LibraryUser, arguments: dict[str, str]) -> None:
    assert await error_of(ada, "bus_connect", **arguments) == {"error": "thread_name is required"}


async def test_connection_says_if_there_are_more_messages(ada: LibraryUser) -> None:
    connection = await connect(ada)
    async with ada.libraries.library(ada.context) as library:
        drafts = [MessageDraft(content=f"word {number}") for number in range(120)]
        await library.chats.append(connection["thread"]["thread_id"], drafts)

    second = await connect(ada)

    assert (len(second["messages"]), second["has_more"], second["current_seq"]) == (100, True, 120)


async def test_agents_survive_a_restart(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        ada = await api.library_user("ada")
        connection = await connect(ada)
        await post(ada, connection, "before the restart")
        agent = await BusAgent.register(api, display_name="Reviewer")

    async with open_rest_client(tmp_path) as api:
        ada, ben = await api.library_user("ada"), await api.library_user("ben")
        credentials = {"agent_id": connection["agent"]["agent_id"], "token": connection["agent"]["token"]}
        resumed = await connect(ada, **credentials)
        await post(ada, resumed, "after the restart")
        thread = resumed["thread"]["thread_id"]
        await BusAgent(api, "ada", {"agent_id": agent.id, "name": agent.name, "token": agent.token}).post(thread, "too")
        foreign = await error_of(ben, "bus_connect", thread_name="Plans", **credentials)

        assert await contents(api, thread) == ["before the restart", "after the restart", "too"]
        assert resumed["agent"]["is_administrator"] is True
        assert foreign["error"].startswith("Failed to resume agent")


# msg_post


async def test_posted_message_returns_the_sync_fields_of_the_next(ada: LibraryUser) -> None:
    connection = await connect(ada)

    first = await post(ada, connection, "one", priority="urgent", metadata={"mood": "good"}, **sync_of(connection))
    second = await post(ada, connection, "two", reply_to_msg_id=first["msg_id"], **sync_of(first))

    assert (first["seq"], first["priority"], first["reply_to_msg_id"]) == (1, "urgent", None)
    assert (second["seq"], second["current_seq"], second["reply_to_msg_id"]) == (2, 2, first["msg_id"])
    messages, _ = await json_messages(ada, thread_id=connection["thread"]["thread_id"])
    assert [(one["content"], one["author_id"]) for one in messages] == [
        ("one", connection["agent"]["agent_id"]),
        ("two", connection["agent"]["agent_id"]),
    ]
    assert msgspec.json.decode(messages[0]["metadata"]) == {"mood": "good"}
    listed = ada.dispatcher.catalog.tools["msg_post"].as_listed()
    jsonschema_rs.validate(listed["outputSchema"], second)


async def test_agent_must_be_in_sync(ada: LibraryUser) -> None:
    connection = await connect(ada)

    error = await error_of(ada, "msg_post", **message_of(connection, "blind"))

    assert error == {
        "error": "MissingSyncFieldsError",
        "detail": "MISSING_SYNC_FIELDS",
        "missing_fields": ["expected_last_seq", "reply_token"],
        "action": "CALL_BUS_CONNECT_THEN_RETRY",
    }


async def test_post_after_unread_messages_returns_them_and_can_be_repeated(ada: LibraryUser) -> None:
    first, second = await connect(ada), await connect(ada)
    secret = {"metadata": {"visibility": "human_only"}}
    posted = await post(ada, first, "the password is mango", **secret, **sync_of(first))

    error = await error_of(ada, "msg_post", **message_of(second, "late", **sync_of(second)))
    retried = {**sync_of(second), "expected_last_seq": error["current_seq"]}
    await post(ada, second, "now", **retried)

    assert (error["error"], error["detail"]) == ("SeqMismatchError", "SEQ_MISMATCH")
    assert (error["expected_last_seq"], error["current_seq"]) == (0, posted["seq"])
    assert error["action"] == "READ_NEW_MESSAGES_THEN_RETRY"
    assert [one["content"] for one in error["new_messages"]] == [HIDDEN]
    assert b"mango" not in msgspec.json.encode(error)


async def test_reply_token_can_be_used_once_and_only_by_its_agent(api: RestClient, ada: LibraryUser) -> None:
    first, second = await connect(ada), await connect(ada)
    thread = first["thread"]["thread_id"]
    unbound = (await api.request("POST", f"/api/threads/{thread}/sync-context", "ada")).json()

    stolen = await error_of(ada, "msg_post", **message_of(second, "as the second", **sync_of(first)))
    anonymous = await error_of(ada, "msg_post", **message_of(second, "as the second", **sync_of(unbound)))
    await post(ada, first, "one")
    repeated = await error_of(ada, "msg_post", **message_of(first, "two", **{**sync_of(first), "expected_last_seq": 1}))

    assert [one["error"] for one in (stolen, anonymous)] == ["ReplyTokenInvalidError"] * 2
    assert repeated["error"] == "ReplyTokenReplayError"
    assert repeated["consumed_at"].endswith("+00:00")
    assert await contents(api, thread) == ["one"]


async def test_unregistered_author_can_post_under_any_name(ada: LibraryUser) -> None:
    thread = (await connect(ada))["thread"]["thread_id"]

    posted = await ada.call("msg_post", thread_id=thread, author="Grace", content="Hi")

    assert set(posted) == {"msg_id", "seq", "reply_to_msg_id", "priority"}
    error = await error_of(ada, "msg_post", thread_id=thread, author="human", content="Hi", role="system")
    assert error == {"error": "INVALID_ARGUMENT", "detail": "role 'system' is not allowed for human messages"}


async def test_secret_is_rejected_by_the_tools(ada: LibraryUser) -> None:
    connection, secret = await connect(ada), "AKIA" + "IOSFODNN7EXAMPLE"

    error = await error_of(ada, "msg_post", **message_of(connection, f"Use {secret}", **sync_of(connection)))

    assert error == {"error": "Content blocked by filter", "pattern": "AWS Access Key ID"}
    assert (await error_of(ada, "bus_connect", thread_name=secret))["pattern"] == "AWS Access Key ID"


async def test_agent_can_post_only_in_threads_of_its_user(ada: LibraryUser, ben: LibraryUser) -> None:
    thread = (await connect(ada))["thread"]["thread_id"]
    conversation = await ada.add_chat("No thread", "hello")

    for user, identity in ((ben, thread), (ada, conversation), (ada, "nowhere")):
        error = await error_of(user, "msg_post", thread_id=identity, author="Grace", content="Hi")
        assert error == {"error": "Thread not found"}


# msg_list


async def test_messages_are_listed_as_blocks_or_as_json(ada: LibraryUser, ben: LibraryUser) -> None:
    connection = await connect(ada, system_prompt="Be brief.")
    thread = connection["thread"]["thread_id"]
    await post(ada, connection, "Hello", role="assistant", **sync_of(connection))

    [prompt, message], has_more = await json_messages(ada, thread_id=thread)
    shown = await blocks(ada, thread_id=thread, include_system_prompt=False)

    assert (prompt["msg_id"], prompt["seq"], prompt["content"]) == (f"sys-{thread}", 0, "Be brief.")
    assert (message["author"], message["role"], message["seq"], has_more) == ("Cursor (gpt)", "assistant", 1, False)
    assert shown == [f"[1] Cursor (gpt) (assistant) {message['created_at']}", "Hello"]
    for user, identity in ((ben, thread), (ada, "nowhere")):
        assert await error_of(user, "msg_list", thread_id=identity) == {"error": "Thread not found"}


async def test_list_is_filtered_and_says_if_there_are_more(ada: LibraryUser) -> None:
    thread = (await connect(ada))["thread"]["thread_id"]
    for number in range(4):
        priority = "urgent" if number % 2 else "normal"
        await ada.call("msg_post", thread_id=thread, author="Grace", content=f"word {number}", priority=priority)

    page = await blocks(ada, thread_id=thread, after_seq=1, limit=2)
    urgent, has_more = await json_messages(ada, thread_id=thread, priority="urgent", limit=1)
    rest, has_rest = await json_messages(ada, thread_id=thread, priority="urgent", after_seq=2)

    assert page[1::2] == ["word 1", "word 2"]
    assert page[-1] == "(more messages follow: call msg_list with after_seq 3)"
    assert ([one["content"] for one in urgent], has_more) == (["word 1"], True)
    assert ([one["content"] for one in rest], has_rest) == (["word 3"], False)


async def test_list_ends_at_the_size_limit(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        ada = await api.library_user("ada")
        connection = await connect(ada)
        thread = connection["thread"]["thread_id"]
        for _ in range(3):
            await ada.call("msg_post", thread_id=thread, author="Grace", content="x" * 40_000)

        messages, has_more = await json_messages(ada, thread_id=thread)
        joined = await connect(ada)

    assert (len(messages), has_more) == (1, True)
    assert (len(joined["messages"]), joined["has_more"]) == (1, True)


async def test_images_are_listed_as_image_blocks_unless_excluded(ada: LibraryUser) -> None:
    thread = (await connect(ada))["thread"]["thread_id"]
    attachments = [
        {"type": "image", "mimeType": "image/gif", "data": "R0lGODlhAQABAAAAACw="},
        {"data_url": "data:image/png;base64,iVBORw0KGgo="},
        {"url": "/static/uploads/plan.png"},
        {"type": "file", "url": "/static/uploads/plan.zip"},
        "no object",
    ]
    await ada.call("msg_post", thread_id=thread, author="Grace", content="Look", metadata={"attachments": attachments})

    result = await ada.request("tools/call", name="msg_list", arguments={"thread_id": thread})

    assert result["content"][2:] == [
        {"type": "image", "data": "R0lGODlhAQABAAAAACw=", "mimeType": "image/gif"},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "text", "text": "[image] /static/uploads/plan.png"},
    ]
    assert (await blocks(ada, thread_id=thread, include_attachments=False))[1:] == ["Look"]


async def test_human_only_messages_are_hidden_from_all_tools(api: RestClient, ada: LibraryUser) -> None:
    agent = await BusAgent.register(api)
    thread = await agent.create_thread("Plans")
    images = [{"data": "bWFuZ28=", "mimeType": "image/png", "alt": "mango"}]
    await agent.post(thread["id"], "the password is mango", metadata={"visibility": "human_only"}, images=images)

    responses = [
        await ada.request("tools/call", name="bus_connect", arguments={"thread_name": "Plans"}),
        await ada.request("tools/call", name="msg_list", arguments={"thread_id": thread["id"]}),
        await ada.request(
            "tools/call", name="msg_list", arguments={"thread_id": thread["id"], "return_format": "json"}
        ),
    ]

    assert all(HIDDEN in msgspec.json.encode(response).decode() for response in responses)
    assert all(word not in msgspec.json.encode(response) for response in responses for word in (b"mango", b"bWFuZ28"))


async def test_writing_tools_need_the_write_scope(api: RestClient, ada: LibraryUser) -> None:
    thread = (await connect(ada))["thread"]["thread_id"]
    credential = await api.server.bearer("ada", (READ,))
    calls: list[tuple[str, dict[str, str]]] = [
        ("bus_connect", {"thread_name": "Plans"}),
        ("msg_post", {"thread_id": thread, "author": "x", "content": "x"}),
        ("msg_list", {"thread_id": thread}),
    ]

    statuses = []
    for tool, arguments in calls:
        params = {"name": tool, "arguments": arguments}
        headers = {**modern_headers("tools/call", params), **credential}
        body = msgspec.json.encode(message("tools/call", modern_params(params), 1))
        statuses.append((await api.request("POST", "/mcp/bus", None, headers, body)).status)

    assert statuses == [403, 403, 200]
