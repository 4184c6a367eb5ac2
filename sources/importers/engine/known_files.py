"""Files that came whole are known again by their digest, and need not be read a second time."""

import asyncio
import os
from hashlib import blake2b, file_digest, sha256

import msgspec
from msgspec import Struct

from sources.importers.engine.importer import DiscoveredFile
from sources.storage.contract import Bookmarks


class Known(Struct, frozen=True):
    """A file by its digest, and what was in it: items by kind, and what was left out by reason."""

    digest: str
    kinds: dict[str, int]
    skipped: dict[str, int]


def bookmark_of(found: DiscoveredFile) -> str:
    """By its place, which the library need not know."""
    return sha256(found.importer.name.encode() + b"\0" + os.fsencode(found.path.resolve())).hexdigest()


async def digest_of(found: DiscoveredFile, max_bytes: int) -> str | None:
    """With the edition of who reads it. There is none of a folder, nor of what will be refused when it is read."""
    if not found.importer.edition or not found.has_place or found.size_bytes > max_bytes:
        return None
    return await asyncio.to_thread(_digest, found)


def _digest(found: DiscoveredFile) -> str | None:
    try:
        with found.path.open("rb") as file:
            return f"{found.importer.edition} {file_digest(file, blake2b).hexdigest()}"
    except OSError:
        return None


async def find_known(bookmarks: Bookmarks, found: DiscoveredFile, digest: str) -> Known | None:
    kept = await bookmarks.get(bookmark_of(found))
    known = None if kept is None else msgspec.json.decode(kept, type=Known)
    return known if known is not None and known.digest == digest else None


async def remember(bookmarks: Bookmarks, found: DiscoveredFile, known: Known) -> None:
    await bookmarks.set(bookmark_of(found), msgspec.json.encode(known).decode())
