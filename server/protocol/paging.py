"""Pages of a list: first what everyone may see, then what only this caller has. A cursor is a place in that row; it
carries no rights, so a foreign one leads into the reader's own list. One that is not ours is refused.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from config.errors import InvalidParams
from server.protocol.call import Call
from server.protocol.catalog import Listing

# Section and offset. Nine digits: more entries than a library can hold, and still a number every engine can count to.
_CURSOR = re.compile(rb"1:(\d{1,3}):(\d{1,9})")

Entries = Sequence[Mapping[str, Any]]


async def read_page(
    fixed: Entries, listings: Sequence[Listing], call: Call, cursor: Any, size: int
) -> tuple[list[Mapping[str, Any]], str | None]:
    """At most `size` entries from the cursor on, and the cursor of the next page if there is one."""
    section, offset = _read(cursor)
    if section > len(listings) or (section == 0 and offset > len(fixed)):
        raise InvalidParams("cursor is not one of ours")
    page: list[Mapping[str, Any]] = []
    if section == 0:
        page += fixed[offset : offset + size]
        if offset + size < len(fixed):
            return page, _write(0, offset + size)
        section, offset = 1, 0
    for number, listing in enumerate(listings[section - 1 :], start=section):
        room = size - len(page)
        # A full page still has to know whether anything follows, or its cursor could lead to an empty one.
        entries, has_more = await listing.page(call, offset, max(room, 1))
        if room == 0 and entries:
            return page, _write(number, offset)
        page += entries
        if has_more:
            return page, _write(number, offset + len(entries))
        offset = 0
    return page, None


def _write(section: int, offset: int) -> str:
    return base64.urlsafe_b64encode(f"1:{section}:{offset}".encode()).decode()


def _read(cursor: Any) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    try:
        found = _CURSOR.fullmatch(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (AttributeError, ValueError, binascii.Error):
        found = None
    if found is None:
        raise InvalidParams("cursor is not one of ours")
    return int(found[1]), int(found[2])
