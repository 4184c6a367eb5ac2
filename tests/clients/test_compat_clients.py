"""Clients of Letta and AgentChatBus over sockets: the official MCP client in the profiles `letta` and `bus`, and the
requests of AgentChatBus's integration tests."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from auth.context import SCOPES, ClientId, Principal, build_context
from sources.drafts import ConversationDraft, MessageDraft
from tests.clients.python_client import connect
from tests.live import HTTP_OPTIONS, LiveServer, live, make_settings

if TYPE_CHECKING:
    from mcp import Client

MODES = ("2026-07-28", "legacy")


async def create_conversation(server: LiveServer, name: str, content: str) -> str:
    """Creates a conversation of a user and returns its id."""
    user = await server.user(name)
    principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
    draft = MessageDraft(content=content, created_at="2025-02-10T14:30:00Z")
    async with server.runtime.libraries.library(
        build_context(principal, server.runtime.data_root, "request")
    ) as library:
        return (await library.chats.create(ConversationDraft(title=f"Talk of {name}"), [draft])).id


async def call_only_tool(
    server: LiveServer, name: str, mode: str, profile: str, **arguments: Any
) -> tuple[list[str], Any]:
    """Returns the listed tools, and the result of the only one."""
    async with connect(server, name, profile, mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool(names[0], arguments)
    assert not result.is_error
    return names, result


async def call(client: "Client", tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


@pytest.mark.parametrize("mode", MODES)
async def test_letta_profile_has_one_tool_that_searches_the_callers_history(tmp_path: Path, mode: str) -> None:
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            await create_conversation(server, name, f"{name} sails a galleon")

            names, result = await call_only_tool(server, name, mode, "letta", query="galleon", limit=5)

            assert names == ["conversation_search"]
            assert [block.text for block in result.content] == [
                f"[2025-02-10 14:30] user (conv: Talk of {name})\n{name} sails a galleon"
            ]


@pytest.mark.parametrize("mode", MODES)
async def test_agents_of_a_user_talk_with_the_tools_of_the_bus_profile(tmp_path: Path, mode: str) -> None:
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            async with connect(server, name, "bus", mode=mode) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                connection = await call(client, "bus_connect", thread_name="Ships", ide="Cursor", model=mode)
                thread = connection["thread"]["thread_id"]
                posted = await call(
                    client,
                    "msg_post",
                    thread_id=thread,
                    author=connection["agent"]["agent_id"],
                    content=f"{name} sails a galleon",
                    expected_last_seq=connection["current_seq"],
                    reply_token=connection["reply_token"],
                )
                listed = await call(client, "msg_list", thread_id=thread, return_format="json")
                results = await call(client, "msg_search", query="galleon")

            assert names == ["bus_connect", "msg_post", "msg_list", "msg_search"]
            assert [message["content"] for message in listed["messages"]] == [f"{name} sails a galleon"]
            assert [(row["thread_id"], row["message_id"]) for row in results["results"]] == [(thread, posted["msg_id"])]


async def test_agents_are_still_registered_after_a_restart(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server, connect(server, "ada", "bus", mode=MODES[0]) as client:
        first = await call(client, "bus_connect", thread_name="Ships", ide="Cursor", model="gpt")

    credentials = {"agent_id": first["agent"]["agent_id"], "token": first["agent"]["token"]}
    async with live(make_settings(tmp_path)) as server:
        async with connect(server, "ada", "bus", mode=MODES[0]) as client:
            resumed = await call(client, "bus_connect", thread_name="Ships", **credentials)
        async with connect(server, "ben", "bus", mode=MODES[0]) as client:
            refused = await client.call_tool("bus_connect", {"thread_name": "Ships", **credentials})

    assert resumed["agent"] == first["agent"]
    assert resumed["thread"]["thread_id"] == first["thread"]["thread_id"]
    assert refused.is_error


async def test_full_profile_includes_the_tools_of_both_systems(tmp_path: Path) -> None:
    async with (
        live(make_settings(tmp_path)) as server,
        connect(server, "ada", "full") as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}

    assert {"conversation_search", "bus_connect", "msg_post", "msg_list", "msg_search"} <= names


async def test_agentchatbus_client_posts_and_searches_without_a_credential(tmp_path: Path) -> None:
    """Sends the requests of AgentChatBus's own integration tests to a single-user server."""
    async with (
        live(make_settings(tmp_path, jwt_secret="")) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS, base_url=server.url) as http,
    ):
        assert (await http.get("/health")).status_code == 200
        agent = (await http.post("/api/agents/register", json={"ide": "VSCode", "model": "gpt-4"})).json()
        token = {"X-Agent-Token": agent["token"]}
        threads = []
        for topic, word in (("One", "zeppelin"), ("Two", "zeppelin again")):
            new_thread = {"topic": topic, "creator_agent_id": agent["agent_id"]}
            thread = (await http.post("/api/threads", json=new_thread, headers=token)).json()["id"]
            body = {"content": f"about {word}", "author": agent["agent_id"], "author_name": agent["name"]}
            posted = await http.post(f"/api/threads/{thread}/messages", json=body, headers=token)
            assert posted.status_code == 201
            threads.append(thread)

        unscoped = (await http.get("/api/search", params={"q": "zeppelin"})).json()
        scoped = (await http.get("/api/search", params={"q": "zeppelin", "thread_id": threads[0]})).json()
        limited = (await http.get("/api/search", params={"q": "zeppelin", "limit": 1})).json()
        statuses = [(await http.get(path)).status_code for path in ("/api/search", "/api/search?q=")]

    assert unscoped["query"] == "zeppelin"
    assert unscoped["total"] == 2
    assert {row["thread_id"] for row in unscoped["results"]} == set(threads)
    assert [row["thread_id"] for row in scoped["results"]] == threads[:1]
    assert len(limited["results"]) == 1
    assert statuses == [422, 400]
