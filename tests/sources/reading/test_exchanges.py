"""Exchanges and their line numbers, for conversations that were typed, imported, or both."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sources.reading.exchanges import LineRange, group_turns, last_exchange, message_lines, number_messages
from sources.records import Message

TIME = "2026-01-01T00:00:00.000Z"
LINES = st.integers(-3, 40)
METADATA: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"line_start": LINES, "line_end": LINES}),
    st.fixed_dictionaries({"line_start": LINES}),
    st.fixed_dictionaries({"line_start": st.sampled_from(["7", None, True, 2.5])}),
)


def message(position: int, role: str = "user", **metadata: Any) -> Message:
    return Message(
        uuid=f"m{position}",
        created_at=TIME,
        last_modified=TIME,
        version=1,
        client_id="test",
        content_hash="",
        conversation_id="c",
        position=position,
        role=role,
        sender=role,
        content=f"turn {position}",
        metadata=metadata,
    )


@given(st.lists(st.sampled_from("uat")))
def test_every_turn_is_in_one_run_and_runs_begin_at_a_start(roles: list[str]) -> None:
    runs = list(group_turns(roles, lambda role: role == "u"))

    assert [role for run in runs for role in run] == roles
    assert all(run[0] == "u" for run in runs[1:])
    assert all("u" not in run[1:] for run in runs)


def test_last_exchange_begins_at_the_last_user_message() -> None:
    messages = [message(0), message(1, "assistant"), message(2), message(3, "tool"), message(4, "assistant")]

    assert [message.position for message in last_exchange(messages)] == [2, 3, 4]
    assert [message.position for message in last_exchange(messages[3:])] == [3, 4]


def test_lines_come_from_the_metadata_or_else_from_the_position() -> None:
    assert message_lines(message(4)) == LineRange(5, 5)
    assert message_lines(message(4, line_start=17, line_end=21)) == LineRange(17, 21)
    assert message_lines(message(4, line_start=17)) == LineRange(17, 17)
    assert message_lines(message(4, line_start=17, line_end=3)) == LineRange(17, 17)
    assert message_lines(message(4, line_start="17")) == LineRange(5, 5)


@given(st.lists(st.tuples(st.integers(1, 3), METADATA), max_size=20))
def test_lines_never_decrease_for_any_metadata(steps: list[tuple[int, dict[str, Any]]]) -> None:
    positions = [sum(step for step, _ in steps[: n + 1]) - 1 for n in range(len(steps))]
    messages = [message(position, **metadata) for position, (_, metadata) in zip(positions, steps, strict=True)]

    ranges = [numbered.lines for numbered in number_messages(messages, LineRange(0, 0))]

    assert all(1 <= lines.start <= lines.end for lines in ranges)
    assert ranges == sorted(ranges, key=lambda lines: (lines.start, lines.end))


@given(st.lists(st.integers(1, 3), max_size=20))
def test_typed_message_keeps_its_line_when_others_are_deleted(steps: list[int]) -> None:
    positions = [sum(steps[: n + 1]) - 1 for n in range(len(steps))]

    numbered = number_messages([message(position) for position in positions], LineRange(0, 0))

    assert [each.lines for each in numbered] == [LineRange(position + 1, position + 1) for position in positions]
