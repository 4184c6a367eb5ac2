"""`florilegium reindex`, which rebuilds the full-text indexes of a library, and `florilegium schema`."""

import asyncio
from collections.abc import Mapping

import click

from config.paths import UserId
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option
from server.cli.local_library import data_root, open_local
from server.cli.options import library_options
from server.cli.output import pluralize, print_result
from server.cli.progress import ProgressLine
from server.cli.remote import LocalApi, library_server
from server.directory_lock import locked_directory
from sources.installed import ADDED_KINDS, TABLE_KINDS
from sources.storage.postgres import PostgresLibraries
from sources.storage.postgres.tables import LIBRARY_STATEMENTS
from sources.storage.postgres.tables import kind_table as postgres_statements
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS, schema_statuses
from sources.storage.sqlite.maintenance.maintenance import reindex as reindex_file
from sources.storage.sqlite.schema.kinds import kind_statements as sqlite_statements


@click.command(cls=SettingsCommand)
@library_options
def reindex(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Rebuild the full-text indexes of a library from its rows.

    Needed if `florilegium check` reports a damaged index. Writes to the library wait until it is done. In PostgreSQL
    the index is built in batches, between which a server can write.
    """
    settings, entries = overrides.load().settings, dict[str, int]()
    if isinstance(server := library_server(settings, user), LocalApi):
        _print_entries(asyncio.run(server.run("reindex", {})), as_json)
        return

    async def work() -> UserId:
        async with open_local(settings, user) as local:
            if isinstance(local.libraries, PostgresLibraries):
                entries.update(await local.libraries.reindex(local.context.user_id))
            return local.context.user_id

    user_id, root = asyncio.run(work()), data_root(settings)
    if not settings.storage_url:
        # Files are indexed after the library was closed, with a connection of its own.
        with locked_directory(root.root, "reindex", "writer"), ProgressLine() as progress:
            for status in schema_statuses(root, user_id):
                progress.show(f"indexing {status.kind}.db")
                entries[status.kind] = reindex_file(root, user_id, status.kind, sqlite_options(settings))
    _print_entries(entries, as_json)


def _print_entries(entries: Mapping[str, int], as_json: bool) -> None:
    counts = ", ".join(f"{kind}: {pluralize(count, 'entries')}" for kind, count in entries.items())
    print_result(entries, counts or "Nothing to index.", as_json=as_json)


@click.command()
@click.argument("source", required=False)
@click.option("--engine", type=click.Choice(("sqlite", "postgres")), default="sqlite", show_default=True)
@json_option
def schema(source: str | None, engine: str, as_json: bool) -> None:
    """Print the SQL that creates the tables of a library, or those of SOURCE.

    The tables of notes, characters, prompts, observations and the kinds of other distributions derive from their
    declarations.
    """
    kinds = {kind.source: kind for kind in TABLE_KINDS}
    if source is not None and source not in kinds:
        raise click.BadParameter(f"expected one of {', '.join(kinds)}, got {source!r}", param_hint="SOURCE")
    of_kind = sqlite_statements if engine == "sqlite" else postgres_statements
    whole = LIBRARY_STATEMENTS
    if engine == "sqlite":
        whole = tuple(sql for database in SCHEMAS.values() for sql in database.statements)
    added = [sql for kind in ADDED_KINDS for sql in of_kind(kind)]
    statements = [sql.strip() for sql in (of_kind(kinds[source]) if source is not None else (*whole, *added))]
    print_result(statements, "\n".join(f"{statement};\n" for statement in statements), as_json=as_json)
