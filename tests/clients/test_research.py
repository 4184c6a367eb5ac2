"""The official Python client uses `search` and `fetch` like OpenAI's deep research, and can open the cited pages."""

from pathlib import Path

import pytest

from auth.context import SCOPES, ClientId, Principal, build_context
from sources.drafts import NoteDraft
from tests.clients.python_client import connect
from tests.live import LiveServer, live, make_settings
from tests.server.http_client import fetch


async def _add_note(server: LiveServer, name: str) -> str:
    user = await server.user(name)
    principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
    context = build_context(principal, server.runtime.data_root, "request")
    async with server.runtime.libraries.library(context) as library:
        return (await library.notes.create(NoteDraft(title=f"Voyage of {name}", content="A galleon."))).id


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_search_and_fetch_return_each_users_own_items(tmp_path: Path, mode: str) -> None:
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            note = await _add_note(server, name)
            async with connect(server, name, "research", mode=mode) as client:
                listed = [tool.name for tool in (await client.list_tools()).tools]
                hits = (await client.call_tool("search", {"query": "galleon"})).structured_content
                item = (await client.call_tool("fetch", {"id": hits["results"][0]["id"]})).structured_content
            path = item["url"].removeprefix(server.url)
            page = await fetch(server.url, "GET", path, await server.bearer(name))

            assert listed == ["search", "fetch"]
            assert [hit["title"] for hit in hits["results"]] == [f"Voyage of {name}"]
            assert item["url"] == f"{server.url}/items/notes/{note}"
            assert item["text"] == "A galleon."
            assert (page.status, b"A galleon." in page.body) == (200, True)
