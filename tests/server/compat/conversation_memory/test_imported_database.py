"""A database of the conversation-memory plugin behind the memory tools: the plugin's own ids, paths and names work."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.settings import Settings
from sources.importers.engine.discovery import discover
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.registry import load_importer
from tests.server.compat.conversation_memory.memory_user import MemoryUser, open_memory_users
from tests.sources.importers.test_conversation_memory import ROWS, memory

IMPORTER = load_importer("conversation_memory")

PATH = "/home/ada/.claude/conversation-memory/conversation-archive/my-project/session-abc123.jsonl"


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[MemoryUser, MemoryUser]]:
    exchange = {**ROWS["exchanges"][1], "archive_path": PATH, "session_id": None, "project": "my-project"}
    rows = {
        "observations": [
            {**ROWS["observations"][0], "id": "obs-abc123"},
            {**ROWS["observations"][0], "id": "1700000000000-x7", "title": "The handle broke"},
        ],
        "exchanges": [exchange, {**ROWS["exchanges"][0], "archive_path": "C:\\archive\\session-9.jsonl"}],
    }
    async with open_memory_users(tmp_path / "data") as (ada, ben):
        results = list(discover([memory(tmp_path, rows)], import_limits(Settings()), [IMPORTER]))
        async with ada.user.libraries.library(ada.user.context) as library:
            await run_import(library, results, Settings(), ImportProgress())
        yield ada, ben


async def test_original_ids_of_observations_resolve_for_their_owner_only(both: tuple[MemoryUser, MemoryUser]) -> None:
    ada, ben = both

    text = await ada.text("memory_get_observations", ids=["1700000000000-x7", "obs-abc123"])

    titles = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["The handle broke", "The lid leaked"]
    assert await ben.error("memory_get_observations", ids=["obs-abc123"]) == "Error: Invalid observation ID: obs-abc123"


async def test_original_and_new_id_of_an_observation_return_it_once(both: tuple[MemoryUser, MemoryUser]) -> None:
    ada, _ = both
    [row] = await ada.rows("lid leaked", mode="text")

    text = await ada.text("memory_get_observations", ids=[row["id"], "obs-abc123"])

    assert text.startswith("Retrieved 1 observation:")
    assert await ada.error("memory_get_observations", ids=["obs-abc123", "obs-abc124"]) == (
        "Error: Invalid observation ID: obs-abc124"
    )


async def test_transcript_is_named_after_its_session(both: tuple[MemoryUser, MemoryUser]) -> None:
    ada, ben = both

    by_file = await ada.text("memory_read", path=PATH)
    by_session = await ada.text("memory_read", path="C:\\archive\\session-9.jsonl")

    assert by_file.startswith("# Conversation: session-abc123\n# Project: my-project\n# Date: 2026-11-15\n")
    assert by_session.startswith("# Conversation: s1\n")
    assert await ben.error("memory_read", path=PATH) == f"Error: File not found: {PATH}"
