"""Databases that older versions wrote; see README.md."""

import lzma
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from config.paths import UserId

FIRST, LAST = "2813d5c", "3f53ee6"
_FOLDER = Path(__file__).parent


def extract(version: str, target: Path) -> dict[str, UserId]:
    """Extracts a data directory. Returns the ids of its users by their names."""
    with tarfile.open(_FOLDER / f"{version}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(target)
    with closing(sqlite3.connect(target / "control.db")) as control:
        return {name: UserId(user_id) for name, user_id in control.execute("SELECT name, id FROM users")}


def postgres_script() -> str:
    return lzma.decompress((_FOLDER / f"{LAST}.sql.xz").read_bytes()).decode()
