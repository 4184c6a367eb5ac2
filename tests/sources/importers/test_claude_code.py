"""Sessions of Claude Code: messages with their lines, observations that are proved, and files that grow."""

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
from config.settings import Settings
from server.compat.conversation_memory.conversation_paths import find_conversation
from sources.importers.engine.discovery import find
from sources.importers.engine.import_runner import ImportProgress, ImportSummary, OutcomeCounts, limits_of, run_import
from sources.importers.formats.claude_code import IMPORTER
from tests.sources.importers.chat_reading import (
    LIMITS,
    broken,
    certainty,
    chats,
    damaged,
    nested,
    read,
    read_or_refuse,
    said,
    skipped,
    texts,
)
from tests.sources.importers.session_files import Line, encoded, observed, reached, read_from, write_session
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite, total_items

SESSION = "aaaaaaaa-0000-4000-8000-000000000001"


def line(kind: str, content: Any, number: int, **more: Any) -> Line:
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


def use(name: str, key: str = "t1", **arguments: Any) -> Line:
    return {"type": "tool_use", "id": key, "name": name, "input": arguments}


def result(content: Any, key: str = "t1", **more: Any) -> Line:
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


def session(path: Path, *lines: Line | bytes, name: str = f"{SESSION}.jsonl") -> Path:
    return write_session(path / "projects" / "-home-ada-work-kettle" / name, *(lines or OPENING))


def test_a_session_is_a_chat_with_its_project_its_branch_and_a_name_in_the_archive(tmp_path: Path) -> None:
    (chat,) = chats(read(IMPORTER, session(tmp_path)))
    assert (chat.draft.uuid, chat.draft.session_id, chat.draft.title) == (SESSION, SESSION, "The kettle leaks.")
    assert chat.draft.created_at == "2026-11-15T08:01:00.000Z"
    assert chat.draft.metadata == {
        "imported_from": "claude_code",
        "path": f"kettle/{SESSION}.jsonl",
        "project": "kettle",
        "git_branch": "main",
        "version": "2.0.1",
    }


def test_lines_of_one_answer_are_one_message_and_answers_of_tools_are_the_tools(tmp_path: Path) -> None:
    messages = said(read(IMPORTER, session(tmp_path)))
    assert [(one.role, one.content, one.tool) for one in messages] == [
        ("user", "The kettle leaks. Please fix it.", UNSET),
        ("assistant", "I look first.\n\n[Read]\nfile_path: /home/ada/work/kettle/lid.py", "Read"),
        ("tool", "[Read: result]\ndef lid(): ...", "Read"),
        ("assistant", "[Edit]\nfile_path: lid.py\nold_string: a\nnew_string: b", "Edit"),
        ("tool", "[Edit: error]\nString not found", "Edit"),
        ("assistant", '[Bash]\ncommand: git commit -m "Close the lid"', "Bash"),
        ("tool", "[Bash: result]\n1 file changed", "Bash"),
        ("assistant", "Done.", UNSET),
    ]
    assert [one.metadata for one in messages[:3]] == [
        {"line_start": 2, "line_end": 2},
        {"line_start": 4, "line_end": 5},
        {"line_start": 6, "line_end": 6},
    ]
    assert (messages[1].model, messages[1].created_at) == ("claude-opus", "2026-11-15T08:03:00.000Z")
    assert "secretthought" not in str(messages)


def test_observations_are_what_the_session_proves_with_the_lines_that_prove_it(tmp_path: Path) -> None:
    found = observed(read(IMPORTER, session(tmp_path)))
    assert [(one.type, one.title, one.line_start, one.line_end) for one in found] == [
        ("general", "The kettle leaks.", 2, 11),
        ("error", "Edit: String not found", 7, 7),
        ("commit", "Close the lid", 9, 9),
    ]
    assert found[0].files_read == ("/home/ada/work/kettle/lid.py",)
    assert {(one.project, one.session_id, one.conversation_id, one.origin) for one in found} == {
        ("kettle", SESSION, SESSION, "derived")
    }


