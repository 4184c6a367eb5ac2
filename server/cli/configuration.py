"""`florilegium config` shows, writes and translates settings. Also `version` and `completion`."""

import os
import platform
import sqlite3
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from config.errors import ConfigurationError, Conflict, StorageError
from config.loading import describe_settings, find_config_file, sample_toml, settings_markdown, user_config_file
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import print_json, print_result, print_table
from server.protocol.messages import ALL_VERSIONS
from server.version import VERSION


@click.group()
def config() -> None:
    """Show the settings and their documentation, or write a sample file."""


@config.command(cls=SettingsCommand)
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@json_option
@setting_options()
def show(overrides: SettingsOverrides, origin: bool, as_json: bool) -> None:
    """Print the effective value of every setting. Secrets are masked."""
    loaded = overrides.load()
    rows = describe_settings(loaded)
    if as_json:
        print_json(rows)
    else:
        titles = ("SETTING", "VALUE", "UNIT", *(("ORIGIN",) if origin else ()))
        cells = [(row.name, row.value, row.unit, *((row.origin,) if origin else ())) for row in rows]
        print_table(titles, cells)
    # On stderr, so that --json stays JSON.
    for warning in loaded.warnings:
        click.echo(f"florilegium: warning: {warning}", err=True)


@config.command()
def docs() -> None:
    """Print the reference of all settings as Markdown."""
    click.echo(settings_markdown(), nl=False)


@config.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@json_option
def init(path: Path | None, as_json: bool) -> None:
    """Write a TOML file that contains every setting as a comment, with its default.

    PATH defaults to florilegium/florilegium.toml in your configuration folder; - prints the file. An existing file is
    not overwritten.
    """
    if path == Path("-"):
        click.echo(sample_toml(), nl=False)
        return
    target = path or user_config_file(os.environ)
    if target is None:
        raise ConfigurationError("the configuration folder depends on HOME, which is not set; pass a path")
    # Creates a file that only this account can read, because secrets may be added to it.
    text = sample_toml()
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise Conflict(f"{target} already exists; remove it or pass another path") from error
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {(error.strerror or 'input/output error').lower()}") from error
    text = f"Wrote {target}. Remove the # in front of the settings that you want to change."
    # Another file may come first in the order of places, and then the new one has no effect.
    found = find_config_file(None, os.environ)
    is_used = found is not None and found.resolve() == target.resolve()
    if not is_used:
        text += f"\nTo use it, pass `--config {target}` or set FLORILEGIUM_CONFIG."
    print_result({"path": str(target), "is_used": is_used}, text, as_json=as_json)


@config.command("import-tldw")
@click.argument("file", type=click.Path(path_type=Path))
def import_tldw(file: Path) -> None:
    """Print the settings that correspond to tldw's modules file.

    FILE is mcp_modules.yaml. Comments say what has no equivalent. Nothing is written: append the output to your
    florilegium.toml.
    """
    from server.compat.tldw.modules_file import read_modules_file  # noqa: PLC0415 - the YAML parser takes time to load

    click.echo(read_modules_file(file).as_toml(), nl=False)


# -- version -----------------------------------------------------------------------------------------------------------
# `florilegium version`: prints the installed version.


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    data = {
        "version": VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "protocol_versions": ALL_VERSIONS,
    }
    print_result(data, VERSION, as_json=as_json)


# -- completion --------------------------------------------------------------------------------------------------------
# `florilegium completion`: prints shell completion scripts.

_VARIABLE = "_FLORILEGIUM_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell. For bash: eval "$(florilegium completion bash)"."""
    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(context.find_root().command, {}, "florilegium", _VARIABLE).source())
