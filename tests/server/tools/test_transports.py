"""The source tools on a real server: two users over HTTP in both eras, over WebSocket and as resources."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from auth.context import SCOPES, ClientId, Principal, build_context
from sources.drafts import NoteDraft
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import LegacyClient, ModernClient, WebSocketClient


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server with one note for each of two users."""
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            await _write_note(server, name)
        yield server


async def _write_note(server: LiveServer, name: str) -> None:
    user = await server.user(name)
    principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
    context = build_context(principal, server.runtime.data_root, "request")
    async with server.runtime.libraries.library(context) as library:
        await library.notes.create(NoteDraft(title=f"Voyage of {name}", content="A galleon under full sail."))


async def search(server: LiveServer, transport: str, name: str) -> Any:
    arguments = {"query": "galleon"}
    match transport:
        case "legacy":
            body = (await (await LegacyClient.open(server, name)).call("notes_search", arguments)).json()
        case "modern":
            body = (await (await ModernClient.of(server, name)).call("notes_search", arguments)).json()
        case _:
            async with WebSocketClient.open(server.ws, await server.bearer(name)) as socket:
                await socket.initialize()
                body = await socket.call("notes_search", arguments)
    return body["result"]["structuredContent"]


@each_case("transport", ["legacy", "modern", "websocket"])
@each_case("name", ["ada", "ben"])
async def test_each_user_finds_their_own_note_through_every_transport(
    server: LiveServer, transport: str, name: str
) -> None:
    answer = await search(server, transport, name)

    assert [hit["title"] for hit in answer["results"]] == [f"Voyage of {name}"]


async def test_the_response_is_the_same_through_every_transport(server: LiveServer) -> None:
    answers = [await search(server, transport, "ada") for transport in ("legacy", "modern", "websocket")]

    assert answers[0] == answers[1] == answers[2]


async def test_another_users_note_returns_the_same_bytes_as_a_missing_one(server: LiveServer) -> None:
    (hit,) = (await search(server, "modern", "ada"))["results"]
    absent = "0" * len(hit["id"])
    ben = await ModernClient.of(server, "ben")

    bodies = [
        (await ben.request("resources/read", {"uri": f"notes://{identity}"}, request_id=1)).body.replace(
            identity.encode(), b"*"
        )
        for identity in (hit["id"], absent)
    ]

    assert bodies[0] == bodies[1]
    assert b"galleon" not in bodies[0]
