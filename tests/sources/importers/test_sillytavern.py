"""Chats of SillyTavern: a header, messages on lines, swipes beside the path, and times as each version wrote them."""

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
from sources.importers.formats.sillytavern import IMPORTER
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


def test_a_chat_arrives_with_its_people_and_its_first_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "Seraphina - 2024-01-02.jsonl", *LINES)
    (arrival,) = chats(read(IMPORTER, path))
    assert arrival.draft.title == "Seraphina - 2024-01-02"
    assert arrival.draft.created_at == "2024-01-02T03:04:05.006Z"
    assert arrival.draft.metadata == {
        "imported_from": "sillytavern",
        "character_name": "Seraphina",
        "user_name": "Ada",
    }
    assert [(one.role, one.sender, one.content) for one in arrival.messages if one.is_canonical] == [
        ("assistant", "Seraphina", "You wake up."),
        ("user", "Ada", "Where am I?"),
        ("assistant", "Seraphina", "In the glade."),
        ("user", "Ada", "Thanks"),
    ]
    assert [one.created_at for one in arrival.messages] == [
        "2024-01-02T03:04:00.000Z",
        "2024-01-02T15:05:00.000Z",
        "2024-01-02T15:05:06.789Z",
        "2024-01-02T15:00:00.000Z",
        "2024-01-02T15:05:01.000Z",
        "2024-01-02T15:05:06.789Z",
    ]
    assert certainty(IMPORTER, path) == 0.95


def test_swipes_that_were_not_chosen_are_branches_after_the_path(tmp_path: Path) -> None:
    found = said(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES)))
    asked, chosen, thanks, *others = found[1:]
    assert [(one.content, one.is_canonical, one.model) for one in others] == [
        ("In a wood.", False, "old"),
        ("At home.", False, None),
    ]
    assert [one.parent_id for one in (chosen, *others)] == [asked.uuid] * 3
    assert (thanks.parent_id, chosen.model) == (chosen.uuid, "claude")


def test_another_choice_changes_the_path_and_no_id(tmp_path: Path) -> None:
    before = said(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES)))
    chosen = {**LINES[3], "swipe_id": 0, "mes": "In a wood."}
    after = said(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES[:3], chosen, *LINES[4:])))
    assert {one.uuid: one.content for one in before} == {one.uuid: one.content for one in after}
    assert [one.content for one in after if not one.is_canonical] == ["In the glade.", "At home."]


def test_a_chat_that_goes_on_keeps_the_ids_it_had_and_a_branch_has_its_own(tmp_path: Path) -> None:
    before = said(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES[:3])))
    after = said(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *LINES)))
    branch = said(read(IMPORTER, jsonl(tmp_path / "chat - Branch 1.jsonl", *LINES)))
    assert before == after[:2]
    assert not {one.uuid for one in after} & {one.uuid for one in branch}
    assert after == said(read(IMPORTER, tmp_path / "chat.jsonl"))


@pytest.mark.parametrize(
    ("written", "moment"),
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
def test_times_of_all_versions_are_read(tmp_path: Path, written: Any, moment: Any) -> None:
    header = {"user_name": "a", "character_name": "b"}
    path = jsonl(tmp_path / "chat.jsonl", header, {"name": "a", "is_user": True, "mes": "x", "send_date": written})
    assert [one.created_at for one in said(read(IMPORTER, path))] == [moment]


def test_an_old_chat_without_header_and_the_form_of_chub_are_read(tmp_path: Path) -> None:
    lines = [
        {"name": "Ada", "is_user": True, "send_date": 1687184430000, "mes": "x"},
        {"name": "B", "is_user": False, "mes": {"message": "nested"}},
    ]
    path = jsonl(tmp_path / "chat.jsonl", *lines)
    assert texts(read(IMPORTER, path)) == ["x", "nested"]
    assert certainty(IMPORTER, path) == 0.85


def test_hidden_messages_are_kept_and_those_of_the_program_are_not(tmp_path: Path) -> None:
    lines = [
        HEADER,
        {"name": "SillyTavern System", "is_user": False, "is_system": True, "mes": "Welcome!"},
        {"name": "Ada", "is_user": True, "is_system": True, "mes": "hidden from the model"},
        {"name": "Ada", "is_user": True, "mes": " "},
    ]
    arrivals = read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *lines))
    assert [(one.content, one.metadata) for one in said(arrivals)] == [("hidden from the model", {"is_hidden": True})]
    assert skipped(arrivals) == ["a message of the program", "an empty message"]


def test_a_header_alone_is_no_conversation(tmp_path: Path) -> None:
    assert skipped(read(IMPORTER, jsonl(tmp_path / "chat.jsonl", HEADER))) == ["a conversation without messages"]


def test_what_is_broken_is_told_with_its_line_and_the_rest_arrives(tmp_path: Path) -> None:
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
    arrivals = read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *lines), replace(LIMITS, line_max_bytes=15_000))
    assert texts(arrivals) == ["before", "after"]
    assert [place for place, _ in broken(arrivals)] == [
        *(f"line {number}" for number in range(3, 9)),
        "line 10, swipe 2",
    ]


def test_a_file_without_a_line_is_refused(tmp_path: Path) -> None:
    for lines in ((b"",), (b"no json",), (b"x" * 200,)):
        with pytest.raises(InvalidParams):
            read(IMPORTER, jsonl(tmp_path / "chat.jsonl", *lines), replace(LIMITS, line_max_bytes=100))


def test_other_lines_are_not_taken_for_a_chat(tmp_path: Path) -> None:
    assert certainty(IMPORTER, jsonl(tmp_path / "a.jsonl", {"type": "user", "uuid": "x"})) == 0
    assert certainty(IMPORTER, tmp_path) == 0


VALID = b"\n".join(map(msgspec.json.encode, LINES))


@given(damaged(VALID) | st.binary(max_size=300))
def test_no_damage_raises_anything_but_a_refusal(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chat.jsonl")
        path.write_bytes(data)
        assert read_or_refuse(IMPORTER, path) == read_or_refuse(IMPORTER, path)


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
def test_no_value_in_any_field_raises_anything(lines: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read(IMPORTER, jsonl(Path(folder, "chat.jsonl"), *lines))
