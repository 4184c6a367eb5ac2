"""Data directories with empty libraries of users. Copying one is faster than creating it."""

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

CreateLibraries = Callable[[Path], Coroutine[Any, Any, None]]


def copy_libraries(create: CreateLibraries, root: Path) -> Path:
    """Copies what `create` writes into a directory, which it does once per process. Returns the directory."""
    shutil.copytree(_created(create), root, dirs_exist_ok=True)
    return root


@cache
def _created(create: CreateLibraries) -> Path:
    root = Path(tempfile.mkdtemp(prefix="florilegium-libraries-"))
    atexit.register(shutil.rmtree, root)
    with ThreadPoolExecutor(1) as thread:  # this one may have a running event loop
        thread.submit(asyncio.run, create(root)).result()
    return root
