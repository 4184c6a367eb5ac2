"""PgBouncer in transaction mode, in front of a PostgreSQL server. No package registry has it, so it must be installed:
`apt-get install pgbouncer`, or the package of another system."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_CONFIGURATION = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 500
"""


@asynccontextmanager
async def run_pgbouncer(url: str, directory: Path, connections: int) -> AsyncIterator[str]:
    """Yields the address of the same database through PgBouncer, which has so many connections to it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise RuntimeError("pgbouncer is not installed; install the package pgbouncer of your system")
    parts, port = urlsplit(url), _free_port()
    file = directory / "pgbouncer.ini"
    file.write_text(
        _CONFIGURATION.format(
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            password=parts.password,
            own_port=port,
            connections=connections,
        )
    )
    account: dict[str, Any] = {}
    if os.geteuid() == 0:  # it does not run as root
        file.chmod(0o644)
        account = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    process = await asyncio.create_subprocess_exec(program, "-q", "/dev/stdin", stdin=file.open("rb"), **account)
    try:
        await _wait_for(port)
        netloc = f"{parts.username}:{parts.password}@127.0.0.1:{port}"
        yield urlunsplit(parts._replace(netloc=netloc))
    finally:
        process.terminate()
        await process.wait()


async def _wait_for(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
