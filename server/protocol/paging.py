"""Pages of a list: first the registered entries, then the user's own.

A cursor is a position in that sequence. It carries no rights: another user's cursor reads the caller's own list.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from loguru import logger

from config.errors import FlorilegiumError, InvalidParams, Overloaded
from server.protocol.call import Call
from server.protocol.catalog import UserListing

# Section and offset. Nine digits exceed the size of any library and still fit every engine's integers.
_CURSOR = re.compile(rb"1:(\d{1,3}):(\d{1,9})")
_INVALID_CURSOR = "cursor: expected the nextCursor of an earlier page"

ListedEntries = Sequence[Mapping[str, Any]]


class ListingErrors:
    """Reads listings and records those that fail, so that a source that cannot be read costs only its own entries."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._errors: dict[str, Exception] = {}
        self._has_answer = False
        self.messages: dict[str, str] = {}

    async def read(self, listing: UserListing, offset: int, limit: int) -> tuple[ListedEntries, bool]:
        try:
            entries = await listing.page(self._call, offset, limit)
        except Overloaded:  # the source has not been asked
            raise
        except Exception as error:
            self._errors[listing.name] = error
            self.messages[listing.name] = _describe(listing.name, error)
            return (), False
        self._has_answer = True
        return entries

    def require_answer(self) -> None:
        """Raises the first error if no listing could be read: an empty list would mean that there is nothing."""
        if self._errors and not self._has_answer:
            raise next(iter(self._errors.values()))


async def read_page(
    registered: ListedEntries, listings: Sequence[UserListing], cursor: Any, size: int, errors: ListingErrors
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
        entries, has_more = await errors.read(listing, offset, max(room, 1))
        if room == 0 and entries:
            return page, _encode_cursor(number, offset)
        page += entries
        if has_more:
            return page, _encode_cursor(number, offset + len(entries))
        offset = 0
    return page, None


def _describe(name: str, error: Exception) -> str:
    """Returns what a caller may know about an error."""
    if isinstance(error, FlorilegiumError):
        return error.message
    logger.opt(exception=error).error("source {} failed in a list", name)
    return "failed unexpectedly"


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
