"""Recognizes files that were imported completely, by digest, so that they need not be read again."""

import asyncio
import os
from hashlib import blake2b, sha256
from hashlib import file_digest as hash_file

import msgspec
from msgspec import Struct

from sources.importers.engine.confined_files import open_file
from sources.importers.engine.discovery import DiscoveredFile
from sources.importers.engine.summary import ImportSummary
from sources.storage.contract import Bookmarks


class KnownFile(Struct, frozen=True):
    """A completely imported file: its digest, its items by kind, and what was skipped by reason. `item` is the id of
    its only item, for documents."""

    digest: str
    kinds: dict[str, int]
    skipped: dict[str, int]
    item: str = ""


def bookmark_key(file: DiscoveredFile) -> str:
    """Identifies the file in the library's bookmarks. The path is hashed so that the library does not store it."""
    return sha256(file.importer.name.encode() + b"\0" + os.fsencode(file.path.resolve())).hexdigest()


async def content_digest(file: DiscoveredFile, max_bytes: int) -> str | None:
    """Returns the file's digest, prefixed with the importer's output version. Returns None if the file cannot be
    recognized again, or is too large to be read anyway."""
    if not file.importer.output_version or not file.has_stable_path or file.size_bytes > max_bytes:
        return None
    return await asyncio.to_thread(_content_digest, file)


def _content_digest(file: DiscoveredFile) -> str | None:
    try:
        with open_file(file.path) as content:
            return f"{file.importer.output_version} {hash_file(content, blake2b).hexdigest()}"
    except OSError:
        return None


async def find_known_file(bookmarks: Bookmarks, file: DiscoveredFile, digest: str) -> KnownFile | None:
    known = await load_known_file(bookmarks, bookmark_key(file))
    return known if known is not None and known.digest == digest else None


async def save_known_file(
    bookmarks: Bookmarks, file: DiscoveredFile, digest: str, summary: ImportSummary, item: str = ""
) -> None:
    kinds = {kind: counts.total for kind, counts in summary.kinds.items()}
    await store_known_file(bookmarks, bookmark_key(file), KnownFile(digest, kinds, summary.skipped, item))


async def load_known_file(bookmarks: Bookmarks, key: str) -> KnownFile | None:
    bookmark = await bookmarks.get(key)
    return None if bookmark is None else msgspec.json.decode(bookmark, type=KnownFile)


async def store_known_file(bookmarks: Bookmarks, key: str, known: KnownFile) -> None:
    await bookmarks.set(key, msgspec.json.encode(known).decode())
