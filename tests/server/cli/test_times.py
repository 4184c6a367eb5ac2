from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams
from server.cli.output import parse_duration, parse_expiry
from tests.cases import each_case

NOW = 1_800_000_000.0


@each_case(("text", "seconds"), [("45s", 45), ("30m", 1800), ("12h", 43_200), ("90d", 7_776_000), ("2w", 1_209_600)])
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration("lifetime", text) == seconds
    assert parse_expiry("expires", text, NOW) == NOW + seconds


@each_case(
    ("text", "moment"),
    [
        ("2026-12-31", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-12-31T18:00:00Z", datetime(2026, 12, 31, 18, tzinfo=UTC)),
        ("2026-12-31T18:00:00", datetime(2026, 12, 31, 18, tzinfo=UTC)),
        ("2026-12-31T18:00:00+02:00", datetime(2026, 12, 31, 16, tzinfo=UTC)),
    ],
)
def test_a_date_means_its_end_and_times_default_to_utc(text: str, moment: datetime) -> None:
    assert parse_expiry("expires", text, NOW) == moment.timestamp()


@each_case("text", ["", "0d", "-1d", "1.5h", "d", "1y", "90 d", "999999999w", "٣d", "1d\n"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(InvalidParams, match=r"lifetime: expected a number and s, m, h, d or w, such as 90d, got '.*'"):
        parse_duration("lifetime", text)


@each_case("text", ["", "soon", "2026-13-01", "2026-02-30", "9999-12-31", "31.12.2026", "0d"])
def test_an_invalid_expiry_is_rejected(text: str) -> None:
    with pytest.raises(InvalidParams, match="expires: expected"):
        parse_expiry("expires", text, NOW)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with suppress(InvalidParams):
        assert isinstance(parse_expiry("expires", text, NOW), float)


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(9000, 1, 1)))  # noqa: DTZ001 - made aware below
def test_a_formatted_time_is_parsed_as_the_same_time(naive: datetime) -> None:
    moment = naive.replace(tzinfo=UTC)
    assert parse_expiry("expires", moment.isoformat(), NOW) == moment.timestamp()
