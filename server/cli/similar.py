"""`florilegium similar`: finds items of a library on this machine that are similar to one of them."""

import asyncio

import click

from aggregator.similar import ItemsSimilar
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import demo_option, demo_settings, open_local, user_option
from server.cli.output import print_json
from server.cli.search import print_hits, semantic_note
from server.cli.terminal import echo
from server.lifespan import build_knowledge
from sources.items import SearchResponse
from sources.records import SemanticStatus

_LIMIT = 10


@click.command(cls=SettingsCommand)
@click.argument("uri")
@click.option("--limit", type=click.IntRange(1, 100), default=_LIMIT, show_default=True, help="Hits to show.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Hits to skip.")
@user_option
@demo_option
@json_option
@setting_options("data_dir", "single_user_name", "semantic_model")
def similar(
    overrides: SettingsOverrides, uri: str, limit: int, offset: int, user: str | None, demo: bool, as_json: bool
) -> None:
    """Show items that are similar in meaning to an item.

    `florilegium search` prints the URI below each hit. Similar items need an embedding model, see the setting
    semantic_model, and embeddings, see `florilegium embed`.
    """
    loaded = overrides.load()
    settings = demo_settings(loaded) if demo else loaded.settings
    request = ItemsSimilar(uri=uri, limit=limit, offset=offset)

    async def work() -> SearchResponse:
        async with open_local(settings, user, is_demo=demo) as local:
            await local.semantic.load()
            return await build_knowledge(settings, local.libraries).similar.find(local.context, request)

    response = asyncio.run(work())
    if as_json:
        print_json(response)
    else:
        print_hits(response.results, "", request.offset, settings)
        if not response.results:
            status = response.semantic
            reason = status.reason if isinstance(status, SemanticStatus) else None
            echo(f"No similar items: {reason}." if reason else "No similar items.", err=True)
        for note in semantic_note(response.semantic):
            echo(note, err=True)
        if response.next_offset is not None:
            echo(f"more hits: --offset {response.next_offset}", err=True)
    if not response.results:
        click.get_current_context().exit(1)
