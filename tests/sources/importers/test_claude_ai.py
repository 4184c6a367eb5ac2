"""Claude.ai exports: conversations with all their content, and projects as notes and prompts."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.events import ImportedNote, ImportedPrompt, SkippedItem
from sources.importers.registry import load_importer
from tests.sources.importers.chat_files import (
    LIMITS,
    confidence,
    damaged,
    failures,
    imported_conversations,
    imported_messages,
    json_file,
    message_contents,
    nested,
    read,
    read_or_reject,
    skip_reasons,
    zip_file,
)

IMPORTER = load_importer("claude_ai")

CHAT = "0b7f9d52-1111-4222-8333-444455556666"
ROOT = "00000000-0000-4000-8000-000000000000"
IDS = [f"0b7f9d52-0000-4000-8000-00000000000{number}" for number in range(10)]


def message(number: int, text: str, sender: str = "human", **fields: Any) -> dict[str, Any]:
    return {
        "uuid": IDS[number],
        "sender": sender,
        "text": text,
        "content": [{"type": "text", "text": text}] if text else [],
        "created_at": f"2025-03-04T05:06:0{number}.123456Z",
        "attachments": [],
        "files": [],
        **fields,
    }


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "uuid": CHAT,
        "name": "Bread",
        "created_at": "2025-03-04T05:06:00.000000Z",
        "updated_at": "2025-03-05T07:06:00+02:00",
        "account": {"uuid": "someone"},
        "chat_messages": list(messages),
        **fields,
    }


PROJECT = {
    "uuid": "0b7f9d52-9999-4222-8333-444455556666",
    "name": "Bakery",
    "description": "All about bread",
    "prompt_template": "You are a baker.",
    "created_at": "2025-01-02T03:04:05+00:00",
    "docs": [
        {
            "uuid": "0b7f9d52-8888-4222-8333-444455556666",
            "filename": "rye.md",
            "content": "# Rye\nSlow.",
            "created_at": "2025-01-03T03:04:05+00:00",
        },
        {"filename": "empty.md", "content": ""},
    ],
}


def test_conversation_keeps_ids_times_and_order(tmp_path: Path) -> None:
    conversation = chat(message(1, "How long?"), message(2, "Six hours.", "assistant"), message(3, "Thanks"))
    path = json_file(tmp_path / "conversations.json", [conversation | {"summary": "On rye", "project": {"name": "P"}}])
    (imported,) = imported_conversations(read(IMPORTER, path))
    draft = imported.draft
    assert (draft.uuid, draft.title) == (CHAT, "Bread")
    assert (draft.created_at, draft.last_modified) == ("2025-03-04T05:06:00.000Z", "2025-03-05T05:06:00.000Z")
    assert draft.metadata == {"imported_from": "claude_ai", "summary": "On rye", "project": "P"}
    assert [(message.uuid, message.role, message.sender, message.content) for message in imported.messages] == [
        (IDS[1], "user", "human", "How long?"),
        (IDS[2], "assistant", "assistant", "Six hours."),
        (IDS[3], "user", "human", "Thanks"),
    ]
    assert [message.parent_id for message in imported.messages] == [None, IDS[1], IDS[2]]
    assert imported.messages[1].created_at == "2025-03-04T05:06:02.123Z"
    assert all(message.is_canonical for message in imported.messages)
    assert read(IMPORTER, path) == read(IMPORTER, path)


def test_branches_are_kept_and_the_last_message_is_canonical(tmp_path: Path) -> None:
    conversation = chat(
        message(1, "How long?", parent_message_uuid=ROOT),
        message(2, "Two hours.", "assistant", parent_message_uuid=IDS[1]),
        message(3, "Sure?", parent_message_uuid=IDS[2]),
        message(4, "Six hours.", "assistant", parent_message_uuid=IDS[1]),
        message(5, "Thanks", parent_message_uuid=IDS[4]),
    )
    messages = imported_messages(read(IMPORTER, json_file(tmp_path / "c.json", [conversation])))
    assert [(message.content, message.is_canonical) for message in messages] == [
        ("How long?", True),
        ("Six hours.", True),
        ("Thanks", True),
        ("Two hours.", False),
        ("Sure?", False),
    ]
    conversation["current_leaf_message_uuid"] = IDS[3]
    messages = imported_messages(read(IMPORTER, json_file(tmp_path / "c.json", [conversation])))
    assert [message.content for message in messages if message.is_canonical] == ["How long?", "Two hours.", "Sure?"]


def test_thinking_and_tool_calls_are_separate_messages(tmp_path: Path) -> None:
    blocks = [
        {"type": "thinking", "thinking": "Let me look."},
        {"type": "text", "text": "I look it up.", "citations": [{"title": "Rye", "url": "https://rye.test"}]},
        {"type": "text", "text": "Now.", "citations": [{"details": {"url": "https://b.test"}}]},
        {"type": "tool_use", "id": "t1", "name": "web_search", "input": {"query": "rye\nbread", "count": 3}},
        {"type": "tool_result", "name": "web_search", "content": [{"type": "text", "text": "6 h"}, {"type": "image"}]},
        {"type": "token_budget", "remaining": 5},
        {"type": "novelty", "data": [1]},
        {"type": "text", "text": "Six hours."},
    ]
    answer = message(2, "flattened", "assistant", content=blocks)
    messages = imported_messages(
        read(IMPORTER, json_file(tmp_path / "c.json", [chat(message(1, "?"), answer, message(3, "Thanks"))]))
    )
    assert [(message.role, message.tool, message.content) for message in messages[1:]] == [
        ("assistant", None, "Let me look."),
        ("assistant", None, "I look it up.\n\nNow."),
        ("assistant", "web_search", "query: rye\nbread\ncount: 3"),
        ("tool", "web_search", "6 h\n[image]"),
        ("assistant", None, '{"data":[1]}'),
        ("assistant", None, "Six hours."),
        ("user", None, "Thanks"),
    ]
    # The first ordinary text has the id of the message; each block follows the previous one.
    assert messages[2].uuid == IDS[2]
    assert [message.parent_id for message in messages[1:]] == [message.uuid for message in messages[:-1]]
    assert messages[2].citations == [{"title": "Rye", "url": "https://rye.test"}, {"url": "https://b.test"}]
    assert [message.metadata for message in messages[1:6]] == [
        {"content_type": kind} if kind else {} for kind in _KINDS
    ]


_KINDS = ("thinking", "", "tool_use", "tool_result", "novelty")


def test_text_of_attachments_is_appended_to_the_message(tmp_path: Path) -> None:
    attached = {"file_name": "rye.txt", "file_size": 9, "file_type": "txt", "extracted_content": "Rye is slow"}
    conversation = chat(
        message(1, "Read this", attachments=[attached], files=[{"file_name": "oven.png", "file_uuid": "f1"}]),
        message(2, "", attachments=[attached]),
        message(3, "", files=[{"file_name": "oven.png"}]),
    )
    messages = imported_messages(read(IMPORTER, json_file(tmp_path / "c.json", [conversation])))
    assert [message.content for message in messages] == [
        "Read this\n\n[attachment: rye.txt]\nRye is slow",
        "[attachment: rye.txt]\nRye is slow",
        "[file: oven.png]",
    ]
    assert messages[0].attachments == [
        {"name": "rye.txt", "mime_type": "txt", "size": 9},
        {"name": "oven.png", "id": "f1"},
    ]


def test_text_field_is_used_if_there_are_no_blocks(tmp_path: Path) -> None:
    old = {"uuid": IDS[1], "sender": "Human", "text": "plain", "created_at": None}
    (imported,) = imported_messages(read(IMPORTER, json_file(tmp_path / "c.json", [chat(old)])))
    assert (imported.content, imported.role, imported.created_at) == ("plain", "user", "2025-03-04T05:06:00.000Z")


def test_empty_messages_and_conversations_are_skipped(tmp_path: Path) -> None:
    empty = chat(message(1, ""), name="", uuid=None)
    events = read(IMPORTER, json_file(tmp_path / "c.json", [chat(), empty]))
    assert skip_reasons(events) == [
        "conversation without messages",
        "empty message",
        "conversation without messages",
    ]


def test_projects_become_a_prompt_and_notes(tmp_path: Path) -> None:
    path = json_file(tmp_path / "projects.json", [PROJECT, {"uuid": "x", "name": "Bare", "docs": []}])
    prompt, note, *rest = read(IMPORTER, path)
    assert isinstance(prompt, ImportedPrompt)
    assert isinstance(note, ImportedNote)
    assert (prompt.draft.uuid, prompt.draft.name) == (PROJECT["uuid"], "Bakery")
    assert (prompt.draft.system_prompt, prompt.draft.details) == ("You are a baker.", "All about bread")
    assert prompt.draft.created_at == "2025-01-02T03:04:05.000Z"
    assert (note.draft.uuid, note.draft.title) == ("0b7f9d52-8888-4222-8333-444455556666", "rye.md")
    assert (note.draft.content, note.draft.tags) == ("# Rye\nSlow.", ("Bakery",))
    assert note.draft.created_at == "2025-01-03T03:04:05.000Z"
    assert skip_reasons(rest) == ["empty document", "project without documents or instructions"]


def test_unpacked_export_equals_its_zip(tmp_path: Path) -> None:
    files = {"conversations.json": [chat(message(1, "x"))], "projects/a.json": PROJECT, "users.json": []}
    (tmp_path / "unpacked" / "projects").mkdir(parents=True)
    for name, value in files.items():
        json_file(tmp_path / "unpacked" / name, value)
    # Of a folder, the discovery reports which files are not used.
    unused = SkippedItem("file not used by claude_ai")
    packed = read(IMPORTER, zip_file(tmp_path / "a.zip", {**files, "report.pdf": ""}))
    assert packed == [*read(IMPORTER, tmp_path / "unpacked"), unused, unused]


def test_both_forms_of_the_zip_are_read(tmp_path: Path) -> None:
    conversations = [chat(message(1, "x"))]
    old = {"conversations.json": conversations, "projects.json": [PROJECT], "users.json": [{"uuid": "u"}]}
    new = {"data/conversations.json": conversations, "data/projects/a.json": PROJECT, "data/users.json": []}
    for name, files in (("old.zip", old), ("new.zip", new)):
        path = zip_file(tmp_path / name, files)
        events = read(IMPORTER, path)
        assert confidence(IMPORTER, path) == 0.95
        assert [type(event).__name__ for event in events if not skip_reasons([event])] == [
            "ImportedConversation",
            "ImportedPrompt",
            "ImportedNote",
        ]


def test_export_is_recognized_by_content(tmp_path: Path) -> None:
    conversations = [chat(message(1, "x"))]
    assert confidence(IMPORTER, json_file(tmp_path / "a.json", conversations)) == 0.9
    assert confidence(IMPORTER, json_file(tmp_path / "b.json", [PROJECT])) == 0.8
    assert confidence(IMPORTER, zip_file(tmp_path / "a.zip", {"conversations.json": conversations})) == 0.9
    assert confidence(IMPORTER, zip_file(tmp_path / "b.zip", {"conversations.json": [{"mapping": {}}]})) == 0
    assert confidence(IMPORTER, json_file(tmp_path / "c.json", [{"mapping": {}}])) == 0


def test_failed_items_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    bad = b'{"chat_messages":[' + nested(500) + b"]}"
    good = chat(message(1, "a"), message(2, "N\0L"), message(3, "x" * 11), message(4, "b"))
    good["chat_messages"].insert(2, 5)
    path = tmp_path / "c.json"
    path.write_bytes(b"[" + b",".join([b'{"a":1}', bad, b"7", msgspec.json.encode(good)]) + b"]")
    events = read(IMPORTER, path, replace(LIMITS, item_max_chars=10))
    assert message_contents(events) == ["a", "b"]
    assert imported_messages(events)[1].parent_id == IDS[1]
    assert [location for location, _ in failures(events)] == [
        "item 1",
        "item 2",
        "item 3",
        "item 4, message 2",
        "item 4, message 3",
        "item 4, message 4",
    ]


def test_zip_without_conversations_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidParams, match="found none of the files of this format"):
        read(IMPORTER, zip_file(tmp_path / "a.zip", {"users.json": []}))


VALID = msgspec.json.encode([chat(message(1, "a"), message(2, "b", "assistant")), PROJECT])


@given(damaged(VALID) | st.binary(max_size=300))
def test_damaged_export_is_read_or_rejected(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.json")
        path.write_bytes(data)
        assert read_or_reject(IMPORTER, path) == read_or_reject(IMPORTER, path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.text(max_size=4) | st.sampled_from(["text", "tool_use"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "content", "input", "citations", "file_name"]), inner)
    ),
    max_leaves=8,
)


@given(st.data())
def test_unexpected_values_in_any_field_are_tolerated(data: st.DataObject) -> None:
    def odd(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(sample, ANYTHING)))

    conversation = odd(chat()) | {"chat_messages": [odd(message(1, "a")), odd(message(2, "b"))]}
    project = odd(PROJECT) | {"docs": [odd({"uuid": "", "filename": "", "content": "x", "created_at": ""})]}
    with tempfile.TemporaryDirectory() as folder:
        read(IMPORTER, json_file(Path(folder, "c.json"), [conversation, project]))
