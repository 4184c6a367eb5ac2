"""HTML for people: one frame, and the page of an item. Every text is escaped; no page holds or fetches a script."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from starlette.responses import Response

from server.tools.compact import Permalinks, title_of
from sources.items import GetResponse, ResultItem
from sources.records import ALTERNATE_BRANCH_LABEL

STYLE_PATH = "/static/page.css"
# Content comes from anywhere. If escaping ever failed, nothing of it could run, load or be sent elsewhere.
PAGE_HEADERS = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LINKED = frozenset(("http", "https"))
# Within a page a link needs no host.
_PERMALINKS = Permalinks("")

Attachment = Mapping[str, Any]


class Part(Struct, frozen=True):
    """A piece of an item's text under a heading of its own, and the name by which a link can point at it."""

    text: str
    label: str = ""
    name: str = ""


def html_page(title: str, body: str, status: int = 200) -> Response:
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · Florilegium</title>\n"
        f'<link rel="stylesheet" href="{STYLE_PATH}">\n</head>\n<body>\n{body}\n</body>\n</html>\n'
    )
    return Response(text, status, PAGE_HEADERS, "text/html")


def message_page(title: str, sentences: Sequence[str], status: int) -> Response:
    paragraphs = "\n".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return html_page(title, f"<main>\n<h1>{escape(title)}</h1>\n{paragraphs}\n</main>", status)


def front_page(version: str) -> Response:
    body = (
        f'<main>\n<h1>Florilegium</h1>\n<p class="meta">version {escape(version)}</p>\n'
        "<p>A knowledge server: assistants search and read their user's own library here, by MCP.</p>\n<ul>\n"
        "<li><code>/mcp</code>: the address for MCP clients</li>\n"
        '<li><a href="/docs">/docs</a>: the REST operations</li>\n'
        '<li><a href="/healthz">/healthz</a>: whether it is up</li>\n</ul>\n</main>'
    )
    return html_page("A knowledge server", body)


def item_page(item: GetResponse) -> Response:
    meta = item.meta
    title = title_of(meta, item.content)
    parts = "\n".join(map(_part_html, parts_of(item)))
    body = (
        f"<main>\n<h1>{escape(title)}</h1>\n"
        f'<p class="meta">{_meta_line(meta)}</p>\n{parts}\n</main>\n<footer>{_links(item)}</footer>'
    )
    return html_page(title, body)


def parts_of(item: GetResponse) -> list[Part]:
    """The text by message or timed passage where the answer tells them, else in one piece."""
    spans = [told for told in item.attachments or () if _name_of(told)]
    if not spans:
        return [Part(item.content)]
    return [
        Part(_without_sender(item.content[told["start"] : told["end"]], told), _label_of(told), _name_of(told))
        for told in spans
    ]


def _name_of(told: Attachment) -> str:
    if "message_id" in told:
        return str(told["message_id"])
    return f"t{told['start_ms'] // 1000}" if told.get("start_ms") is not None else ""


def _label_of(told: Attachment) -> str:
    when = clock_time(told["start_ms"]) if told.get("start_ms") is not None else told.get("created_at")
    return " · ".join(str(word) for word in (_speaker(told), when) if word)


def _speaker(told: Attachment) -> str:
    speaker = str(told.get("sender") or told.get("role") or told.get("speaker") or "")
    return speaker if told.get("is_canonical", True) else f"{speaker}{ALTERNATE_BRANCH_LABEL}"


def _without_sender(text: str, told: Attachment) -> str:
    """A message's text begins with its sender, whom the label names already."""
    return text.removeprefix(f"{_speaker(told)}: ") if "message_id" in told else text


def clock_time(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _part_html(part: Part) -> str:
    text = f'<div class="text">{escape(part.text)}</div>'
    if not part.name:
        return text
    name, label = escape(part.name), escape(part.label)
    return f'<article id="{name}">\n<p class="who"><a href="#{name}">{label}</a></p>\n{text}\n</article>'


def _meta_line(meta: ResultItem) -> str:
    return " · ".join(_meta_words(meta))


def _meta_words(meta: ResultItem) -> Iterator[str]:
    yield escape(meta.source)
    if meta.media_type:
        yield escape(meta.media_type)
    if meta.created_at:
        yield f"created {_day(meta.created_at)}"
    if meta.last_modified and meta.last_modified != meta.created_at:
        yield f"changed {_day(meta.last_modified)}"
    if meta.tags:
        yield escape(", ".join(meta.tags))
    if meta.url:
        yield _link(meta.url)


def _day(moment: str) -> str:
    return f'<time datetime="{escape(moment)}">{escape(moment[:10])}</time>'


def _link(address: str) -> str:
    """A link where the address is one that a browser may follow; `javascript:` and its kin stay text."""
    if not is_web_address(address):
        return escape(address)
    return f'<a href="{escape(address)}" rel="noopener noreferrer nofollow">{escape(address)}</a>'


def is_web_address(address: str) -> bool:
    try:
        return urlsplit(address).scheme in _LINKED
    except ValueError:
        return False


def _links(item: GetResponse) -> str:
    whole = _PERMALINKS.of(item.meta.uri)
    links = [f"<code>{escape(item.meta.uri)}</code>"]
    if item.mode != "full" or item.anchor == "cursor":
        links.append(f'<a href="{escape(whole)}">from the beginning</a>')
    if item.next_cursor is not None:
        links.append(f'<a href="{escape(whole)}?{urlencode({"cursor": item.next_cursor})}" rel="next">read on</a>')
    return " · ".join(links)
