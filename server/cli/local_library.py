"""Opens a user's library on this machine without a server.

Access to the files is access to the library, so no credential is needed. If authentication is configured, the user must
be named.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from auth.audit import AuditEvent
from auth.authenticator import OPERATOR, local_principal
from auth.context import RequestContext, build_context
from auth.quotas import Quotas
from auth.registry import Registry, UserRecord
from config.errors import Conflict, NotFound, StorageError
from config.loading import LoadedConfig
from config.paths import DataRoot
from config.settings import Settings
from server.cli.lazy_group import SettingsOverrides, json_option, setting_options
from server.directory_lock import locked_directory
from server.stores import control_location, has_control_data, open_audit_log, open_libraries
from sources.semantic.service import SemanticService
from sources.storage.contract import Libraries, Library

# -- admin -------------------------------------------------------------------------------------------------------------
# Access to the control database for administrative commands, which may run while a server uses it.

T = TypeVar("T")


def admin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--json` and `--data-dir`."""
    return json_option(setting_options("data_dir")(function))


def data_root(settings: Settings) -> DataRoot:
    return DataRoot(Path(settings.data_dir))


def load_for_change(overrides: SettingsOverrides) -> Settings:
    """Loads the settings of a command that changes users or keys, and prints on stderr which data directory it uses.

    The same command may use another data directory in another working directory or account.
    """
    loaded = overrides.load()
    config_file = loaded.config_file.absolute() if loaded.config_file else "none"
    click.echo(f"data directory: {data_root(loaded.settings).root}, config file: {config_file}", err=True)
    return loaded.settings


def require_data_root(settings: Settings) -> DataRoot:
    """Returns the data directory, which must exist.

    Commands that only read create nothing: an empty directory can still be restored into, and a mistyped path is
    reported instead of becoming a new, empty library.
    """
    root = data_root(settings)
    # The users are in PostgreSQL then, and this machine may never have had a data directory.
    if settings.storage_url:
        return create_data_root(settings)
    root.require_control()
    if not root.control_path.exists():
        raise StorageError(
            f"no data found in {root.root}; `florilegium import` or `florilegium user add` creates it, "
            "or set data_dir to another directory"
        )
    return root


def create_data_root(settings: Settings) -> DataRoot:
    root = data_root(settings)
    root.prepare()
    return root


def run_with_registry(settings: Settings, work: Callable[[Registry], Awaitable[T]], *, creates: bool = False) -> T:
    """Runs `work` with the open registry. With `creates`, the data directory is created if it does not exist."""

    async def run() -> T:
        root = create_data_root(settings) if creates else require_data_root(settings)
        # Access that a command withdraws has ended in all processes of the server when the command returns.
        async with Registry.open(control_location(settings, root), waits_for_servers=True) as registry:
            return await work(registry)

    return asyncio.run(run())


def record_change(settings: Settings, action: str, user: UserRecord, target: str = "", detail: str = "") -> None:
    """Records a change of a user that the operator made."""
    record_operation(settings, action, user.id, target or user.id, detail)


def record_operation(settings: Settings, action: str, user_id: str = "", target: str = "", detail: str = "") -> None:
    """Records in the audit log what the operator did. It is done even if that fails."""
    event = AuditEvent(time=time.time(), action=action, user_id=user_id, client=OPERATOR, target=target, detail=detail)
    try:
        with closing(open_audit_log(settings, data_root(settings))) as log:
            log.append([event])
    except StorageError as error:
        click.echo(f"warning: the audit log could not be written: {error.message}", err=True)


async def find_user(registry: Registry, name: str) -> UserRecord:
    user = await registry.user_by_name(name)
    if user is None:
        raise NotFound("user", name)
    return user


Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DEMO_SUFFIX = "-demo"
_REQUEST = "command line"


class LocalLibrary(Struct, frozen=True):
    settings: Settings
    libraries: Libraries
    semantic: SemanticService
    context: RequestContext
    user: UserRecord

    def library(self) -> AbstractAsyncContextManager[Library]:
        return self.libraries.library(self.context)


def user_option(function: Decorated) -> Decorated:
    help_ = "The library's user. Default: the setting single_user_name; required if authentication is configured."
    return click.option("--user", help=help_)(function)


