from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams
from server.cli.times import parse_duration, parse_moment

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("30m", 1800), ("12h", 43_200), ("90d", 7_776_000), ("2w", 1_209_600)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration("lifetime", text) == seconds
    assert parse_moment("expires", text, NOW) == NOW + seconds


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-31", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-12-31T18:00:00Z", datetime(2026, 12, 31, 18, tzinfo=UTC)),
        ("2026-12-31T18:00:00", datetime(2026, 12, 31, 18, tzinfo=UTC)),
        ("2026-12-31T18:00:00+02:00", datetime(2026, 12, 31, 16, tzinfo=UTC)),
    ],
)
def test_a_date_lasts_to_its_end_and_a_time_is_utc_unless_it_says_otherwise(text: str, moment: datetime) -> None:
    assert parse_moment("expires", text, NOW) == moment.timestamp()


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1.5h", "d", "1y", "90 d", "999999999w", "٣d", "1d\n"])
def test_what_is_no_duration_is_refused_with_field_got_and_expected(text: str) -> None:
    with pytest.raises(InvalidParams, match=r"lifetime: got '.*', expected a number and s, m, h, d or w"):
        parse_duration("lifetime", text)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "2026-02-30", "9999-12-31", "31.12.2026", "0d"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams, match="expires: got"):
        parse_moment("expires", text, NOW)


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_is_refused(text: str) -> None:
    with suppress(InvalidParams):
        assert isinstance(parse_moment("expires", text, NOW), float)


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(9000, 1, 1)))  # noqa: DTZ001 - made aware below
def test_a_printed_time_is_read_back_as_the_same_time(naive: datetime) -> None:
    moment = naive.replace(tzinfo=UTC)
    assert parse_moment("expires", moment.isoformat(), NOW) == moment.timestamp()
