"""Sessions of Claude Code: messages with their lines, derived observations, and files that grow."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from config.errors import InvalidParams
from server.compat.conversation_memory.responses import find_conversation
from sources.importers.engine.summary import ImportSummary, OutcomeCounts
from sources.importers.registry import load_importer
from tests.cases import each_case
from tests.sources.importers.chat_files import (
    LIMITS,
    confidence,
    damaged,
    failures,
    imported_conversations,
    imported_messages,
    message_contents,
    nested,
    read,
    read_or_reject,
    skip_reasons,
)
from tests.sources.importers.session_files import (
    SessionRecord,
    encode_lines,
    imported_observations,
    last_position,
    read_from,
    write_session,
)
from tests.sources.importers.single_files import import_here
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_library_fixture, total_items
from tests.tiers import examples

IMPORTER = load_importer("claude_code")

SESSION = "aaaaaaaa-0000-4000-8000-000000000001"


def line(kind: str, content: Any, number: int, **more: Any) -> SessionRecord:
    message: dict[str, Any] = {"role": kind, "content": content}
    for name in ("id", "model"):
        if name in more:
            message[name] = more.pop(name)
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/ada/work/kettle",
        "sessionId": SESSION,
        "version": "2.0.1",
        "gitBranch": "main",
        "type": kind,
        "uuid": f"bbbbbbbb-0000-4000-8000-{number:012}",
        "timestamp": f"2026-11-15T08:{number:02}:00.000Z",
        "message": message,
        **more,
    }


def use(name: str, key: str = "t1", **arguments: Any) -> SessionRecord:
    return {"type": "tool_use", "id": key, "name": name, "input": arguments}


def result(content: Any, key: str = "t1", **more: Any) -> SessionRecord:
    return {"type": "tool_result", "tool_use_id": key, "content": content, **more}


OPENING = (
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    line("user", "The kettle leaks. Please fix it.", 1),
    line("assistant", [{"type": "thinking", "thinking": "secretthought", "signature": "x"}], 2, id="msg_1"),
    line("assistant", [{"type": "text", "text": "I look first."}], 3, id="msg_1", model="claude-opus"),
    line("assistant", [use("Read", file_path="/home/ada/work/kettle/lid.py")], 4, id="msg_1", model="claude-opus"),
    line("user", [result([{"type": "text", "text": "def lid(): ..."}])], 5, toolUseResult={"x": 1}),
    line("assistant", [use("Edit", key="t2", file_path="lid.py", old_string="a", new_string="b")], 6, id="msg_2"),
    line("user", [result("String not found", key="t2", is_error=True)], 7),
    line("assistant", [use("Bash", key="t3", command='git commit -m "Close the lid"')], 8, id="msg_3"),
    line("user", [result("1 file changed", key="t3")], 9),
    line("assistant", "Done.", 10, id="msg_4"),
)


def session(path: Path, *lines: SessionRecord | bytes, name: str = f"{SESSION}.jsonl") -> Path:
    return write_session(path / "projects" / "-home-ada-work-kettle" / name, *(lines or OPENING))


def test_session_becomes_a_chat_with_project_branch_and_archive_path(tmp_path: Path) -> None:
    (chat,) = imported_conversations(read(IMPORTER, session(tmp_path)))
    assert (chat.draft.uuid, chat.draft.session_id, chat.draft.title) == (SESSION, SESSION, "The kettle leaks.")
    assert chat.draft.created_at == "2026-11-15T08:01:00.000Z"
    assert chat.draft.metadata == {
        "imported_from": "claude_code",
        "path": f"kettle/{SESSION}.jsonl",
        "project": "kettle",
        "git_branch": "main",
        "version": "2.0.1",
    }


def test_lines_of_one_answer_are_merged_and_tool_results_are_separate(tmp_path: Path) -> None:
    messages = imported_messages(read(IMPORTER, session(tmp_path)))
    assert [(message.role, message.content, message.tool) for message in messages] == [
        ("user", "The kettle leaks. Please fix it.", UNSET),
        ("assistant", "I look first.\n\n[Read]\nfile_path: /home/ada/work/kettle/lid.py", "Read"),
        ("tool", "[Read: result]\ndef lid(): ...", "Read"),
        ("assistant", "[Edit]\nfile_path: lid.py\nold_string: a\nnew_string: b", "Edit"),
        ("tool", "[Edit: error]\nString not found", "Edit"),
        ("assistant", '[Bash]\ncommand: git commit -m "Close the lid"', "Bash"),
        ("tool", "[Bash: result]\n1 file changed", "Bash"),
        ("assistant", "Done.", UNSET),
    ]
    assert [message.metadata for message in messages[:3]] == [
        {"line_start": 2, "line_end": 2},
        {"line_start": 4, "line_end": 5},
        {"line_start": 6, "line_end": 6},
    ]
    assert (messages[1].model, messages[1].created_at) == ("claude-opus", "2026-11-15T08:03:00.000Z")
    assert "secretthought" not in str(messages)


def test_observations_are_derived_with_their_lines(tmp_path: Path) -> None:
    observations = imported_observations(read(IMPORTER, session(tmp_path)))
    assert [(draft.type, draft.title, draft.line_start, draft.line_end) for draft in observations] == [
        ("general", "The kettle leaks.", 2, 11),
        ("error", "Edit: String not found", 7, 7),
        ("commit", "Close the lid", 9, 9),
    ]
    assert observations[0].files_read == ("/home/ada/work/kettle/lid.py",)
    assert {(draft.project, draft.session_id, draft.conversation_id, draft.origin) for draft in observations} == {
        ("kettle", SESSION, SESSION, "derived")
    }


def test_internal_lines_are_skipped_and_commands_are_shown_as_typed(tmp_path: Path) -> None:
    events = read(
        IMPORTER,
        session(
            tmp_path,
            {"type": "queue-operation", "sessionId": SESSION},
            line("user", "Caveat: generated", 1, isMeta=True),
            line("user", "<command-name>/review</command-name>\n<command-args>12 </command-args>", 2),
            line("user", "<local-command-stdout>ok</local-command-stdout>", 3),
            line("user", [{"type": "image", "source": {}}, {"type": "text", "text": "See"}], 4),
            line("assistant", [], 5),
        ),
    )
    assert message_contents(events) == ["/review 12", "[image]\n\nSee"]
    assert sorted(set(skip_reasons(events))) == ["line without a message", "message without text"]


def test_summaries_are_system_messages_and_observations(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        {"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"},
        line("user", "This session goes on. The lid was closed.", 1, isCompactSummary=True),
        line("user", "Thanks", 2),
    )
    events = read(IMPORTER, path)
    assert [(message.role, message.content) for message in imported_messages(events)] == [
        ("system", "Kettle repaired"),
        ("system", "This session goes on. The lid was closed."),
        ("user", "Thanks"),
    ]
    assert [(draft.type, draft.title) for draft in imported_observations(events)] == [
        ("summary", "Kettle repaired"),
        ("summary", "This session goes on."),
    ]
    (chat,) = imported_conversations(events)
    assert (chat.draft.title, dict(chat.draft.metadata or {})["summary"]) == ("Thanks", "Kettle repaired")


def test_summary_without_a_time_gets_that_of_the_session(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        {"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"},
        *OPENING[1:],
        {"type": "summary", "summary": "Lid closed", "leafUuid": "y"},
    )

    events = read(IMPORTER, path)

    first, last = "2026-11-15T08:01:00.000Z", "2026-11-15T08:10:00.000Z"
    messages = imported_messages(events)
    assert [(message.content, message.created_at) for message in (messages[0], messages[-1])] == [
        ("Kettle repaired", first),
        ("Lid closed", last),
    ]
    drafts = imported_observations(events)
    assert [(draft.title, draft.created_at) for draft in drafts if draft.type == "summary"] == [
        ("Kettle repaired", first),
        ("Lid closed", last),
    ]


async def test_old_session_with_a_summary_keeps_its_modification_time(tmp_path: Path) -> None:
    path = session(tmp_path, {"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"}, *OPENING)
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_session(libraries, path)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            assert (await ada.chats.get(SESSION)).last_modified == "2026-11-15T08:10:00.000Z"
            assert await total_items(ben) == 0


def test_subagent_becomes_a_separate_chat(tmp_path: Path) -> None:
    lines = [{**record, "isSidechain": True, "agentId": "1f2e"} for record in OPENING[1:4]]
    path = write_session(tmp_path / SESSION / "subagents" / "agent-1f2e.jsonl", *lines)
    (chat,) = imported_conversations(read(IMPORTER, path))
    assert chat.draft.session_id == f"{SESSION}.agent-1f2e"
    assert chat.draft.uuid != SESSION
    metadata = dict(chat.draft.metadata or {})
    assert (metadata["parent_session"], metadata["agent"]) == (SESSION, "agent-1f2e")
    assert metadata["path"] == f"kettle/{SESSION}.agent-1f2e.jsonl"
    assert all(message.is_canonical for message in chat.messages)


def test_task_within_a_session_is_an_alternate_branch(tmp_path: Path) -> None:
    path = session(tmp_path, OPENING[1], line("user", "Find the lid", 2, isSidechain=True), OPENING[10])
    assert [(message.content, message.is_canonical) for message in imported_messages(read(IMPORTER, path))] == [
        ("The kettle leaks. Please fix it.", True),
        ("Find the lid", False),
        ("Done.", True),
    ]


def test_line_with_text_and_results_becomes_two_messages(tmp_path: Path) -> None:
    path = session(tmp_path, OPENING[1], line("user", [result("x"), {"type": "text", "text": "Go on"}], 2))
    messages = imported_messages(read(IMPORTER, path))
    assert [(message.role, message.content) for message in messages[1:]] == [
        ("tool", "[tool: result]\nx"),
        ("user", "Go on"),
    ]
    assert len({message.uuid for message in messages}) == 3


# -- files that grow ---------------------------------------------------------------------------------------------------

LATER = (
    line("user", "The kettle leaks. Please fix it.", 20),
    line("assistant", [use("Read", file_path="spout.py")], 21, id="msg_5"),
    line("user", [result("fine")], 22),
    line("assistant", [use("Bash", key="t9", command="git commit -m Fails")], 26, id="msg_7"),
    line("user", [result("nothing to commit", key="t9", is_error=True)], 27),
    line("user", "And now?", 23),
    line("assistant", [use("Write", file_path="note.md", content="x")], 24, id="msg_6"),
    line("user", [result("written")], 25),
    # The result of a call in an earlier exchange.
    line("user", [result("late", key="t9")], 28),
    {"type": "summary", "summary": "All is well", "leafUuid": "z"},
)


@each_case("cut", range(1, len(OPENING + LATER)))
def test_reading_in_two_steps_equals_reading_at_once(tmp_path: Path, cut: int) -> None:
    whole = OPENING + LATER
    at_once = read(IMPORTER, session(tmp_path, *whole))
    try:
        first = read(IMPORTER, session(tmp_path, *whole[:cut], b'{"type": "us'))
    except InvalidParams:
        first = []
    second = read_from(IMPORTER, session(tmp_path, *whole), last_position(first))
    messages = {str(message.uuid): message for message in [*imported_messages(first), *imported_messages(second)]}
    assert list(messages.values()) == imported_messages(at_once)
    # The second step replaces observations that were incomplete in the first, and none is superfluous.
    drafts = {str(draft.uuid): draft for draft in [*imported_observations(first), *imported_observations(second)]}
    assert drafts == {str(draft.uuid): draft for draft in imported_observations(at_once)}
    assert len(drafts) == len(imported_observations(at_once))
    assert failures(first) == []


def test_unchanged_file_is_read_from_its_last_exchange(tmp_path: Path) -> None:
    path = session(tmp_path, *OPENING, *LATER)
    again = read_from(IMPORTER, path, last_position(read(IMPORTER, path)))
    assert [message.content for message in imported_messages(again)][:1] == ["And now?"]
    assert imported_messages(again)[0].metadata == {"line_start": 17, "line_end": 17}


def test_truncated_or_rewritten_file_is_read_from_the_start(tmp_path: Path) -> None:
    position = last_position(read(IMPORTER, session(tmp_path, *OPENING, *LATER)))
    truncated = read_from(IMPORTER, session(tmp_path, *OPENING[:4]), position)
    assert len(imported_messages(truncated)) == 2
    rewritten = read_from(IMPORTER, session(tmp_path, *(OPENING[:1] + LATER) * 3), position)
    assert imported_messages(rewritten)[0].content == "The kettle leaks. Please fix it."


def test_long_session_is_yielded_in_parts(tmp_path: Path) -> None:
    lines = [
        line(kind, f"{kind} {n}", n % 60, uuid=f"u{kind}{n}") for n in range(500) for kind in ("user", "assistant")
    ]
    events = read(IMPORTER, session(tmp_path, *lines))
    parts = imported_conversations(events)
    assert [part.continues for part in parts] == [False, *[True] * (len(parts) - 1)]
    assert len(parts) > 3
    assert len(imported_messages(events)) == 1000
    assert max(len(part.messages) for part in parts) < 500


async def test_grown_session_is_imported_into_its_owners_library_only(tmp_path: Path) -> None:
    path = session(tmp_path, *OPENING, b'{"half')
    async with open_library_fixture(tmp_path / "data") as libraries:
        first = await import_session(libraries, path)
        session(tmp_path, *OPENING, *LATER)
        second = await import_session(libraries, path)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            chat = await find_conversation(ada.chats, f"kettle/{SESSION}.jsonl")
            hits = (await ada.observations.search(make_search("lid commit"))).hits
            assert await total_items(ben) == 0
    assert first.kinds["messages"] == OutcomeCounts(new=8)
    assert second.kinds["messages"] == OutcomeCounts(new=10, unchanged=8)
    assert (first.failed_items, second.failed_items, chat.message_count) == (0, 0, 18)
    assert hits


async def test_items_before_the_position_count_as_unchanged(tmp_path: Path) -> None:
    both = line("user", [result("x", key="t8"), {"type": "text", "text": "Go on"}], 29)
    lines: list[SessionRecord] = [
        {"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"},
        *OPENING,
        *LATER,
        both,
    ]
    path = session(tmp_path, *lines)
    async with open_library_fixture(tmp_path / "data") as libraries:
        first = await import_session(libraries, path)
        second = await import_session(libraries, path)
        session(tmp_path, *lines, line("user", "Thanks", 30))
        third = await import_session(libraries, path)
        fourth = await import_session(libraries, path)
        async with libraries.library("ben") as ben:
            assert await total_items(ben) == 0
    assert first.kinds == {
        "chats": OutcomeCounts(new=1),
        "messages": OutcomeCounts(new=21),
        "observations": OutcomeCounts(new=8),
    }
    assert second.kinds == {
        "chats": OutcomeCounts(unchanged=1),
        "messages": OutcomeCounts(unchanged=21),
        "observations": OutcomeCounts(unchanged=8),
    }
    assert third.kinds["messages"] == OutcomeCounts(new=1, unchanged=21)
    assert fourth.kinds["messages"] == OutcomeCounts(unchanged=22)
    assert third.kinds["observations"] == fourth.kinds["observations"] == OutcomeCounts(unchanged=8)


async def import_session(libraries: LibraryFixture, path: Path) -> ImportSummary:
    async with libraries.library("ada") as library:
        return await import_here(library, path, importers=[IMPORTER])


# -- malformed input ---------------------------------------------------------------------------------------------------


def test_failed_lines_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    small = replace(LIMITS, line_max_bytes=5_000, item_max_chars=1_000)
    path = session(
        tmp_path,
        OPENING[1],
        b"{broken}\n",
        b'{"a":' + nested(2_000) + b"}\n",
        b"x" * 20_000 + b"\n",
        line("user", "x" * 2_000, 2),
        b'{"type":"user","sessionId":"s","message":{"content":"a\\ud800b"}}\n',
        line("user", "last", 3),
    )
    events = read(IMPORTER, path, small)
    assert message_contents(events) == ["The kettle leaks. Please fix it.", "last"]
    assert [location for location, _ in failures(events)] == [f"line {number}" for number in (2, 3, 4, 5, 6)]
    assert [message.metadata for message in imported_messages(events)][-1] == {"line_start": 7, "line_end": 7}


@each_case("folder", ["/", "..", "C:\\work\\kettle", "/a/~", "/x/a:b`", 7, "", "/a/\u0000"])
def test_archive_path_contains_no_special_characters(tmp_path: Path, folder: Any) -> None:
    (chat,) = imported_conversations(read(IMPORTER, session(tmp_path, {**OPENING[1], "cwd": folder})))
    path = dict(chat.draft.metadata or {})["path"]
    assert re.fullmatch(r"[^/\\~:`\0]+/[0-9a-f-]{36}\.jsonl", path)
    assert ".." not in path


def test_only_sessions_are_recognized_and_one_without_an_id_is_rejected(tmp_path: Path) -> None:
    other = write_session(tmp_path / "other.jsonl", {"user_name": "a", "sessionId": 1})
    assert [confidence(IMPORTER, path) for path in (session(tmp_path), other)] == [0.95, 0.0]
    with pytest.raises(InvalidParams, match="no session id in the first 200 lines"):
        read(IMPORTER, write_session(tmp_path / "x.jsonl", {"type": "user", "sessionId": "../x"}))


@each_case(
    "first",
    [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"files": "x" * 2_000_000}},
        {"message": {"role": "user", "content": "x" * 100_000}, "type": "user"},
    ],
)
def test_session_with_a_large_first_line_is_recognized(tmp_path: Path, first: SessionRecord) -> None:
    path = session(tmp_path, first, *OPENING)
    assert confidence(IMPORTER, path) == 0.95
    (chat,) = imported_conversations(read(IMPORTER, path))
    assert chat.draft.title == imported_conversations(read(IMPORTER, session(tmp_path, *OPENING)))[0].draft.title or (
        first["type"] == "user"
    )
    assert len(chat.messages) >= len(imported_messages(read(IMPORTER, session(tmp_path, *OPENING))))


def test_large_lines_of_other_programs_are_not_recognized(tmp_path: Path) -> None:
    lines = [{"type": "user", "text": "x" * 100_000}, {"type": "user", "text": '"sessionId" "parentUuid"'}]
    assert confidence(IMPORTER, write_session(tmp_path / "other.jsonl", *lines)) == 0.0


def test_session_without_messages_is_reported(tmp_path: Path) -> None:
    assert skip_reasons(read(IMPORTER, session(tmp_path, OPENING[0])))[-1] == "session without messages"


SAMPLE = encode_lines(*OPENING)


@settings(max_examples=examples(75))
@given(data=damaged(SAMPLE) | st.binary(max_size=300))
def test_damaged_session_is_read_or_rejected(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{SESSION}.jsonl")
        path.write_bytes(data)
        assert read_or_reject(IMPORTER, path) == read_or_reject(IMPORTER, path)
