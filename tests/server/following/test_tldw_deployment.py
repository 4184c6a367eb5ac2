"""A followed deployment of tldw: every user's databases reach that user's library and no other."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from auth.context import SCOPES
from auth.follows import Deployment, Deployments
from auth.tokens import mint_token
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.clients import ModernClient
from tests.server.following.tldw_deployment import CHACHA_NAME, TldwWriter, execute, make_user
from tests.server.http_client import fetch

WAIT_MAX_S = 90
USERS = range(1, 21)
ROUNDS = 3


@asynccontextmanager
async def server_of(root: Path) -> AsyncIterator[LiveServer]:
    async with live(make_settings(root / "data", follow_poll_s=0.1, **NO_RATE_LIMITS)) as server:
        yield server


async def add(server: LiveServer, root: Path, **options: Any) -> Deployment:
    return await Deployments(server.runtime.registry.database).add(Deployment(location=str(root.resolve()), **options))


async def titles(server: LiveServer, user: str, source: str = "notes") -> set[str]:
    path = f"/api/v1/library/items?source={source}&limit=100"
    response = await fetch(server.url, "GET", path, await server.bearer(user))
    return {item["title"] for item in response.json()["items"]}


async def wait_until(is_reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while not await is_reached():
            await asyncio.sleep(0.05)


async def wait_for_notes(server: LiveServer, user: str, *expected: str) -> None:
    async def is_reached() -> bool:
        return await titles(server, user) == set(expected)

    await wait_until(is_reached)


async def call(server: LiveServer, user: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    client = await ModernClient.of(server, user)
    result: dict[str, Any] = (await client.call(tool, arguments)).json()["result"]
    return result


@pytest.mark.slow("waits for events of files and for polls")
async def test_every_change_of_twenty_users_reaches_its_user_only(tmp_path: Path) -> None:
    root = tmp_path / "user_databases"
    for user in USERS:
        make_user(root, user)
    async with server_of(tmp_path) as server:
        await add(server, root, creates_users=True)
        writers = [TldwWriter(root, ROUNDS, USERS[start::2]) for start in range(2)]
        try:
            results = [await asyncio.to_thread(writer.result) for writer in writers]
            assert [result["failures"] for result in results] == [0, 0]
            for user in USERS:
                edited = [f"edited {turn} of user {user}" for turn in range(ROUNDS)]
                await wait_for_notes(server, str(user), *edited, f"note {ROUNDS} of user {user}")
                await expect_last_round(server, user)
        finally:
            for writer in writers:
                writer.close()


async def expect_last_round(server: LiveServer, user: int) -> None:
    """tldw's numbers are usable as they are."""
    name = str(user)

    async def has_last_round() -> bool:
        media = await call(server, name, "media_get", {"media_id": 7, "retrieval": {"mode": "full"}})
        prompt = await call(server, name, "prompts_get", {"prompt_id_or_name": 3})
        chats = await call(server, name, "chats_search", {"query": f"message {ROUNDS}", "character_id": 5})
        return (
            f"transcript {ROUNDS} of user {user}" in str(media)
            and f"prompt {ROUNDS} of user {user}" in str(prompt)
            and f"message {ROUNDS} of user {user}" in str(chats)
        )

    await wait_until(has_last_round)
    character = await call(server, name, "characters_get", {"character_id": 5})
    assert f"Character of user {user}" in str(character)
    everything = await call(server, name, "knowledge_search", {"query": "user", "limit": 50})
    assert set(re.findall(r"of user (\d+)", str(everything))) == {name}


async def deployment_users(server: LiveServer, deployment: Deployment) -> dict[int, dict[str, Any]]:
    path = f"/api/v1/follow-deployments/{deployment.id}"
    response = await fetch(server.url, "GET", path, await server.bearer("root"))
    return {one["tldw_id"]: one for one in response.json()["users"]}


