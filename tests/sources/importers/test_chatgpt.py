"""ChatGPT exports: messages with their branches, content types and ids."""

import tempfile
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from config.errors import InvalidParams, TooLarge
from sources.importers.formats.chatgpt import message_uuid
from sources.importers.registry import load_importer
from tests.cases import each_case
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

IMPORTER = load_importer("chatgpt")

CHAT = "6a1f0c52-7d0e-4b57-9d0a-0f3f1f0c9a01"


def message(text: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    return {"author": {"role": role, "name": None, "metadata": {}}, "content": content, "weight": 1.0, **fields}


def node(parent: str | None, content: dict[str, Any] | None = None, *children: str) -> dict[str, Any]:
    return {"parent": parent, "children": list(children), "message": content}


def chat(mapping: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"conversation_id": CHAT, "title": "Tea", "create_time": 1700000000.5, "mapping": mapping, **fields}


def one_message(content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return chat({"root": node(None, None, "m"), "m": node("root", content)}, current_node="m", **fields)


# A question was edited (q, then q2), and the answer to the second was regenerated (a2, then b2).
BRANCHING = chat(
    {
        "root": node(None, None, "s"),
        "s": node("root", message("Be kind.", "system"), "q", "q2"),
        "q": node("s", message("Green tea?", create_time=1700000001), "a"),
        "a": node("q", message("80 degrees.", "assistant", create_time=1700000002)),
        "q2": node("s", message("Black tea?", create_time=1700000003), "a2", "b2"),
        "b2": node("q2", message("Boiling.", "assistant", create_time=1700000005), "t"),
        "a2": node("q2", message("95 degrees.", "assistant", create_time=1700000004)),
        "t": node("b2", message("Thanks", create_time=None)),
    },
    current_node="t",
    update_time=1700000009.25,
)


def test_canonical_path_comes_first_and_branches_follow_in_order(tmp_path: Path) -> None:
    messages = imported_messages(read(IMPORTER, json_file(tmp_path / "conversations.json", [BRANCHING])))
    assert [(message.content, message.is_canonical) for message in messages] == [
        ("Black tea?", True),
        ("Boiling.", True),
        ("Thanks", True),
        ("Green tea?", False),
        ("80 degrees.", False),
        ("95 degrees.", False),
    ]


def test_siblings_keep_the_order_of_their_parent(tmp_path: Path) -> None:
    mapping = {
        "q": node(None, message("q"), "first", "second", "third"),
        "third": node("q", message("third")),
        "second": node("q", message("second")),
        "first": node("q", message("first")),
    }
    path = json_file(tmp_path / "c.json", [chat(mapping, current_node="third")])
    assert message_contents(read(IMPORTER, path)) == ["q", "third", "first", "second"]


def test_parents_skip_messages_that_are_not_imported(tmp_path: Path) -> None:
    events = read(IMPORTER, json_file(tmp_path / "c.json", [BRANCHING]))
    messages = {message.content: message for message in imported_messages(events)}
    # The system message is skipped and the root is empty, so the questions have no parent.
    assert {message.content: message.parent_id for message in messages.values()} == {
        "Black tea?": None,
        "Green tea?": None,
        "Boiling.": messages["Black tea?"].uuid,
        "95 degrees.": messages["Black tea?"].uuid,
        "Thanks": messages["Boiling."].uuid,
        "80 degrees.": messages["Green tea?"].uuid,
    }


def test_ids_come_from_the_export_and_are_stable(tmp_path: Path) -> None:
    path = json_file(tmp_path / "c.json", [BRANCHING])
    (conversation,) = imported_conversations(read(IMPORTER, path))
    assert conversation.draft.uuid == CHAT
    assert conversation.messages[0].uuid == message_uuid(CHAT, "q2")
    assert all(UUID(str(message.uuid)) for message in conversation.messages)
    assert read(IMPORTER, path) == read(IMPORTER, path)


def test_chat_that_repeats_messages_of_another_has_its_own_copies(tmp_path: Path) -> None:
    """A chat that was branched into a new one repeats the messages."""
    other = {**BRANCHING, "conversation_id": "6a1f0c52-7d0e-4b57-9d0a-0f3f1f0c9a02"}
    messages = imported_messages(read(IMPORTER, json_file(tmp_path / "c.json", [BRANCHING, other])))
    assert len({message.uuid for message in messages}) == 12


def test_message_without_a_time_gets_that_of_its_parent(tmp_path: Path) -> None:
    (conversation,) = imported_conversations(read(IMPORTER, json_file(tmp_path / "c.json", [BRANCHING])))
    assert conversation.draft.created_at == "2023-11-14T22:13:20.500Z"
    assert conversation.draft.last_modified == "2023-11-14T22:13:29.250Z"
    assert [message.created_at for message in conversation.messages[:3]] == [
        "2023-11-14T22:13:23.000Z",
        "2023-11-14T22:13:25.000Z",
        "2023-11-14T22:13:25.000Z",
    ]


def test_without_a_current_node_the_newest_weighted_leaf_is_canonical(tmp_path: Path) -> None:
    mapping = {**BRANCHING["mapping"]}
    mapping["x"] = node("a", message("A tool's", "tool", weight=0.0, create_time=1700009999))
    for current in ({}, {"current_node": None}, {"current_node": "nowhere"}):
        conversation = {**BRANCHING, "mapping": mapping, "current_node": None, **current}
        mapping["t"] = node("b2", message("Thanks", create_time=1700000008))
        messages = imported_messages(read(IMPORTER, json_file(tmp_path / "c.json", [conversation])))
        assert [message.content for message in messages if message.is_canonical] == ["Black tea?", "Boiling.", "Thanks"]


def test_cycles_unknown_parents_and_several_roots_are_tolerated(tmp_path: Path) -> None:
    mapping = {
        "a": node("b", message("a")),
        "b": node("a", message("b")),
        "lost": node("nowhere", message("lost")),
        "self": node("self", message("self")),
        "root": node(None, message("root"), "adopted", "unknown"),
        "adopted": node(None, message("adopted")),
        "empty": None,
    }
    messages = imported_messages(
        read(IMPORTER, json_file(tmp_path / "c.json", [chat(mapping, current_node="adopted")]))
    )
    assert sorted(str(message.content) for message in messages) == ["a", "adopted", "b", "lost", "root", "self"]
    assert [message.content for message in messages if message.is_canonical] == ["root", "adopted"]
    messages = imported_messages(read(IMPORTER, json_file(tmp_path / "c.json", [chat(mapping, current_node="a")])))
    assert [message.content for message in messages if message.is_canonical] == ["b", "a"]


@each_case(
    ("content", "text"),
    [
        ({"content_type": "text", "parts": ["one", "two"]}, "one\ntwo"),
        ({"content_type": "code", "language": "python", "text": "print(1)"}, "print(1)"),
        ({"content_type": "execution_output", "text": "1"}, "1"),
        (
            {"content_type": "tether_quote", "title": "T", "url": "https://a.test", "domain": "a", "text": "said"},
            "T\nhttps://a.test\nsaid",
        ),
        ({"content_type": "tether_browsing_display", "result": "R", "summary": "S"}, "R\nS"),
        ({"content_type": "sonic_webpage", "title": "T", "url": "https://a.test", "text": "x"}, "T\nhttps://a.test\nx"),
        ({"content_type": "model_editable_context", "model_set_context": "M"}, "M"),
        (
            {"content_type": "thoughts", "thoughts": [{"summary": "S", "content": "C"}, {"content": "D"}]},
            "S\nC\n\nD",
        ),
        ({"content_type": "reasoning_recap", "content": "Thought for 5s"}, "Thought for 5s"),
        ({"content_type": "system_error", "name": "Timeout", "text": "too long"}, "Timeout\ntoo long"),
        ({"content_type": "new_kind", "field": {"a": [1]}}, '{"field":{"a":[1]}}'),
        ({"content_type": "new_kind", "parts": ["known"]}, "known"),
        (
            {
                "content_type": "multimodal_text",
                "parts": [
                    "look",
                    {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1"},
                    {"content_type": "image_asset_pointer", "metadata": {"dalle": {"prompt": "a cat"}}},
                    {"content_type": "audio_transcription", "text": "spoken", "direction": "in"},
                    {"content_type": "audio_asset_pointer"},
                    {"content_type": "real_time_user_audio_video_asset_pointer"},
                    {"content_type": "video_container_asset_pointer"},
                    {"type": "text", "text": "typed"},
                    {"odd": 1},
                    None,
                ],
            },
            'look\n[image]\n[image: a cat]\nspoken\n[audio]\n[audio and video]\n[video]\ntyped\n{"odd":1}',
        ),
    ],
)
def test_every_content_type_becomes_plain_text(tmp_path: Path, content: dict[str, Any], text: str) -> None:
    path = json_file(tmp_path / "c.json", [one_message(message(content, "assistant"))])
    (imported,) = imported_messages(read(IMPORTER, path))
    content_type = content["content_type"]
    assert imported.content == text
    assert imported.metadata == ({} if content_type == "text" else {"content_type": content_type})


@each_case(
    ("skipped", "reason"),
    [
        (message(""), "empty message"),
        (message({"content_type": "text", "parts": []}), "empty message"),
        (message({"content_type": "model_editable_context", "model_set_context": ""}), "empty message"),
        (message(None), "empty message"),
        (message("x", metadata={"is_visually_hidden_from_conversation": True}), "hidden message"),
        (message("x", "system"), "system message"),
    ],
)
def test_empty_hidden_and_system_messages_are_skipped(tmp_path: Path, skipped: dict[str, Any], reason: str) -> None:
    events = read(IMPORTER, json_file(tmp_path / "c.json", [one_message(skipped)]))
    assert skip_reasons(events) == [reason, "conversation without messages"]
    assert not failures(events)


def test_custom_instructions_are_imported(tmp_path: Path) -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    context = {"content_type": "user_editable_context", "user_profile": "A baker", "user_instructions": "Be brief"}
    conversations = [
        one_message(message(context, "user", metadata=hidden)),
        one_message(message("Be kind", "system", metadata=hidden | {"is_user_system_message": True})),
    ]
    assert message_contents(read(IMPORTER, json_file(tmp_path / "c.json", conversations))) == [
        "A baker\nBe brief",
        "Be kind",
    ]


def test_message_keeps_model_attachments_and_citations(tmp_path: Path) -> None:
    metadata = {
        "model_slug": "gpt-5",
        "attachments": [{"id": "file-1", "name": "tea.pdf", "size": 12, "mime_type": "application/pdf", "x": 1}],
        "citations": [{"metadata": {"title": "Tea", "url": "https://tea.test"}}],
        "content_references": [
            {"type": "grouped_webpages", "items": [{"title": "Pot", "url": "https://pot.test"}, {"title": "no url"}]},
            {"type": "webpage", "title": "Tea again", "url": "https://tea.test"},
        ],
    }
    parts = ["x", {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_2", "width": 8}]
    call = message({"content_type": "multimodal_text", "parts": parts}, "assistant", metadata=metadata)
    (imported,) = imported_messages(
        read(IMPORTER, json_file(tmp_path / "c.json", [one_message(call | {"channel": "final"})]))
    )
    assert (imported.role, imported.sender, imported.model, imported.tool) == ("assistant", "assistant", "gpt-5", None)
    assert imported.attachments == [
        {"id": "file-1", "name": "tea.pdf", "size": 12, "mime_type": "application/pdf"},
        {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_2", "width": 8},
    ]
    assert imported.citations == [
        {"title": "Tea again", "url": "https://tea.test"},
        {"title": "Pot", "url": "https://pot.test"},
    ]
    assert imported.metadata == {"content_type": "multimodal_text", "channel": "final"}


def test_tool_is_the_author_or_the_recipient(tmp_path: Path) -> None:
    answer = message("1", "tool", recipient="all", weight=0.0)
    answer["author"]["name"] = "python"
    mapping = {"q": node(None, message("print(1)", "assistant", recipient="python")), "a": node("q", answer)}
    path = json_file(tmp_path / "c.json", [chat(mapping, current_node="a", default_model_slug="gpt-4o")])
    call, result = imported_messages(read(IMPORTER, path))
    assert (call.tool, call.model) == ("python", "gpt-4o")
    assert (result.tool, result.role, result.sender, result.model) == ("python", "tool", "python", None)
    assert result.metadata == {"weight": 0}


def test_conversation_keeps_its_metadata(tmp_path: Path) -> None:
    fields = {
        "default_model_slug": "gpt-5",
        "gizmo_id": "g-1",
        "conversation_template_id": "g-p-2",
        "is_archived": True,
        "is_starred": False,
    }
    (conversation,) = imported_conversations(
        read(IMPORTER, json_file(tmp_path / "c.json", [one_message(message("x"), **fields)]))
    )
    assert conversation.draft.title == "Tea"
    assert conversation.draft.metadata == {
        "imported_from": "chatgpt",
        "model": "gpt-5",
        "gizmo_id": "g-1",
        "project_id": "g-p-2",
        "is_archived": True,
    }


def test_chat_without_title_times_and_id_is_imported(tmp_path: Path) -> None:
    bare = {"title": None, "mapping": {"m": node(None, message("x"))}}
    path = json_file(tmp_path / "c.json", [bare, {**bare, "id": "short"}, {**bare, "create_time": 5.0}])
    drafts = [conversation.draft for conversation in imported_conversations(read(IMPORTER, path))]
    assert [(draft.title, draft.last_modified) for draft in drafts] == [("", UNSET)] * 3
    assert len({UUID(str(draft.uuid)) for draft in drafts}) == 3


def test_shards_in_a_zip_are_read_in_order(tmp_path: Path) -> None:
    def numbered(number: int) -> dict[str, Any]:
        return {**one_message(message(f"text {number}")), "conversation_id": f"{CHAT[:-1]}{number}"}

    files = {
        "conversations-001.json": [numbered(2)],
        "conversations-000.json": [numbered(0), numbered(1)],
        "shared_conversations.json": [numbered(3)],
        "user.json": {"id": "user"},
        "chat.html": b"<html>",
    }
    path = zip_file(tmp_path / "export.zip", files)
    assert message_contents(read(IMPORTER, path)) == ["text 0", "text 1", "text 2"]
    assert confidence(IMPORTER, path) == 0.95


def test_unpacked_export_is_read_as_a_folder(tmp_path: Path) -> None:
    json_file(tmp_path / "conversations.json", [one_message(message("x"))])
    (tmp_path / "chat.html").write_text("<html>")
    assert confidence(IMPORTER, tmp_path) == 0.95
    assert message_contents(read(IMPORTER, tmp_path)) == ["x"]


def test_export_is_recognized_by_content(tmp_path: Path) -> None:
    assert confidence(IMPORTER, json_file(tmp_path / "any.json", [BRANCHING])) == 0.9
    assert confidence(IMPORTER, json_file(tmp_path / "message.json", BRANCHING)) == 0.9
    assert confidence(IMPORTER, zip_file(tmp_path / "a.zip", {"x/conversations.json": [BRANCHING]})) == 0.9
    assert confidence(IMPORTER, zip_file(tmp_path / "b.zip", {"conversations.json": [{"chat_messages": []}]})) == 0
    assert confidence(IMPORTER, json_file(tmp_path / "other.json", [{"notes": []}])) == 0
    assert confidence(IMPORTER, tmp_path) == 0


def test_long_chat_is_yielded_in_parts(tmp_path: Path) -> None:
    mapping = {str(number): node(str(number - 1), message(f"{number}")) for number in range(1200)}
    parts = imported_conversations(read(IMPORTER, json_file(tmp_path / "c.json", [chat(mapping, current_node="1199")])))
    assert [(len(part.messages), part.continues) for part in parts] == [(500, False), (500, True), (200, True)]
    assert parts[1].messages[0].parent_id == parts[0].messages[-1].uuid


# -- malformed input ---------------------------------------------------------------------------------------------------


def test_failed_message_is_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    mapping = {
        "a": node(None, message("before")),
        "b": node("a", {"author": 5, "content": {}}),
        "c": node("b", message("N\0L")),
        "d": node("c", message("x" * 11)),
        "e": node("d", message("after")),
        "f": 7,
    }
    path = json_file(tmp_path / "c.json", [chat(mapping, current_node="e")])
    events = read(IMPORTER, path, replace(LIMITS, item_max_chars=10))
    before, after = imported_messages(events)
    assert (before.content, after.content, after.parent_id) == ("before", "after", before.uuid)
    assert [location for location, _ in failures(events)] == [f"chat 1, message {key}" for key in "bcdf"]
    assert "NUL" in failures(events)[1][1]
    assert failures(events)[2][1] == "expected at most 10 characters, got 11"


def test_unpaired_surrogate_fails_its_message_and_is_replaced_in_titles(tmp_path: Path) -> None:
    mapping = b'{"a":{"message":{"content":{"parts":["\\ud83d"]}}},"b":{"parent":"a","message":{"content":"fine"}}}'
    path = tmp_path / "c.json"
    path.write_bytes(b'[{"id":"i","title":"Tea \\ud83d","mapping":' + mapping + b',"current_node":"b"}]')
    events = read(IMPORTER, path)
    assert [conversation.draft.title for conversation in imported_conversations(events)] == ["Tea \ufffd"]
    assert message_contents(events) == ["fine"]
    assert [location for location, _ in failures(events)] == ["chat 1, message a"]


def test_failed_conversation_is_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    good = msgspec.json.encode(BRANCHING)
    deep = b'{"mapping":{"a":{"message":{"content":{"parts":' + nested(10_000) + b"}}}}}"
    path = tmp_path / "c.json"
    path.write_bytes(b"[" + b",".join([b'{"title":1}', deep, b'{"mapping":{"a":}}', b'"x"', good]) + b"]")
    events = read(IMPORTER, path)
    assert len(imported_conversations(events)) == 1
    assert [location for location, _ in failures(events)] == [f"chat {number}" for number in range(1, 5)]


def test_damaged_shard_does_not_affect_the_others(tmp_path: Path) -> None:
    files = {"conversations-000.json": b"no json", "conversations-001.json": [BRANCHING], "user.json": {}}
    events = read(IMPORTER, zip_file(tmp_path / "export.zip", files))
    assert len(imported_conversations(events)) == 1
    assert failures(events) == [("conversations-000.json, chat 0", "expected a JSON list or object")]


def test_zip_without_conversations_and_empty_file_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidParams, match=r"expected conversations\.json"):
        read(IMPORTER, zip_file(tmp_path / "a.zip", {"user.json": {}}))
    (tmp_path / "b.json").write_bytes(b"")
    with pytest.raises(InvalidParams, match="expected a JSON list or object"):
        read(IMPORTER, tmp_path / "b.json")


def test_zip_bomb_is_rejected(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.zip", {"conversations.json": b'[{"mapping": "' + b"x" * 2_000_000})
    with pytest.raises(TooLarge):
        read(IMPORTER, path, replace(LIMITS, unpacked_max_bytes=1_000_000))


def test_file_beyond_the_size_limit_is_rejected(tmp_path: Path) -> None:
    path = json_file(tmp_path / "c.json", [BRANCHING] * 100)
    with pytest.raises(TooLarge):
        read(IMPORTER, path, replace(LIMITS, file_max_bytes=10_000))


@pytest.mark.slow("measures memory")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Reads a string of 24 MB, and many conversations."""
    path = tmp_path / "c.json"
    conversation = msgspec.json.encode(one_message(message("word " * 2_000)))
    with path.open("wb") as file:
        file.write(b'[{"mapping": "')
        for _ in range(24):
            file.write(b"x" * (1 << 20))
        file.write(b'"}' + (b"," + conversation) * 1_000 + b"]")
    tracemalloc.start()
    count = sum(1 for _ in IMPORTER.read(path, replace(LIMITS, line_max_bytes=1 << 20), lambda _: None, None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 1_001
    assert peak < 8 << 20


@each_case("is_zip", [False, True])
def test_progress_is_reported_in_bytes_of_the_file(tmp_path: Path, is_zip: bool) -> None:
    conversations = [BRANCHING | {"title": sha256(bytes(number)).hexdigest()} for number in range(300)]
    path = (
        zip_file(tmp_path / "c.zip", {"conversations.json": conversations})
        if is_zip
        else json_file(tmp_path / "c.json", conversations)
    )
    positions: list[int] = []

    def progress(bytes_read: int) -> None:
        positions.append(bytes_read)

    list(IMPORTER.read(path, LIMITS, progress, None))
    size = path.stat().st_size
    assert positions == sorted(positions)
    assert positions[0] < size * 0.9 < positions[-1] <= size


VALID = msgspec.json.encode([BRANCHING, one_message(message("x"))])


@given(damaged(VALID) | st.binary(max_size=300))
def test_damaged_export_is_read_or_rejected(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.json")
        path.write_bytes(data)
        assert read_or_reject(IMPORTER, path) == read_or_reject(IMPORTER, path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=4) | st.sampled_from(["a", "b", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "parts", "url"]), inner),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(BRANCHING, ANYTHING)), st.data())
def test_unexpected_values_in_any_field_are_tolerated(fields: dict[str, Any], data: st.DataObject) -> None:
    names = ["author", "content", "create_time", "weight", "recipient", "channel", "metadata"]
    metadata_names = ["model_slug", "attachments", "citations", "content_references", "is_user_system_message"]
    odd = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANYTHING)))
    odd_metadata = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(metadata_names, ANYTHING)))
    mapping = {
        "a": data.draw(st.fixed_dictionaries({"parent": ANYTHING, "children": ANYTHING, "message": st.just(odd)})),
        "b": node("a", message("x", metadata=odd_metadata)),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = json_file(Path(folder, "c.json"), [{"mapping": mapping} | fields])
        read(IMPORTER, path)
