"""Many cases in one test.

`@each_case` is written like `@pytest.mark.parametrize`, but its cases are one test: they share its fixtures, and all
cases that fail are reported together. It is for cases that do not disturb each other, such as rules over all files of
the product or invalid values that change nothing. Only `tmp_path` is a directory of each case's own. Cases that need
other fixtures of their own are parameters. Cases that take long to make are the result of a function, which is called
when the test runs.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each_case(
    names: str | Sequence[str], cases: Iterable[Any] | Callable[[], Iterable[Any]]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Calls the test for each case, with the case as the arguments `names`: a value, or a tuple of as many values."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    is_single = isinstance(names, str) and len(arguments) == 1

    @functools.cache
    def all_cases() -> list[dict[str, Any]]:
        values = [_values(case, is_single=is_single) for case in (cases() if callable(cases) else cases)]
        assert values, "a test without cases cannot fail"
        return [dict(zip(arguments, case, strict=True)) for case in values]

    if not callable(cases):
        all_cases()

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        async def run_coroutines(**fixtures: Any) -> None:
            failures = []
            for number, case in enumerate(all_cases()):
                try:
                    await test(**_of_case(fixtures, number), **case)
                except Exception as failure:
                    failures.append(_described(failure, case))
            _report(test.__name__, failures, len(all_cases()))

        def run_functions(**fixtures: Any) -> None:
            failures = []
            for number, case in enumerate(all_cases()):
                try:
                    test(**_of_case(fixtures, number), **case)
                except Exception as failure:
                    failures.append(_described(failure, case))
            _report(test.__name__, failures, len(all_cases()))

        run_all = functools.wraps(test)(run_coroutines if inspect.iscoroutinefunction(test) else run_functions)
        signature = inspect.signature(test)
        assert set(arguments) <= signature.parameters.keys(), f"{test.__name__} has no arguments {arguments}"
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        run_all.__dict__["cases"] = all_cases
        # pytest reads from it which fixtures the test needs.
        run_all.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run_all

    return decorate


def _values(case: Any, *, is_single: bool) -> tuple[Any, ...]:
    if isinstance(case, type(pytest.param())):
        assert not case.marks, "a case cannot have marks"
        return tuple(case.values)
    return (case,) if is_single else tuple(case)


def _of_case(fixtures: dict[str, Any], number: int) -> dict[str, Any]:
    if "tmp_path" not in fixtures:
        return fixtures
    directory = fixtures["tmp_path"] / f"case-{number}"
    directory.mkdir()
    return {**fixtures, "tmp_path": directory}


def _described(failure: Exception, case: dict[str, Any]) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in case.items())
    # The frames of the test, without the one above that calls it.
    frames = traceback.format_exception(type(failure), failure, failure.__traceback__ and failure.__traceback__.tb_next)
    return f"{values[:2_000]}\n{''.join(frames[1:])}"


def _report(name: str, failures: list[str], cases: int) -> None:
    assert not failures, f"{len(failures)} of {cases} cases of {name} failed:\n\n" + "\n".join(failures)
