"""Sessions of Codex: messages with their lines, derived observations, and files that grow."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from config.errors import InvalidParams
from sources.importers.engine.summary import OutcomeCounts
from sources.importers.registry import load_importer
from tests.cases import each_case
from tests.sources.importers.chat_files import (
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
from tests.sources.storage.library_fixture import open_library_fixture, total_items
from tests.tiers import examples

IMPORTER = load_importer("codex")

SESSION = "cccccccc-0000-7000-8000-000000000001"
TIME = "2026-11-15T08:00:0{}.000Z"


def line(kind: str, second: int, **payload: Any) -> SessionRecord:
    return {"timestamp": TIME.format(second), "type": kind, "payload": payload}


def item(kind: str, second: int, **payload: Any) -> SessionRecord:
    return {"timestamp": TIME.format(second), "type": "response_item", "payload": {"type": kind, **payload}}


def message(role: str, text: str, second: int) -> SessionRecord:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", second, role=role, content=[{"type": kind, "text": text}])


def call(name: str, key: str, second: int, **arguments: Any) -> SessionRecord:
    return item("function_call", second, name=name, call_id=key, arguments=msgspec.json.encode(arguments).decode())


def output(key: str, value: Any, second: int, kind: str = "function_call_output") -> SessionRecord:
    return item(kind, second, call_id=key, output=value)


PATCH = "*** Begin Patch\n*** Update File: lid.py\n@@\n-a\n+b\n*** End Patch"
META = line("session_meta", 0, id=SESSION, timestamp=TIME.format(0), cwd="/home/ada/kettle", cli_version="0.50.0")
META["payload"]["git"] = {"branch": "main"}
LINES = (
    META,
    message("developer", "You are an agent", 0),
    message("user", "<environment_context>\n<cwd>/home/ada</cwd>", 0),
    line("turn_context", 1, cwd="/home/ada/kettle", model="gpt-5-codex"),
    message("user", "Close the lid. It leaks.", 1),
    line("event_msg", 1, type="user_message", message="Close the lid. It leaks."),
    item("reasoning", 2, summary=[{"type": "summary_text", "text": "secretthought"}], encrypted_content="x"),
    call("shell", "c1", 3, command=["bash", "-lc", "cat lid.py"]),
    output("c1", '{"output":"No such file","metadata":{"exit_code":1,"duration_seconds":0.1}}', 4),
    item("custom_tool_call", 5, name="apply_patch", call_id="c2", input=PATCH),
    output("c2", '{"output":"Success","metadata":{"exit_code":0}}', 5, "custom_tool_call_output"),
    call("exec_command", "c3", 6, cmd='git commit -m "Close it"'),
    output("c3", "Process exited with code 0\nOutput:\n1 file changed", 7),
    message("assistant", "It is closed.", 8),
)


def session(path: Path, *lines: SessionRecord | bytes) -> Path:
    return write_session(
        path / "2026" / "11" / "15" / f"rollout-2026-11-15T08-00-00-{SESSION}.jsonl", *(lines or LINES)
    )


def test_session_becomes_a_chat_with_project_and_archive_path(tmp_path: Path) -> None:
    (chat,) = imported_conversations(read(IMPORTER, session(tmp_path)))
    assert (chat.draft.uuid, chat.draft.session_id, chat.draft.title) == (SESSION, SESSION, "Close the lid.")
    assert chat.draft.created_at == "2026-11-15T08:00:00.000Z"
    assert chat.draft.metadata == {
        "imported_from": "codex",
        "path": f"kettle/{SESSION}.jsonl",
        "project": "kettle",
        "git_branch": "main",
        "version": "0.50.0",
    }


def test_messages_calls_and_results_are_in_line_order(tmp_path: Path) -> None:
    events = read(IMPORTER, session(tmp_path))
    messages = imported_messages(events)
    assert [(message.role, message.content, message.tool) for message in messages] == [
        ("user", "Close the lid. It leaks.", UNSET),
        ("assistant", "[shell]\ncommand: cat lid.py", "shell"),
        ("tool", "[shell: error]\nNo such file", "shell"),
        ("assistant", f"[apply_patch]\ninput: {PATCH}", "apply_patch"),
        ("tool", "[apply_patch: result]\nSuccess", "apply_patch"),
        ("assistant", '[shell]\ncommand: git commit -m "Close it"', "shell"),
        ("tool", "[shell: result]\nProcess exited with code 0\nOutput:\n1 file changed", "shell"),
        ("assistant", "It is closed.", UNSET),
    ]
    assert messages[0].metadata == {"line_start": 5, "line_end": 5}
    assert messages[0].created_at == "2026-11-15T08:00:01.000Z"
    assert set(skip_reasons(events)) == {"line without a message"}
    assert "secretthought" not in str(events)


def test_observations_are_derived(tmp_path: Path) -> None:
    drafts = imported_observations(read(IMPORTER, session(tmp_path)))
    assert [(draft.type, draft.title, draft.line_start, draft.line_end, draft.files_modified) for draft in drafts] == [
        ("general", "Close the lid.", 5, 14, ("lid.py",)),
        ("error", "shell: No such file", 8, 8, UNSET),
        ("commit", "Close it", 12, 12, UNSET),
    ]


@each_case(
    ("payload", "content"),
    [
        ({"command": ["apply_patch", "x y"]}, "[apply_patch]\ninput: apply_patch 'x y'"),
        ({"command": ["ls", "-l", "a b"]}, "[shell]\ncommand: ls -l 'a b'"),
        ({"command": "ls"}, "[shell]\ncommand: ls"),
        ({"workdir": "/x"}, "[shell]\nworkdir: /x"),
        ({"command": [1, None]}, "[shell]\ncommand: [1,null]"),
    ],
)
def test_command_forms_are_normalized(tmp_path: Path, payload: Any, content: str) -> None:
    assert message_contents(read(IMPORTER, session(tmp_path, META, call("shell", "c", 1, **payload)))) == [content]


@each_case(
    ("value", "content"),
    [
        ("plain", "[tool: result]\nplain"),
        ({"content": "denied", "success": False}, "[tool: error]\ndenied"),
        ([{"type": "input_text", "text": "one"}, {"text": "two"}], "[tool: result]\none\ntwo"),
        ("{not json", "[tool: result]\n{not json"),
        ("Exit code: 2\nOutput:\nbad", "[tool: error]\nExit code: 2\nOutput:\nbad"),
        (None, "[tool: result]"),
    ],
)
def test_result_forms_are_normalized(tmp_path: Path, value: Any, content: str) -> None:
    assert message_contents(read(IMPORTER, session(tmp_path, META, output("c", value, 1)))) == [content]


def test_summary_becomes_a_system_message_and_an_observation(tmp_path: Path) -> None:
    events = read(IMPORTER, session(tmp_path, META, line("compacted", 1, message="The lid was closed. All is well.")))
    assert [(message.role, message.content) for message in imported_messages(events)] == [
        ("system", "The lid was closed. All is well.")
    ]
    assert [(draft.type, draft.title) for draft in imported_observations(events)] == [
        ("summary", "The lid was closed.")
    ]


@each_case("cut", range(1, 2 * len(LINES) - 1))
def test_reading_in_two_steps_equals_reading_at_once(tmp_path: Path, cut: int) -> None:
    whole = LINES + LINES[1:]
    at_once = read(IMPORTER, session(tmp_path, *whole))
    first = read(IMPORTER, session(tmp_path, *whole[:cut], b'{"timestamp": "2026'))
    second = read_from(IMPORTER, session(tmp_path, *whole), last_position(first))
    messages = {str(message.uuid): message for message in [*imported_messages(first), *imported_messages(second)]}
    assert list(messages.values()) == imported_messages(at_once)
    drafts = {str(draft.uuid): draft for draft in [*imported_observations(first), *imported_observations(second)]}
    assert drafts == {str(draft.uuid): draft for draft in imported_observations(at_once)}


async def test_second_import_changes_nothing_and_other_users_see_nothing(tmp_path: Path) -> None:
    path = session(tmp_path)
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        first, second = [await import_here(ada, path, importers=[IMPORTER]) for _ in range(2)]
        assert await total_items(ben) == 0
    assert (first.kinds["messages"], first.kinds["observations"]) == (OutcomeCounts(new=8), OutcomeCounts(new=3))
    assert (second.kinds["messages"], second.kinds["observations"]) == (
        OutcomeCounts(unchanged=8),
        OutcomeCounts(unchanged=3),
    )


def test_failed_lines_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    bad = b'{"type":"response_item","payload":' + nested(500) + b"}\n"
    events = read(IMPORTER, session(tmp_path, META, b"nothing\n", bad, b"[]\n", LINES[-1]))
    assert [location for location, _ in failures(events)] == ["line 2", "line 3", "line 4"]
    assert message_contents(events) == ["It is closed."]


def test_only_sessions_are_recognized_and_one_without_an_id_is_rejected(tmp_path: Path) -> None:
    other = write_session(tmp_path / "other.jsonl", {"type": "x", "payload": {}})
    assert [confidence(IMPORTER, path) for path in (session(tmp_path), other)] == [0.95, 0.0]
    with pytest.raises(InvalidParams, match="no session id in the first 200 lines"):
        read(IMPORTER, other)


@settings(max_examples=examples(75))
@given(data=damaged(encode_lines(*LINES)) | st.binary(max_size=300))
def test_damaged_session_is_read_or_rejected(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "rollout.jsonl")
        path.write_bytes(data)
        assert read_or_reject(IMPORTER, path) == read_or_reject(IMPORTER, path)
