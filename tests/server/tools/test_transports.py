"""The sources through the doors of a real server: two users over HTTP in both eras, over WebSocket and as resources."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from sources.drafts import NoteDraft
from tests.live import Live, live, make_settings
from tests.server.clients import Legacy, Modern, Socket


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Live]:
    """A server on which Ada and Ben have a note each."""
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            await _write_note(server, name)
        yield server


async def _write_note(server: Live, name: str) -> None:
    user = await server.user(name)
    principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
    context = build_context(principal, server.runtime.data_root, "request")
    async with server.runtime.libraries.library(context) as library:
        await library.notes.create(NoteDraft(title=f"Voyage of {name}", content="A galleon under full sail."))


async def search(up: Live, door: str, name: str) -> Any:
    arguments = {"query": "galleon"}
    match door:
        case "legacy":
            body = (await (await Legacy.open(up, name)).call("notes_search", arguments)).json()
        case "modern":
            body = (await (await Modern.of(up, name)).call("notes_search", arguments)).json()
        case _:
            async with Socket.open(up.ws, await up.bearer(name)) as socket:
                await socket.initialize()
                body = await socket.call("notes_search", arguments)
    return body["result"]["structuredContent"]


@pytest.mark.parametrize("door", ["legacy", "modern", "websocket"])
@pytest.mark.parametrize("name", ["ada", "ben"])
async def test_each_user_finds_their_own_note_through_every_door(up: Live, door: str, name: str) -> None:
    answer = await search(up, door, name)

    assert [hit["title"] for hit in answer["results"]] == [f"Voyage of {name}"]


async def test_the_answer_is_the_same_through_every_door(up: Live) -> None:
    answers = [await search(up, door, "ada") for door in ("legacy", "modern", "websocket")]

    assert answers[0] == answers[1] == answers[2]


async def test_a_foreign_note_is_the_same_bytes_as_an_absent_one(up: Live) -> None:
    (hit,) = (await search(up, "modern", "ada"))["results"]
    absent = "0" * len(hit["id"])
    ben = await Modern.of(up, "ben")

    told = [
        (await ben.request("resources/read", {"uri": f"notes://{identity}"}, request_id=1)).body.replace(
            identity.encode(), b"*"
        )
        for identity in (hit["id"], absent)
    ]

    assert told[0] == told[1]
    assert b"galleon" not in told[0]
