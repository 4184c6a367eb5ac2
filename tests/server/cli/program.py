"""The real executable in a directory of its own: as a command that ends, or as a server that stays."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from auth.registry import Registry
from config.paths import DataRoot, UserId

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
EXECUTABLE = (sys.executable, "-m", "server.cli")
TIMEOUT_S = 30


class Outcome(Struct, frozen=True):
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def messages(self) -> list[Any]:
        """One JSON value a line; anything else on stdout fails the test."""
        return [json.loads(line) for line in self.stdout.splitlines()]


class Program(Struct, frozen=True):
    """Runs in `home`, which is also HOME, with nothing else of the caller's environment."""

    home: Path

    @property
    def data_dir(self) -> Path:
        return self.home / ".local" / "share" / "florilegium"

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(ROOT), **more}

    def run(self, *arguments: str, stdin: str | bytes = "", **environment: str) -> Outcome:
        done = subprocess.run(
            [*EXECUTABLE, *arguments],
            cwd=self.home,
            env=self.environment(**environment),
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def expect(self, *arguments: str, stdin: str | bytes = "", **environment: str) -> str:
        """The output of a command that must succeed."""
        outcome = self.run(*arguments, stdin=stdin, **environment)
        assert outcome.code == 0, outcome.stderr
        return outcome.stdout.strip()

    def with_users(self, *names: str) -> dict[str, UserId]:
        """Makes the scene without the cost of a process each; the ids by name."""

        async def add(registry: Registry) -> dict[str, UserId]:
            return {name: (await registry.add_user(name)).id for name in names}

        return self._in_registry(add)

    def states(self) -> dict[str, str]:
        """Who is there, by name, and whether enabled."""

        async def look(registry: Registry) -> dict[str, str]:
            return {user.name: "disabled" if user.is_disabled else "active" for user in await registry.list_users()}

        return self._in_registry(look)

    def _in_registry(self, work: Callable[[Registry], Awaitable[T]]) -> T:
        async def run() -> T:
            root = DataRoot(self.data_dir)
            root.prepare()
            async with Registry.open(root.control_path) as registry:
                return await work(registry)

        return asyncio.run(run())

    @contextmanager
    def start(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """A process with text pipes, which is gone when the block ends."""
        with (self.home / "stderr.log").open("a") as log:
            process = subprocess.Popen(
                [*EXECUTABLE, *arguments],
                cwd=self.home,
                env=self.environment(**environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            with process:
                try:
                    yield process
                finally:
                    process.kill()

    @contextmanager
    def serving(self, *arguments: str, **environment: str) -> Iterator["Serving"]:
        with self.start("serve", *arguments, **environment) as process:
            yield Serving(process, read_welcome(process))


class Serving(Struct, frozen=True):
    """A server that is up, and what it said when it came up."""

    process: subprocess.Popen[str]
    welcome: str

    @property
    def mcp(self) -> str:
        return self.welcome.splitlines()[0].removeprefix("Florilegium serves ")


def read_welcome(process: subprocess.Popen[str]) -> str:
    """Everything up to the last line of the first call, which is printed once connections are accepted."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("      -d"):
            return "".join(lines)
    raise AssertionError(f"the server ended with {process.wait()}")
