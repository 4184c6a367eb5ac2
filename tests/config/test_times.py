"""Times as text: one stored form, whatever the offset of the input."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.times import (
    format_time,
    format_time_microseconds,
    format_time_seconds,
    format_timestamp,
    normalize_time,
    parse_time,
)
from tests.cases import each_case

OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@each_case(
    ("text", "expected"),
    [
        ("2026-11-15T08:30:00Z", "2026-11-15T08:30:00.000Z"),
        ("2026-11-15T08:30:00", "2026-11-15T08:30:00.000Z"),
        ("2026-11-15T10:30:00.123456+02:00", "2026-11-15T08:30:00.123Z"),
        ("2026-11-15", "2026-11-15T00:00:00.000Z"),
    ],
)
def test_parsed_time_is_formatted_in_utc_with_milliseconds(text: str, expected: str) -> None:
    assert format_time(parse_time(text)) == normalize_time(text) == expected


@given(
    st.from_regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]([.,][0-9]{1,4})?(Z|\+01:00)?\Z")
    | st.from_regex(r"[0-9]{4}-?W?[0-9]{2}-?[0-9]T[0-9:]{2,8}([.,][0-9]{3})?Z\Z")
)
def test_normalized_time_is_the_parsed_one(text: str) -> None:
    try:
        expected = format_time(parse_time(text))
    except (ValueError, OverflowError):
        with pytest.raises((ValueError, OverflowError)):
            normalize_time(text)
    else:
        assert normalize_time(text) == expected


@given(st.datetimes(timezones=OFFSETS).filter(lambda time: 1 < time.year < 9999))
def test_formatted_time_is_parsed_to_the_same_millisecond(time: datetime) -> None:
    assert abs(parse_time(format_time(time)) - time) < timedelta(milliseconds=1)


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2, max_size=5))
def test_formatted_times_sort_as_text(times: list[datetime]) -> None:
    assert sorted(map(format_time, times)) == [format_time(time) for time in sorted(times)]


def test_timestamps_are_formatted_with_and_without_fractions() -> None:
    assert format_timestamp(1_800_000_000.25) == "2027-01-15T08:00:00.250Z"
    assert format_time_seconds(1_800_000_000.25) == "2027-01-15T08:00:00Z"
    assert format_time_microseconds(datetime.fromtimestamp(1_800_000_000, UTC)) == "2027-01-15T08:00:00.000000+00:00"


@each_case("text", ["", "yesterday", "2026-13-01", "08:30"])
def test_text_that_is_not_a_time_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid isoformat string|month must be"):
        parse_time(text)
