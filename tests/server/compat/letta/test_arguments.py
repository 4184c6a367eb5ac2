"""Parsing of the limits, roles and dates of `conversation_search`."""

import re
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.compat.letta.tools import END_OF_DAY, InvalidSearchArgument, parse_date, parse_limit, parse_roles
from tests.cases import each_case

STORED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@each_case(
    ("value", "limit"),
    [(20, 20), (0, 1), (-3, 1), (500, 200), ("7", 7), ("many", 50), (None, 50), ([], 50), (2.9, 2), (float("inf"), 50)],
)
def test_limit_is_clamped_and_defaults_to_50(value: Any, limit: int) -> None:
    assert parse_limit(value, 200) == limit


@each_case(
    ("value", "roles"),
    [(None, ()), ((), ()), ("", ()), ("tool", ("tool",)), (("user", "assistant", "user"), ("user", "assistant"))],
)
def test_roles_can_be_a_list_or_one_name(value: Any, roles: tuple[str, ...]) -> None:
    assert parse_roles(value) == roles


def test_invalid_roles_are_named_with_the_allowed_ones() -> None:
    with pytest.raises(InvalidSearchArgument) as error:
        parse_roles(("user", "system", "admin"))

    assert error.value.message == "Invalid role(s): ['admin', 'system']. Allowed: user, assistant, tool."


@each_case(
    ("value", "start", "end"),
    [
        ("2024-01-15", "2024-01-15T00:00:00.000Z", "2024-01-15T23:59:59.999Z"),
        ("2024-01-15T14:30:00", "2024-01-15T14:30:00.000Z", "2024-01-15T14:30:00.000Z"),
        ("2024-01-15T14:30Z", "2024-01-15T14:30:00.000Z", "2024-01-15T14:30:00.000Z"),
        ("2024-01-15T14:30:00+02:00", "2024-01-15T12:30:00.000Z", "2024-01-15T12:30:00.000Z"),
        ("2024-01-15T22:30:00-05:00", "2024-01-16T03:30:00.000Z", "2024-01-16T03:30:00.000Z"),
        ("", None, None),
        ("  ", None, None),
        (None, None, None),
    ],
)
def test_date_covers_its_whole_day_and_time_without_offset_is_utc(value: str | None, start: str, end: str) -> None:
    assert (parse_date("start_date", value, time.min), parse_date("end_date", value, END_OF_DAY)) == (start, end)


@each_case("text", ["yesterday", "2024-13-01", "2024-01-15T25:00", "0001-01-01T00:00:00+14:00", "01/02/24"])
def test_invalid_date_is_rejected_with_the_expected_format(text: str) -> None:
    with pytest.raises(InvalidSearchArgument) as error:
        parse_date("end_date", text, END_OF_DAY)

    assert error.value.message == (
        f"Invalid end_date format: {text}. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)"
    )


@given(day=st.dates(min_value=date(1, 1, 2)), text=st.text(max_size=30))
def test_every_date_is_parsed_and_any_text_is_parsed_or_rejected(day: date, text: str) -> None:
    start = parse_date("start_date", day.isoformat(), time.min)
    end = parse_date("end_date", day.isoformat(), END_OF_DAY)

    assert start is not None
    assert end is not None
    assert STORED.fullmatch(start)
    assert start < end
    with suppress(InvalidSearchArgument):
        moment = parse_date("start_date", text, time.min)
        assert moment is None or STORED.fullmatch(moment)


@given(moment=st.datetimes(min_value=datetime(1000, 1, 1)), minutes=st.integers(-14 * 60, 14 * 60))  # noqa: DTZ001 - the offset is drawn separately
def test_any_offset_is_converted_to_utc(moment: datetime, minutes: int) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000, year=min(moment.year, 9998))
    zoned = whole.replace(tzinfo=timezone(timedelta(minutes=minutes)))

    parsed = parse_date("start_date", zoned.isoformat(), time.min)

    assert parsed is not None
    assert datetime.fromisoformat(parsed) == zoned
