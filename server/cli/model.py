"""`florilegium model`: the models of semantic search on this machine."""

import asyncio
import sys
from difflib import get_close_matches
from pathlib import Path

import click
from msgspec import Struct

from config.errors import Conflict, InvalidParams
from config.settings import Settings
from server.cli.lazy_group import NamedValue, SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import create_data_root, data_root
from server.cli.options import admin_options
from server.cli.output import format_size, print_json, print_result, print_table
from sources.semantic.model_install import copy_from_folder, download, is_intact, remove
from sources.semantic.named_models import NAMED_MODELS, NamedModel, find_files, installed_folder
from sources.semantic.service import configured_model, configured_models

# A download that sends nothing for this long has stopped.
_MODEL_DOWNLOAD_TIMEOUT_S = 30.0

_name_argument = click.argument("name", type=NamedValue(tuple(NAMED_MODELS)))


class ModelRow(Struct, frozen=True):
    """One line of `model list`. `path` is empty and `origin` null if the model is not installed. `missing_packages` are
    those that the model needs to run."""

    name: str
    id: str
    dimension: int
    size: int
    license: str
    origin: str | None
    path: str
    missing_packages: list[str]
    is_active: bool


@click.group()
def model() -> None:
    """List, install and remove the models of semantic search."""


@model.command("list", cls=SettingsCommand)
@json_option
@setting_options("data_dir", "semantic_model")
def list_models(overrides: SettingsOverrides, as_json: bool) -> None:
    """List the models, where they are installed, and which are active."""
    settings = overrides.load().settings
    rows = [_row(named, settings) for named in NAMED_MODELS.values()]
    if as_json:
        print_json(rows)
        return
    cells = []
    for row in rows:
        where = f"{row.origin}: {row.path}" if row.origin else f"no; run `florilegium model install {row.name}`"
        if row.missing_packages:
            where += f" (needs {', '.join(row.missing_packages)})"
        numbers = (str(row.dimension), format_size(row.size))
        cells.append((row.name, "yes" if row.is_active else "", *numbers, row.license, where))
    print_table(("NAME", "ACTIVE", "DIMENSION", "SIZE", "LICENSE", "INSTALLED"), cells)
    active = configured_model(settings)
    if active is None:
        click.echo("\nSemantic search is off. Turn it on with the setting semantic_model.")
    elif active.name not in NAMED_MODELS:
        click.echo(f"\nActive: {active.id} at {settings.semantic_model}")


@model.command(cls=SettingsCommand)
@_name_argument
@click.option("--from", "folder", type=click.Path(path_type=Path), help="Copy the files from this folder, offline.")
@click.option("--mirror", default="", metavar="URL", help="Fetch the files from below this URL instead.")
@admin_options
def install(overrides: SettingsOverrides, name: str, folder: Path | None, mirror: str, as_json: bool) -> None:
    """Install the model NAME into the data directory.

    The files are fetched from Hugging Face, or copied with --from, and their checksums are verified. An interrupted
    download continues where it stopped. Nothing is fetched if an installed package carries the model.
    """
    named = _find(name)
    if folder and mirror:
        raise click.UsageError("--from and --mirror cannot be combined")
    settings = overrides.load().settings
    root = create_data_root(settings).root
    packaged = find_files(named, root)
    # Damaged files in the data directory are replaced, and a mirror that is named is used.
    if folder:
        message = f"{name} was copied to {copy_from_folder(named, root, folder)}"
    elif is_intact(named, root):
        message = f"{name} is already installed in {installed_folder(named, root)}"
    elif packaged is not None and packaged.origin and not mirror:
        place = packaged.weights.parent
        message = f"{name} is part of the package {packaged.origin}, in {place}; nothing was fetched"
    else:
        label = f"{name} ({format_size(named.size)})"
        with click.progressbar(length=named.size, label=label, file=sys.stderr) as bar:
            work = download(named, root, mirror=mirror, timeout_s=_MODEL_DOWNLOAD_TIMEOUT_S, progress=bar.update)
            message = f"{name} was installed in {asyncio.run(work)}"
    if as_json:
        print_json(_row(named, settings))
        return
    click.echo(message)
    if missing := named.missing_packages:
        click.echo(f"It also needs {', '.join(missing)}: install Florilegium with the extra `{named.extra}`.")


@model.command("remove", cls=SettingsCommand)
@_name_argument
@json_option
@setting_options("data_dir")
def remove_model(overrides: SettingsOverrides, name: str, as_json: bool) -> None:
    """Remove the model NAME from the data directory. Vectors that were made with it are kept."""
    named = _find(name)
    root = data_root(overrides.load().settings).root
    # A model that is part of an installed package belongs to pip.
    if remove(named, root):
        folder = str(installed_folder(named, root))
        print_result({"name": name, "removed_from": folder}, f"{name} was removed from {folder}", as_json=as_json)
        return
    paths = find_files(named, root)
    if paths is None:
        raise Conflict(f"the model {name} is not installed")
    raise Conflict(f"the model {name} is part of the package {paths.origin}; uninstall that package to remove it")


def _find(name: str) -> NamedModel:
    # NamedValue only completes the names.
    if name not in NAMED_MODELS:
        nearest = get_close_matches(name, NAMED_MODELS, 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise InvalidParams(f"NAME: expected {' or '.join(NAMED_MODELS)}, got {name!r}{hint}")
    return NAMED_MODELS[name]


def _row(named: NamedModel, settings: Settings) -> ModelRow:
    paths = find_files(named, data_root(settings).root)
    return ModelRow(
        name=named.name,
        id=named.info.id,
        dimension=named.info.dimension,
        size=paths.size if paths else named.size,
        license=named.license,
        origin=(f"package {paths.origin}" if paths.origin else "data directory") if paths else None,
        path=str(paths.weights.parent) if paths else "",
        missing_packages=named.missing_packages,
        is_active=named.info.id in [active.id for active in configured_models(settings)],
    )
