"""The compact shape of an item, `{id, title, text, url, metadata}`, as deep-research clients know it. What the
canonical shape says beside these goes into `metadata`; what it leaves empty is left out."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from aggregator.responses import KnowledgeAnswer
from sources.items import GetResponse, Loc, ResultItem

Shape = Literal["canonical", "compact"]
# Fields that the compact shape has under another name; an item opened by its id has no score worth telling.
_MOVED_OF_HIT = frozenset(("id", "title", "snippet", "uri", "url", "highlights"))
_MOVED_OF_ITEM = _MOVED_OF_HIT | {"score", "score_type"}
_TITLE_MAX_CHARS = 80


class CompactItem(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    text: str
    url: str
    metadata: Mapping[str, Any]


class Permalinks(Struct, frozen=True):
    """Addresses of items for people: what follows `://` in a URI follows the source in the path, and a recording opens
    at the second that is named."""

    base_url: str

    def of(self, uri: str, loc: Loc | None = None) -> str:
        source, _, path = uri.partition("://")
        moment = f"?t={loc.seconds:g}" if loc is not None and loc.seconds is not None else ""
        return f"{self._root}{source}/{path}{moment}"

    def uri_of(self, text: str) -> str:
        """The URI that a permalink stands for; any other text as it is."""
        source, separator, path = text.removeprefix(self._root).partition("?")[0].partition("/")
        return f"{source}://{path}" if text.startswith(self._root) and separator else text

    @property
    def _root(self) -> str:
        return f"{self.base_url}/items/"


def compact_answer(answer: KnowledgeAnswer, links: Permalinks) -> Mapping[str, Any]:
    """A page of hits; all that is told of the page as a whole stays."""
    told: dict[str, Any] = msgspec.to_builtins(answer)
    return {**told, "results": [compact_hit(item, links) for item in answer.results]}


def compact_hit(item: ResultItem, links: Permalinks) -> CompactItem:
    return CompactItem(
        id=item.uri,
        title=title_of(item, item.snippet or ""),
        text=item.snippet or "",
        url=links.of(item.uri, item.loc),
        metadata=_metadata(item, _MOVED_OF_HIT),
    )


def compact_item(read: GetResponse, links: Permalinks) -> CompactItem:
    """An item that was read, with how it was read in its metadata."""
    reading = {"mode": read.mode, "anchor": read.anchor, "tokens": read.tokens, "truncated": read.truncated}
    if read.over_budget is not UNSET:
        reading["over_budget"] = read.over_budget
    if read.next_cursor is not None:
        reading["next_cursor"] = read.next_cursor
    return CompactItem(
        id=read.meta.uri,
        title=title_of(read.meta, read.content),
        text=read.content,
        url=links.of(read.meta.uri, read.meta.loc),
        metadata={**_metadata(read.meta, _MOVED_OF_ITEM), **reading},
    )


def title_of(item: ResultItem, text: str) -> str:
    """Never empty, as the clients of this shape show nothing else: an item without a title is called by how it begins,
    and one without a text by its URI."""
    if item.title:
        return item.title
    begin = " ".join(text[: 2 * _TITLE_MAX_CHARS].split()) or item.uri
    return begin if len(begin) <= _TITLE_MAX_CHARS else begin[: _TITLE_MAX_CHARS - 1].rstrip() + "…"


def _metadata(item: ResultItem, moved: frozenset[str]) -> dict[str, Any]:
    told = msgspec.to_builtins(item)
    kept = {name: value for name, value in told.items() if name not in moved and value not in (None, [], {})}
    return {**kept, "source_url": item.url} if item.url else kept
