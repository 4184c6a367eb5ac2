"""What the conversations API gave out, brought in by an import: the zip of all, the JSON of one; ours or AgentKit's."""

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from config.settings import Settings
from server.compat.agentkit.conversations import ConversationExporter
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.summary import OutcomeCounts
from sources.importers.registry import all_importers, load_importer, select_importer
from tests.cases import each_case
from tests.sources.importers.chat_files import (
    LIMITS,
    confidence,
    damaged,
    failures,
    imported_conversations,
    json_file,
    message_contents,
    read,
    read_or_reject,
    skip_reasons,
    zip_file,
)
from tests.sources.importers.test_chats_in_a_library import import_chats
from tests.sources.storage.library_fixture import LibraryFixture, open_library_fixture, total_items
from tests.tiers import examples

IMPORTER = load_importer("conversations")

AT = "2025-10-09T19:37:47.783681+00:00"


def message(key: str, content: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {"model": None, "tool_used": None, "attachments": [], "citations": [], "timestamp": AT}
    return {"id": key, "conversation_id": "k1", "role": role, "content": content, **defaults, **fields}


def conversation(key: str = "k1", **fields: Any) -> dict[str, Any]:
    """Returns a conversation as AgentKit's export writes it."""
    times = {"created_at": AT, "updated_at": AT}
    summary = {"id": key, "session_id": f"s-{key}", "title": "Parsnip soup", "namespace": "work", **times}
    messages = [
        message(f"{key}-a", "Parsnip soup?"),
        message(f"{key}-b", "With cumin.", "assistant", model="g"),
    ]
    return {**summary, "message_count": 2, "metadata": {}, "messages": messages, **fields}


async def export_archive(libraries: LibraryFixture, owner: str) -> bytes:
    exporter = ConversationExporter(libraries.engine, libraries.context(owner), replace(Settings(), message_page_max=2))
    return b"".join([block async for block in exporter.as_archive()])


async def test_exported_zip_is_imported_completely_and_exported_identically(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            for title in ("Tea", "Bread"):
                messages = [MessageDraft(role="user", content=f"{title} {turn}?", sender="Ada") for turn in range(5)]
                await ada.chats.create(ConversationDraft(title=title, namespace="work", tags=("kitchen",)), messages)
            await ada.chats.create(ConversationDraft(title="Silence"), [])
        archive = await export_archive(libraries, "ada")
        path = tmp_path / "conversations.zip"
        path.write_bytes(archive)

        own, theirs = await import_chats(libraries, "ada", path), await import_chats(libraries, "ben", path)

        assert own.kinds == {"chats": OutcomeCounts(unchanged=3), "messages": OutcomeCounts(unchanged=10)}
        assert theirs.kinds == {"chats": OutcomeCounts(new=3), "messages": OutcomeCounts(new=10)}
        assert (await export_archive(libraries, "ben"), await export_archive(libraries, "ada")) == (archive, archive)
        async with libraries.library("cyd") as cyd:
            assert await total_items(cyd) == 0


@each_case("indent", [None, 2])
async def test_agentkit_export_is_imported_alone_or_zipped(tmp_path: Path, indent: int | None) -> None:
    text = json.dumps(conversation(), indent=indent).encode()
    (tmp_path / "one.json").write_bytes(text)
    zip_file(tmp_path / "all.zip", {"conversation-k1.json": text, "conversation-k2.json": conversation("k2")})
    async with open_library_fixture(tmp_path / "data") as libraries:
        first, second = (
            await import_chats(libraries, "ada", tmp_path / "one.json"),
            await import_chats(libraries, "ada", tmp_path / "all.zip"),
        )
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            stored = await ada.chats.get("k1")
            assert await total_items(ben) == 0
    assert first.kinds == {"chats": OutcomeCounts(new=1), "messages": OutcomeCounts(new=2)}
    assert second.kinds == {"chats": OutcomeCounts(new=1, unchanged=1), "messages": OutcomeCounts(new=2, unchanged=2)}
    assert (stored.title, stored.namespace, stored.session_id) == ("Parsnip soup", "work", "s-k1")
    assert stored.created_at == "2025-10-09T19:37:47.783Z"


def test_failed_file_in_a_zip_is_reported_and_the_others_are_imported(tmp_path: Path) -> None:
    files = {
        "a.json": conversation("a"),
        "b.json": b'{"id": "b", "messages": [',
        "c.json": conversation("search"),
        "d.json": conversation("d"),
        "e.json": b'{"id": "\x80"}',
        "notes.txt": b"",
    }
    events = read(IMPORTER, zip_file(tmp_path / "all.zip", files))
    assert [chat.draft.uuid for chat in imported_conversations(events)] == ["a", "d"]
    assert [location for location, _ in failures(events)] == ["b.json", "c.json", "e.json"]
    assert skip_reasons(events) == ["file in the archive not containing a conversation"]


def test_namespace_without_conversations_is_reported(tmp_path: Path) -> None:
    manifest = {"format": "florilegium-conversations", "version": 1, "namespaces": ["default", "work", "play"]}
    path = zip_file(tmp_path / "all.zip", {"a.json": conversation(), "manifest.json": manifest})
    assert skip_reasons(read(IMPORTER, path)) == ["namespace without conversations"]
    assert confidence(IMPORTER, path) == 1.0


def test_long_conversation_is_yielded_in_parts(tmp_path: Path) -> None:
    messages = [message(f"m{turn}", f"turn {turn}") for turn in range(1_200)]
    events = read(IMPORTER, json_file(tmp_path / "long.json", conversation(messages=messages)))
    assert [(len(chat.messages), chat.continues) for chat in imported_conversations(events)] == [
        (500, False),
        (500, True),
        (200, True),
    ]
    assert message_contents(events) == [f"turn {turn}" for turn in range(1_200)]


@each_case(
    "value",
    [{"messages": []}, {"session_id": "s", "messages": [{"role": "user"}]}, [conversation()], {"mapping": {}}],
)
def test_other_json_is_not_recognized(tmp_path: Path, value: Any) -> None:
    importer = select_importer(probe_file(json_file(tmp_path / "a.json", value), LIMITS), all_importers())
    assert importer is not IMPORTER


def sample() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("conversations/k1.json", json.dumps(conversation()))
    return buffer.getvalue()


@settings(max_examples=examples(30))
@given(st.one_of(damaged(sample()), damaged(json.dumps(conversation()).encode())))
def test_damaged_file_is_read_or_rejected(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.zip")
        path.write_bytes(data)
        read_or_reject(IMPORTER, path)
