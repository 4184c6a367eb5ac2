"""Whatever is sent as an argument is read or refused in a sentence."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams
from server.compat.conversation_memory.questions import (
    LINE_MAX,
    Period,
    read_concepts,
    read_ids,
    read_lines,
    read_path,
    read_period,
)

anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


def told(read: Callable[[], object]) -> str:
    """The sentence with which something is refused; nothing where it is read."""
    try:
        read()
    except InvalidParams as error:
        return error.message
    return ""


@given(anything, anything)
def test_no_argument_fails_otherwise_than_by_a_sentence(one: Any, other: Any) -> None:
    for read in (lambda: read_concepts(one), lambda: read_period(one, other), lambda: read_ids(one)):
        assert told(read) == "" or told(read).startswith("Error: ")


@given(st.integers(), st.one_of(st.none(), st.integers()))
def test_a_line_range_is_refused_or_runs_forward_from_1(start: int, end: int | None) -> None:
    is_forward = 1 <= start <= LINE_MAX and (end is None or end >= start)

    sentence = told(lambda: read_lines(start, end))

    assert sentence == "" if is_forward else sentence.startswith("Error: Invalid line range: ")


@given(st.dates())
def test_a_period_begins_with_the_first_moment_of_its_day(day: date) -> None:
    assert read_period(str(day), None) == Period(f"{day}T00:00:00.000Z", None)


def test_a_period_ends_with_the_last_moment_of_the_day_before() -> None:
    assert read_period("2025-09-01", "2025-10-01") == Period("2025-09-01T00:00:00.000Z", "2025-09-30T23:59:59.999Z")
    assert read_period(None, None) == Period(None, None)


@pytest.mark.parametrize(
    "text", ["2025-9-1", "2025-09-01T00:00:00", " 2025-09-01", "20250901", "٢٠٢٥-٠٩-٠١", "0001-01-01"]
)
def test_only_a_date_of_the_one_form_is_a_date(text: str) -> None:
    with pytest.raises(InvalidParams, match=r"^Error: Invalid date format"):
        read_period(None, text)


def test_ids_are_asked_for_once_each_in_their_order() -> None:
    assert read_ids(["b", "a", "b"]) == ("b", "a")


def test_a_path_is_taken_as_it_is() -> None:
    assert read_path(" a/b.jsonl ") == " a/b.jsonl "
