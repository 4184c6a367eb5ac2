"""`florilegium reindex`, which rebuilds the full-text indexes of a library, and `florilegium schema`."""

import asyncio

import click

from server.cli.caller import run_long
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option
from server.cli.options import library_options
from server.cli.output import pluralize, print_result
from server.cli.progress import ProgressLine
from sources.installed import ADDED_KINDS, TABLE_KINDS
from sources.storage.postgres.tables import LIBRARY_STATEMENTS
from sources.storage.postgres.tables import kind_table as postgres_statements
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS
from sources.storage.sqlite.schema.kinds import kind_statements as sqlite_statements


@click.command(cls=SettingsCommand)
@library_options
def reindex(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Rebuild the full-text indexes of a library from its rows.

    Needed if `florilegium check` reports a damaged index. Writes to the library wait until it is done. In PostgreSQL
    the index is built in batches, between which a server can write.
    """
    with ProgressLine() as line:

        def show(file: str) -> None:
            line.show(f"indexing {file}.db" if file else "indexing")

        entries = asyncio.run(run_long(overrides.load().settings, user, "reindex", show_progress=show))
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
