"""Clients of the systems that moved in, over sockets: the official Python client at the profiles `letta` and `bus`, and
what the integration tests of the message bus ask of a running server."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from sources.drafts import ConversationDraft, MessageDraft
from tests.live import LiveServer, live, make_settings

MODES = ("2026-07-28", "legacy")


async def keep(server: LiveServer, name: str, content: str) -> str:
    """A conversation of that user; its id."""
    user = await server.user(name)
    principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
    draft = MessageDraft(content=content, created_at="2025-02-10T14:30:00Z")
    async with server.runtime.libraries.library(
        build_context(principal, server.runtime.data_root, "request")
    ) as library:
        return (await library.chats.create(ConversationDraft(title=f"Talk of {name}"), [draft])).id


async def ask(server: LiveServer, name: str, mode: str, profile: str, **arguments: Any) -> tuple[list[str], Any]:
    """What is listed, and what the only tool there answers."""
    async with (
        httpx2.AsyncClient(headers=await server.bearer(name), trust_env=False) as http,
        Client(streamable_http_client(f"{server.mcp}/{profile}", http_client=http), mode=mode) as client,
    ):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        answer = await client.call_tool(listed[0], arguments)
    assert not answer.is_error
    return listed, answer


@pytest.mark.parametrize("mode", MODES)
async def test_lettas_profile_has_one_tool_and_it_finds_each_users_own_history(tmp_path: Path, mode: str) -> None:
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            await keep(server, name, f"{name} sails a galleon")

            listed, answer = await ask(server, name, mode, "letta", query="galleon", limit=5)

            assert listed == ["conversation_search"]
            assert [block.text for block in answer.content] == [
                f"[2025-02-10 14:30] user (conv: Talk of {name})\n{name} sails a galleon"
            ]


@pytest.mark.parametrize("mode", MODES)
async def test_the_bus_profile_has_one_tool_and_it_finds_each_users_own_messages(tmp_path: Path, mode: str) -> None:
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            thread = await keep(server, name, f"{name} sails a galleon")

            listed, answer = await ask(server, name, mode, "bus", query="galleon")

            assert listed == ["msg_search"]
            assert [row["thread_id"] for row in answer.structured_content["results"]] == [thread]


async def test_both_tools_are_in_the_full_profile(tmp_path: Path) -> None:
    async with (
        live(make_settings(tmp_path)) as server,
        httpx2.AsyncClient(headers=await server.bearer("ada"), trust_env=False) as http,
        Client(streamable_http_client(f"{server.mcp}/full", http_client=http)) as client,
    ):
        listed = {tool.name for tool in (await client.list_tools()).tools}

    assert {"conversation_search", "msg_search"} <= listed


async def test_a_program_of_the_bus_finds_what_it_posts_without_any_credential(tmp_path: Path) -> None:
    """As the original's integration tests do it, against a server of one user."""
    async with (
        live(make_settings(tmp_path, jwt_secret="")) as server,
        httpx2.AsyncClient(base_url=server.url, trust_env=False) as http,
    ):
        assert (await http.get("/health")).status_code == 200
        agent = (await http.post("/api/agents/register", json={"ide": "VSCode", "model": "gpt-4"})).json()
        token = {"X-Agent-Token": agent["token"]}
        threads = []
        for topic, word in (("One", "zeppelin"), ("Two", "zeppelin again")):
            opened = {"topic": topic, "creator_agent_id": agent["agent_id"]}
            thread = (await http.post("/api/threads", json=opened, headers=token)).json()["id"]
            body = {"content": f"about {word}", "author": agent["agent_id"], "author_name": agent["name"]}
            posted = await http.post(f"/api/threads/{thread}/messages", json=body, headers=token)
            assert posted.status_code == 201
            threads.append(thread)

        basic = (await http.get("/api/search", params={"q": "zeppelin"})).json()
        scoped = (await http.get("/api/search", params={"q": "zeppelin", "thread_id": threads[0]})).json()
        few = (await http.get("/api/search", params={"q": "zeppelin", "limit": 1})).json()
        statuses = [(await http.get(path)).status_code for path in ("/api/search", "/api/search?q=")]

    assert basic["query"] == "zeppelin"
    assert basic["total"] == 2
    assert {row["thread_id"] for row in basic["results"]} == set(threads)
    assert [row["thread_id"] for row in scoped["results"]] == threads[:1]
    assert len(few["results"]) == 1
    assert statuses == [422, 400]
