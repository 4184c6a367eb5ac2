"""A sample catalog for each test, and a check that no test logs an unexpected error."""

import io
import logging
from collections.abc import Iterator

import pytest
from loguru import logger

from config.logging import configure
from tests.server.sample_catalog import SampleCatalog
from tests.servers.fork_server import forked_readers
from tests.servers.shared_models import shared_models


class _Collector(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


class _ErrorSink:
    """Collects the errors of loguru. Adding a sink takes milliseconds, so it stays until a test configures logging
    itself, which removes it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._id: int | None = None

    def ensure_added(self) -> None:
        if f"(id={self._id}," not in repr(logger):
            self._id = logger.add(self._collect, level="ERROR", diagnose=False, backtrace=False)

    def _collect(self, text: str) -> None:
        self.lines.append(str(text))


_ERROR_SINK = _ErrorSink()


@pytest.fixture(autouse=True)
def failures() -> Iterator[list[str]]:
    """Every error logged during a test. A test that expects one removes it from the list."""
    _ERROR_SINK.ensure_added()
    lines: list[str] = []
    _ERROR_SINK.lines = lines
    collector, root = _Collector(lines), logging.getLogger()
    root.addHandler(collector)
    yield lines
    root.removeHandler(collector)
    assert not lines, "\n".join(lines)


# Not for the whole session: the same process also runs tests of importers and models, which start processes as the
# product does.
@pytest.fixture(scope="package", autouse=True)
def _cheap_processes() -> Iterator[None]:
    with forked_readers(), shared_models():
        yield


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
