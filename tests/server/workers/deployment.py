"""A running `florilegium serve --workers 2`, and its users."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from auth.context import SCOPES
from auth.registry import Registry
from auth.tokens import mint_token
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from tests.live import make_settings
from tests.server.cli.program import EXECUTABLE, ROOT
from tests.server.http_client import fetch
from tests.transport_requests import TRANSPORT_REQUESTS

WORKERS = 2
# Only reached if a test fails.
WAIT_MAX_S = 120.0
_PAUSE_S = 0.1


class WorkersDeployment:
    """The process that starts the workers, and what a client needs to reach them."""

    def __init__(self, settings: Settings, process: "subprocess.Popen[bytes]", count: int) -> None:
        self.settings = settings
        self.process = process
        self.count = count
        self._users: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.settings.port}/mcp/ws"

    async def bearer(self, name: str, scopes: tuple[str, ...] = SCOPES) -> dict[str, str]:
        """Returns the credential of a user, who is created if necessary."""
        if name not in self._users:
            async with Registry.open(ConnectionOptions(url=self.settings.storage_url)) as registry:
                await registry.add_user(name, role="admin")
            self._users.add(name)
        token = mint_token(self.settings, name, scopes, lifetime_s=7200, now=time.time(), client_id="test-client")
        return {"Authorization": f"Bearer {token}"}

    def workers(self) -> list[int]:
        """Returns the process ids of the workers, also of those that do not serve yet."""
        process_id = self.process.pid
        children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
        return sorted(map(int, children))

    @contextmanager
    def only(self, worker: int) -> Iterator[None]:
        """Lets only this worker accept connections and answer: the others are paused."""
        others = [process_id for process_id in self.workers() if process_id != worker]
        _signal_all(others, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_all(others, signal.SIGCONT)

    async def metrics(self) -> list[Sample]:
        """Returns all series of one scrape."""
        scraped = await fetch(self.url, "GET", "/metrics", {"Authorization": f"Bearer {self.settings.metrics_token}"})
        return [sample for family in text_string_to_metric_families(scraped.body.decode()) for sample in family.samples]

    async def wait_until_all_serve(self) -> None:
        async with asyncio.timeout(WAIT_MAX_S):
            while await self._count_serving() < self.count:
                assert self.process.poll() is None, "the program has ended; see its log"
                await asyncio.sleep(_PAUSE_S)

    async def _count_serving(self) -> int:
        try:
            return sum(sample.name == "process_start_time_seconds" for sample in await self.metrics())
        except (TimeoutError, OSError, EOFError):
            return 0


def _signal_all(process_ids: Sequence[int], number: signal.Signals) -> None:
    for process_id in process_ids:
        # A worker that was killed is listed until its parent has noticed.
        with suppress(ProcessLookupError):
            os.kill(process_id, number)


@contextmanager
def run_workers(data_dir: Path, *, count: int = WORKERS, **changes: Any) -> Iterator[WorkersDeployment]:
    """Starts the program with the settings in its environment. Its log is in the data directory."""
    TRANSPORT_REQUESTS.add()
    settings = make_settings(data_dir, metrics_token="scrape-me", **changes)
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "log").open("ab") as log:
        process = subprocess.Popen(
            [*EXECUTABLE, "serve", "--workers", str(count)],
            cwd=data_dir,
            env=_environment(settings, {"log_format": "text", **changes}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    deployment = WorkersDeployment(settings, process, count)
    try:
        asyncio.run(deployment.wait_until_all_serve())
        yield deployment
    finally:
        process.terminate()
        process.wait(WAIT_MAX_S)


def _environment(settings: Settings, changes: Mapping[str, Any]) -> dict[str, str]:
    shared = {
        name: getattr(settings, name)
        for name in ("data_dir", "port", "jwt_secret", "metrics_token", "shutdown_grace_s", "semantic_model")
    }
    variables = {f"FLORILEGIUM_{name.upper()}": str(value) for name, value in {**shared, **changes}.items()}
    return {"PATH": os.environ["PATH"], "HOME": settings.data_dir, "PYTHONPATH": str(ROOT), **variables}
