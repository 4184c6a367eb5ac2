"""`florilegium search`: asks a library on this machine, without a server, and shows the hits to a person."""

import asyncio
from collections.abc import Iterator

import click

from aggregator.responses import KnowledgeAnswer, KnowledgeItem
from aggregator.search import KnowledgeSearch
from config.settings import Settings
from server.cli.local import demo_option, demo_settings, fill_demo, open_local, user_option
from server.cli.options import Given, SettingsCommand, json_option, setting_options
from server.cli.output import print_json
from server.cli.paint import Marker, clock, dim, harmless, say, source_style
from server.lifespan import build_knowledge
from sources.search.arguments import read_query

_LIMIT = 10


@click.command(cls=SettingsCommand)
@click.argument("query", nargs=-1, required=True)
@click.option("--source", "sources", multiple=True, help="Search only this source; may be given more than once.")
@click.option("--limit", type=click.IntRange(1, 100), default=_LIMIT, show_default=True, help="Hits to show.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Hits to skip.")
@click.option("--recent", is_flag=True, help="Newest first, and not best first.")
@user_option
@demo_option
@json_option
@setting_options("data_dir", "single_user_name")
def search(
    given: Given,
    query: tuple[str, ...],
    sources: tuple[str, ...],
    limit: int,
    offset: int,
    recent: bool,
    user: str | None,
    demo: bool,
    as_json: bool,
) -> None:
    """Search a library of this machine.

    QUERY is words, "phrases", prefix*, AND OR NOT, -word, tag:, sender:, after:2026-01-31. Options go before what
    begins with a hyphen: `search -- -word`.
    """
    loaded = given.load()
    settings = demo_settings(loaded) if demo else loaded.settings
    asked = KnowledgeSearch(
        query=" ".join(query),
        limit=limit,
        offset=offset,
        sources=sources,
        order_by="recent" if recent else "relevance",
    )
    answer = asyncio.run(_search(settings, user, asked, is_demo=demo))
    if as_json:
        print_json(answer)
    else:
        _show(answer, asked, settings)
    if not answer.results:
        click.get_current_context().exit(1)


async def _search(settings: Settings, user: str | None, asked: KnowledgeSearch, *, is_demo: bool) -> KnowledgeAnswer:
    async with open_local(settings, user, creates=is_demo) as local:
        if is_demo:
            await fill_demo(local)
        return await build_knowledge(settings, local.libraries).aggregator.search(local.context, asked)


def _show(answer: KnowledgeAnswer, asked: KnowledgeSearch, settings: Settings) -> None:
    marker = Marker(read_query(asked.query, settings))
    for number, item in enumerate(answer.results, asked.offset + 1):
        for line in _hit(number, item, marker):
            say(line)
        say()
    for remark in _remarks(answer):
        say(remark, err=True)


def _hit(number: int, item: KnowledgeItem, marker: Marker) -> Iterator[str]:
    about = [source_style(item.source), *_place(item), *([item.created_at[:10]] if item.created_at else [])]
    yield f"{number:>2} {marker.line(item.title or '(no title)', bold=True)}  {' · '.join(about)}"
    yield from marker.paragraph(item.snippet or "")
    yield "   " + dim(" · ".join([item.uri, *_counts(item)]))


def _place(item: KnowledgeItem) -> Iterator[str]:
    """Where in the item the hit is: the minute of a recording, the turn of a chat."""
    if item.loc is not None and item.loc.seconds is not None:
        yield click.style(clock(item.loc.seconds), bold=True)
    if item.sender:
        yield harmless(item.sender)
    if item.loc is not None and item.loc.message_index is not None:
        yield f"turn {item.loc.message_index + 1}"


def _counts(item: KnowledgeItem) -> Iterator[str]:
    yield f"score {item.score:.2f}"
    if item.cost_tokens:
        yield f"{item.cost_tokens} tokens"
    if item.more_in_item:
        yield f"{item.more_in_item} more in it"
    if item.also_in:
        yield f"also {' '.join(item.also_in)}"


def _remarks(answer: KnowledgeAnswer) -> Iterator[str]:
    """What a reader should know about the answer beside its hits."""
    if not answer.results:
        yield "nothing found"
    if answer.read_as:
        yield f"read as: {harmless(answer.read_as)}"
    for name, report in answer.sources.items():
        if report.status != "ok":
            yield f"{name}: {report.status}, {report.error or 'no reason given'}"
    if answer.next_offset is not None:
        yield f"there is more: --offset {answer.next_offset}"
