"""The compact shape of an item, `{id, title, text, url, metadata}`, which deep-research clients expect.

The other fields of the canonical shape go into `metadata`; empty ones are omitted.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Struct

from aggregator.responses import KnowledgeItem, KnowledgeResponse
from sources.items import GetResponse, Loc, ResultItem

# Fields that the compact shape has under another name. An item read by its id has no meaningful score.
_MOVED_OF_HIT = frozenset(("id", "title", "snippet", "passages", "uri", "url", "highlights"))
_MOVED_OF_ITEM = _MOVED_OF_HIT | {"score", "score_type"}
_TITLE_MAX_CHARS = 80
# The id of the marked passage in the page of an item.
PASSAGE = "passage"


# What a compact hit has in addition to a canonical one, besides the address of the server: longer names, the URI of the
# item once more as part of its address, and a position.
_HIT_EXTRA_BYTES = 128


class CompactItem(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    text: str
    url: str
    metadata: Mapping[str, Any]


class Permalinks(Struct, frozen=True):
    """URLs of item pages: `notes://6f1c` is `/items/notes/6f1c`. With a position they open at the passage, which is
    marked: `/items/notes/6f1c?at=120#passage`."""

    base_url: str

    def of(self, uri: str, loc: Loc | None = None) -> str:
        source, _, path = uri.partition("://")
        is_part = "/" in path
        parameters = {} if loc is None else _position(loc, is_part=is_part)
        query = f"?{urlencode(parameters)}" if parameters else ""
        fragment = f"#{PASSAGE}" if parameters or is_part else ""
        return f"{self._root}{source}/{path}{query}{fragment}"

    def uri_of(self, text: str) -> str:
        """Returns the URI of the item behind a permalink. Returns any other text unchanged."""
        address = text.removeprefix(self._root).partition("#")[0].partition("?")[0]
        source, separator, path = address.partition("/")
        return f"{source}://{path}" if text.startswith(self._root) and separator else text

    @property
    def hit_extra_bytes(self) -> int:
        """About how many bytes more a hit has in the compact shape."""
        return len(self.base_url.encode()) + _HIT_EXTRA_BYTES

    @property
    def _root(self) -> str:
        return f"{self.base_url}/items/"


def _position(loc: Loc, *, is_part: bool) -> dict[str, Any]:
    """Returns the query parameters of a permalink for a position. The URI of a part, such as a message, names it
    already."""
    message = {} if is_part else {"message": loc.message_id, "message_index": loc.message_index}
    if loc.message_id is not None:
        message.pop("message_index", None)
    chunk_index = loc.chunk_index if loc.seconds is None else None
    parameters = {
        "t": f"{loc.seconds:g}" if loc.seconds is not None else None,
        "chunk_index": chunk_index,
        **message,
        "field": loc.field,
        "at": loc.approx_offset,
    }
    return {name: value for name, value in parameters.items() if value is not None}


def compact_response(response: KnowledgeResponse, links: Permalinks) -> Mapping[str, Any]:
    """Converts the hits of a page. Fields about the page as a whole stay as they are."""
    fields: dict[str, Any] = msgspec.to_builtins(response)
    return {**fields, "results": [compact_hit(item, links) for item in response.results]}


def compact_hit(item: KnowledgeItem, links: Permalinks) -> CompactItem:
    return CompactItem(
        id=item.uri,
        title=title_of(item, item.snippet or ""),
        text=passages_text(item),
        url=links.of(item.uri, item.loc),
        metadata=_metadata(item, _MOVED_OF_HIT),
    )


def passages_text(item: KnowledgeItem) -> str:
    """The best passage, then the others of the item, one line each."""
    return "\n".join([item.snippet or "", *(passage.snippet for passage in item.passages or ())])


def compact_item(response: GetResponse, links: Permalinks) -> CompactItem:
    """Converts an item. Its metadata includes how it was read."""
    retrieval = {
        "mode": response.mode,
        "anchor": response.anchor,
        "tokens": response.tokens,
        "truncated": response.truncated,
    }
    if response.over_budget is not UNSET:
        retrieval["over_budget"] = response.over_budget
    if response.next_cursor is not None:
        retrieval["next_cursor"] = response.next_cursor
    return CompactItem(
        id=response.meta.uri,
        title=title_of(response.meta, response.content),
        text=response.content,
        url=links.of(response.meta.uri, response.meta.loc),
        metadata={**_metadata(response.meta, _MOVED_OF_ITEM), **retrieval},
    )


def title_of(item: ResultItem, text: str) -> str:
    """Returns a title that is never empty, because clients of this shape show nothing else.

    Falls back to the beginning of the text, then to the URI.
    """
    if item.title:
        return item.title
    start = " ".join(text[: 2 * _TITLE_MAX_CHARS].split()) or item.uri
    return start if len(start) <= _TITLE_MAX_CHARS else start[: _TITLE_MAX_CHARS - 1].rstrip() + "…"


def _metadata(item: ResultItem, moved: frozenset[str]) -> dict[str, Any]:
    fields = msgspec.to_builtins(item)
    metadata = {name: value for name, value in fields.items() if name not in moved and value not in (None, [], {})}
    return {**metadata, "source_url": item.url} if item.url else metadata
