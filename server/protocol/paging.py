"""Pages of a list: first the registered entries, then the user's own.

A cursor is a position in that sequence. It carries no rights: another user's cursor reads the caller's own list.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from config.errors import InvalidParams
from server.protocol.call import Call
from server.protocol.catalog import UserListing

# Section and offset. Nine digits exceed the size of any library and still fit every engine's integers.
_CURSOR = re.compile(rb"1:(\d{1,3}):(\d{1,9})")
_INVALID_CURSOR = "cursor: expected the nextCursor of an earlier page"

ListedEntries = Sequence[Mapping[str, Any]]


async def read_page(
    registered: ListedEntries, listings: Sequence[UserListing], call: Call, cursor: Any, size: int
) -> tuple[list[Mapping[str, Any]], str | None]:
    """Returns at most `size` entries from the cursor on, and the cursor of the next page, if there is one."""
    section, offset = _decode_cursor(cursor)
    if section > len(listings) or (section == 0 and offset > len(registered)):
        raise InvalidParams(_INVALID_CURSOR)
    page: list[Mapping[str, Any]] = []
    if section == 0:
        page += registered[offset : offset + size]
        if offset + size < len(registered):
            return page, _encode_cursor(0, offset + size)
        section, offset = 1, 0
    for number, listing in enumerate(listings[section - 1 :], start=section):
        room = size - len(page)
        # A full page still has to know whether entries follow, or its cursor could lead to an empty page.
        entries, has_more = await listing.page(call, offset, max(room, 1))
        if room == 0 and entries:
            return page, _encode_cursor(number, offset)
        page += entries
        if has_more:
            return page, _encode_cursor(number, offset + len(entries))
        offset = 0
    return page, None


def _encode_cursor(section: int, offset: int) -> str:
    return base64.urlsafe_b64encode(f"1:{section}:{offset}".encode()).decode()


def _decode_cursor(cursor: Any) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    try:
        match = _CURSOR.fullmatch(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (AttributeError, ValueError, binascii.Error):
        match = None
    if match is None:
        raise InvalidParams(_INVALID_CURSOR)
    return int(match[1]), int(match[2])
