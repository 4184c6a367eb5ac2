"""What the conversations API gave out, brought in by an import: the zip of all, the JSON of one; ours or AgentKit's."""

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.settings import Settings
from server.compat.agentkit.export import ConversationExporter, line_max_bytes
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.import_runner import OutcomeCounts
from sources.importers.formats.conversations import IMPORTER
from sources.importers.registry import importers, select_importer
from tests.sources.importers.chat_reading import (
    LIMITS,
    broken,
    certainty,
    chats,
    damaged,
    json_file,
    read,
    read_or_refuse,
    skipped,
    texts,
    zip_file,
)
from tests.sources.importers.test_chats_in_a_library import take
from tests.sources.storage.library_fixture import LibraryFixture, open_sqlite, total_items

AT = "2025-10-09T19:37:47.783681+00:00"


def message(key: str, content: str, role: str = "user", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"model": None, "tool_used": None, "attachments": [], "citations": [], "timestamp": AT}
    return {"id": key, "conversation_id": "k1", "role": role, "content": content, **made, **more}


def conversation(key: str = "k1", **more: Any) -> dict[str, Any]:
    """As AgentKit's export writes it."""
    times = {"created_at": AT, "updated_at": AT}
    about = {"id": key, "session_id": f"s-{key}", "title": "Parsnip soup", "namespace": "work", **times}
    said = [message(f"{key}-a", "Parsnip soup?"), message(f"{key}-b", "With cumin.", "assistant", model="g")]
    return {**about, "message_count": 2, "metadata": {}, "messages": said, **more}


async def archive_of(libraries: LibraryFixture, owner: str) -> bytes:
    exporter = ConversationExporter(libraries.engine, libraries.context(owner), 2, line_max_bytes(Settings()))
    return b"".join([piece async for piece in exporter.as_archive()])


async def test_our_own_zip_comes_in_whole_and_gives_the_same_bytes_again(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            for title in ("Tea", "Bread"):
                said = [MessageDraft(role="user", content=f"{title} {turn}?", sender="Ada") for turn in range(5)]
                await ada.chats.create(ConversationDraft(title=title, namespace="work", tags=("kitchen",)), said)
            await ada.chats.create(ConversationDraft(title="Silence"), [])
        archive = await archive_of(libraries, "ada")
        path = tmp_path / "conversations.zip"
        path.write_bytes(archive)

        own, theirs = await take(libraries, "ada", path), await take(libraries, "ben", path)

        assert own.kinds == {"chats": OutcomeCounts(unchanged=3), "messages": OutcomeCounts(unchanged=10)}
        assert theirs.kinds == {"chats": OutcomeCounts(new=3), "messages": OutcomeCounts(new=10)}
        assert (await archive_of(libraries, "ben"), await archive_of(libraries, "ada")) == (archive, archive)
        async with libraries.library("cyd") as cyd:
            assert await total_items(cyd) == 0


@pytest.mark.parametrize("indent", [None, 2])
async def test_what_agentkit_exported_comes_in_alone_or_zipped(tmp_path: Path, indent: int | None) -> None:
    text = json.dumps(conversation(), indent=indent).encode()
    (tmp_path / "one.json").write_bytes(text)
    zip_file(tmp_path / "all.zip", {"conversation-k1.json": text, "conversation-k2.json": conversation("k2")})
    async with open_sqlite(tmp_path / "data") as libraries:
        first, second = (
            await take(libraries, "ada", tmp_path / "one.json"),
            await take(libraries, "ada", tmp_path / "all.zip"),
        )
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            kept = await ada.chats.get("k1")
            assert await total_items(ben) == 0
    assert first.kinds == {"chats": OutcomeCounts(new=1), "messages": OutcomeCounts(new=2)}
    assert second.kinds == {"chats": OutcomeCounts(new=1, unchanged=1), "messages": OutcomeCounts(new=2, unchanged=2)}
    assert (kept.title, kept.namespace, kept.session_id) == ("Parsnip soup", "work", "s-k1")
    assert kept.created_at == "2025-10-09T19:37:47.783Z"


def test_one_file_that_is_broken_keeps_no_other_of_the_zip_from_coming(tmp_path: Path) -> None:
    files = {
        "a.json": conversation("a"),
        "b.json": b'{"id": "b", "messages": [',
        "c.json": conversation("search"),
        "d.json": conversation("d"),
        "e.json": b'{"id": "\x80"}',
        "notes.txt": b"",
    }
    found = read(IMPORTER, zip_file(tmp_path / "all.zip", files))
    assert [chat.draft.uuid for chat in chats(found)] == ["a", "d"]
    assert [place for place, _ in broken(found)] == ["b.json", "c.json", "e.json"]
    assert skipped(found) == ["a file of the archive that is no conversation"]


def test_a_namespace_that_has_no_conversation_is_told(tmp_path: Path) -> None:
    manifest = {"format": "florilegium-conversations", "version": 1, "namespaces": ["default", "work", "play"]}
    path = zip_file(tmp_path / "all.zip", {"a.json": conversation(), "manifest.json": manifest})
    assert skipped(read(IMPORTER, path)) == ["a namespace without a conversation"]
    assert certainty(IMPORTER, path) == 1.0


def test_a_long_conversation_comes_in_parts(tmp_path: Path) -> None:
    said = [message(f"m{turn}", f"turn {turn}") for turn in range(1_200)]
    found = read(IMPORTER, json_file(tmp_path / "long.json", conversation(messages=said)))
    assert [(len(chat.messages), chat.continues) for chat in chats(found)] == [(500, False), (500, True), (200, True)]
    assert texts(found) == [f"turn {turn}" for turn in range(1_200)]


@pytest.mark.parametrize(
    "value",
    [{"messages": []}, {"session_id": "s", "messages": [{"role": "user"}]}, [conversation()], {"mapping": {}}],
)
def test_other_json_is_left_to_others(tmp_path: Path, value: Any) -> None:
    importer = select_importer(probe_file(json_file(tmp_path / "a.json", value), LIMITS), importers())
    assert importer is not IMPORTER


def sample() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("conversations/k1.json", json.dumps(conversation()))
    return sink.getvalue()


@settings(max_examples=60)
@given(st.one_of(damaged(sample()), damaged(json.dumps(conversation()).encode())))
def test_damaged_files_are_refused_or_read_as_far_as_they_go(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.zip")
        path.write_bytes(data)
        read_or_refuse(IMPORTER, path)
