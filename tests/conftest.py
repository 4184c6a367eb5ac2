"""The check that tests named in a compatibility manifest use a transport, the servers that tests share, and the users
of a server in the test's process. A run of the whole suite in which no test used a shared server fails."""

import gc
import secrets
import signal
import sysconfig
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from tests.compatibility.page import SYSTEMS
from tests.servers import citus, postgres, shared, storage
from tests.servers import valkey as valkey_servers
from tests.transport_requests import require_transport

if TYPE_CHECKING:
    from tests.server.rest.rest_client import RestClient
    from tests.sources.source_fixture import LibraryUser

pytest_plugins = ("tests.tiers",)

# loguru asks for 40 paths for each sink, which takes milliseconds. They never change.
_get_path, _cached_path = sysconfig.get_path, cache(sysconfig.get_path)
sysconfig.get_path = lambda *names, **options: (_get_path if options else _cached_path)(*names, **options)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.default_int_handler(number, frame)


# For the default handler, asyncio installs one of its own for every test and asynchronous fixture, and then asks for it
# in a way that writes a description of the task and all its arguments, which takes a millisecond.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupt)

_NAMED_TESTS = frozenset(test for system in SYSTEMS.values() for promise in system.promises for test in promise.tests)
_SERVERS = ("postgresql", "valkey")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with require_transport(item.nodeid, _NAMED_TESTS):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    storage.drop_unused_databases()


def _is_main_process(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if _is_main_process(config):
        shared.prepare_directory()


def pytest_report_header() -> list[str]:
    engine = "PostgreSQL" if storage.uses_postgres() else "SQLite, TEST_STORAGE=postgres changes it"
    return [f"storage of the servers that tests start: {engine}", citus.describe_citus()]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and _unused_servers(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_whole_suite(config: pytest.Config) -> bool:
    is_part = config.option.keyword or config.getoption("lf", default=False)
    return bool(config.args == config.getini("testpaths")) and not is_part


def _unused_servers(config: pytest.Config) -> list[str]:
    """Returns the servers that a run of the whole suite should have used."""
    if not _is_whole_suite(config) or config.option.collectonly or not _is_main_process(config):
        return []
    return [name for name in _SERVERS if name not in shared.running_servers()]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    gc.disable()
    try:
        if not _is_main_process(session.config) and _is_whole_suite(session.config):
            _compile_share(**session.config.workerinput)  # type: ignore[attr-defined]  # pytest-xdist adds it
        return (yield)
    finally:
        gc.enable()


def _compile_share(workerid: str, workercount: int, **_: object) -> None:
    """Imports some test modules before the others. All processes collect in the same order, so that without compiled
    files each of them would compile all modules."""
    root = Path(__file__).parent
    files = sorted(root.rglob("test_*.py"))
    for file in files[int(workerid.removeprefix("gw")) :: workercount]:
        # Collecting the module reports what is wrong with it.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(root.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Excludes all modules and collected tests from garbage collection, which takes long to look at them, and collects
    less often than the default of every 700 new objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, server in shared.running_servers().items():
        terminalreporter.write_line(f"{name}: {server.version}")
    for name in _unused_servers(config):
        terminalreporter.write_line(f"{name}: no test used it, so this run of the whole suite has failed", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not _is_main_process(config):
        return
    storage.drop_all_databases()
    shared.stop_servers()


@pytest.fixture(scope="session")
def postgres_server() -> shared.SharedServer:
    return postgres.postgres_server()


@pytest.fixture
def database_url(postgres_server: shared.SharedServer) -> Iterator[str]:
    """An empty PostgreSQL database."""
    url = postgres.create_database(postgres_server)
    yield url
    postgres.drop_database(postgres_server, url)


@pytest.fixture(scope="session")
def valkey_server() -> shared.SharedServer:
    return valkey_servers.valkey_server()


@pytest.fixture
def redis_settings(valkey_server: shared.SharedServer) -> dict[str, Any]:
    """The settings of a deployment of its own on the shared Valkey server, with a timeout for busy machines."""
    prefix = f"test-{secrets.token_hex(8)}"
    return {"session_url": valkey_server.url, "redis_prefix": prefix, "redis_timeout_ms": 10_000}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[valkey_servers.ValkeyProcess]:
    """A Valkey server that a test can stop."""
    with valkey_servers.own_valkey(tmp_path) as process:
        yield process


@pytest.fixture(scope="module")
async def shared_api(tmp_path_factory: pytest.TempPathFactory) -> "AsyncIterator[RestClient]":
    """A client of the whole product without rate limits, for the tests of a module."""
    from tests.live import NO_RATE_LIMITS  # noqa: PLC0415 - tests without a server need not import it
    from tests.server.rest.rest_client import open_rest_client  # noqa: PLC0415 - as above

    async with open_rest_client(tmp_path_factory.mktemp("server"), **NO_RATE_LIMITS) as client:
        yield client


@pytest.fixture
async def api(shared_api: "RestClient") -> "AsyncIterator[RestClient]":
    """The shared client, on which every user of a test is new."""
    yield shared_api
    await shared_api.server.forget_users()


@pytest.fixture
async def own_api(tmp_path: Path) -> "AsyncIterator[RestClient]":
    """A client of a server that a test may change, with its data in `tmp_path`."""
    from tests.live import NO_RATE_LIMITS  # noqa: PLC0415 - as above
    from tests.server.rest.rest_client import open_rest_client  # noqa: PLC0415 - as above

    async with open_rest_client(tmp_path, **NO_RATE_LIMITS) as client:
        yield client


@pytest.fixture
async def ada(api: "RestClient") -> "LibraryUser":
    """A user who calls tools over HTTP."""
    return await api.library_user("ada")


@pytest.fixture
async def ben(api: "RestClient") -> "LibraryUser":
    return await api.library_user("ben")
