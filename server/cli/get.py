"""`florilegium get`: shows an item of a library on this machine, or a part of it."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from aggregator.retrieval import KnowledgeGet
from config.settings import Settings
from config.times import format_clock
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import demo_option, demo_settings, open_local, user_option
from server.cli.output import print_json
from server.cli.remote import remote_server
from server.cli.terminal import MatchHighlighter, dim, echo, source_style, strip_control_characters
from server.lifespan import build_knowledge
from sources.items import GetResponse
from sources.search.arguments import read_query

_MODES = ("snippet", "chunk", "chunk_with_siblings", "full")
_TIME = re.compile(r"(?:(?:(\d{1,3}):)?(\d{1,4}):)?(\d{1,6})", re.ASCII)


class RecordingTime(click.ParamType[float]):
    """A time in a recording, in the format that search results show."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _TIME.fullmatch(str(value))
        if match is None:
            self.fail(f"expected a time such as 04:12, 1:04:12 or 252, got {str(value)[:40]!r}", param, ctx)
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(hours * 3600 + minutes * 60 + seconds)


@click.command(cls=SettingsCommand)
@click.argument("uri")
@click.option(
    "--mode",
    type=click.Choice(_MODES),
    help="How much to show. Default: full, or chunk_with_siblings with --query or --at.",
)
@click.option("--query", help="Show the passage that matches this query.")
@click.option("--at", "seconds", type=RecordingTime(), metavar="MM:SS", help="Show this position of a recording.")
@click.option("--max-tokens", type=click.IntRange(1), help="Maximum size of the response.")
@click.option("--cursor", help="Continue a truncated response.")
@user_option
@demo_option
@json_option
@setting_options("data_dir", "single_user_name")
def get(
    overrides: SettingsOverrides,
    uri: str,
    mode: str | None,
    query: str | None,
    seconds: float | None,
    max_tokens: int | None,
    cursor: str | None,
    user: str | None,
    demo: bool,
    as_json: bool,
) -> None:
    """Show an item of a library on this machine.

    `florilegium search` prints the URI below each hit.
    """
    loaded = overrides.load()
    settings = demo_settings(loaded) if demo else loaded.settings
    has_position = query is not None or seconds is not None
    mode = mode or ("chunk_with_siblings" if has_position else "full")
    shared = {"uri": uri, "query": query, "cursor": cursor}
    # Attachments contain the times in a recording.
    if (server := remote_server()) is not None:
        fields = {**shared, "mode": mode, "seconds": seconds, "max_tokens": max_tokens, "attachments": "true"}
        response = msgspec.json.decode(server.request("GET", "/api/v1/items", query=fields), type=GetResponse)
    else:
        loc = {"seconds": seconds} if seconds is not None else None
        retrieval = {"mode": mode, "max_tokens": max_tokens, "attachments": True}
        request = msgspec.convert({**shared, "loc": loc, "retrieval": retrieval}, KnowledgeGet)

        async def work() -> GetResponse:
            async with open_local(settings, user, is_demo=demo) as local:
                return await build_knowledge(settings, local.libraries).retriever.get(local.context, request)

        response = asyncio.run(work())
    if as_json:
        print_json(response)
    else:
        _show(response, query or "", settings)


# Everything from the library passes `strip_control_characters` or the highlighter, which does: an imported text could
# otherwise move the cursor or set the title of the terminal.
def _show(response: GetResponse, query: str, settings: Settings) -> None:
    highlighter, meta = MatchHighlighter(read_query(query, settings)), response.meta
    echo(f"{click.style(strip_control_characters(meta.title or '(no title)'), bold=True)}  {source_style(meta.source)}")
    day = [meta.created_at[:10]] if meta.created_at else []
    echo(dim(" · ".join([meta.uri, *day, *(strip_control_characters(tag) for tag in meta.tags or ())])))
    echo()
    for passage in _passages(response):
        echo(highlighter.text(passage))
    # Notes go to stderr, so that stdout has only the content.
    echo(f"{response.tokens} tokens", err=True)
    if response.next_cursor is not None:
        echo(f"truncated; continue with --cursor {response.next_cursor}", err=True)


def _passages(response: GetResponse) -> Iterator[str]:
    """Yields the content. Passages of a recording start with their time."""
    starts = [(part["start"], part["start_ms"]) for part in response.attachments or () if "start_ms" in part]
    if not starts:
        yield response.content
        return
    ends = [start for start, _ in starts[1:]] + [len(response.content)]
    for (start, milliseconds), end in zip(starts, ends, strict=True):
        yield f"[{format_clock(milliseconds / 1000)}] {response.content[start:end].strip()}"
