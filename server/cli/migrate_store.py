"""`florilegium migrate-store`: moves all data between SQLite and PostgreSQL."""

import asyncio
from pathlib import Path

import click

from auth.registry import UserRecord
from config.errors import ConfigurationError
from config.loading import MIGRATION_SOURCE_VARIABLE, MIGRATION_TARGET_VARIABLE
from config.paths import DataRoot
from config.postgres.connection import ConnectionOptions
from config.postgres.url import describe_url, is_postgres_url, require_postgres_url
from config.settings import Settings
from server.cli.admin import data_root
from server.cli.options import SettingsCommand, SettingsOverrides, setting_options
from server.store_copy.libraries import LibraryCopy
from server.store_copy.migration import MigrationResult, migrate_to_postgres, migrate_to_sqlite

_FILES = "sqlite:"
Store = DataRoot | ConnectionOptions


@click.command("migrate-store", cls=SettingsCommand)
@click.option(
    "--to",
    "target",
    required=True,
    envvar=MIGRATION_TARGET_VARIABLE,
    metavar="STORE",
    help=f"postgresql://USER:PASSWORD@HOST/DATABASE, or sqlite:DIRECTORY. Default: ${MIGRATION_TARGET_VARIABLE}.",
)
@click.option(
    "--from",
    "source",
    envvar=MIGRATION_SOURCE_VARIABLE,
    metavar="STORE",
    help=f"Where the data is now. Default: ${MIGRATION_SOURCE_VARIABLE}, or the store of the settings.",
)
@setting_options("data_dir")
def migrate_store(overrides: SettingsOverrides, target: str, source: str | None) -> None:
    """Copy all users and libraries from SQLite to PostgreSQL, or back.

    The source is not changed. A server may use it meanwhile, until the last step: stop the server and run the command
    again, which copies what has changed. An interrupted command continues with the next library.

    Exit codes: 0 if the target is complete, 1 otherwise.
    """
    settings = overrides.load().settings
    original = _parse_store("--from", source) if source else _configured_store(settings)
    result = asyncio.run(_migrate(settings, original, _parse_store("--to", target)))
    click.echo(f"{result.copied} of {result.users} libraries copied, {result.rows} rows.")
    if result.pending:
        click.echo(f"Not complete: {result.pending}.")
        click.get_current_context().exit(1)
    click.echo("The target is complete. Set storage_url, or data_dir, to use it.")


async def _migrate(settings: Settings, source: Store, target: Store) -> MigrationResult:
    if isinstance(source, DataRoot) and isinstance(target, ConnectionOptions):
        click.echo(f"{source.root} -> PostgreSQL at {describe_url(target.url)}", err=True)
        return await migrate_to_postgres(settings, source, target, _print_progress)
    if isinstance(source, ConnectionOptions) and isinstance(target, DataRoot):
        click.echo(f"PostgreSQL at {describe_url(source.url)} -> {target.root}", err=True)
        return await migrate_to_sqlite(settings, source, target, _print_progress)
    raise ConfigurationError(
        "--to: expected the other engine; to copy SQLite files, use `florilegium backup`; to copy PostgreSQL, `pg_dump`"
    )


def _print_progress(user: UserRecord, copy: LibraryCopy | None) -> None:
    click.echo(f"{user.name}: {'not changed' if copy is None else f'{copy.rows} rows'}", err=True)


def _configured_store(settings: Settings) -> Store:
    return ConnectionOptions(url=settings.storage_url) if settings.storage_url else data_root(settings)


def _parse_store(option: str, text: str) -> Store:
    if text.startswith(_FILES):
        return DataRoot(Path(text.removeprefix(_FILES)).expanduser())
    if not is_postgres_url(text):
        raise ConfigurationError(f"{option}: expected postgresql://USER:PASSWORD@HOST/DATABASE or sqlite:DIRECTORY")
    require_postgres_url(option, text)
    return ConnectionOptions(url=text)
