"""Access to the control database for administrative commands, beside a server that may be running on it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from auth.registry import Registry, UserRecord
from config.errors import NotFound
from config.paths import DataRoot
from config.settings import Settings

T = TypeVar("T")


def data_root(settings: Settings) -> DataRoot:
    return DataRoot(Path(settings.data_dir))


def administer(settings: Settings, work: Callable[[Registry], Awaitable[T]]) -> T:
    """Runs the work on the open registry, which is made if this is the first command ever."""

    async def run() -> T:
        root = data_root(settings)
        root.prepare()
        async with Registry.open(root.control_path) as registry:
            return await work(registry)

    return asyncio.run(run())


async def find_user(registry: Registry, name: str) -> UserRecord:
    user = await registry.user_by_name(name)
    if user is None:
        raise NotFound("user", name)
    return user
