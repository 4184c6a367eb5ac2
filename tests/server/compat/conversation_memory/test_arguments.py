"""Validation of the memory tools' arguments."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams
from server.compat.conversation_memory.arguments import (
    LINE_MAX,
    parse_concepts,
    parse_ids,
    parse_lines,
    parse_path,
    parse_time_range,
)
from tests.cases import each_case

anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


def error_message(parse: Callable[[], object]) -> str:
    """Returns the error message, or an empty string if parsing succeeds."""
    try:
        parse()
    except InvalidParams as error:
        return error.message
    return ""


@given(anything, anything)
def test_any_argument_is_parsed_or_rejected_with_a_message(first: Any, second: Any) -> None:
    for parse in (lambda: parse_concepts(first), lambda: parse_time_range(first, second), lambda: parse_ids(first)):
        assert error_message(parse) == "" or error_message(parse).startswith("Error: ")


@given(st.integers(), st.one_of(st.none(), st.integers()))
def test_line_range_is_rejected_unless_it_runs_forward_from_1(start: int, end: int | None) -> None:
    is_forward = 1 <= start <= LINE_MAX and (end is None or end >= start)

    message = error_message(lambda: parse_lines(start, end))

    assert message == "" if is_forward else message.startswith("Error: Invalid line range: ")


@given(st.dates())
def test_after_starts_at_the_beginning_of_its_day(day: date) -> None:
    assert parse_time_range(str(day), None) == (f"{day}T00:00:00.000Z", None)


def test_before_ends_at_the_end_of_the_previous_day() -> None:
    assert parse_time_range("2025-09-01", "2025-10-01") == ("2025-09-01T00:00:00.000Z", "2025-09-30T23:59:59.999Z")
    assert parse_time_range(None, None) == (None, None)


@each_case("text", ["2025-9-1", "2025-09-01T00:00:00", " 2025-09-01", "20250901", "٢٠٢٥-٠٩-٠١", "0001-01-01"])
def test_date_in_another_format_is_rejected(text: str) -> None:
    with pytest.raises(InvalidParams, match=r"^Error: Invalid date format"):
        parse_time_range(None, text)


def test_ids_are_deduplicated_in_order() -> None:
    assert parse_ids(["b", "a", "b"]) == ("b", "a")


def test_path_is_not_changed() -> None:
    assert parse_path(" a/b.jsonl ") == " a/b.jsonl "
