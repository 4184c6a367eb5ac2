"""The storage engine of the servers that tests start: SQLite, or PostgreSQL with `TEST_STORAGE=postgres`."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.servers.postgres import create_database, postgres_server

# A server that is started again on its data directory finds its data.
_databases: dict[Path, str] = {}


def storage_settings(data_dir: Path) -> dict[str, Any]:
    """Returns the settings of a deployment with this data directory."""
    if os.environ.get("TEST_STORAGE", "sqlite") != "postgres":
        return {}
    if data_dir not in _databases:
        # On another thread, because the test may be running an event loop on this one.
        with ThreadPoolExecutor(1) as executor:
            _databases[data_dir] = executor.submit(lambda: create_database(postgres_server())).result()
    return {"storage_url": _databases[data_dir], "postgres_connections": 3}
