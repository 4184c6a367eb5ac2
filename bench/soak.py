"""`make soak`: a mixed load for minutes, while the server is killed and restarted; nothing acknowledged may be lost.

In the first half of the time the server is stopped again and again, in turn with SIGKILL and with SIGTERM. In the
second half it runs on, and its memory, descriptors and threads are sampled; a line is fitted through the samples of the
last three quarters of that time. At the end the server is restarted, and everything that was ever acknowledged is read.
"""

import argparse
import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from auth.context import READ, WRITE
from auth.registry import Registry
from auth.tokens import mint_token
from bench.processes import ChildExited
from bench.soak_load import Evidence, SoakLoad, Unanswered, UserName
from bench.soak_samples import ProcessSample, Trend, fit, take_sample
from config.paths import DataRoot
from config.settings import Settings, check

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_TOKEN_LIFETIME_S = 86_400.0
_VERIFIERS = 8
_VERIFY_TRIES = 20
_VERIFY_PAUSE_S = 0.5
_SHOWN_MAX = 10
# Shorter runs are dominated by caches that fill up, so their trends are printed but not judged.
_JUDGED_MIN_S = 300.0


class Effort(Struct, frozen=True):
    minutes: float
    users: int = 4
    pause_s: float = 0.1
    stop_interval_s: float = 15.0
    sample_interval_s: float = 2.0


QUICK = Effort(minutes=0.2, users=2, pause_s=0.02, stop_interval_s=1.5, sample_interval_s=0.25)


class SoakResult(Struct, frozen=True):
    evidence: int
    lost: tuple[Evidence, ...]
    calls: Mapping[str, int]
    unanswered: int
    kills: int
    stops: int
    problems: tuple[str, ...]
    sampled_s: float
    memory: Trend
    descriptors: Trend
    threads: Trend

    @property
    def trends(self) -> Mapping[str, Trend]:
        return {"resident MB": self.memory, "descriptors": self.descriptors, "threads": self.threads}

    @property
    def growing(self) -> list[str]:
        """Returns what grew, if the run was long enough to say so."""
        if self.sampled_s < _JUDGED_MIN_S:
            return []
        return [name for name, trend in self.trends.items() if not trend.is_flat]

    def as_line(self) -> str:
        return (
            f"RESULT lost={len(self.lost)} writes={self.evidence} kills={self.kills} stops={self.stops} "
            f"rss_growth={self.memory.growth_share:+.1%} descriptors_growth={self.descriptors.growth_share:+.1%} "
            f"threads_growth={self.threads.growth_share:+.1%}"
        )


class SoakServer:
    """A server as deployed, which can be stopped and started again at the same address."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.url = f"http://127.0.0.1:{settings.port}"
        self._settings = settings
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "server.cli", "serve"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ready_before = time.monotonic() + _START_TIMEOUT_S
        while not await asyncio.to_thread(self._is_ready):
            if self._process.poll() is not None or time.monotonic() > ready_before:
                raise ChildExited(f"the server did not start; its log ends with:\n{self._log.read_text()[-2000:]}")
            await asyncio.sleep(0.05)

    async def stop(self, number: signal.Signals) -> int:
        """Returns the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return await asyncio.to_thread(self._process.wait, _STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "FLORILEGIUM_DATA_DIR": self._settings.data_dir,
            "FLORILEGIUM_PORT": str(self._settings.port),
            "FLORILEGIUM_JWT_SECRET": self._settings.jwt_secret,
            "FLORILEGIUM_RATE_USER_PER_MINUTE": "0",
            "FLORILEGIUM_RATE_TOOL_PER_MINUTE": "0",
            "FLORILEGIUM_LOG_REQUESTS": "false",
            "FLORILEGIUM_SEMANTIC_MODEL": "off",
            # Small caches are full before the samples are taken. What grows then is not a cache.
            "FLORILEGIUM_LIBRARY_CACHE_KIB": "128",
            "FLORILEGIUM_SESSION_SEEN_MAX": "50",
        }


