"""Chats of SillyTavern: header, messages, swipes as alternate branches, and the time formats of all versions."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from config.errors import InvalidParams
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
from tests.sources.importers.single_files import import_here
from tests.sources.storage.library_fixture import LibraryFixture, open_library_fixture, total_items

IMPORTER = load_importer("sillytavern")

HEADER: dict[str, Any] = {
    "user_name": "Ada",
    "character_name": "Seraphina",
    "create_date": "2024-1-2 @03h 04m 05s 6ms",
    "chat_metadata": {"note_prompt": ""},
}
LINES: list[dict[str, Any]] = [
    HEADER,
    {"name": "Seraphina", "is_user": False, "send_date": "January 2, 2024 3:04am", "mes": "You wake up."},
    {"name": "Ada", "is_user": True, "send_date": "January 2, 2024 3:05pm", "mes": "Where am I?"},
    {
        "name": "Seraphina",
        "is_user": False,
        "send_date": 1704207906789,
        "mes": "In the glade.",
        "swipe_id": 1,
        "swipes": ["In a wood.", "In the glade.", "At home."],
        "swipe_info": [{"send_date": "2024-01-02T15:05:01.000Z", "extra": {"model": "old"}}, {}, {}],
        "extra": {"model": "claude"},
    },
    {"name": "Ada", "is_user": True, "send_date": "2024-01-02T16:00:00+01:00", "mes": "Thanks"},
]


def jsonl(path: Path, *lines: Any) -> Path:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines))
    return path


def test_chat_keeps_names_times_and_order(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "Seraphina - 2024-01-02.jsonl", *LINES)
    (chat,) = imported_conversations(read(IMPORTER, path))
    assert chat.draft.title == "Seraphina - 2024-01-02"
    assert chat.draft.created_at == "2024-01-02T03:04:05.006Z"
    assert chat.draft.metadata == {
        "imported_from": "sillytavern",
        "character_name": "Seraphina",
        "user_name": "Ada",
    }
    assert [(message.role, message.sender, message.content) for message in chat.messages if message.is_canonical] == [
        ("assistant", "Seraphina", "You wake up."),
        ("user", "Ada", "Where am I?"),
        ("assistant", "Seraphina", "In the glade."),
        ("user", "Ada", "Thanks"),
    ]
    assert [message.created_at for message in chat.messages] == [
        "2024-01-02T03:04:00.000Z",
        "2024-01-02T15:05:00.000Z",
        "2024-01-02T15:05:06.789Z",
        "2024-01-02T15:00:00.000Z",
        "2024-01-02T15:05:01.000Z",
        "2024-01-02T15:05:06.789Z",
    ]
    assert confidence(IMPORTER, path) == 0.95


def test_other_swipes_are_alternate_branches_after_the_canonical_path(tmp_path: Path) -> None:
    messages = imported_messages(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES)))
    question, chosen, thanks, *others = messages[1:]
    assert [(message.content, message.is_canonical, message.model) for message in others] == [
        ("In a wood.", False, "old"),
        ("At home.", False, None),
    ]
    assert [message.parent_id for message in (chosen, *others)] == [question.uuid] * 3
    assert (thanks.parent_id, chosen.model) == (chosen.uuid, "claude")


def test_choosing_another_swipe_changes_the_path_but_no_ids(tmp_path: Path) -> None:
    before = imported_messages(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES)))
    chosen = {**LINES[3], "swipe_id": 0, "mes": "In a wood."}
    after = imported_messages(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES[:3], chosen, *LINES[4:])))
    assert {message.uuid: message.content for message in before} == {message.uuid: message.content for message in after}
    assert [message.content for message in after if not message.is_canonical] == ["In the glade.", "At home."]


def test_continued_chat_keeps_its_ids_and_a_branch_has_its_own(tmp_path: Path) -> None:
    before = imported_messages(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES[:3])))
    after = imported_messages(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES)))
    branch = imported_messages(read(IMPORTER, jsonl(tmp_path / "chat - Branch 1.jsonl", *LINES)))
    assert before == after[:2]
    assert not {message.uuid for message in after} & {message.uuid for message in branch}
    assert after == imported_messages(read(IMPORTER, tmp_path / "chat.jsonl"))


@each_case(
    ("send_date", "created_at"),
    [
        ("June 19, 2023 2:20pm", "2023-06-19T14:20:00.000Z"),
        ("June 19, 2023 12:20am", "2023-06-19T00:20:00.000Z"),
        ("2023-6-9 @4h 2m 3s 12ms", "2023-06-09T04:02:03.012Z"),
        ("2023-06-19@14h20m30s", "2023-06-19T14:20:30.000Z"),
        ("2023-06-19T14:20:30.5Z", "2023-06-19T14:20:30.500Z"),
        (1687184430000, "2023-06-19T14:20:30.000Z"),
        ("1687184430000", "2023-06-19T14:20:30.000Z"),
        ("June 31, 2023 2:20pm", UNSET),
        ("yesterday", UNSET),
        (None, UNSET),
        (0, UNSET),
    ],
)
def test_time_formats_of_all_versions_are_parsed(tmp_path: Path, send_date: Any, created_at: Any) -> None:
    header = {"user_name": "a", "character_name": "b"}
    path = jsonl(tmp_path / "chat.jsonl", header, {"name": "a", "is_user": True, "mes": "x", "send_date": send_date})
    assert [message.created_at for message in imported_messages(read(IMPORTER, path))] == [created_at]


def test_old_chat_without_header_and_chub_format_are_read(tmp_path: Path) -> None:
    lines = [
        {"name": "Ada", "is_user": True, "send_date": 1687184430000, "mes": "x"},
        {"name": "B", "is_user": False, "mes": {"message": "nested"}},
    ]
    path = jsonl(tmp_path / "chat.jsonl", *lines)
    assert message_contents(read(IMPORTER, path)) == ["x", "nested"]
    assert confidence(IMPORTER, path) == 0.85


def test_hidden_messages_are_imported_and_system_messages_are_skipped(tmp_path: Path) -> None:
    lines = [
        HEADER,
        {"name": "SillyTavern System", "is_user": False, "is_system": True, "mes": "Welcome!"},
        {"name": "Ada", "is_user": True, "is_system": True, "mes": "hidden from the model"},
        {"name": "Ada", "is_user": True, "mes": " "},
    ]
    events = read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *lines))
    assert [(message.content, message.metadata) for message in imported_messages(events)] == [
        ("hidden from the model", {"is_hidden": True})
    ]
    assert skip_reasons(events) == ["system message", "empty message"]


def test_header_alone_is_skipped(tmp_path: Path) -> None:
    assert skip_reasons(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", HEADER))) == ["conversation without messages"]


def test_failed_lines_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    lines = [
        HEADER,
        {"name": "Ada", "is_user": True, "mes": "before"},
        b"no json",
        b'{"mes": ' + nested(5_000) + b"}",
        {"name": "Ada", "mes": "N\0L"},
        rb'{"name": "Ada", "mes": "half \ud83d"}',
        {"name": "Ada"},
        {"name": "Ada", "mes": "x" * 20_000},
        b"",
        {"name": "B", "mes": "after", "swipes": ["after", "N\0L", 5]},
    ]
    events = read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *lines), replace(LIMITS, line_max_bytes=15_000))
    assert message_contents(events) == ["before", "after"]
    assert [location for location, _ in failures(events)] == [
        *(f"line {number}" for number in range(3, 9)),
        "line 10, swipe 2",
    ]


def test_file_without_a_valid_first_line_is_rejected(tmp_path: Path) -> None:
    for lines in ((b"",), (b"no json",), (b"x" * 200,)):
        with pytest.raises(InvalidParams):
            read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *lines), replace(LIMITS, line_max_bytes=100))


def test_other_jsonl_files_are_not_recognized(tmp_path: Path) -> None:
    assert confidence(IMPORTER, jsonl(tmp_path / "a.jsonl", {"type": "user", "uuid": "x"})) == 0
    assert confidence(IMPORTER, tmp_path) == 0


VALID = b"\n".join(map(msgspec.json.encode, LINES))


@given(damaged(VALID) | st.binary(max_size=300))
def test_damaged_chat_is_read_or_rejected(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chat.jsonl")
        path.write_bytes(data)
        assert read_or_reject(IMPORTER, path) == read_or_reject(IMPORTER, path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**60) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["message", "model", "send_date"]), inner)
    ),
    max_leaves=6,
)


@given(
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys([*LINES[3], *HEADER], ANYTHING)), min_size=1, max_size=3)
)
def test_unexpected_values_in_any_field_are_tolerated(lines: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read(IMPORTER, jsonl(Path(folder, "chat.jsonl"), *lines))


INTEGRITY = "6b1c1f1e-1111-4222-8333-444455556666"


def _with_integrity(**metadata: str) -> dict[str, Any]:
    return {**HEADER, "chat_metadata": {"integrity": INTEGRITY, **metadata}}


async def import_chats(libraries: LibraryFixture, owner: str, path: Path) -> ImportSummary:
    async with libraries.library(owner) as library:
        return await import_here(library, path, importers=[IMPORTER])


async def test_backups_do_not_duplicate_a_chat(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for folder in ("backups", "chats/Seraphina"):
        (data / folder).mkdir(parents=True)
    edited = {**LINES[2], "mes": "Where was I?"}
    jsonl(data / "backups" / "chat_seraphina_20240101-1.jsonl", _with_integrity(), LINES[1], edited)
    jsonl(data / "backups" / "chat_seraphina_20240102-1.jsonl", _with_integrity(), *LINES[1:])
    jsonl(data / "chats" / "Seraphina" / "First walk.jsonl", _with_integrity(), *LINES[1:])
    async with open_library_fixture(tmp_path / "libraries") as libraries:
        await import_chats(libraries, "ada", data)
        second = await import_chats(libraries, "ada", data)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            chats = (await ada.chats.list(10, 0)).rows
            messages = (await ada.chats.messages(chats[0].uuid, 20, 0)).rows
            assert await total_items(ben) == 0
    assert [chat.title for chat in chats] == ["First walk"]
    assert sorted(message.content for message in messages if message.is_canonical) == sorted(
        line["mes"] for line in LINES[1:]
    )
    assert all(counts == OutcomeCounts(unchanged=counts.total) for counts in second.kinds.values())


def test_backup_alone_is_imported_and_a_branch_is_another_chat(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    backup = jsonl(tmp_path / "backups" / "chat_seraphina_20240102-1.jsonl", _with_integrity(), *LINES[1:])
    chat = jsonl(tmp_path / "First walk.jsonl", _with_integrity(), *LINES[1:])
    branch = jsonl(tmp_path / "Branch #1.jsonl", _with_integrity(main_chat="First walk"), *LINES[1:])
    drafts = [imported_conversations(read(IMPORTER, path))[0].draft for path in (backup, chat, branch)]
    assert [draft.title for draft in drafts] == ["Seraphina", "First walk", "Branch #1"]
    assert drafts[0].uuid == drafts[1].uuid != drafts[2].uuid
    assert str(drafts[0].last_modified) < str(drafts[1].last_modified)
