"""Access to the control database for administrative commands, beside a server that may be running on it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from auth.registry import Registry, UserRecord
from config.errors import NotFound, StorageError
from config.paths import DataRoot
from config.settings import Settings

T = TypeVar("T")


def data_root(settings: Settings) -> DataRoot:
    return DataRoot(Path(settings.data_dir))


def existing_root(settings: Settings) -> DataRoot:
    """For commands that need something to be there. They leave no trace where nothing is: an empty data directory can
    be restored into, and a mistyped one is seen as that."""
    root = data_root(settings)
    if not root.control_path.exists():
        raise StorageError(
            f"there is no library at {root.root}; `florilegium import` or `florilegium user add` makes one there, "
            "and data_dir names another place"
        )
    return root


def prepared_root(settings: Settings) -> DataRoot:
    root = data_root(settings)
    root.prepare()
    return root


def administer(settings: Settings, work: Callable[[Registry], Awaitable[T]], *, creates: bool = False) -> T:
    """Runs the work on the open registry. One that `creates` may be the first command ever, and makes it."""

    async def run() -> T:
        root = prepared_root(settings) if creates else existing_root(settings)
        async with Registry.open(root.control_path) as registry:
            return await work(registry)

    return asyncio.run(run())


async def find_user(registry: Registry, name: str) -> UserRecord:
    user = await registry.user_by_name(name)
    if user is None:
        raise NotFound("user", name)
    return user
