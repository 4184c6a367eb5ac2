"""Runs the commands of the program: in the process of the tests, in one of their own, or as a server."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner
from msgspec import Struct

from auth.registry import Registry
from config.paths import DataRoot, UserId
from config.settings import Settings
from server.cli import florilegium
from server.stores import control_location
from tests.build_settings import build_settings
from tests.servers.fork_server import ForkedProcess, run_command, start_command
from tests.servers.storage import WORDS_ONLY, storage_settings, uses_postgres
from tests.transport_requests import TRANSPORT_REQUESTS

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
EXECUTABLE = (sys.executable, "-m", "server.cli")
TIMEOUT_S = 120
# Tests of these commands are about their process.
LASTING_COMMANDS = ("serve", "stdio")


def without_progress(text: str) -> str:
    """Leaves out the lines of progress that a command prints every few seconds on a slow machine."""
    return re.sub(
        r"^[\d.]+ [KMGT]?B of .*, [\d,]+ items?: .*\n|^.* (copied|checked|upgraded|embedded)\n",
        "",
        text,
        flags=re.MULTILINE,
    )


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
        variables |= {f"FLORILEGIUM_{name.upper()}": value for name, value in WORDS_ONLY.items()}
        if uses_postgres():
            variables["FLORILEGIUM_STORAGE_URL"] = self.settings.storage_url
        return {**variables, **more}

    @property
    def settings(self) -> Settings:
        return build_settings(data_dir=str(self.data_dir), **storage_settings(self.data_dir))

    def run(self, *arguments: str, stdin: str | bytes = "", **environment: str) -> Outcome:
        """Runs a command to its end: in this process, which saves most of the time, unless the command is about its
        process or this one is busy with something else."""
        if not arguments or arguments[0] in LASTING_COMMANDS or _depends_on_start(environment) or not _is_idle():
            return self.run_process(*arguments, stdin=stdin, **environment)
        TRANSPORT_REQUESTS.add()
        with _as_own_process(self.directory or self.home, self.environment(**environment)):
            result = CliRunner().invoke(florilegium, arguments, input=stdin, prog_name="florilegium")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def run_process(self, *arguments: str, stdin: str | bytes = "", **environment: str) -> Outcome:
        """Runs a command to its end, in a process of its own."""
        TRANSPORT_REQUESTS.add()
        directory, variables = self.directory or self.home, self.environment(**environment)
        text = stdin if isinstance(stdin, bytes) else stdin.encode()
        if _depends_on_start(environment):
            command = [*EXECUTABLE, *arguments]
            process = subprocess.run(
                command, cwd=directory, env=variables, input=text, capture_output=True, timeout=TIMEOUT_S, check=False
            )
        else:
            process = run_command(arguments, directory, variables, text, TIMEOUT_S)
        return Outcome(process.returncode, process.stdout.decode(), process.stderr.decode())

    def run_without_privileges(self, *arguments: str) -> Outcome:
        """Runs a command that cannot read what the modes of files forbid, also for root."""
        without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        command = [*without, *EXECUTABLE, *arguments]
        process = subprocess.run(
            command, cwd=self.home, env=self.environment(), capture_output=True, timeout=TIMEOUT_S, check=False
        )
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
    def start(self, *arguments: str, **environment: str) -> Iterator[ForkedProcess[str]]:
        """Starts a process with text pipes, which is killed when the block ends."""
        TRANSPORT_REQUESTS.add()
        with (self.home / "stderr.log").open("a") as log:
            process = start_command(arguments, self.home, self.environment(**environment), log)
        with process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def serving(self, *arguments: str, **environment: str) -> Iterator["RunningServer"]:
        with self.start("serve", *arguments, **environment) as process:
            yield RunningServer(process, read_welcome(process))


def _depends_on_start(environment: Mapping[str, str]) -> bool:
    return any(name.startswith("PYTHON") for name in environment)


def _is_idle() -> bool:
    """Whether a command can use the streams, directory and environment of this process, and an event loop."""
    if threading.current_thread() is not threading.main_thread():
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


@contextmanager
def _as_own_process(directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Gives this process another directory and environment for a while. What a command does to logging is undone."""
    root, before = logging.getLogger(), dict(os.environ)
    handlers, level = root.handlers[:], root.level
    os.environ.clear()
    os.environ.update(environment)
    try:
        with chdir(directory):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        root.handlers[:] = handlers
        root.setLevel(level)


class RunningServer(Struct, frozen=True):
    """A running server and the message it printed when it was ready."""

    process: ForkedProcess[str]
    welcome: str

    @property
    def mcp(self) -> str:
        serving = "Florilegium is serving "
        return next(line.removeprefix(serving) for line in self.welcome.splitlines() if line.startswith(serving))


def read_welcome(process: ForkedProcess[str]) -> str:
    """Reads up to the last line of the example call, which is printed once the server accepts connections."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("      -d"):
            return "".join(lines)
    raise AssertionError(f"the server exited with {process.wait()}")
