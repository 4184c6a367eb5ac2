"""A user's library on this machine, opened without a server. Whoever may read the files may read the library, so there
is no credential; but where callers of the server need one, the user has to be named."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from auth.authenticator import local_principal
from auth.context import RequestContext, build_context
from auth.registry import Registry, UserRecord
from config.errors import Conflict, StorageError
from config.loading import Loaded
from config.paths import DataRoot
from config.settings import Settings
from server.cli.control import existing_root, find_user, prepared_root
from sources.storage.contract import Libraries
from sources.storage.sqlite import SqliteLibraries

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DEMO_SUFFIX = "-demo"
_REQUEST = "command line"


class Local(Struct, frozen=True):
    settings: Settings
    libraries: Libraries
    context: RequestContext


def user_option(function: Decorated) -> Decorated:
    help_ = (
        "The user whose library it is. Default: the setting single_user_name, where no authentication is configured."
    )
    return click.option("--user", help=help_)(function)


def demo_option(function: Decorated) -> Decorated:
    help_ = "The demo library, in a data directory of its own."
    return click.option("--demo", is_flag=True, help=help_)(function)


def demo_settings(loaded: Loaded) -> Settings:
    """The demo library stands beside the real ones and never among them, unless the command itself names a place."""
    if loaded.origins["data_dir"] == "command line":
        return loaded.settings
    return replace(loaded.settings, data_dir=loaded.settings.data_dir.rstrip("/") + _DEMO_SUFFIX)


@asynccontextmanager
async def open_local(settings: Settings, user_name: str | None, *, creates: bool = False) -> AsyncIterator[Local]:
    """Where no library is, there will be none, unless this command is one that `creates`."""
    root = prepared_root(settings) if creates else existing_root(settings)
    if user_name is None and settings.auth_configured:
        raise click.UsageError("--user: got nothing, expected a user's name: authentication is configured here")
    async with Registry.open(root.control_path) as registry:
        user = await local_user(registry, settings, user_name, creates=creates)
    libraries = SqliteLibraries(root, settings)
    try:
        yield Local(settings, libraries, local_context(user, root))
    finally:
        await libraries.close()


def local_context(user: UserRecord, root: DataRoot) -> RequestContext:
    return build_context(local_principal(user), root, _REQUEST, is_agent=False)


async def fill_demo(local: Local) -> None:
    from sources.demo import fill_once  # noqa: PLC0415 - the demo's texts are nothing to a search of a real library

    async with local.libraries.library(local.context) as library:
        await fill_once(library)


async def local_user(registry: Registry, settings: Settings, name: str | None, *, creates: bool = True) -> UserRecord:
    """The named user must exist; the single user is made when it first comes with something to keep."""
    if name is not None:
        user = await find_user(registry, name)
    elif creates:
        user = await single_user(registry, settings)
    else:
        user = await _existing_single_user(registry, settings.single_user_name)
    if user.is_disabled:
        raise Conflict(f"the user {user.name!r} is disabled; `florilegium user enable {user.name}` enables it")
    return user


async def _existing_single_user(registry: Registry, name: str) -> UserRecord:
    user = await registry.user_by_name(name)
    if user is None:
        raise StorageError(
            f"the user {name!r}, who is meant where none is named, has no library yet; name one by --user"
        )
    return user


async def single_user(registry: Registry, settings: Settings) -> UserRecord:
    """The user of callers without a credential."""
    name = settings.single_user_name
    return await registry.user_by_name(name) or await registry.ensure_user("", name)
