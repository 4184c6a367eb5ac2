"""Unexpected exceptions are logged by type, location and cause, without their messages."""

import pytest

from server.protocol.messages import log_failure


class CustomError(ValueError):
    """An exception class that is not built in."""


def _fail(text: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise CustomError(text) from error


def test_type_and_location_of_an_exception_and_its_cause_are_logged_without_messages(failures: list[str]) -> None:
    with pytest.raises(CustomError) as caught:
        _fail("canary")

    log_failure("the tool", caught.value)

    (line,) = failures
    assert "the tool failed" in line
    assert "ValueError" in line
    assert "CustomError" in line
    assert "in _fail" in line
    assert "canary" not in line.replace('_fail("canary")', "")
    failures.clear()


def test_the_context_of_an_exception_is_logged_unless_suppressed(failures: list[str]) -> None:
    hidden, shown = ValueError(), ValueError()
    hidden.__context__ = shown.__context__ = KeyError("canary")
    hidden.__suppress_context__ = True

    log_failure("shown", shown)
    log_failure("hidden", hidden)

    assert ["KeyError" in line for line in failures] == [True, False]
    assert "canary" not in "".join(failures)
    failures.clear()
