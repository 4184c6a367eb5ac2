"""A failure nobody foresaw is logged by its kind, its place and its causes, and never by its words."""

import pytest

from server.protocol.failures import log_failure


class OddName(ValueError):
    """An exception of our own kind."""


def _fail(text: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise OddName(text) from error


def test_the_kinds_and_places_of_a_failure_and_its_cause_are_logged_without_their_words(failures: list[str]) -> None:
    with pytest.raises(OddName) as caught:
        _fail("canary")

    log_failure("the tool", caught.value)

    (line,) = failures
    assert "the tool failed" in line
    assert "ValueError" in line
    assert "OddName" in line
    assert "in _fail" in line
    assert "canary" not in line.replace('_fail("canary")', "")
    failures.clear()


def test_what_a_failure_was_caught_in_is_logged_unless_it_was_hidden(failures: list[str]) -> None:
    hidden, shown = ValueError(), ValueError()
    hidden.__context__ = shown.__context__ = KeyError("canary")
    hidden.__suppress_context__ = True

    log_failure("shown", shown)
    log_failure("hidden", hidden)

    assert ["KeyError" in line for line in failures] == [True, False]
    assert "canary" not in "".join(failures)
    failures.clear()
