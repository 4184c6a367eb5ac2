"""ChatGPT exports: every node that says something arrives, with its branch, its kind of content and its ids."""

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
from sources.importers.formats.chatgpt import IMPORTER, message_uuid
from tests.sources.importers.chat_reading import (
    LIMITS,
    broken,
    certainty,
    chats,
    damaged,
    json_file,
    nested,
    read,
    read_or_refuse,
    said,
    skipped,
    texts,
    zip_file,
)

CHAT = "6a1f0c52-7d0e-4b57-9d0a-0f3f1f0c9a01"


def message(text: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    return {"author": {"role": role, "name": None, "metadata": {}}, "content": content, "weight": 1.0, **fields}


def node(parent: str | None, said: dict[str, Any] | None = None, *children: str) -> dict[str, Any]:
    return {"parent": parent, "children": list(children), "message": said}


def chat(mapping: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"conversation_id": CHAT, "title": "Tea", "create_time": 1700000000.5, "mapping": mapping, **fields}


def one_message(said: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return chat({"root": node(None, None, "m"), "m": node("root", said)}, current_node="m", **fields)


# A question was edited (q, then q2), and the answer to the second was made twice (a2, then b2).
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


def test_the_current_path_comes_first_and_branches_follow_where_they_leave_it(tmp_path: Path) -> None:
    found = said(read(IMPORTER, json_file(tmp_path / "conversations.json", [BRANCHING])))
    assert [(one.content, one.is_canonical) for one in found] == [
        ("Black tea?", True),
        ("Boiling.", True),
        ("Thanks", True),
        ("Green tea?", False),
        ("80 degrees.", False),
        ("95 degrees.", False),
    ]


def test_siblings_stand_as_their_parent_lists_them(tmp_path: Path) -> None:
    mapping = {
        "q": node(None, message("q"), "first", "second", "third"),
        "third": node("q", message("third")),
        "second": node("q", message("second")),
        "first": node("q", message("first")),
    }
    path = json_file(tmp_path / "c.json", [chat(mapping, current_node="third")])
    assert texts(read(IMPORTER, path)) == ["q", "third", "first", "second"]


def test_messages_answer_each_other_by_id_past_what_was_left_out(tmp_path: Path) -> None:
    found = {one.content: one for one in said(read(IMPORTER, json_file(tmp_path / "c.json", [BRANCHING])))}
    answers = {one.content: one.parent_id for one in found.values()}
    # The system message is left out, and the root says nothing: the questions answer nobody.
    assert answers == {
        "Black tea?": None,
        "Green tea?": None,
        "Boiling.": found["Black tea?"].uuid,
        "95 degrees.": found["Black tea?"].uuid,
        "Thanks": found["Boiling."].uuid,
        "80 degrees.": found["Green tea?"].uuid,
    }


def test_ids_are_those_of_the_export_and_the_same_each_time(tmp_path: Path) -> None:
    path = json_file(tmp_path / "c.json", [BRANCHING])
    (arrival,) = chats(read(IMPORTER, path))
    assert arrival.draft.uuid == CHAT
    assert arrival.messages[0].uuid == message_uuid(CHAT, "q2")
    assert all(UUID(str(one.uuid)) for one in arrival.messages)
    assert read(IMPORTER, path) == read(IMPORTER, path)


def test_a_chat_that_repeats_the_messages_of_another_has_its_own(tmp_path: Path) -> None:
    """As one does that was branched off into a new chat."""
    other = {**BRANCHING, "conversation_id": "6a1f0c52-7d0e-4b57-9d0a-0f3f1f0c9a02"}
    found = said(read(IMPORTER, json_file(tmp_path / "c.json", [BRANCHING, other])))
    assert len({one.uuid for one in found}) == 12


def test_times_are_kept_and_a_message_without_one_has_that_of_the_one_it_answers(tmp_path: Path) -> None:
    (arrival,) = chats(read(IMPORTER, json_file(tmp_path / "c.json", [BRANCHING])))
    assert arrival.draft.created_at == "2023-11-14T22:13:20.500Z"
    assert arrival.draft.last_modified == "2023-11-14T22:13:29.250Z"
    assert [one.created_at for one in arrival.messages[:3]] == [
        "2023-11-14T22:13:23.000Z",
        "2023-11-14T22:13:25.000Z",
        "2023-11-14T22:13:25.000Z",
    ]


def test_without_a_current_node_the_newest_leaf_that_counts_is_current(tmp_path: Path) -> None:
    mapping = {**BRANCHING["mapping"]}
    mapping["x"] = node("a", message("A tool's", "tool", weight=0.0, create_time=1700009999))
    for current in ({}, {"current_node": None}, {"current_node": "nowhere"}):
        conversation = {**BRANCHING, "mapping": mapping, "current_node": None, **current}
        mapping["t"] = node("b2", message("Thanks", create_time=1700000008))
        found = said(read(IMPORTER, json_file(tmp_path / "c.json", [conversation])))
        assert [one.content for one in found if one.is_canonical] == ["Black tea?", "Boiling.", "Thanks"]


def test_circles_unknown_parents_and_several_roots_are_tolerated(tmp_path: Path) -> None:
    mapping = {
        "a": node("b", message("a")),
        "b": node("a", message("b")),
        "lost": node("nowhere", message("lost")),
        "self": node("self", message("self")),
        "root": node(None, message("root"), "adopted", "nobody"),
        "adopted": node(None, message("adopted")),
        "empty": None,
    }
    found = said(read(IMPORTER, json_file(tmp_path / "c.json", [chat(mapping, current_node="adopted")])))
    assert sorted(str(one.content) for one in found) == ["a", "adopted", "b", "lost", "root", "self"]
    assert [one.content for one in found if one.is_canonical] == ["root", "adopted"]
    found = said(read(IMPORTER, json_file(tmp_path / "c.json", [chat(mapping, current_node="a")])))
    assert [one.content for one in found if one.is_canonical] == ["b", "a"]


@pytest.mark.parametrize(
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
def test_each_kind_of_content_is_plain_text(tmp_path: Path, content: dict[str, Any], text: str) -> None:
    path = json_file(tmp_path / "c.json", [one_message(message(content, "assistant"))])
    (found,) = said(read(IMPORTER, path))
    kind = content["content_type"]
    assert found.content == text
    assert found.metadata == ({} if kind == "text" else {"content_type": kind})


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (message(""), "an empty message"),
        (message({"content_type": "text", "parts": []}), "an empty message"),
        (message({"content_type": "model_editable_context", "model_set_context": ""}), "an empty message"),
        (message(None), "an empty message"),
        (message("x", metadata={"is_visually_hidden_from_conversation": True}), "a hidden message"),
        (message("x", "system"), "a system message"),
    ],
)
def test_what_says_nothing_to_anyone_is_left_out(tmp_path: Path, left_out: dict[str, Any], reason: str) -> None:
    arrivals = read(IMPORTER, json_file(tmp_path / "c.json", [one_message(left_out)]))
    assert skipped(arrivals) == [reason, "a conversation without messages"]
    assert not broken(arrivals)


def test_what_a_person_tells_the_model_about_themselves_is_kept(tmp_path: Path) -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    context = {"content_type": "user_editable_context", "user_profile": "A baker", "user_instructions": "Be brief"}
    conversations = [
        one_message(message(context, "user", metadata=hidden)),
        one_message(message("Be kind", "system", metadata=hidden | {"is_user_system_message": True})),
    ]
    assert texts(read(IMPORTER, json_file(tmp_path / "c.json", conversations))) == ["A baker\nBe brief", "Be kind"]


def test_everything_about_a_message_is_kept(tmp_path: Path) -> None:
    about = {
        "model_slug": "gpt-5",
        "attachments": [{"id": "file-1", "name": "tea.pdf", "size": 12, "mime_type": "application/pdf", "x": 1}],
        "citations": [{"metadata": {"title": "Tea", "url": "https://tea.test"}}],
        "content_references": [
            {"type": "grouped_webpages", "items": [{"title": "Pot", "url": "https://pot.test"}, {"title": "no url"}]},
            {"type": "webpage", "title": "Tea again", "url": "https://tea.test"},
        ],
    }
    parts = ["x", {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_2", "width": 8}]
    call = message({"content_type": "multimodal_text", "parts": parts}, "assistant", metadata=about)
    (found,) = said(read(IMPORTER, json_file(tmp_path / "c.json", [one_message(call | {"channel": "final"})])))
    assert (found.role, found.sender, found.model, found.tool) == ("assistant", "assistant", "gpt-5", None)
    assert found.attachments == [
        {"id": "file-1", "name": "tea.pdf", "size": 12, "mime_type": "application/pdf"},
        {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_2", "width": 8},
    ]
    assert found.citations == [
        {"title": "Tea again", "url": "https://tea.test"},
        {"title": "Pot", "url": "https://pot.test"},
    ]
    assert found.metadata == {"content_type": "multimodal_text", "channel": "final"}


def test_tools_are_named_by_who_speaks_and_by_who_is_spoken_to(tmp_path: Path) -> None:
    answer = message("1", "tool", recipient="all", weight=0.0)
    answer["author"]["name"] = "python"
    mapping = {"q": node(None, message("print(1)", "assistant", recipient="python")), "a": node("q", answer)}
    path = json_file(tmp_path / "c.json", [chat(mapping, current_node="a", default_model_slug="gpt-4o")])
    asked, answered = said(read(IMPORTER, path))
    assert (asked.tool, asked.model) == ("python", "gpt-4o")
    assert (answered.tool, answered.role, answered.sender, answered.model) == ("python", "tool", "python", None)
    assert answered.metadata == {"weight": 0}


def test_everything_about_a_conversation_is_kept(tmp_path: Path) -> None:
    fields = {
        "default_model_slug": "gpt-5",
        "gizmo_id": "g-1",
        "conversation_template_id": "g-p-2",
        "is_archived": True,
        "is_starred": False,
    }
    (arrival,) = chats(read(IMPORTER, json_file(tmp_path / "c.json", [one_message(message("x"), **fields)])))
    assert arrival.draft.title == "Tea"
    assert arrival.draft.metadata == {
        "imported_from": "chatgpt",
        "model": "gpt-5",
        "gizmo_id": "g-1",
        "project_id": "g-p-2",
        "is_archived": True,
    }


def test_a_chat_without_title_times_and_id_arrives(tmp_path: Path) -> None:
    bare = {"title": None, "mapping": {"m": node(None, message("x"))}}
    path = json_file(tmp_path / "c.json", [bare, {**bare, "id": "short"}, {**bare, "create_time": 5.0}])
    found = chats(read(IMPORTER, path))
    assert [(one.draft.title, one.draft.last_modified) for one in found] == [("", UNSET)] * 3
    assert len({UUID(str(one.draft.uuid)) for one in found}) == 3


def test_shards_in_a_zip_are_read_in_order_and_nothing_else_is(tmp_path: Path) -> None:
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
    assert texts(read(IMPORTER, path)) == ["text 0", "text 1", "text 2"]
    assert certainty(IMPORTER, path) == 0.95


def test_an_export_that_was_unpacked_is_read_as_a_folder(tmp_path: Path) -> None:
    json_file(tmp_path / "conversations.json", [one_message(message("x"))])
    (tmp_path / "chat.html").write_text("<html>")
    assert certainty(IMPORTER, tmp_path) == 0.95
    assert texts(read(IMPORTER, tmp_path)) == ["x"]


def test_an_export_is_recognised_by_what_is_in_it(tmp_path: Path) -> None:
    assert certainty(IMPORTER, json_file(tmp_path / "any.json", [BRANCHING])) == 0.9
    assert certainty(IMPORTER, json_file(tmp_path / "one.json", BRANCHING)) == 0.9
    assert certainty(IMPORTER, zip_file(tmp_path / "a.zip", {"x/conversations.json": [BRANCHING]})) == 0.9
    assert certainty(IMPORTER, zip_file(tmp_path / "b.zip", {"conversations.json": [{"chat_messages": []}]})) == 0
    assert certainty(IMPORTER, json_file(tmp_path / "other.json", [{"notes": []}])) == 0
    assert certainty(IMPORTER, tmp_path) == 0


def test_a_long_chat_comes_in_several_arrivals(tmp_path: Path) -> None:
    mapping = {str(number): node(str(number - 1), message(f"{number}")) for number in range(1200)}
    found = chats(read(IMPORTER, json_file(tmp_path / "c.json", [chat(mapping, current_node="1199")])))
    assert [(len(one.messages), one.continues) for one in found] == [(500, False), (500, True), (200, True)]
    assert found[1].messages[0].parent_id == found[0].messages[-1].uuid


# What is wrong, and what is left of it


def test_a_broken_message_is_told_and_the_rest_arrives(tmp_path: Path) -> None:
    mapping = {
        "a": node(None, message("before")),
        "b": node("a", {"author": 5, "content": {}}),
        "c": node("b", message("N\0L")),
        "d": node("c", message("x" * 11)),
        "e": node("d", message("after")),
        "f": 7,
    }
    path = json_file(tmp_path / "c.json", [chat(mapping, current_node="e")])
    arrivals = read(IMPORTER, path, replace(LIMITS, item_max_chars=10))
    before, after = said(arrivals)
    assert (before.content, after.content, after.parent_id) == ("before", "after", before.uuid)
    assert [place for place, _ in broken(arrivals)] == [f"chat 1, message {key}" for key in "bcdf"]
    assert "NUL" in broken(arrivals)[1][1]
    assert broken(arrivals)[2][1] == "got 11 characters, expected at most 10"


def test_half_of_a_surrogate_pair_costs_its_message_and_no_title(tmp_path: Path) -> None:
    mapping = b'{"a":{"message":{"content":{"parts":["\\ud83d"]}}},"b":{"parent":"a","message":{"content":"fine"}}}'
    path = tmp_path / "c.json"
    path.write_bytes(b'[{"id":"i","title":"Tea \\ud83d","mapping":' + mapping + b',"current_node":"b"}]')
    arrivals = read(IMPORTER, path)
    assert [one.draft.title for one in chats(arrivals)] == ["Tea \ufffd"]
    assert texts(arrivals) == ["fine"]
    assert [place for place, _ in broken(arrivals)] == ["chat 1, message a"]


def test_a_broken_conversation_is_told_and_the_rest_arrives(tmp_path: Path) -> None:
    good = msgspec.json.encode(BRANCHING)
    deep = b'{"mapping":{"a":{"message":{"content":{"parts":' + nested(10_000) + b"}}}}}"
    path = tmp_path / "c.json"
    path.write_bytes(b"[" + b",".join([b'{"title":1}', deep, b'{"mapping":{"a":}}', b'"x"', good]) + b"]")
    arrivals = read(IMPORTER, path)
    assert len(chats(arrivals)) == 1
    assert [place for place, _ in broken(arrivals)] == [f"chat {number}" for number in range(1, 5)]


def test_a_damaged_shard_costs_no_other(tmp_path: Path) -> None:
    files = {"conversations-000.json": b"no json", "conversations-001.json": [BRANCHING], "user.json": {}}
    arrivals = read(IMPORTER, zip_file(tmp_path / "export.zip", files))
    assert len(chats(arrivals)) == 1
    assert broken(arrivals) == [
        ("conversations-000.json, chat 0", "the file: got something else, expected a JSON list or object")
    ]


def test_a_zip_without_conversations_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParams, match=r"expected conversations\.json"):
        read(IMPORTER, zip_file(tmp_path / "a.zip", {"user.json": {}}))
    (tmp_path / "b.json").write_bytes(b"")
    with pytest.raises(InvalidParams, match="expected a JSON list or object"):
        read(IMPORTER, tmp_path / "b.json")


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.zip", {"conversations.json": b'[{"mapping": "' + b"x" * 2_000_000})
    with pytest.raises(TooLarge):
        read(IMPORTER, path, replace(LIMITS, unpacked_max_bytes=1_000_000))


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = json_file(tmp_path / "c.json", [BRANCHING] * 100)
    with pytest.raises(TooLarge):
        read(IMPORTER, path, replace(LIMITS, file_max_bytes=10_000))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """One long string of 64 MB, and many conversations: neither is held."""
    path = tmp_path / "c.json"
    one = msgspec.json.encode(one_message(message("word " * 2_000)))
    with path.open("wb") as file:
        file.write(b'[{"mapping": "')
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b'"}' + (b"," + one) * 2_000 + b"]")
    tracemalloc.start()
    count = sum(1 for _ in IMPORTER.read(path, replace(LIMITS, line_max_bytes=1 << 20), lambda _: None, None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 2_001
    assert peak < 8 << 20


@pytest.mark.parametrize("packed", [False, True])
def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path, packed: bool) -> None:
    conversations = [BRANCHING | {"title": sha256(bytes(number)).hexdigest()} for number in range(3_000)]
    path = (
        zip_file(tmp_path / "c.zip", {"conversations.json": conversations})
        if packed
        else json_file(tmp_path / "c.json", conversations)
    )
    told: list[int] = []

    def tell(bytes_read: int) -> None:
        told.append(bytes_read)

    list(IMPORTER.read(path, LIMITS, tell, None))
    size = path.stat().st_size
    assert told == sorted(told)
    assert told[0] < size * 0.9 < told[-1] <= size


VALID = msgspec.json.encode([BRANCHING, one_message(message("x"))])


@given(damaged(VALID) | st.binary(max_size=300))
def test_no_damage_raises_anything_but_a_refusal(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.json")
        path.write_bytes(data)
        assert read_or_refuse(IMPORTER, path) == read_or_refuse(IMPORTER, path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=4) | st.sampled_from(["a", "b", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "parts", "url"]), inner),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(BRANCHING, ANYTHING)), st.data())
def test_no_value_in_any_field_raises_anything(fields: dict[str, Any], data: st.DataObject) -> None:
    names = ["author", "content", "create_time", "weight", "recipient", "channel", "metadata"]
    about = ["model_slug", "attachments", "citations", "content_references", "is_user_system_message"]
    odd = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANYTHING)))
    odd_about = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(about, ANYTHING)))
    mapping = {
        "a": data.draw(st.fixed_dictionaries({"parent": ANYTHING, "children": ANYTHING, "message": st.just(odd)})),
        "b": node("a", message("x", metadata=odd_about)),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = json_file(Path(folder, "c.json"), [{"mapping": mapping} | fields])
        read(IMPORTER, path)
