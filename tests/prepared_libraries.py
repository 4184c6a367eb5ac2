"""Data directories with empty libraries of users, and their databases. Copying one is faster than creating it."""

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers.storage import copy_database, has_database

CreateLibraries = Callable[[Path], Coroutine[Any, Any, None]]


def copy_libraries(create: CreateLibraries, root: Path) -> Path:
    """Copies what `create` writes into a directory, which it does once per process. Returns the directory."""
    original = created_libraries(create)
    shutil.copytree(original, root, dirs_exist_ok=True)
    if has_database(original):
        copy_database(original, root)
    return root


@cache
def created_libraries(create: CreateLibraries) -> Path:
    """Returns the directory into which `create` has written, which nothing may change."""
    root = Path(tempfile.mkdtemp(prefix="florilegium-libraries-"))
    atexit.register(shutil.rmtree, root)
    with ThreadPoolExecutor(1) as thread:  # this one may have a running event loop
        thread.submit(asyncio.run, create(root)).result()
    return root