@pytest.mark.slow("waits for events of files and for polls")
async def test_users_appear_disappear_and_break_without_affecting_each_other(tmp_path: Path) -> None:
    root = tmp_path / "user_databases"
    for user in (1, 2):
        make_user(root, user)
    (root / "README").write_text("no user")
    async with server_of(tmp_path) as server:
        await server.user("tldw-1")
        deployment = await add(server, root, user_name="tldw-{id}")
        await wait_for_notes(server, "tldw-1", "note 0 of user 1")
        users = await deployment_users(server, deployment)
        assert (users[2]["state"], users[2]["problem"]) == ("not followed", "no user is named 'tldw-2'")

        # A user here, a user there, and a link to the folder of another user, which is not followed.
        await server.user("tldw-2")
        await server.user("tldw-3")
        await server.user("tldw-4")
        make_user(root, 3)
        (root / "4").symlink_to(root / "1")
        await wait_for_notes(server, "tldw-2", "note 0 of user 2")
        await wait_for_notes(server, "tldw-3", "note 0 of user 3")
        assert await titles(server, "tldw-4") == set()

        (root / "1" / CHACHA_NAME).write_bytes(b"SQLite format 3\0 and then nothing of the kind")
        (root / "2").rename(tmp_path / "elsewhere")
        execute(root / "3" / CHACHA_NAME, "UPDATE notes SET title = 'changed', last_modified = '2030-01-01T00:00:00Z'")
        await wait_for_notes(server, "tldw-3", "changed")

        async def is_reported() -> bool:
            users = await deployment_users(server, deployment)
            is_broken = CHACHA_NAME in users[1]["problem"]
            return is_broken and users[2]["problem"] == "the folder is missing; its items were kept"

        await wait_until(is_reported)
        assert await titles(server, "tldw-1") == {"note 0 of user 1"}
        assert await titles(server, "tldw-2") == {"note 0 of user 2"}
        (tmp_path / "elsewhere").rename(root / "2")
        execute(root / "2" / CHACHA_NAME, "UPDATE notes SET deleted = 1")
        await wait_for_notes(server, "tldw-2")


@pytest.mark.slow("waits for events of files and for polls")
async def test_users_are_found_by_claim_and_can_leave(tmp_path: Path) -> None:
    root = tmp_path / "user_databases"
    make_user(root, 7)
    make_user(root, 8)
    async with server_of(tmp_path) as server:
        await server.runtime.registry.add_user("ada", subject="7", role="admin")
        deployment = await add(server, root, mapping="claim")
        settings = server.runtime.settings
        token = mint_token(settings, "7", SCOPES, lifetime_s=3600.0, now=time.time(), client_id="test")
        ada = {"Authorization": f"Bearer {token}"}

        async def notes() -> set[str]:
            response = await fetch(server.url, "GET", "/api/v1/library/items?source=notes", ada)
            return {item["title"] for item in response.json()["items"]}

        async def is_followed() -> bool:
            return await notes() == {"note 0 of user 7"}

        await wait_until(is_followed)
        [followed] = (await fetch(server.url, "GET", "/api/v1/follows", ada)).json()["follows"]
        assert (followed["location"], followed["deployment"]) == ("tldw user 7", deployment.id)
        await fetch(server.url, "DELETE", f"/api/v1/follows/{followed['id']}", ada)
        make_user(root, 9)

        async def is_looked_at() -> bool:
            return 9 in await deployment_users(server, deployment)

        await wait_until(is_looked_at)
        users = await deployment_users(server, deployment)
        assert users[7]["problem"] == "its user stopped following it"
        assert users[8]["problem"] == "no user has the user claim '8'"
        assert (await fetch(server.url, "GET", "/api/v1/follows", ada)).json() == {"follows": []}


async def test_only_administrators_follow_deployments(tmp_path: Path) -> None:
    root = tmp_path / "user_databases"
    make_user(root, 1)
    async with server_of(tmp_path) as server:
        path, body = "/api/v1/follow-deployments", {"location": str(root), "create_users": True}
        writer = await server.bearer("ben", ("knowledge:read", "knowledge:write"))
        json_body = {**writer, "Content-Type": "application/json"}
        refused = await fetch(server.url, "POST", path, json_body, json.dumps(body).encode())
        assert refused.status == 403
        admin = {**await server.bearer("root"), "Content-Type": "application/json"}
        wrong = await fetch(server.url, "POST", path, admin, json.dumps({**body, "user_name": "ada"}).encode())
        assert wrong.json()["error"]["message"] == "user_name: expected a name with {id}, got 'ada'"
        added = (await fetch(server.url, "POST", path, admin, json.dumps(body).encode())).json()
        again = await fetch(server.url, "POST", path, admin, json.dumps(body).encode())
        assert again.status == 409
        await wait_for_notes(server, "1", "note 0 of user 1")

        async def is_current() -> bool:
            [listed] = (await fetch(server.url, "GET", path, admin)).json()["deployments"]
            return (listed["id"], listed["state"], listed["followed"]) == (added["id"], "current", 1)

        await wait_until(is_current)  # the run ends after its notes are visible

        paused = await fetch(server.url, "PATCH", f"{path}/{added['id']}", admin, b'{"paused": true}')
        assert paused.json()["state"] == "paused"
        execute(root / "1" / CHACHA_NAME, "UPDATE notes SET title = 'changed', last_modified = '2030-01-01T00:00:00Z'")
        await fetch(server.url, "PATCH", f"{path}/{added['id']}", admin, b'{"paused": false}')
        await wait_for_notes(server, "1", "changed")
        await fetch(server.url, "DELETE", f"{path}/{added['id']}", admin)
        assert (await fetch(server.url, "GET", path, admin)).json() == {"deployments": []}
        assert await titles(server, "1") == {"changed"}
