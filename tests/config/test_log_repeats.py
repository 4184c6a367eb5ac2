"""A line that repeats is logged once a second, with the number of lines that were left out."""

import logging

from config.logging import RepeatedLines
from tests.auth.auth_fixture import FakeClock
from tests.config.test_logging import log_output


def test_repeated_lines_are_counted_until_a_second_has_passed() -> None:
    clock = FakeClock(100.0)
    repeated = RepeatedLines(clock)

    first = [repeated.count_omitted("a") for _ in range(4)]
    other = repeated.count_omitted("b")
    clock.now += 1.0
    later = [repeated.count_omitted("a") for _ in range(2)]
    clock.now += 1.0

    assert first == [0, None, None, None]
    assert other == 0
    assert later == [3, None]
    assert repeated.count_omitted("a") == 1


def test_the_number_of_lines_that_are_remembered_is_limited() -> None:
    repeated = RepeatedLines(FakeClock(100.0))
    keys = [f"key {number}" for number in range(1_000)]

    assert [repeated.count_omitted(key) for key in keys] == [0] * 1_000
    assert len(repeated._lines) == 100


def test_only_warnings_of_libraries_without_a_traceback_are_limited() -> None:
    library = logging.getLogger("some.library")

    def act() -> None:
        for number in range(3):
            library.warning("refused %d", number)
            library.info("served %d", number)
            library.error("failed %d", number, exc_info=ValueError("x"))

    text = log_output("json", act)

    assert [text.count(word) for word in ("refused", "served", "failed")] == [1, 3, 3]
