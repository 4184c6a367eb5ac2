"""Options that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from config.loading import LoadedConfig
from config.settings import Settings
from server.cli.lazy_group import Decorated, SettingsOverrides, json_option, setting_options

_DEMO_SUFFIX = "-demo"
GROUP_HELP = "The library of this group instead of that of a user. With --server, only its managers can."


def admin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--json` and `--data-dir`."""
    return json_option(setting_options("data_dir")(function))


def user_option(function: Decorated) -> Decorated:
    help_ = "The library's user. Default: the setting single_user_name; required if authentication is configured."
    return click.option("--user", help=help_)(function)


def group_option(function: Decorated) -> Decorated:
    """Adds `--library`, for commands that send a whole library to or from a server."""
    return click.option("--library", help=GROUP_HELP)(function)


def owner_of(user: str | None, library: str | None) -> str | None:
    """Returns the user or the group whose library is used on this machine."""
    if user is not None and library is not None:
        raise click.UsageError("--user and --library cannot be combined")
    return library or user


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


def load_for_change(overrides: SettingsOverrides) -> Settings:
    """Loads the settings of a command that changes users or keys, and prints on stderr which data directory it uses.

    The same command may use another data directory in another working directory or account.
    """
    from server.cli.remote import remote_server  # noqa: PLC0415 - not for `--help`

    loaded = overrides.load()
    if remote_server() is None:
        config_file = loaded.config_file.absolute() if loaded.config_file else "none"
        click.echo(f"data directory: {Path(loaded.settings.data_dir)}, config file: {config_file}", err=True)
    return loaded.settings
