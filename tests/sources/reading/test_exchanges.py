"""Exchanges and the lines they stand on, for conversations that were typed, imported, or both."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sources.reading.exchanges import Lines, exchange_until, group_turns, lines_of, place
from sources.records import Message

TIME = "2026-01-01T00:00:00.000Z"
lines = st.integers(-3, 40)
metadata: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"line_start": lines, "line_end": lines}),
    st.fixed_dictionaries({"line_start": lines}),
    st.fixed_dictionaries({"line_start": st.sampled_from(["7", None, True, 2.5])}),
)


def message(position: int, role: str = "user", **kept: Any) -> Message:
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
        metadata=kept,
    )


@given(st.lists(st.sampled_from("uat")))
def test_turns_are_grouped_whole_and_in_order_each_run_from_one_that_begins(roles: list[str]) -> None:
    runs = list(group_turns(roles, lambda role: role == "u"))

    assert [role for run in runs for role in run] == roles
    assert all(run[0] == "u" for run in runs[1:])
    assert all("u" not in run[1:] for run in runs)


def test_an_exchange_begins_with_what_the_user_said_last() -> None:
    said = [message(0), message(1, "assistant"), message(2), message(3, "tool"), message(4, "assistant")]

    assert [one.position for one in exchange_until(said)] == [2, 3, 4]
    assert [one.position for one in exchange_until(said[3:])] == [3, 4]


def test_a_message_stands_on_the_lines_of_its_file_or_at_its_place() -> None:
    assert lines_of(message(4)) == Lines(5, 5)
    assert lines_of(message(4, line_start=17, line_end=21)) == Lines(17, 21)
    assert lines_of(message(4, line_start=17)) == Lines(17, 17)
    assert lines_of(message(4, line_start=17, line_end=3)) == Lines(17, 17)
    assert lines_of(message(4, line_start="17")) == Lines(5, 5)


@given(st.lists(st.tuples(st.integers(1, 3), metadata), max_size=20))
def test_lines_never_go_back_whatever_metadata_says(steps: list[tuple[int, dict[str, Any]]]) -> None:
    positions = [sum(step for step, _ in steps[: n + 1]) - 1 for n in range(len(steps))]
    said = [message(position, **kept) for position, (_, kept) in zip(positions, steps, strict=True)]

    placed = [one.lines for one in place(said, Lines(0, 0))]

    assert all(1 <= one.start <= one.end for one in placed)
    assert placed == sorted(placed, key=lambda one: (one.start, one.end))


@given(st.lists(st.integers(1, 3), max_size=20))
def test_a_typed_message_keeps_its_line_when_others_are_deleted(steps: list[int]) -> None:
    positions = [sum(steps[: n + 1]) - 1 for n in range(len(steps))]

    placed = place([message(position) for position in positions], Lines(0, 0))

    assert [one.lines for one in placed] == [Lines(position + 1, position + 1) for position in positions]
