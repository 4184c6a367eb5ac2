"""Commands that are imported only when they are used, so that `stdio` starts without the web stack."""

import errno
import gc
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from config.errors import ConfigurationError, DatabaseUnavailable, FlorilegiumError, InvalidParams
from config.loading import LoadedConfig, load_settings
from config.postgres.errors import describe_url
from config.settings import SETTINGS, Setting, Settings

# The settings of the running command, in click's context.
_SETTINGS = "florilegium.settings"
# The host of a PostgreSQL URL names its port, or is one of several.
_HAS_PORT = re.compile(r":\d+$|,|socket")
# How click's message about a wrong choice begins.
_REJECTED_CHOICE = re.compile(r"'([^']*)' is not one of ")

# Of errors that name no file.
_NAMELESS_PROBLEMS = {
    errno.ENOSPC: "the output cannot be written: the disk is full",
    errno.ENOENT: "the working directory does not exist any more",
}


@contextmanager
def lasting_objects() -> Iterator[None]:
    """Exempts what is created in the block from garbage collection.

    Modules last as long as the process. Collecting while they are imported and once more at exit takes a quarter of the
    time of a short command.
    """
    # CPU time of `florilegium search` with and without: 0.43 and 0.55 s, of `--help` 0.41 and 0.60 s.
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class CommandError(click.ClickException):
    """A FlorilegiumError on the command line: its message on stderr, one line per sentence, and exit code 1."""

    def show(self, file: Any = None) -> None:
        for sentence in self.message.splitlines():
            click.echo(f"florilegium: {sentence}", err=True)


class CommandUsageError(CommandError):
    """Invalid settings or arguments, with exit code 2."""

    exit_code = 2


