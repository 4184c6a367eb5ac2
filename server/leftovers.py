"""Removes what a killed process left behind. Only the process that holds the lock of the data directory may do this."""

import shutil
from contextlib import suppress
from pathlib import Path

from server.import_jobs import UPLOADS_FOLDER


def remove_leftovers(root: Path) -> None:
    """Removes unfinished copies of databases and the uploads of imports that have ended with their process."""
    for path in (*root.glob("control.db*.unfinished"), *root.glob("users/*/*/*.unfinished")):
        with suppress(OSError):
            path.unlink()
    shutil.rmtree(root / UPLOADS_FOLDER, ignore_errors=True)
