"""Options made from the table of settings. A secret is never an option: other accounts can read command lines."""

import os
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct

from config.loading import Loaded, load
from config.logging import configure
from config.settings import SETTINGS, Setting

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

OFFERED = {setting.name: setting for setting in SETTINGS if not setting.secret}
_METAVARS = {"true": "BOOL", "text": "TEXT", "whole": "INTEGER", "number": "NUMBER", "list": "LIST"}


class Given(Struct, frozen=True):
    """What the command line says of the settings."""

    cli: Mapping[str, str | None]
    config_file: Path | None

    def load(self) -> Loaded:
        """The settings from all places; from here on log lines look as the settings want them."""
        loaded = load(self.cli, os.environ, self.config_file)
        configure(loaded.settings.log_level, loaded.settings.log_format)
        return loaded


class SettingOption(click.Option):
    """The option of one setting; its value stays text, which `config.loading` reads and judges."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(
            [option_name(setting.name), setting.name],
            metavar=_METAVARS.get(setting.type_text.split()[0], setting.type_text.replace(" or ", "|")),
            help=setting.help,
        )
        self.group = setting.group


class SettingsCommand(click.Command):
    """Its help shows the command's own options first and the settings by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own_first = sorted(self.get_params(ctx), key=lambda option: isinstance(option, SettingOption))
        for title, options in groupby(own_first, key=_section):
            rows = [row for option in options if (row := option.get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _section(parameter: click.Parameter) -> str:
    return f"{parameter.group} settings" if isinstance(parameter, SettingOption) else "Options"


def option_name(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def setting_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds an option for each named setting, or for all, and hands the function a `Given` as its first argument."""
    offered = names or tuple(OFFERED)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(config_file: Path | None, **values: Any) -> Any:
            cli = {name: values.pop(name) for name in offered}
            named_before = click.get_current_context().find_root().obj
            return function(Given(cli, config_file or named_before), **values)

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        parameters = [_config_option(), *(SettingOption(OFFERED[name]) for name in offered)]
        own = getattr(function, "__click_params__", [])
        # click collects parameters from the last to the first.
        run.__click_params__ = [*reversed(parameters), *own]  # type: ignore[attr-defined]  # click's own protocol
        return run

    return decorate


def _config_option() -> click.Option:
    path = click.Path(path_type=Path)
    return click.Option(["--config", "config_file"], type=path, help="TOML file with settings.")


def json_option(function: Decorated) -> Decorated:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
