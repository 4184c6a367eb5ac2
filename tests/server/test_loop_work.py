"""Work that grows with a user's texts does not run on the event loop, where all other users would wait for it.

The same calls are made on a library of short texts and on one of texts 15 times as long. Only CPU time of the loop's
own thread counts, so it does not matter what else the machine does.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.server.loop_work import MeasuredServer, open_measured_server

SHORT_CHARS, LONG_CHARS = 16_000, 240_000
# Linear growth would be 15. The constant covers what does not depend on the text, such as a garbage collection.
GROWTH_MAX = 5
CONSTANT_S = 0.02

CHUNK = {"retrieval": {"mode": "chunk"}, "query": "sand"}
FULL = {"retrieval": {"mode": "full"}}
TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("knowledge_search", {"query": "galleon sand"}),
    ("notes_search", {"query": "galleon"}),
    ("chats_search", {"query": "galleon"}),
    ("characters_search", {"query": "galleon"}),
    ("prompts_search", {"query": "galleon"}),
    ("notes_get", {"note_id": "ship"}),
    ("notes_get", {"note_id": "ship", **CHUNK}),
    ("notes_get", {"note_id": "ship", **FULL}),
    ("media_get", {"media_id": 1, **CHUNK}),
    ("media_get", {"media_id": 1, **FULL}),
    ("chats_get", {"conversation_id": "chat"}),
    ("chats_get", {"conversation_id": "chat", **CHUNK}),
    ("characters_get", {"character_id": 1}),
    ("prompts_get", {"prompt_id_or_name": "Ship", **CHUNK}),
    ("memory_search", {"query": "galleon"}),
    ("memory_search", {"query": ["galleon", "sand"]}),
    ("memory_read", {"path": "chats://chat"}),
    ("conversation_search", {"query": "galleon"}),
    ("msg_search", {"query": "galleon"}),
    ("fetch", {"id": "notes://ship"}),
    ("knowledge_get", {"uri": "notes://ship", **CHUNK}),
]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("prompts/list", {}),
    ("prompts/get", {"name": "prompt_1_ship", "arguments": {"sea": "x"}}),
    ("prompts/get", {"name": "character_1_ship", "arguments": {"user": "x"}}),
    ("resources/read", {"uri": "notes://ship"}),
    ("resources/list", {}),
]
CALLS = [("tools/call", {"name": tool, "arguments": arguments}) for tool, arguments in TOOLS] + REQUESTS


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[MeasuredServer, MeasuredServer]]:
    folder: Path = tmp_path_factory.mktemp("libraries")
    async with (
        open_measured_server(folder / "short", SHORT_CHARS) as short,
        open_measured_server(folder / "long", LONG_CHARS) as long,
    ):
        yield short, long


@pytest.mark.slow("measures CPU time on long texts")
@each_case(("method", "params"), CALLS)
async def test_the_loop_does_no_work_that_grows_with_a_text(
    servers: tuple[MeasuredServer, MeasuredServer], method: str, params: dict[str, Any]
) -> None:
    short_s, long_s = [min([await server.mcp(method, **params) for _ in range(2)]) for server in servers]
    assert long_s <= GROWTH_MAX * short_s + CONSTANT_S
