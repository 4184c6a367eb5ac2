"""`florilegium get`: one item of a library on this machine, or the part of it that matters, shown to a person."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from aggregator.retrieval import KnowledgeGet
from config.settings import Settings
from server.cli.local import demo_option, demo_settings, fill_demo, open_local, user_option
from server.cli.options import Given, SettingsCommand, json_option, setting_options
from server.cli.output import print_json
from server.cli.paint import Marker, clock, dim, harmless, say, source_style
from server.lifespan import build_knowledge
from sources.items import GetResponse
from sources.search.arguments import read_query

_MODES = ("snippet", "chunk", "chunk_with_siblings", "full")
_TIME = re.compile(r"(?:(?:(\d{1,3}):)?(\d{1,4}):)?(\d{1,6})", re.ASCII)


class Moment(click.ParamType[float]):
    """A time in a recording, as searches show it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _TIME.fullmatch(str(value))
        if found is None:
            self.fail(f"got {str(value)[:40]!r}, expected a time such as 04:12, 1:04:12 or 252", param, ctx)
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(hours * 3600 + minutes * 60 + seconds)


@click.command(cls=SettingsCommand)
@click.argument("uri")
@click.option(
    "--mode", type=click.Choice(_MODES), help="How much. Default: full, or with --query or --at chunk_with_siblings."
)
@click.option("--query", help="Read where this matches.")
@click.option("--at", "seconds", type=Moment(), metavar="MM:SS", help="Read there, in a recording.")
@click.option("--max-tokens", type=click.IntRange(1), help="Budget of the whole answer.")
@click.option("--cursor", help="Read on, where an earlier answer was cut.")
@user_option
@demo_option
@json_option
@setting_options("data_dir", "single_user_name")
def get(given: Given, uri: str, user: str | None, demo: bool, as_json: bool, **options: Any) -> None:
    """Read an item of a library of this machine.

    URI is what a search shows below a hit.
    """
    loaded = given.load()
    settings = demo_settings(loaded) if demo else loaded.settings
    answer = asyncio.run(_get(settings, user, _reading(uri, **options), is_demo=demo))
    if as_json:
        print_json(answer)
    else:
        _show(answer, options["query"] or "", settings)


def _reading(
    uri: str, mode: str | None, query: str | None, seconds: float | None, max_tokens: int | None, cursor: str | None
) -> KnowledgeGet:
    has_place = query is not None or seconds is not None
    return msgspec.convert(
        {
            "uri": uri,
            "query": query,
            "cursor": cursor,
            "loc": {"seconds": seconds} if seconds is not None else None,
            "retrieval": {"mode": mode or ("chunk_with_siblings" if has_place else "full"), "max_tokens": max_tokens},
        },
        KnowledgeGet,
    )


async def _get(settings: Settings, user: str | None, asked: KnowledgeGet, *, is_demo: bool) -> GetResponse:
    async with open_local(settings, user, creates=is_demo) as local:
        if is_demo:
            await fill_demo(local)
        return await build_knowledge(settings, local.libraries).retriever.get(local.context, asked)


def _show(answer: GetResponse, query: str, settings: Settings) -> None:
    marker, meta = Marker(read_query(query, settings)), answer.meta
    say(f"{click.style(harmless(meta.title or '(no title)'), bold=True)}  {source_style(meta.source)}")
    day = [meta.created_at[:10]] if meta.created_at else []
    say(dim(" · ".join([meta.uri, *day, *(harmless(tag) for tag in meta.tags or ())])))
    say()
    for passage in _passages(answer):
        say(marker.text(passage))
    for remark in _remarks(answer):
        say(remark, err=True)


def _passages(answer: GetResponse) -> Iterator[str]:
    """The content; where it was spoken, each part of it behind its time."""
    starts = [(part["start"], part["start_ms"]) for part in answer.attachments or () if "start_ms" in part]
    if not starts:
        yield answer.content
        return
    ends = [start for start, _ in starts[1:]] + [len(answer.content)]
    for (start, milliseconds), end in zip(starts, ends, strict=True):
        yield f"[{clock(milliseconds / 1000)}] {answer.content[start:end].strip()}"


def _remarks(answer: GetResponse) -> Iterator[str]:
    yield f"{answer.tokens} tokens"
    if answer.next_cursor is not None:
        yield f"there is more: --cursor {answer.next_cursor}"