class Soak:
    def __init__(self, server: SoakServer, load: SoakLoad, effort: Effort) -> None:
        self._server = server
        self.load = load
        self._effort = effort
        self._counts = {signal.SIGKILL: 0, signal.SIGTERM: 0}
        self._problems: list[str] = []

    async def run(self) -> SoakResult:
        half_s = self._effort.minutes * 30
        running = asyncio.create_task(self.load.run())
        await self._stop_again_and_again(half_s)
        samples = await self._sample(half_s)
        self.load.stop()
        await running
        await self._restart(signal.SIGTERM)
        lost = await self.find_lost()
        counted = samples[len(samples) // 4 :]
        times = [sample.at_s for sample in counted]
        return SoakResult(
            len(self.load.evidence),
            tuple(lost),
            dict(self.load.calls),
            self.load.unanswered,
            self._counts[signal.SIGKILL],
            self._counts[signal.SIGTERM],
            (*self._problems, *self.load.problems),
            times[-1] - times[0],
            fit(times, [sample.resident_mb for sample in counted]),
            fit(times, [sample.descriptors for sample in counted]),
            fit(times, [sample.threads for sample in counted]),
        )

    async def _stop_again_and_again(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        signals = (signal.SIGKILL, signal.SIGTERM)
        while time.monotonic() < end:
            await asyncio.sleep(self._effort.stop_interval_s)
            await self._restart(signals[sum(self._counts.values()) % 2])

    async def _restart(self, number: signal.Signals) -> None:
        code = await self._server.stop(number)
        self._counts[number] += 1
        if number is signal.SIGTERM and code != 0:
            self._problems.append(f"the server exited with {code} after SIGTERM")
        await self._server.start()

    async def _sample(self, seconds: float) -> list[ProcessSample]:
        started_at = time.monotonic()
        samples: list[ProcessSample] = []
        while (at_s := time.monotonic() - started_at) < seconds or not samples:
            samples.append(take_sample(self._server.pid, at_s))
            await asyncio.sleep(self._effort.sample_interval_s)
        return samples

    async def find_lost(self) -> list[Evidence]:
        """Reads everything that was acknowledged. Messages of one conversation are read together."""
        pages: dict[tuple[UserName, str], list[Evidence]] = {}
        for evidence in self.load.evidence:
            pages.setdefault((evidence.user, evidence.path), []).append(evidence)
        waiting: list[tuple[tuple[UserName, str], list[Evidence]]] = [*pages.items()]
        lost: list[Evidence] = []

        async def verify() -> None:
            while waiting:
                (user, path), page = waiting.pop()
                content = await self._read(user, path)
                lost.extend(one for one in page if one.expected not in content)

        await asyncio.gather(*(verify() for _ in range(_VERIFIERS)))
        return lost

    async def _read(self, user: UserName, path: str) -> str:
        for _ in range(_VERIFY_TRIES):
            try:
                return await self.load.read(user, path)
            except Unanswered:
                await asyncio.sleep(_VERIFY_PAUSE_S)
        return ""


@asynccontextmanager
async def open_soak(effort: Effort, directory: Path) -> AsyncIterator[Soak]:
    """Creates the users, starts the server and kills it in the end."""
    settings = Settings(data_dir=str(directory / "data"), port=_free_port(), jwt_secret=secrets.token_urlsafe(32))
    check(settings)
    tokens = await _create_users(settings, effort.users)
    server = SoakServer(settings, directory)
    load = SoakLoad(server.url, tokens, effort.pause_s)
    try:
        await server.start()
        yield Soak(server, load, effort)
    finally:
        await load.close()
        server.kill()


async def _create_users(settings: Settings, count: int) -> dict[UserName, str]:
    root = DataRoot(Path(settings.data_dir))
    root.prepare()
    names = [UserName(f"user{number}") for number in range(count)]
    async with Registry.open(root.control_path) as registry:
        for name in names:
            await registry.add_user(name)
    now = time.time()
    return {
        name: mint_token(settings, name, (READ, WRITE), lifetime_s=_TOKEN_LIFETIME_S, now=now, client_id="soak")
        for name in names
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def soak(effort: Effort, directory: Path) -> SoakResult:
    async with open_soak(effort, directory) as opened:
        return await opened.run()


def report(result: SoakResult) -> Iterator[str]:
    calls = ", ".join(f"{name} {count}" for name, count in sorted(result.calls.items()))
    yield f"calls: {calls}"
    yield f"unanswered while the server was away or busy: {result.unanswered}"
    yield f"restarts: {result.kills} after SIGKILL, {result.stops} after SIGTERM"
    yield f"acknowledged writes: {result.evidence}, of which {len(result.lost)} lost"
    for name, trend in result.trends.items():
        verdict = "flat" if trend.is_flat else "GROWING"
        yield (
            f"{name} over {result.sampled_s:.0f} s: {trend.start:.1f} to {trend.end:.1f} "
            f"({trend.growth_share:+.1%}, scatter {trend.scatter:.1f}): {verdict}"
        )
    yield from (f"LOST {one.user} {one.path} {one.expected}" for one in result.lost[:_SHOWN_MAX])
    yield from (f"PROBLEM {problem}" for problem in result.problems[:_SHOWN_MAX])
    if len(result.problems) > _SHOWN_MAX:
        yield f"PROBLEM and {len(result.problems) - _SHOWN_MAX} more"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="duration of the load (default: 30)")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, which checks that the soak works")
    options = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        sys.exit("bench.soak reads memory, descriptors and threads from the Linux kernel; run it on Linux")
    effort = QUICK if options.quick else Effort(minutes=options.minutes)
    with tempfile.TemporaryDirectory(prefix="florilegium-soak-") as name:
        result = asyncio.run(soak(effort, Path(name)))
    for line in [*report(result), result.as_line()]:
        print(line)
    return int(bool(result.lost or result.problems or result.growing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
