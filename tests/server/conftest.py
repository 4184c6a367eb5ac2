"""SampleCatalog for each test, and a watch over what goes wrong behind an answer that looks right."""

import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from loguru import logger

from tests.server.sample_catalog import SampleCatalog


class _Collector(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@pytest.fixture(autouse=True)
def failures() -> Iterator[list[str]]:
    """Every error logged during a test. A test that provokes one takes it out of the list."""
    lines: list[str] = []
    collector, root = _Collector(lines), logging.getLogger()
    root.addHandler(collector)
    sink = logger.add(lambda text: lines.append(str(text)), level="ERROR", diagnose=False, backtrace=False)
    yield lines
    root.removeHandler(collector)
    with suppress(ValueError):  # a test that configured logging itself has removed it
        logger.remove(sink)
    assert not lines, "\n".join(lines)


@pytest.fixture
def samples() -> SampleCatalog:
    return SampleCatalog()
