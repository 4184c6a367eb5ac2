"""New connections go to the worker with the fewest, and to another if that one hangs."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from server.worker_processes import BalancedListener, ConnectionShare, WorkerTable
from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.http_client import RawConnection
from tests.server.sample_catalog import SampleCatalog

# Only reached if a test fails.
WAIT_MAX_S = 30.0


class Worker(asyncio.Protocol):
    """Counts the connections that one worker accepts."""

    def __init__(self, table: WorkerTable, number: int, listener: socket.socket) -> None:
        self.share = ConnectionShare(table, number)
        self.connections: list[asyncio.BaseTransport] = []
        self.share.set_open(0)
        self.listener = BalancedListener(listener, self.share, lambda: self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connections.append(transport)
        self.share.set_open(len(self.connections))

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while not condition():
            await asyncio.sleep(0.005)


async def test_connections_are_shared_evenly(tmp_path: Path, listener: socket.socket) -> None:
    table = WorkerTable(str(tmp_path), 2)
    for number in range(2):
        table.begin(number)
    with listener.dup() as second, ExitStack() as clients:
        second.setblocking(False)
        workers = [Worker(table, 0, listener), Worker(table, 1, second)]
        for _ in range(20):
            clients.enter_context(socket.create_connection(listener.getsockname()))
        await wait_until(lambda: sum(len(worker.connections) for worker in workers) == 20)
        shares = [len(worker.connections) for worker in workers]
        for worker in workers:
            worker.close()

    assert shares == [10, 10]


async def test_a_worker_that_hangs_gets_nothing_and_holds_nobody_up(tmp_path: Path, listener: socket.socket) -> None:
    table = WorkerTable(str(tmp_path), 3)
    # The second worker has no connections and accepts none. The third has ended.
    table.set_connections(1, 0)
    table.end(2)
    with ExitStack() as clients:
        worker = Worker(table, 0, listener)
        for _ in range(5):
            clients.enter_context(socket.create_connection(listener.getsockname()))
        await wait_until(lambda: len(worker.connections) == 5)
        worker.close()

    assert table.lowest_other(1) is None, "a worker that has stopped accepting is left out"


def test_starts_are_counted_for_all_who_open_the_table(tmp_path: Path) -> None:
    table = WorkerTable(str(tmp_path), 2)
    for _ in range(3):
        table.begin(1)

    assert [WorkerTable(str(tmp_path), 2).starts(number) for number in range(2)] == [0, 3]


@each_case(("workers", "closing"), [(2, [None, None, "close"]), (1, [None, None, None])])
async def test_several_workers_close_a_connection_with_its_last_response(
    tmp_path: Path, samples: SampleCatalog, workers: int, closing: list[str | None]
) -> None:
    settings = make_settings(tmp_path / str(workers), workers=workers, connection_max_requests=3)
    async with live(settings, catalog=samples.catalog) as server, RawConnection.open(server.url) as connection:
        headers = []
        for _ in range(3):
            await connection.request("GET", "/healthz")
            headers.append((await connection.response()).header("connection"))

    assert headers == closing
