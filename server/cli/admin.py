"""Access to the control database for administrative commands, which may run while a server uses it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import click

from auth.audit import AuditEvent
from auth.registry import Registry, UserRecord
from config.errors import NotFound, StorageError
from config.paths import DataRoot
from config.settings import Settings
from server.cli.lazy_group import SettingsOverrides, json_option, setting_options
from server.stores import control_location, open_audit_log

T = TypeVar("T")
# The client of changes that were made on the command line of this machine.
OPERATOR = "command line"


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