class LazyGroup(click.Group):
    """`lazy` maps a command name to "module:object". Operations can declare further commands. A FlorilegiumError is
    reported without a traceback. Without arguments, only the commands in `first` are shown."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], first: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy
        self._first = first

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and self._first and not ctx.resilient_parsing:
            formatter = ctx.make_formatter()
            formatter.write_usage(ctx.command_path, "COMMAND")
            with formatter.section("Commands to start with"):
                commands = [(name, self.get_command(ctx, name)) for name in self._first]
                formatter.write_dl([(name, command.get_short_help_str(90)) for name, command in commands if command])
            click.echo(formatter.getvalue(), err=True)
            click.echo(f"`{ctx.command_path} --help` lists all {len(self.list_commands(ctx))} commands.", err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *(name for name in _operation_commands() if " " not in name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._lazy.get(cmd_name)
        if target is None:
            return _operation_commands().get(cmd_name)
        module, _, name = target.partition(":")
        # Each command imports only what it needs: `stdio` must not load starlette, jwt or uvicorn.
        with lasting_objects():
            command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests similar commands. click knows only commands that are loaded."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=self._lazy, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            from difflib import get_close_matches  # noqa: PLC0415 - only this error needs it

            kind, value = getattr(error.param, "type", None), _REJECTED_CHOICE.match(error.message)
            nearest = []
            if isinstance(kind, click.Choice) and value is not None:
                nearest = get_close_matches(value[1], [str(choice) for choice in kind.choices])
            if not nearest:
                raise
            message = f"{error.message} Did you mean {' or '.join(nearest)}?"
            raise click.BadParameter(message, error.ctx, error.param, error.param_hint) from None
        except (ConfigurationError, InvalidParams) as error:
            raise CommandUsageError(error.message) from error
        except UnicodeEncodeError as error:
            # Python reads bytes of an argument that are not UTF-8 as surrogates. In names of files they are allowed.
            if error.reason != "surrogates not allowed":
                raise
            raise CommandUsageError(f"expected arguments in UTF-8, got {error.object[:40]!r}") from error
        # Operators may see which PostgreSQL server was not reached, and why. Callers of a server may not.
        except DatabaseUnavailable as error:
            settings: Settings | None = ctx.meta.get(_SETTINGS)
            message = error.message
            if settings is not None and settings.storage_url:
                host, slash, database = describe_url(settings.storage_url).partition("/")
                port = "" if _HAS_PORT.search(host) else ":5432"
                message = message.replace("PostgreSQL server", f"PostgreSQL server at {host}{port}{slash}{database}")
            raise CommandError(f"{message} ({error.reason})" if error.reason else message) from error
        except FlorilegiumError as error:
            raise CommandError(error.message) from error
        except OSError as error:
            if error.filename is not None or error.errno not in _NAMELESS_PROBLEMS:
                raise
            if error.errno == errno.ENOSPC:  # what is left of the output would fail again at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise CommandError(_NAMELESS_PROBLEMS[error.errno]) from error


def _operation_commands() -> dict[str, click.Command]:
    # The declarations of all operations are loaded, so that only names that are not in the table are looked up here.
    from server.cli.operation_commands import find_commands  # noqa: PLC0415 - not for `--help`

    with lasting_objects():
        return find_commands()


# -- options -----------------------------------------------------------------------------------------------------------
# Command-line options generated from the settings table.
#
# Secrets are never options, because other accounts can read command lines.

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

OFFERED = {setting.name: setting for setting in SETTINGS if not setting.is_secret}
# The settings that people give on the command line; `--help` lists only these, and `--help-all` every one.
COMMON = ("host", "port", "public_url", "workers", "data_dir", "log_level", "semantic_model", "require_auth")
_HELP_ALL = "server.cli.help_all"
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

    def read(self) -> LoadedConfig:
        return load_settings(self.cli, os.environ, self.config_file)

    def load(self) -> LoadedConfig:
        """Loads the settings from all places and configures logging accordingly."""
        from config.logging import configure  # noqa: PLC0415 - not for `--help`

        loaded = self.read()
        if (context := click.get_current_context(silent=True)) is not None:
            context.meta[_SETTINGS] = loaded.settings
        configure(loaded.settings.log_level, loaded.settings.log_format)
        return loaded


class SettingOption(click.Option):
    """The option of one setting. Its value stays text, which `config.loading` parses and validates."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(
            ["--" + setting.name.replace("_", "-"), setting.name],
            metavar=_METAVARS.get(setting.type_text.split()[0], setting.type_text.replace(" or ", "|")),
            help=setting.description,
        )
        self.group = setting.group


class SettingsCommand(click.Command):
    """A command whose help lists its own options first, then settings: of a command that takes all of them the common
    ones, and with `--help-all` all of them by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Arguments are explained by the text of the command.
        parameters = [parameter for parameter in self.get_params(ctx) if not isinstance(parameter, click.Argument)]
        is_short = any(parameter.name == "help_all" for parameter in parameters) and not ctx.meta.get(_HELP_ALL)
        if is_short:
            parameters = [p for p in parameters if not isinstance(p, SettingOption) or p.name in COMMON]

        def section(parameter: click.Parameter) -> str:
            if not isinstance(parameter, SettingOption):
                return "Options"
            return "Common settings" if is_short else f"{parameter.group} settings"

        own_options_first = sorted(parameters, key=lambda option: isinstance(option, SettingOption))
        for title, options in groupby(own_options_first, key=section):
            rows = [row for option in options if (row := option.get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _print_all(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


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

        # click takes the help and the name of the command from these.
        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        # `--config` works before and after the name of the command.
        config_path = click.Path(path_type=Path)
        config = click.Option(["--config", "config_file"], type=config_path, help="TOML file with settings.")
        parameters = [config, *(SettingOption(OFFERED[name]) for name in offered)]
        if not names:
            eager: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
            help_all = "Show this message with all settings and exit."
            parameters.append(click.Option(["--help-all"], **eager, callback=_print_all, help=help_all))
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


def json_option(function: Decorated) -> Decorated:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
