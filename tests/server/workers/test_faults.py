"""kill -9 under load, of a worker, of PostgreSQL and of Valkey: what was acknowledged is stored once, and all users are
served again.

`FAULT_KILLS` sets how often each of them is killed; `make test-faults` uses 30.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec import Struct

from tests.live import NO_RATE_LIMITS
from tests.server.workers.deployment import WorkersDeployment, run_workers
from tests.server.workers.load import BusyUser, Fault, wait_until_served
from tests.servers.postgres import PostgresProcess, own_postgres
from tests.servers.valkey import ValkeyProcess, own_valkey

pytestmark = pytest.mark.slow("kills processes")

KILLS = int(os.environ.get("FAULT_KILLS", "1"))
USERS = ("ada", "ben", "cleo", "dora")
Kill = Callable[[int], Awaitable[None]]


class FaultOutcome(Struct):
    """What repeated kills of one kind led to. `gaps` are the seconds after each kill until every user was served again,
    `restarts` those until the killed server itself was back. `calm_s` is the same without a kill: how long it takes
    until every user has written and searched."""

    calm_s: float = 0.0
    kills: int = 0
    writes: int = 0
    lost: int = 0
    doubled: int = 0
    wrong_tenant: int = 0
    gaps: list[float] = []
    restarts: list[float] = []

    async def count(self, user: BusyUser) -> None:
        """Compares what is stored with what was acknowledged."""
        expected, stored = user.expected(), await user.stored()
        self.writes += expected.total()
        self.lost += (expected - stored).total()
        self.doubled += sum(count - 1 for count in Counter(title for title, _ in stored.elements()).values())
        self.wrong_tenant += sum(not user.is_own(title) for title, _ in stored)

    def counts(self) -> tuple[int, int, int]:
        return self.lost, self.doubled, self.wrong_tenant


class KillableDeployment:
    """Two workers and the servers they use, all of which can be killed."""

    def __init__(self, workers: WorkersDeployment, postgres: PostgresProcess, valkey: ValkeyProcess) -> None:
        self.workers = workers
        self._postgres = postgres
        self._valkey = valkey
        self._random = random.Random(1)
        self.outcomes: dict[str, FaultOutcome] = {}

    async def kill_worker(self, number: int) -> None:
        """The process that started the worker replaces it."""
        os.kill(self._random.choice(self.workers.workers()), signal.SIGKILL)

    async def kill_postgres(self, number: int) -> None:
        """Kills the server and one of its connections in turn."""
        if number % 2:
            self._postgres.kill_backend()
            await asyncio.to_thread(self._postgres.wait_until_ready)
        else:
            self._postgres.kill()
            await asyncio.to_thread(self._postgres.start)

    async def kill_valkey(self, number: int) -> None:
        self._valkey.kill()
        await asyncio.to_thread(self._valkey.start)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableDeployment]:
    def directory(name: str) -> Path:
        return tmp_path_factory.mktemp(name)

    with own_postgres() as postgres, own_valkey(directory("valkey")) as valkey:
        services: dict[str, Any] = {"storage_url": postgres.url, "postgres_connections": 4, "session_url": valkey.url}
        with run_workers(directory("data"), **services, **NO_RATE_LIMITS, shutdown_grace_s=10.0) as workers:
            deployment = KillableDeployment(workers, postgres, valkey)
            yield deployment
    print_result(deployment.outcomes)


@asynccontextmanager
async def load(deployment: WorkersDeployment, prefix: str) -> AsyncIterator[list[BusyUser]]:
    names = [f"{prefix}{name}" for name in USERS]
    users = [BusyUser(deployment, name, await deployment.bearer(name)) for name in names]
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for user in users:
            tasks.create_task(user.run(stopping))
        yield users
        stopping.set()


async def survive(deployment: KillableDeployment, kind: str, kill: Kill) -> None:
    """Kills repeatedly while all users work."""
    outcome = deployment.outcomes[kind] = FaultOutcome()
    async with load(deployment.workers, kind) as users:
        outcome.calm_s = await wait_until_served(users, start_fault(users))
        for number in range(KILLS):
            await kill_once(users, kill, number, outcome)
            await deployment.workers.wait_until_all_serve()
    for user in users:
        await outcome.count(user)
    errors = sum((user.errors for user in users), Counter[str]())
    print(f"\n{kind}: {outcome}, errors {dict(errors)}")

    assert [problem for user in users for problem in user.problems] == []
    assert outcome.counts() == (0, 0, 0)
    assert min(len(user.acknowledged) for user in users) >= KILLS


def start_fault(users: list[BusyUser]) -> Fault:
    fault = Fault(at=monotonic())
    for user in users:
        user.fault = fault
    return fault


async def kill_once(users: list[BusyUser], kill: Kill, number: int, outcome: FaultOutcome) -> None:
    fault = start_fault(users)
    await kill(number)
    outcome.kills += 1
    outcome.restarts.append(round(monotonic() - fault.at, 2))
    outcome.gaps.append(round(await wait_until_served(users, fault), 2))


def print_result(outcomes: Mapping[str, FaultOutcome]) -> None:
    kills = " ".join(f"{kind}_kills={outcome.kills}" for kind, outcome in outcomes.items())
    lost, doubled, wrong = (sum(counts) for counts in zip(*(o.counts() for o in outcomes.values()), strict=True))
    gap = max(gap for outcome in outcomes.values() for gap in outcome.gaps)
    print(f"\nRESULT {kills} lost={lost} doubled={doubled} wrong_tenant={wrong} max_gap_s={gap:.2f}")


async def test_a_killed_worker_loses_nothing(deployment: KillableDeployment) -> None:
    await survive(deployment, "worker", deployment.kill_worker)


async def test_a_killed_postgresql_loses_nothing(deployment: KillableDeployment) -> None:
    await survive(deployment, "postgres", deployment.kill_postgres)


async def test_a_killed_valkey_loses_nothing(deployment: KillableDeployment) -> None:
    await survive(deployment, "valkey", deployment.kill_valkey)