def test_what_the_program_notes_for_itself_is_left_out_and_a_command_is_what_was_typed(tmp_path: Path) -> None:
    arrivals = read(
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
    assert texts(arrivals) == ["/review 12", "[image]\n\nSee"]
    assert sorted(set(skipped(arrivals))) == ["a line of the program itself", "a message without text"]


def test_summaries_are_system_messages_and_observations(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        {"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"},
        line("user", "This session goes on. The lid was closed.", 1, isCompactSummary=True),
        line("user", "Thanks", 2),
    )
    arrivals = read(IMPORTER, path)
    assert [(one.role, one.content) for one in said(arrivals)] == [
        ("system", "Kettle repaired"),
        ("system", "This session goes on. The lid was closed."),
        ("user", "Thanks"),
    ]
    assert [(one.type, one.title) for one in observed(arrivals)] == [
        ("summary", "Kettle repaired"),
        ("summary", "This session goes on."),
    ]
    (chat,) = chats(arrivals)
    assert (chat.draft.title, dict(chat.draft.metadata or {})["summary"]) == ("Thanks", "Kettle repaired")


def test_a_summary_without_a_time_has_that_of_the_session_and_not_of_the_import(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        {"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"},
        *OPENING[1:],
        {"type": "summary", "summary": "Lid closed", "leafUuid": "y"},
    )

    arrivals = read(IMPORTER, path)

    first, last = "2026-11-15T08:01:00.000Z", "2026-11-15T08:10:00.000Z"
    messages = said(arrivals)
    assert [(one.content, one.created_at) for one in (messages[0], messages[-1])] == [
        ("Kettle repaired", first),
        ("Lid closed", last),
    ]
    summaries = [(one.title, one.created_at) for one in observed(arrivals) if one.type == "summary"]
    assert summaries == [("Kettle repaired", first), ("Lid closed", last)]


async def test_an_old_session_with_a_summary_does_not_count_as_changed_today(tmp_path: Path) -> None:
    path = session(tmp_path, {"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"}, *OPENING)
    async with open_sqlite(tmp_path / "data") as libraries:
        await _take(libraries, path)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            assert (await ada.chats.get(SESSION)).last_modified == "2026-11-15T08:10:00.000Z"
            assert await total_items(ben) == 0


def test_a_subagent_is_a_chat_of_its_own_beside_the_one_it_worked_for(tmp_path: Path) -> None:
    lines = [{**one, "isSidechain": True, "agentId": "1f2e"} for one in OPENING[1:4]]
    path = write_session(tmp_path / SESSION / "subagents" / "agent-1f2e.jsonl", *lines)
    (chat,) = chats(read(IMPORTER, path))
    assert chat.draft.session_id == f"{SESSION}.agent-1f2e"
    assert chat.draft.uuid != SESSION
    metadata = dict(chat.draft.metadata or {})
    assert (metadata["parent_session"], metadata["agent"]) == (SESSION, "agent-1f2e")
    assert metadata["path"] == f"kettle/{SESSION}.agent-1f2e.jsonl"
    assert all(one.is_canonical for one in chat.messages)


def test_a_task_inside_of_a_session_stands_beside_its_path(tmp_path: Path) -> None:
    path = session(tmp_path, OPENING[1], line("user", "Find the lid", 2, isSidechain=True), OPENING[10])
    assert [(one.content, one.is_canonical) for one in said(read(IMPORTER, path))] == [
        ("The kettle leaks. Please fix it.", True),
        ("Find the lid", False),
        ("Done.", True),
    ]


def test_a_line_with_words_and_answers_is_both(tmp_path: Path) -> None:
    path = session(tmp_path, OPENING[1], line("user", [result("x"), {"type": "text", "text": "Go on"}], 2))
    messages = said(read(IMPORTER, path))
    assert [(one.role, one.content) for one in messages[1:]] == [("tool", "[tool: result]\nx"), ("user", "Go on")]
    assert len({one.uuid for one in messages}) == 3


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
    # An answer to what was called in an earlier exchange.
    line("user", [result("late", key="t9")], 28),
    {"type": "summary", "summary": "All is well", "leafUuid": "z"},
)


@pytest.mark.parametrize("cut", range(1, len(OPENING + LATER)))
def test_what_is_read_in_two_pieces_is_what_is_read_at_once(tmp_path: Path, cut: int) -> None:
    whole = OPENING + LATER
    at_once = read(IMPORTER, session(tmp_path, *whole))
    try:
        first = read(IMPORTER, session(tmp_path, *whole[:cut], b'{"type": "us'))
    except InvalidParams:
        first = []
    then = read_from(IMPORTER, session(tmp_path, *whole), reached(first))
    kept = {str(one.uuid): one for one in [*said(first), *said(then)]}
    assert list(kept.values()) == said(at_once)
    # What the first reading could not know yet is put right by the second, and nothing was told too early.
    noted = {str(one.uuid): one for one in [*observed(first), *observed(then)]}
    assert noted == {str(one.uuid): one for one in observed(at_once)}
    assert len(noted) == len(observed(at_once))
    assert broken(first) == []


def test_a_file_that_did_not_grow_is_read_from_its_last_exchange(tmp_path: Path) -> None:
    path = session(tmp_path, *OPENING, *LATER)
    again = read_from(IMPORTER, path, reached(read(IMPORTER, path)))
    assert [one.content for one in said(again)][:1] == ["And now?"]
    assert said(again)[0].metadata == {"line_start": 17, "line_end": 17}


