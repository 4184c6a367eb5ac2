"""Cursors into one item: opaque to the caller, bound to the item and to the version it was read at.

A cursor names a place, never an owner: it opens nothing that the item's id would not open. One of another item, of
another version, or not ours at all is refused with a sentence.
"""

import base64
import binascii
import hashlib

import msgspec
from msgspec import Struct

from config.errors import InvalidParams

_FORMAT = 1


class Position(Struct, frozen=True, array_like=True):
    """The `offset`-th character of the `index`-th part; an item that has no parts is one part."""

    index: int = 0
    offset: int = 0


START = Position()


class _Cursor(Struct, frozen=True, array_like=True):
    format: int
    item: bytes
    version: int
    position: Position


def write_cursor(uri: str, version: int, position: Position) -> str:
    raw = msgspec.msgpack.encode(_Cursor(_FORMAT, _mark(uri), version, position))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_cursor(cursor: str, uri: str, version: int) -> Position:
    found = _decode(cursor)
    if found is None or found.format != _FORMAT or found.position.index < 0 or found.position.offset < 0:
        raise InvalidParams("cursor: got one that is not ours, expected next_cursor of an earlier answer")
    if found.item != _mark(uri):
        raise InvalidParams(f"cursor: got one of another item, expected one that was given for {uri}")
    if found.version != version:
        raise InvalidParams(
            f"cursor: got one of version {found.version}, but the item has changed since and is now "
            f"version {version}; read it again without cursor"
        )
    return found.position


def _decode(cursor: str) -> _Cursor | None:
    try:
        raw = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(raw, type=_Cursor)
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError):
        return None


def _mark(uri: str) -> bytes:
    return hashlib.blake2b(uri.encode(), digest_size=6).digest()