def library_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--user`, `--json`, and the settings that decide which library is used."""
    return user_option(json_option(setting_options("data_dir", "single_user_name")(function)))


def demo_option(function: Decorated) -> Decorated:
    help_ = "Use the demo library, which has its own data directory."
    return click.option("--demo", is_flag=True, help=help_)(function)


def demo_settings(loaded: LoadedConfig) -> Settings:
    """Returns settings with the demo's own data directory, unless the command line names one."""
    # The demo library is in files even if the other libraries are in PostgreSQL.
    settings = replace(loaded.settings, storage_url="")
    if loaded.origins["data_dir"] != "command line":
        settings = replace(settings, data_dir=settings.data_dir.rstrip("/") + _DEMO_SUFFIX)
    return settings


@asynccontextmanager
async def open_local(
    settings: Settings, user_name: str | None, *, creates: bool = False, writes: bool = False, is_demo: bool = False
) -> AsyncIterator[LocalLibrary]:
    """Opens the library of a user. Creates a missing data directory or user only with `creates`. With `writes`, takes
    the lock of the data directory. With `is_demo`, creates and fills the demo library."""
    creates = creates or is_demo
    # A server for several users has no default user, and guessing one would open somebody's library.
    if user_name is None and settings.is_auth_configured:
        raise click.UsageError("--user is required because authentication is configured")
    root = create_data_root(settings) if creates else require_data_root(settings)
    # PostgreSQL is made for several processes.
    is_locked = writes and not settings.storage_url
    with locked_directory(root.root, command_name(), "writer") if is_locked else nullcontext():
        async with Registry.open(control_location(settings, root)) as registry:
            user = await local_user(registry, settings, user_name, creates=creates)
            # The quotas of a user apply on the command line, too.
            quotas, semantic = Quotas(registry.database, settings), SemanticService(settings)
            # Work in the background would end with the command; `florilegium embed` embeds.
            libraries = open_libraries(settings, root, semantic, quotas, embeds_in_background=False)
            try:
                local = LocalLibrary(settings, libraries, semantic, local_context(user, root), user)
                if is_demo:
                    await fill_demo(libraries, local.context)
                yield local
            finally:
                await libraries.close()
                await semantic.close()


def run_with_library(
    settings: Settings,
    user_name: str | None,
    work: Callable[[Library, LocalLibrary], Awaitable[T]],
    *,
    creates: bool = False,
    writes: bool = False,
) -> T:
    """Runs `work` with the open library of a user."""

    async def run() -> T:
        async with open_local(settings, user_name, creates=creates, writes=writes) as local, local.library() as library:
            return await work(library, local)

    return asyncio.run(run())


async def settings_of_user(settings: Settings, user_name: str | None) -> Settings:
    """Returns the settings with the quota of the user for the size of an import. A user who does not exist has none."""
    if not has_control_data(settings, data_root(settings)):
        return settings
    async with Registry.open(control_location(settings, data_root(settings))) as registry:
        user = await registry.user_by_name(user_name or settings.single_user_name)
        limits = await Quotas(registry.database, settings).limits(user.id) if user is not None else None
    return settings if limits is None else replace(settings, import_max_bytes=limits.import_max_bytes)


def command_name() -> str:
    """Returns the running command, such as `import`."""
    context = click.get_current_context(silent=True)
    return (context.info_name if context else None) or "command"


def local_context(user: UserRecord, root: DataRoot) -> RequestContext:
    return build_context(local_principal(user), root, _REQUEST, is_agent=False)


async def fill_demo(libraries: Libraries, context: RequestContext) -> None:
    from sources.demo import fill_once  # noqa: PLC0415 - only needed with --demo

    async with libraries.library(context) as library:
        await fill_once(library)


async def local_user(registry: Registry, settings: Settings, name: str | None, *, creates: bool = True) -> UserRecord:
    """Returns the named user, who must exist, or the single user, who is created on first use with `creates`."""
    if name is not None:
        user = await find_user(registry, name)
    elif creates:
        user = await single_user(registry, settings)
    elif (existing := await registry.user_by_name(settings.single_user_name)) is not None:
        user = existing
    else:
        missing = repr(settings.single_user_name)
        raise StorageError(f"the default user {missing} has no library yet; choose another user with --user")
    if user.is_disabled:
        raise Conflict(f"user {user.name!r} is disabled; run `florilegium user enable {user.name}`")
    return user


async def single_user(registry: Registry, settings: Settings) -> UserRecord:
    """Returns the user of callers without a credential, creating it if needed."""
    name = settings.single_user_name
    return await registry.user_by_name(name) or await registry.ensure_user("", name, role="admin", named_by="operator")