def test_a_file_that_was_cut_or_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    mark = reached(read(IMPORTER, session(tmp_path, *OPENING, *LATER)))
    cut = read_from(IMPORTER, session(tmp_path, *OPENING[:4]), mark)
    assert len(said(cut)) == 2
    anew = read_from(IMPORTER, session(tmp_path, *(OPENING[:1] + LATER) * 3), mark)
    assert said(anew)[0].content == "The kettle leaks. Please fix it."


def test_a_long_session_comes_in_pieces_with_marks_between_them(tmp_path: Path) -> None:
    lines = [
        line(kind, f"{kind} {n}", n % 60, uuid=f"u{kind}{n}") for n in range(500) for kind in ("user", "assistant")
    ]
    arrivals = read(IMPORTER, session(tmp_path, *lines))
    pieces = chats(arrivals)
    assert [piece.continues for piece in pieces] == [False, *[True] * (len(pieces) - 1)]
    assert len(pieces) > 3
    assert len(said(arrivals)) == 1000
    assert max(len(piece.messages) for piece in pieces) < 500


async def test_a_session_that_grew_is_found_and_read_by_its_lines_in_its_owners_library_alone(tmp_path: Path) -> None:
    path = session(tmp_path, *OPENING, b'{"half')
    async with open_sqlite(tmp_path / "data") as libraries:
        first = await _take(libraries, path)
        session(tmp_path, *OPENING, *LATER)
        second = await _take(libraries, path)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            chat = await find_conversation(ada.chats, f"kettle/{SESSION}.jsonl")
            found = await ada.observations.search(make_search("lid commit"))
            assert await total_items(ben) == 0
    assert first.kinds["messages"] == OutcomeCounts(new=8)
    assert second.kinds["messages"] == OutcomeCounts(new=10, unchanged=8)
    assert (first.broken, second.broken, chat.message_count) == (0, 0, 18)
    assert found.hits


async def test_what_came_before_counts_as_unchanged_though_it_is_not_read_again(tmp_path: Path) -> None:
    both = line("user", [result("x", key="t8"), {"type": "text", "text": "Go on"}], 29)
    lines: list[Line] = [{"type": "summary", "summary": "Kettle repaired", "leafUuid": "x"}, *OPENING, *LATER, both]
    path = session(tmp_path, *lines)
    async with open_sqlite(tmp_path / "data") as libraries:
        first = await _take(libraries, path)
        second = await _take(libraries, path)
        session(tmp_path, *lines, line("user", "Thanks", 30))
        third = await _take(libraries, path)
        fourth = await _take(libraries, path)
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


async def _take(libraries: LibraryFixture, path: Path) -> ImportSummary:
    async with libraries.library("ada") as library:
        founds = list(find([path], limits_of(Settings()), [IMPORTER]))
        return await run_import(library, founds, Settings(), ImportProgress())


# -- hostile -----------------------------------------------------------------------------------------------------------


def test_a_line_that_cannot_be_read_is_told_and_the_rest_comes(tmp_path: Path) -> None:
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
    arrivals = read(IMPORTER, path, small)
    assert texts(arrivals) == ["The kettle leaks. Please fix it.", "last"]
    assert [place for place, _ in broken(arrivals)] == [f"line {number}" for number in (2, 3, 4, 5, 6)]
    assert [one.metadata for one in said(arrivals)][-1] == {"line_start": 7, "line_end": 7}


@pytest.mark.parametrize("folder", ["/", "..", "C:\\work\\kettle", "/a/~", "/x/a:b`", 7, "", "/a/\u0000"])
def test_no_folder_leads_out_of_the_archive(tmp_path: Path, folder: Any) -> None:
    (chat,) = chats(read(IMPORTER, session(tmp_path, {**OPENING[1], "cwd": folder})))
    path = dict(chat.draft.metadata or {})["path"]
    assert re.fullmatch(r"[^/\\~:`\0]+/[0-9a-f-]{36}\.jsonl", path)
    assert ".." not in path


def test_only_sessions_are_recognised_and_one_without_an_id_is_refused(tmp_path: Path) -> None:
    other = write_session(tmp_path / "other.jsonl", {"user_name": "a", "sessionId": 1})
    assert [certainty(IMPORTER, path) for path in (session(tmp_path), other)] == [0.95, 0.0]
    with pytest.raises(InvalidParams, match="id of a session"):
        read(IMPORTER, write_session(tmp_path / "x.jsonl", {"type": "user", "sessionId": "../x"}))


def test_a_session_without_messages_is_told(tmp_path: Path) -> None:
    assert skipped(read(IMPORTER, session(tmp_path, OPENING[0])))[-1] == "a session without messages"


SAMPLE = encoded(*OPENING)


@settings(max_examples=150, deadline=None)
@given(data=damaged(SAMPLE) | st.binary(max_size=300))
def test_a_damaged_session_is_read_or_refused(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{SESSION}.jsonl")
        path.write_bytes(data)
        assert read_or_refuse(IMPORTER, path) == read_or_refuse(IMPORTER, path)
