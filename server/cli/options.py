"""Command-line options generated from the settings table.

Secrets are never options, because other accounts can read command lines.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from config.loading import LoadedSettings, load_settings
from config.logging import configure
from config.settings import SETTINGS, Setting

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

OFFERED = {setting.name: setting for setting in SETTINGS if not setting.is_secret}
# By the first word of a setting's type.
_METAVARS = {
    "true": "BOOL",
    "text": "TEXT",
    "non-empty": "TEXT",
    "integer": "INTEGER",
    "number": "NUMBER",
    "list": "LIST",
}


class SettingsOverrides(Struct, frozen=True):
    """Settings given on the command line."""

    cli: Mapping[str, str | None]
    config_file: Path | None

    def read(self) -> LoadedSettings:
        return load_settings(self.cli, os.environ, self.config_file)

    def load(self) -> LoadedSettings:
        """Loads the settings from all places and configures logging accordingly."""
        loaded = self.read()
        configure(loaded.settings.log_level, loaded.settings.log_format)
        return loaded


class SettingOption(click.Option):
    """The option of one setting. Its value stays text, which `config.loading` parses and validates."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(
            [option_name(setting.name), setting.name],
            metavar=_METAVARS.get(setting.type_text.split()[0], setting.type_text.replace(" or ", "|")),
            help=setting.description,
        )
        self.group = setting.group


class SettingsCommand(click.Command):
    """A command whose help lists its own options first, then the settings by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own_options_first = sorted(self.get_params(ctx), key=lambda option: isinstance(option, SettingOption))
        for title, options in groupby(own_options_first, key=_section):
            rows = [row for option in options if (row := option.get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _section(parameter: click.Parameter) -> str:
    return f"{parameter.group} settings" if isinstance(parameter, SettingOption) else "Options"


def option_name(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def setting_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds an option for each named setting, or for all settings.

    The decorated function receives a `SettingsOverrides` as its first argument.
    """
    offered = names or tuple(OFFERED)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(config_file: Path | None, **values: Any) -> Any:
            cli = {name: values.pop(name) for name in offered}
            global_config_file = click.get_current_context().find_root().obj
            return function(SettingsOverrides(cli, config_file or global_config_file), **values)

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        parameters = [_config_option(), *(SettingOption(OFFERED[name]) for name in offered)]
        own = getattr(function, "__click_params__", [])
        # click expects the parameters in reverse order.
        run.__click_params__ = [*reversed(parameters), *own]  # type: ignore[attr-defined]  # click's protocol
        return run

    return decorate


class NamedValue(click.ParamType[str]):
    """A value that is usually one of `names`, which shells complete. What else is valid is checked where it is used."""

    name = "name"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in self._names if name.startswith(incomplete)]


def _config_option() -> click.Option:
    path = click.Path(path_type=Path)
    return click.Option(["--config", "config_file"], type=path, help="TOML file with settings.")


def json_option(function: Decorated) -> Decorated:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
