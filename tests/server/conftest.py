"""A sample catalog for each test, and a check that no test logs an unexpected error."""

import io
import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from loguru import logger

from config.logging import configure
from tests.server.sample_catalog import SampleCatalog


class _Collector(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@pytest.fixture(autouse=True)
def failures() -> Iterator[list[str]]:
    """Every error logged during a test. A test that expects one removes it from the list."""
    lines: list[str] = []
    collector, root = _Collector(lines), logging.getLogger()
    root.addHandler(collector)
    sink = logger.add(lambda text: lines.append(str(text)), level="ERROR", diagnose=False, backtrace=False)
    yield lines
    root.removeHandler(collector)
    with suppress(ValueError):  # removed by a test that configured logging itself
        logger.remove(sink)
    assert not lines, "\n".join(lines)


@pytest.fixture
def samples() -> SampleCatalog:
    return SampleCatalog()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged at debug level, as JSON lines."""
    stream, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure("debug", "json", stream)
    yield stream
    logger.remove()
    root.handlers[:] = handlers
    root.setLevel(level)
