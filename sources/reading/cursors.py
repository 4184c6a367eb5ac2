"""Cursors into one item: opaque to clients, bound to the item and to the version that was read.

A cursor names a position, never an owner: it gives access to nothing that the item's id does not. Cursors of another
item or version, and foreign ones, are rejected.
"""

import base64
import binascii
import hashlib

import msgspec
from msgspec import Struct

from config.errors import InvalidParams

_FORMAT = 1


class Position(Struct, frozen=True, array_like=True):
    """Character `offset` of part `index`; an item without parts is one part."""

    index: int = 0
    offset: int = 0


START = Position()


class _Cursor(Struct, frozen=True, array_like=True):
    format: int
    item: bytes
    version: int
    position: Position


def write_cursor(uri: str, version: int, position: Position) -> str:
    raw = msgspec.msgpack.encode(_Cursor(_FORMAT, _uri_digest(uri), version, position))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_cursor(text: str, uri: str, version: int) -> Position:
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.msgpack.decode(raw, type=_Cursor)
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError):
        cursor = None
    if cursor is None or cursor.format != _FORMAT or cursor.position.index < 0 or cursor.position.offset < 0:
        raise InvalidParams("cursor: expected the next_cursor of an earlier response, got an invalid cursor")
    if cursor.item != _uri_digest(uri):
        raise InvalidParams(f"cursor: expected a cursor of {uri}, got one of another item")
    if cursor.version != version:
        raise InvalidParams(
            f"cursor: expected a cursor of version {version}, got one of version {cursor.version}; the item has "
            "changed, read it again without cursor"
        )
    return cursor.position


def _uri_digest(uri: str) -> bytes:
    return hashlib.blake2b(uri.encode(), digest_size=6).digest()
