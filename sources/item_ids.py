"""Item ids as arguments: every tool that takes an id also takes the item's URI."""

from typing import Annotated
from urllib.parse import unquote

from msgspec import Meta, Struct

from config.errors import InvalidParams, NotFound
from sources.source import GetArguments

UriArgument = Annotated[str | None, Meta(description="Or the uri of a hit.")]


class SourceGetArguments(GetArguments, frozen=True, kw_only=True):
    """The arguments of a source's own get. Each source adds its id argument, which may be omitted if `uri` is set."""

    uri: UriArgument = None


class ItemId(Struct, frozen=True):
    """An item of a known source. `part` is the second segment of a URI, such as the id of a message."""

    id: str | int
    part: str | None = None


def item_id_from(source: str, argument: str, item_id: str | int | None, uri: str | None) -> ItemId:
    """Returns the item that is named by `argument`, whose value may be a URI, or by the argument `uri`.

    Raises InvalidParams if neither is set or if they contradict each other.
    """
    if uri is None:
        if item_id is None:
            raise InvalidParams(f"{argument}: expected the id or uri of a hit, got nothing")
        if not isinstance(item_id, str) or not item_id.startswith(f"{source}://"):
            return ItemId(item_id)
        return _parse(source, argument, item_id)
    parsed = _parse(source, "uri", uri)
    if item_id is not None and str(item_id) not in (str(parsed.id), uri):
        raise InvalidParams(f"{argument}: expected {parsed.id!r}, the value in uri, got {str(item_id)[:60]!r}")
    return parsed


def whole_item_id(source: str, argument: str, item_id: str | int | None, uri: str | None) -> str | int:
    """Returns the id of a whole item. A URI with a second segment does not name one."""
    parsed = item_id_from(source, argument, item_id, uri)
    if parsed.part is not None:
        raise NotFound("item", (uri or str(item_id))[:200])
    return parsed.id


def _parse(source: str, argument: str, uri: str) -> ItemId:
    scheme, separator, path = uri.partition("://")
    segments = [unquote(segment) for segment in path.split("/")]
    if scheme != source or not separator or not all(segments) or len(segments) > 2:
        raise InvalidParams(f"{argument}: expected a URI that starts with {source}://, got {uri[:60]!r}")
    return ItemId(segments[0], segments[1] if len(segments) == 2 else None)
