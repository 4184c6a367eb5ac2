"""The settings of the servers and libraries that tests open, unless a test is about other ones.

Storage is SQLite, or PostgreSQL with `TEST_STORAGE=postgres`. Meanings are not compared: embedding the text of every
test in the background would take longer than the tests.

Each data directory has a database of its own. Which one is written to the directory that all processes of the run
share, so that a server that is started again on its data directory finds its data.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tests.servers import shared
from tests.servers.postgres import create_database, drop_database, postgres_server

WORDS_ONLY = {"semantic_model": "off"}
# The databases of this process: the file with the URL by data directory.
_created: dict[Path, Path] = {}


def uses_postgres() -> bool:
    return os.environ.get("TEST_STORAGE", "sqlite") == "postgres"


def storage_settings(data_dir: Path) -> dict[str, Any]:
    """Returns the settings of a deployment with this data directory."""
    if not uses_postgres():
        return {**WORDS_ONLY}
    if not has_database(data_dir):
        _create(data_dir)
    return {
        **WORDS_ONLY,
        "storage_url": _url_file(data_dir).read_text(),
        "postgres_connections": 3,
        # On a busy machine.
        "postgres_connect_timeout_s": 30.0,
        # The first write of a user creates a schema, which can take a second: servers that stop must wait for it.
        "shutdown_grace_s": 10.0,
    }


def has_database(data_dir: Path) -> bool:
    return _url_file(data_dir).exists()


def copy_database(source: Path, target: Path) -> None:
    """Creates the database of `target` as a copy of that of `source`, which no process may be using."""
    _create(target, _url_file(source).read_text())


def drop_unused_databases() -> None:
    """Drops the databases whose data directories are gone, because the tests that used them have passed."""
    for data_dir in [data_dir for data_dir in _created if not data_dir.exists()]:
        _drop(_created.pop(data_dir))


def drop_all_databases() -> None:
    """Drops what this run has created on a server that stays."""
    for file in (shared.directory() / "databases").glob("*"):
        _drop(file)


def _drop(url_file: Path) -> None:
    url = url_file.read_text()
    url_file.unlink()
    _on_a_thread(lambda: drop_database(postgres_server(), url))


def _create(data_dir: Path, template_url: str | None = None) -> None:
    file = _url_file(data_dir)
    file.parent.mkdir(exist_ok=True)
    url = _on_a_thread(lambda: create_database(postgres_server(), template_url))
    file.write_text(url)
    _created[data_dir] = file


def _url_file(data_dir: Path) -> Path:
    name = blake2b(os.fsencode(data_dir.resolve()), digest_size=16).hexdigest()
    return shared.directory() / "databases" / name


def _on_a_thread(work: Callable[[], Any]) -> Any:
    """Runs it on another thread, because the test may be running an event loop on this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
