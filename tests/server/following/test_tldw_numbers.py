"""tldw's numbers name the same items here: in tools, filters and URIs, for users whose numbers are the same."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.live import LiveServer
from tests.server.clients import ModernClient
from tests.server.following.test_tldw_deployment import add, server_of, titles, wait_until
from tests.server.following.tldw_deployment import CHACHA_NAME, TIME, execute, make_user
from tests.server.http_client import fetch

USERS = (1, 2)
# What names an item, and the words of each user's own item.
CALLS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("media_get", {"media_id": 7, "retrieval": {"mode": "full"}}, "transcript 0 of user"),
    ("media_get", {"media_id": "7", "retrieval": {"mode": "full"}}, "transcript 0 of user"),
    ("media_get", {"uri": "media://7", "retrieval": {"mode": "full"}}, "transcript 0 of user"),
    ("characters_get", {"character_id": 5}, "Character of user"),
    ("characters_get", {"uri": "characters://5"}, "Character of user"),
    ("prompts_get", {"prompt_id_or_name": 3}, "prompt of user"),
    ("prompts_get", {"prompt_id_or_name": "3"}, "prompt of user"),
    ("prompts_get", {"uri": "prompts://3"}, "prompt of user"),
    ("knowledge_get", {"source": "media", "id": 7}, "transcript 0 of user"),
    ("knowledge_get", {"uri": "media://7"}, "transcript 0 of user"),
    ("knowledge_get", {"uri": "characters://5"}, "Character of user"),
    ("knowledge_get", {"uri": "prompts://3"}, "prompt of user"),
    ("chats_search", {"query": "message", "character_id": 5}, "message 0 of user"),
    ("knowledge_search", {"query": "message", "filters": {"chats": {"character_id": 5}}}, "message 0 of user"),
)
URIS = {"media://7": "transcript 0 of user", "characters://5": "Character of user", "prompts://3": "prompt of user"}


@asynccontextmanager
async def followed_users(folder: Path) -> AsyncIterator[LiveServer]:
    root = folder / "user_databases"
    for user in USERS:
        database = make_user(root, user) / CHACHA_NAME
        message = (f"m{user}", f"00000000-0000-4002-{user:04}-000000000001", "user", f"message 0 of user {user}", TIME)
        columns = "id, conversation_id, sender, content, timestamp"
        execute(database, f"INSERT INTO messages ({columns}) VALUES (?, ?, ?, ?, ?)", *message)
    async with server_of(folder) as server:
        await add(server, root, creates_users=True)
        for user in USERS:
            await wait_for_items(server, user)
        yield server


async def wait_for_items(server: LiveServer, user: int) -> None:
    """Waits for the items of all databases: each is read on its own."""

    async def has_items() -> bool:
        return all([await titles(server, str(user), source) for source in ("chats", "characters", "media", "prompts")])

    await wait_until(has_items)


def require_own(answer: str, words: str, user: int) -> None:
    assert f"{words} {user}" in answer
    assert f"of user {3 - user}" not in answer


async def test_numbers_name_each_users_own_items(tmp_path: Path) -> None:
    async with followed_users(tmp_path) as server:
        for user in USERS:
            client = await ModernClient.of(server, str(user))
            for tool, arguments, words in CALLS:
                answer = (await client.call(tool, arguments)).json()
                assert not answer.get("result", {"isError": True}).get("isError"), (tool, arguments, answer)
                require_own(str(answer["result"]), words, user)
            for uri, words in URIS.items():
                resource = await client.request("resources/read", {"uri": uri})
                require_own(str(resource.json()["result"]), words, user)
            other = await client.call("chats_search", {"query": "message", "character_id": 6})
            assert "message 0 of user" not in str(other.json()["result"])


async def test_numbers_work_at_the_addresses_of_tldw(tmp_path: Path) -> None:
    async with followed_users(tmp_path) as server:
        for user in USERS:
            for tool, arguments, words in CALLS:
                body = {"tool_name": tool.replace("_", ".", 1), "arguments": arguments}
                headers = {**await server.bearer(str(user)), "Content-Type": "application/json"}
                address = "/api/v1/mcp/tools/execute"
                response = await fetch(server.url, "POST", address, headers, json.dumps(body).encode())
                assert response.status == 200, (tool, arguments, response.body)
                require_own(str(response.json()), words, user)
