"""`florilegium search`: searches a library on this machine without a server."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from config.settings import Settings
from config.times import format_clock
from server.cli.caller import library_caller
from server.cli.lazy_group import NamedValue, SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.options import demo_option, demo_settings, user_option
from server.cli.output import MatchHighlighter, dim, echo, pluralize, print_json, source_style, strip_control_characters
from sources.installed import ITEM_KINDS

if TYPE_CHECKING:
    from msgspec import UnsetType

    from aggregator.contract import KnowledgeResponse
    from sources.items import GetResponse, Mode, ResultItem, SearchResponse
    from sources.records import SemanticStatus

_LIMIT = 10


@click.command(cls=SettingsCommand)
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=NamedValue(tuple(ITEM_KINDS)),
    help=f"Search only this source: {', '.join(ITEM_KINDS)}, or one that an extension adds; can be repeated.",
)
@click.option("--limit", type=click.IntRange(1, 100), default=_LIMIT, show_default=True, help="Hits to show.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Hits to skip.")
@click.option("--recent", is_flag=True, help="Sort by date, newest first, instead of by relevance.")
@user_option
@demo_option
@json_option
@setting_options("data_dir", "single_user_name", "semantic_model")
def search(
    overrides: SettingsOverrides,
    query: tuple[str, ...],
    sources: tuple[str, ...],
    limit: int,
    offset: int,
    recent: bool,
    user: str | None,
    demo: bool,
    as_json: bool,
) -> None:
    """Search a library.

    QUERY can contain words, "phrases", prefix*, AND OR NOT, -word, tag:, sender:, after:2026-01-31. Put -- before a
    query that starts with a hyphen: `search -- -draft budget`.
    """
    from aggregator.contract import KnowledgeSearch, without_repetition  # noqa: PLC0415 - not for `--help`
    from server.operations.knowledge import search_knowledge  # noqa: PLC0415 - not for `--help`

    loaded = overrides.load()
    settings = demo_settings(loaded) if demo else loaded.settings
    request = KnowledgeSearch(
        query=" ".join(query), limit=limit, offset=offset, sources=sources, order_by="recent" if recent else "relevance"
    )
    # People see the turn of a conversation, which the URI of a message says to programs.
    with library_caller(settings, user, is_demo=demo, loads_model=True, config={"hit_fields": "all"}) as call:
        response: KnowledgeResponse = call(search_knowledge, request)
    if as_json:
        print_json(without_repetition(response))
    else:
        print_hits(response.results, request.query, request.offset, settings)
        for note in _notes(response):
            echo(note, err=True)
    # As grep does, so that scripts can tell.
    if not response.results:
        click.get_current_context().exit(1)


def print_hits(items: "Sequence[ResultItem]", query: str, offset: int, settings: Settings) -> None:
    from aggregator.contract import KnowledgeItem  # noqa: PLC0415 - not for `--help`
    from sources.search.arguments import read_query  # noqa: PLC0415 - not for `--help`

    highlighter = MatchHighlighter(read_query(query, settings))
    for number, item in enumerate(items, offset + 1):
        about = [source_style(item.source), *_position(item), *([item.created_at[:10]] if item.created_at else [])]
        if item.library:
            about.append(strip_control_characters(item.library))
        echo(f"{number:>2} {highlighter.line(item.title or '(no title)', bold=True)}  {' · '.join(about)}")
        snippets = [item.snippet or ""]
        counts = [f"score {item.score:.2f}"]
        if item.cost_tokens:
            counts.append(pluralize(item.cost_tokens, "tokens"))
        if item.more_in_item:
            counts.append(f"{item.more_in_item} more in this item")
        if isinstance(item, KnowledgeItem):
            snippets += (f"{one.sender}: {one.snippet}" if one.sender else one.snippet for one in item.passages or ())
            if item.also_in:
                counts.append(f"also {' '.join(item.also_in)}")
        for snippet in snippets:
            for line in highlighter.paragraph(snippet):
                echo(line)
        echo("   " + dim(" · ".join([item.uri, *counts])))
        echo()


def _position(item: "ResultItem") -> Iterator[str]:
    """Yields the position of the hit in its item: the time in a recording, the turn in a conversation."""
    if item.loc is not None and item.loc.seconds is not None:
        yield click.style(format_clock(item.loc.seconds), bold=True)
    if item.sender:
        yield strip_control_characters(item.sender)
    if item.loc is not None and item.loc.message_index is not None:
        yield f"turn {item.loc.message_index + 1}"


# They go to stderr, so that stdout has only hits.
def _notes(response: "KnowledgeResponse") -> Iterator[str]:
    """Yields notes about the response as a whole."""
    from aggregator.contract import failed_reports  # noqa: PLC0415 - not for `--help`

    if not response.results:
        yield "No hits."
    if response.read_as:
        yield f"query interpretation: {strip_control_characters(response.read_as)}"
    yield from semantic_note(response.semantic)
    for name, report in failed_reports(response):
        yield f"{name}: {report.status}, {report.error or 'no reason given'}"
    if response.next_offset is not None:
        yield f"more hits: --offset {response.next_offset}"


def semantic_note(status: "SemanticStatus | UnsetType") -> Iterator[str]:
    """Yields a note if meanings should have been compared and were not, or not all."""
    from sources.records import SemanticStatus  # noqa: PLC0415 - not for `--help`

    match status:
        case SemanticStatus(status="partial", coverage=coverage, reason=reason):
            advice = reason or "run `florilegium embed` for the others"
            # Rounded down, but not by the inexact product of 0.29 and 100.
            percent = round((coverage or 0) * 1000) // 10
            yield f"meanings of {percent}% of the items compared; {strip_control_characters(advice)}"
        case SemanticStatus(status="unavailable" | "off", reason=str(reason)):
            yield f"only words compared: {strip_control_characters(reason)}"
        case _:
            return


# -- get ---------------------------------------------------------------------------------------------------------------
# `florilegium get`: shows an item of a library on this machine, or a part of it.

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
    mode: "Mode | None",
    query: str | None,
    seconds: float | None,
    max_tokens: int | None,
    cursor: str | None,
    user: str | None,
    demo: bool,
    as_json: bool,
) -> None:
    """Show an item of a library.

    `florilegium search` prints the URI below each hit.
    """
    from server.operations.knowledge import UriRequest, read_item_by_uri  # noqa: PLC0415 - not for `--help`

    loaded = overrides.load()
    settings = demo_settings(loaded) if demo else loaded.settings
    has_position = query is not None or seconds is not None
    # Attachments contain the times in a recording.
    request = UriRequest(
        uri=uri,
        query=query,
        cursor=cursor,
        seconds=seconds,
        mode=mode or ("chunk_with_siblings" if has_position else "full"),
        max_tokens=max_tokens,
        attachments=True,
    )
    with library_caller(settings, user, is_demo=demo) as call:
        response: GetResponse = call(read_item_by_uri, request)
    if as_json:
        print_json(response)
        return
    from sources.search.arguments import read_query  # noqa: PLC0415 - not for `--help`

    # Everything from the library passes `strip_control_characters` or the highlighter, which calls it: an imported text
    # could otherwise move the cursor or set the title of the terminal.
    highlighter, meta = MatchHighlighter(read_query(query or "", settings)), response.meta
    echo(f"{click.style(strip_control_characters(meta.title or '(no title)'), bold=True)}  {source_style(meta.source)}")
    day = [meta.created_at[:10]] if meta.created_at else []
    echo(dim(" · ".join([meta.uri, *day, *(strip_control_characters(tag) for tag in meta.tags or ())])))
    echo()
    for passage in _passages(response):
        echo(highlighter.text(passage))
    # Notes go to stderr, so that stdout has only the content.
    echo(pluralize(response.tokens, "tokens"), err=True)
    if response.next_cursor is not None:
        echo(f"truncated; continue with --cursor {response.next_cursor}", err=True)


def _passages(response: "GetResponse") -> Iterator[str]:
    """Yields the content. Passages of a recording start with their time."""
    starts = [(part["start"], part["start_ms"]) for part in response.attachments or () if "start_ms" in part]
    if not starts:
        yield response.content
        return
    ends = [start for start, _ in starts[1:]] + [len(response.content)]
    for (start, milliseconds), end in zip(starts, ends, strict=True):
        yield f"[{format_clock(milliseconds / 1000)}] {response.content[start:end].strip()}"


# -- similar -----------------------------------------------------------------------------------------------------------
# `florilegium similar`: finds items of a library on this machine that are similar to one of them.


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
    from aggregator.similar import ItemsSimilar  # noqa: PLC0415 - not for `--help`
    from server.operations.knowledge import find_similar_items  # noqa: PLC0415 - not for `--help`
    from sources.records import SemanticStatus  # noqa: PLC0415 - not for `--help`

    loaded = overrides.load()
    settings = demo_settings(loaded) if demo else loaded.settings
    request = ItemsSimilar(uri=uri, limit=limit, offset=offset)
    with library_caller(settings, user, is_demo=demo, loads_model=True) as call:
        response: SearchResponse = call(find_similar_items, request)
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
