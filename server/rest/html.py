"""HTML pages: the page frame, the front page, and the page of an item.

All text is escaped, and no page contains or loads a script.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from starlette.responses import Response

from server.tools.compact import PASSAGE, Permalinks, title_of
from sources.items import GetResponse, Loc, ResultItem
from sources.records import ALTERNATE_BRANCH_LABEL
from sources.text.chunking import split_into_chunks

STYLE_PATH = "/static/page.css"
# Items contain text from anywhere. If escaping ever failed, the policy still stops scripts, loads and form posts.
PAGE_HEADERS = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}
_LINKABLE_SCHEMES = frozenset(("http", "https"))
# Links within a page need no host.
_PERMALINKS = Permalinks("")
# The size of the marked passage of a message: one or two sentences.
_PASSAGE_CHARS = 160

Attachment = Mapping[str, Any]


class TextRange(Struct, frozen=True):
    start: int
    end: int


class PageSection(Struct, frozen=True):
    """A part of an item's text with its own heading, and the fragment by which a link can point at it. `mark` is the
    range of the passage that the page was opened for."""

    text: str
    heading: str = ""
    fragment: str = ""
    mark: TextRange | None = None


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
        "<p>A knowledge server: AI assistants search and read a user's own library over MCP.</p>\n<ul>\n"
        "<li><code>/mcp</code>: the address for MCP clients</li>\n"
        '<li><a href="/docs">/docs</a>: the REST API</li>\n'
        '<li><a href="/healthz">/healthz</a>: the health check</li>\n</ul>\n</main>'
    )
    return html_page("Knowledge server", body)


def item_page(item: GetResponse, passage: str = "", offset: int | None = None) -> Response:
    """Returns the page of an item. The message or chunk that was read, or else the text of `passage`, is marked. Of a
    message, only the sentences at `offset` are, if it is set."""
    meta = item.meta
    title = title_of(meta, item.content)
    sections = "\n".join(map(_section_html, sections_of(item, _find_passage(item, passage), offset)))
    body = (
        f"<main>\n<h1>{escape(title)}</h1>\n"
        f'<p class="meta">{_meta_line(meta)}</p>\n{sections}\n</main>\n<footer>{_links(item)}</footer>'
    )
    return html_page(title, body)


def sections_of(item: GetResponse, mark: TextRange | None = None, offset: int | None = None) -> list[PageSection]:
    """Splits the text by message or timed passage if the item has attachments for them."""
    spans = [attachment for attachment in item.attachments or () if _fragment(attachment)]
    if not spans:
        return [PageSection(item.content, mark=mark)]
    return [_span_section(item.content, span, mark, offset) for span in spans]


def _span_section(content: str, span: Attachment, mark: TextRange | None, offset: int | None) -> PageSection:
    text = _without_sender(content[span["start"] : span["end"]], span)
    is_marked = mark is not None and mark.start == span["start"]
    return PageSection(text, _heading(span), _fragment(span), _sentences_at(text, offset) if is_marked else None)


def _sentences_at(text: str, offset: int | None) -> TextRange:
    """Returns the sentences around the offset, or all of the text if there is none."""
    if offset is not None:
        for chunk in split_into_chunks(text, _PASSAGE_CHARS, 0):
            if chunk.start <= offset < chunk.end:
                return TextRange(chunk.start, chunk.end)
    return TextRange(0, len(text))


def _find_passage(item: GetResponse, passage: str) -> TextRange | None:
    """Returns the range of the passage in the content, or None if the page was not opened for a passage."""
    if item.anchor not in ("loc", "query"):
        return None
    loc = item.meta.loc or Loc()
    for span in item.attachments or ():
        if (span.get("message_index"), span.get("chunk_index")) == (loc.message_index, loc.chunk_index):
            return TextRange(span["start"], span["end"])
    text = passage.strip()
    start = item.content.find(text) if text else -1
    return TextRange(start, start + len(text)) if start >= 0 else None


def _fragment(attachment: Attachment) -> str:
    if "message_id" in attachment:
        return str(attachment["message_id"])
    return f"t{attachment['start_ms'] // 1000}" if attachment.get("start_ms") is not None else ""


def _heading(attachment: Attachment) -> str:
    start_ms = attachment.get("start_ms")
    time = clock_time(start_ms) if start_ms is not None else attachment.get("created_at")
    return " · ".join(str(word) for word in (_speaker(attachment), time) if word)


def _speaker(attachment: Attachment) -> str:
    speaker = str(attachment.get("sender") or attachment.get("role") or attachment.get("speaker") or "")
    return speaker if attachment.get("is_canonical", True) else f"{speaker}{ALTERNATE_BRANCH_LABEL}"


def _without_sender(text: str, attachment: Attachment) -> str:
    """Removes the sender from the beginning of a message, because the heading names it already."""
    return text.removeprefix(f"{_speaker(attachment)}: ") if "message_id" in attachment else text


def clock_time(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _section_html(section: PageSection) -> str:
    text = f'<div class="text">{_marked_html(section.text, section.mark)}</div>'
    if not section.fragment:
        return text
    fragment, heading = escape(section.fragment), escape(section.heading)
    return f'<article id="{fragment}">\n<p class="who"><a href="#{fragment}">{heading}</a></p>\n{text}\n</article>'


def _marked_html(text: str, mark: TextRange | None) -> str:
    if mark is None:
        return escape(text)
    before, marked, after = (
        escape(part) for part in (text[: mark.start], text[mark.start : mark.end], text[mark.end :])
    )
    return f'{before}<mark id="{PASSAGE}">{marked}</mark>{after}'


def _meta_line(meta: ResultItem) -> str:
    return " · ".join(_meta_parts(meta))


def _meta_parts(meta: ResultItem) -> Iterator[str]:
    yield escape(meta.source)
    if meta.media_type:
        yield escape(meta.media_type)
    if meta.created_at:
        yield f"created {_date(meta.created_at)}"
    if meta.last_modified and meta.last_modified != meta.created_at:
        yield f"changed {_date(meta.last_modified)}"
    if meta.tags:
        yield escape(", ".join(meta.tags))
    if meta.url:
        yield _link(meta.url)


def _date(timestamp: str) -> str:
    return f'<time datetime="{escape(timestamp)}">{escape(timestamp[:10])}</time>'


def _link(address: str) -> str:
    """Links an http or https address. `javascript:` and other schemes stay text."""
    if not is_web_address(address):
        return escape(address)
    return f'<a href="{escape(address)}" rel="noopener noreferrer nofollow">{escape(address)}</a>'


def is_web_address(address: str) -> bool:
    try:
        return urlsplit(address).scheme in _LINKABLE_SCHEMES
    except ValueError:
        return False


def _links(item: GetResponse) -> str:
    item_url = _PERMALINKS.of(item.meta.uri)
    links = [f"<code>{escape(item.meta.uri)}</code>"]
    if item.mode != "full" or item.anchor == "cursor":
        links.append(f'<a href="{escape(item_url)}">from the beginning</a>')
    if item.next_cursor is not None:
        next_url = f"{escape(item_url)}?{urlencode({'cursor': item.next_cursor})}"
        links.append(f'<a href="{next_url}" rel="next">continue reading</a>')
    return " · ".join(links)
