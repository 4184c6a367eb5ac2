"""The two tiers of the suite, and the report of where the time of a run goes.

`--tier=first` runs all tests without the mark `slow`, and property tests with few examples. `--tier=second` runs what
the first tier leaves: the tests with the mark, and all property tests again with many examples. `--tier=all` is both in
one run. Without the option, all tests run, with few examples.

At the end of a run, the report has the time by folder, the slowest tests (`--slowest=50`, the default if CI is set),
and the tests that take longer than `LONG_S` without the mark. CPU time, which includes that of ended child processes,
depends less on what else the machine does.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet
from msgspec import Struct

LONG_S = 2.0
# More examples find more, but rarely in a test that has passed many times; the second tier looks for those.
_FEW_EXAMPLES = 10
_MANY_EXAMPLES = 50
# How many tests the first tier leaves for the second, and how many both have.
_COUNTS = "tests_of_tiers"

# No deadlines, because timing on a busy machine says nothing about correctness.
for _name, _count in (("few", _FEW_EXAMPLES), ("many", _MANY_EXAMPLES)):
    settings.register_profile(
        _name, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=_count, print_blob=True
    )

# All characters but surrogates. Hypothesis finds them by encoding every character, which takes two seconds in each
# process of a fresh clone.
UTF_8_CHARACTERS = (IntervalSet([(0, 0xD7FF), (0xE000, 0x10FFFF)]), IntervalSet([]))
find_characters = charmap.intervals_from_codec


@cache
def _characters(codec_name: str) -> tuple[IntervalSet, IntervalSet]:
    return UTF_8_CHARACTERS if codec_name == "utf-8" else find_characters(codec_name)


charmap.intervals_from_codec = _characters


def examples(count: int) -> int:
    """Returns the number of examples of a property test that needs more or fewer than others: `count` in the second
    tier, and not more than the usual few in the first."""
    return count if settings.get_current_profile_name() == "many" else min(count, _FEW_EXAMPLES)


class InvalidMark(Exception):
    """A mark without a reason."""


def slow_reason(mark: pytest.Mark) -> str:
    """Returns why a test is in the second tier."""
    match mark.args:
        case (str(reason),) if reason.strip() and not mark.kwargs:
            return reason
    raise InvalidMark('a test with the mark "slow" needs a reason, such as pytest.mark.slow("kills processes")')


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=("first", "second", "all"), help="the tests to run; see docs/testing.md")
    group.addoption(
        "--slowest",
        type=int,
        default=50 if os.environ.get("CI") else 0,
        help="how many of the slowest tests to list (50 if CI is set)",
    )


def pytest_configure(config: pytest.Config) -> None:
    is_long = config.getoption("tier") in {"second", "all"}
    settings.load_profile("many" if is_long else "few")
    if not is_long:
        # Hypothesis reads all modules of the product for constants to try, which takes seconds in every process.
        providers._get_local_constants = lambda: providers._local_constants
    config.pluginmanager.register(_TimeReport(config), "time-report")


def pytest_itemcollected(item: pytest.Item) -> None:
    for mark in item.iter_markers("slow"):
        try:
            slow_reason(mark)
        except InvalidMark as invalid:
            raise pytest.UsageError(f"{item.nodeid}: {invalid}") from invalid


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _is_property(item: pytest.Item) -> bool:
    # Hypothesis adds the mark.
    return item.get_closest_marker("hypothesis") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    match config.getoption("tier"):
        case "first":
            left = [item for item in items if _is_slow(item)]
            _report(config).counts = (len(left), len(items))
        case "second":
            left = [item for item in items if not (_is_slow(item) or _is_property(item))]
        case _:
            return
    config.hook.pytest_deselected(items=left)
    leaving = set(left)
    items[:] = [item for item in items if item not in leaving]


def _report(config: pytest.Config) -> "_TimeReport":
    report = config.pluginmanager.get_plugin("time-report")
    assert isinstance(report, _TimeReport)
    return report


class _Time(Struct):
    """What one test, or the tests of a folder, took."""

    tests: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    is_slow: bool = False

    def add(self, other: "_Time") -> None:
        self.tests += other.tests
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s


class _TimeReport:
    """Measures tests where they run, and reports them where the run was started."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cpu_s = _cpu_s()
        self._times: defaultdict[str, _Time] = defaultdict(_Time)
        self.counts: tuple[int, ...] = (0, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._cpu_s = _cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._cpu_s = self._cpu_s, _cpu_s()
        # pytest-xdist sends all attributes of a report to the main process.
        report.__dict__["cpu_s"] = self._cpu_s - before
        report.__dict__["is_slow"] = _is_slow(item)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        time = self._times[report.nodeid]
        time.tests = 1
        time.wall_s += report.duration
        time.cpu_s += report.__dict__["cpu_s"]
        time.is_slow = report.__dict__["is_slow"]

    def pytest_sessionfinish(self) -> None:
        # pytest-xdist adds it to the configuration of its processes.
        output: dict[str, Any] = getattr(self._config, "workeroutput", {})
        output[_COUNTS] = self.counts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A process of pytest-xdist has ended. All of them collect the same tests."""
        self.counts = max(self.counts, tuple(getattr(node, "workeroutput", {}).get(_COUNTS, (0, 0))))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._lines():
            terminalreporter.write_line(line)
        left, both = self.counts
        if left:
            terminalreporter.write_line(
                f"{left} of {both} tests are left for the second tier: make test-all runs them, too", yellow=True
            )

    def _lines(self) -> Iterable[str]:
        by_folder: defaultdict[str, _Time] = defaultdict(_Time)
        for test, time in self._times.items():
            by_folder[_folder(test)].add(time)
        # A run of a few tests needs no table.
        if len(by_folder) > 1:
            total = _Time()
            for time in by_folder.values():
                total.add(time)
            yield "time by folder, longest first:   tests   wall s    CPU s"
            for folder, time in [*_longest(by_folder), ("all", total)]:
                yield f"  {folder:<28} {time.tests:>7} {time.wall_s:>8.1f} {time.cpu_s:>8.1f}"
        if shown := _longest(self._times)[: self._config.getoption("slowest")]:
            yield f"the {len(shown)} slowest tests:   wall s    CPU s"
            yield from (_line(test, time) for test, time in shown)
        if long := [(test, time) for test, time in _longest(self._times) if time.wall_s > LONG_S and not time.is_slow]:
            yield f"{len(long)} tests took longer than {LONG_S:.0f} s and do not have the mark slow:"
            yield from (_line(test, time) for test, time in long)


def _line(test: str, time: _Time) -> str:
    return f"  {time.wall_s:>8.2f} {time.cpu_s:>8.2f}  {test}"


def _longest(times: dict[str, _Time]) -> list[tuple[str, _Time]]:
    return sorted(times.items(), key=lambda entry: entry[1].wall_s, reverse=True)


def _folder(test: str) -> str:
    """Returns two levels of the path of a test, such as `tests/server/rest`."""
    return "/".join(test.partition("::")[0].split("/")[:-1][:3])


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
