"""Runs the real executable in its own directory, as a command or as a server."""

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
from config.settings import Settings
from server.stores import control_location
from tests.server.cli.fork_server import fork_server
from tests.servers.storage import storage_settings, uses_postgres
from tests.transport_requests import TRANSPORT_REQUESTS

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
EXECUTABLE = (sys.executable, "-m", "server.cli")
TIMEOUT_S = 30
# Tests of these commands are about their process.
LASTING_COMMANDS = ("serve", "stdio")


class Outcome(Struct, frozen=True):
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def messages(self) -> list[Any]:
        """Parses stdout as one JSON value per line. Anything else fails the test."""
        return [json.loads(line) for line in self.stdout.splitlines()]


class Program(Struct, frozen=True):
    """Runs commands in `directory`, by default `home`, which is also HOME, with an otherwise empty environment."""

    home: Path
    directory: Path | None = None

    @property
    def data_dir(self) -> Path:
        return self.home / ".local" / "share" / "florilegium"

    def environment(self, **more: str) -> dict[str, str]:
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        if uses_postgres():
            variables["FLORILEGIUM_STORAGE_URL"] = self.settings.storage_url
        return {**variables, **more}

    @property
    def settings(self) -> Settings:
        return Settings(data_dir=str(self.data_dir), **storage_settings(self.data_dir))

    def run(self, *arguments: str, stdin: str | bytes = "", **environment: str) -> Outcome:
        """Runs a command to its end, in a process of its own."""
        TRANSPORT_REQUESTS.add()
        directory, variables = self.directory or self.home, self.environment(**environment)
        text = stdin if isinstance(stdin, bytes) else stdin.encode()
        if not arguments or arguments[0] in LASTING_COMMANDS or any(name.startswith("PYTHON") for name in environment):
            process = subprocess.run(
                [*EXECUTABLE, *arguments],
                cwd=directory,
                env=variables,
                input=text,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        else:
            process = fork_server().run(arguments, directory, variables, text, TIMEOUT_S)
        return Outcome(process.returncode, process.stdout.decode(), process.stderr.decode())

    def expect(self, *arguments: str, stdin: str | bytes = "", **environment: str) -> str:
        """Returns the output of a command that must succeed."""
        outcome = self.run(*arguments, stdin=stdin, **environment)
        assert outcome.code == 0, outcome.stderr
        return outcome.stdout.strip()

    def with_users(self, *names: str) -> dict[str, UserId]:
        """Adds users without starting a process for each. Returns the ids by name."""

        async def add(registry: Registry) -> dict[str, UserId]:
            return {name: (await registry.add_user(name)).id for name in names}

        return self._in_registry(add)

    def states(self) -> dict[str, str]:
        """Returns the state of every user by name."""

        async def list_states(registry: Registry) -> dict[str, str]:
            return {user.name: "disabled" if user.is_disabled else "active" for user in await registry.list_users()}

        return self._in_registry(list_states)

    def _in_registry(self, work: Callable[[Registry], Awaitable[T]]) -> T:
        async def run() -> T:
            root = DataRoot(self.data_dir)
            root.prepare()
            async with Registry.open(control_location(self.settings, root)) as registry:
                return await work(registry)

        return asyncio.run(run())

    @contextmanager
    def start(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Starts a process with text pipes, which is killed when the block ends."""
        with (self.home / "stderr.log").open("a") as log:
            TRANSPORT_REQUESTS.add()
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
    def serving(self, *arguments: str, **environment: str) -> Iterator["RunningServer"]:
        with self.start("serve", *arguments, **environment) as process:
            yield RunningServer(process, read_welcome(process))


class RunningServer(Struct, frozen=True):
    """A running server and the message it printed when it was ready."""

    process: subprocess.Popen[str]
    welcome: str

    @property
    def mcp(self) -> str:
        return self.welcome.splitlines()[0].removeprefix("Florilegium is serving ")


def read_welcome(process: subprocess.Popen[str]) -> str:
    """Reads up to the last line of the example call, which is printed once the server accepts connections."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("      -d"):
            return "".join(lines)
    raise AssertionError(f"the server exited with {process.wait()}")
