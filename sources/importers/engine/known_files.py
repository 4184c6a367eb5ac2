"""Recognizes files that were imported completely, by digest, so that they need not be read again."""

import asyncio
import os
from collections.abc import Sequence, Set
from hashlib import blake2b, sha256
from hashlib import file_digest as hash_file

import msgspec
from msgspec import UNSET, Struct, structs

from config.errors import NotFound
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.discovery import DiscoveredFile
from sources.importers.engine.events import ImportedItem, ImportedMedia, ImportedNote, stable_uuid
from sources.storage.contract import Bookmarks, Library


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
    # An upload has a new path every time, so that no bookmark could be found again.
    if not file.importer.output_version or not file.has_stable_path or file.size_bytes > max_bytes:
        return None

    def digest() -> str:
        with open_file(file.path) as content:
            return hash_file(content, blake2b).hexdigest()

    try:
        return f"{file.importer.output_version} {await asyncio.to_thread(digest)}"
    except OSError:
        return None


async def load_known_file(bookmarks: Bookmarks, key: str) -> KnownFile | None:
    bookmark = await bookmarks.get(key)
    return None if bookmark is None else msgspec.json.decode(bookmark, type=KnownFile)


async def store_known_file(bookmarks: Bookmarks, key: str, known: KnownFile) -> None:
    await bookmarks.set(key, msgspec.json.encode(known).decode())


# -- moved files -------------------------------------------------------------------------------------------------------
# Recognizes items that were imported under another id: documents that were moved or renamed, by their bytes, and notes
# of formats whose ids an earlier version derived differently.
#
# A document is identified by its location. The library also remembers, for every imported document, which item it
# became and which location owns that item. A document at a new location whose bytes are known takes the item over;
# another document that is later saved at the old location gets an item of its own. Locations are stored as digests.


class DocumentIdentity:
    """Finds the item that a document becomes. `locations` are those of all files of this import: a document that is
    still at its old location is a copy, and not moved."""

    def __init__(self, bookmarks: Bookmarks, file: DiscoveredFile, digest: str, locations: Set[str]) -> None:
        self._bookmarks = bookmarks
        self._location = bookmark_key(file)
        self._importer = file.importer.name
        self._digest = digest
        self._locations = locations
        self._old_location = ""
        self.item = ""

    async def resolve(self, item: ImportedItem) -> ImportedItem:
        """Returns the item with the id under which it is stored."""
        if not isinstance(item, ImportedMedia) or item.draft.uuid is UNSET:
            return item
        natural = item.draft.uuid
        # A document that was imported from this location before keeps its item, whatever it contains now.
        known = await load_known_file(self._bookmarks, self._location)
        if known is not None and known.digest:
            self.item = known.item or natural
        else:
            # Next, the same bytes at a location that no longer has a file of this import.
            old = await self._bookmarks.get(self._content_key)
            is_moved = old is not None and old != self._location and old not in self._locations
            moved = await load_known_file(self._bookmarks, old) if old is not None and is_moved else None
            owner = await self._bookmarks.get(_key("item", natural))
            if old is not None and moved is not None and moved.digest == self._digest and moved.item:
                self._old_location, self.item = old, moved.item
            elif owner in (None, self._location):
                self.item = natural
            else:
                # The item of this location was taken over by the document that moved away: this is another document.
                self.item = stable_uuid(self._importer, "media", f"{natural}\0{self._digest}")
        return ImportedMedia(structs.replace(item.draft, uuid=self.item))

    async def save(self) -> None:
        """Remembers who owns the item, and forgets its old location. Called after the item was written."""
        if self.item:
            await self._bookmarks.set(self._content_key, self._location)
            await self._bookmarks.set(_key("item", self.item), self._location)
        if self._old_location:
            # An empty digest: another document at the old location is not taken for the one that moved.
            await store_known_file(self._bookmarks, self._old_location, KnownFile("", {}, {}))

    @property
    def _content_key(self) -> str:
        return _key("content", f"{self._importer}\0{self._digest}")


async def keep_former_ids(library: Library, items: Sequence[ImportedItem]) -> Sequence[ImportedItem]:
    """Returns notes that an earlier version imported with the ids that it gave them. It gave equal ids to notes of
    different files that have the same title and time. Of these, one keeps the id, and the others get new ones."""
    uuids = {
        uuid
        for item in items
        if isinstance(item, ImportedNote) and item.former_uuid
        for uuid in (item.former_uuid, str(item.draft.uuid))
    }
    if not uuids:
        return items
    known = await library.notes.known_ids(list(uuids))
    return [
        await _with_former_id(library, item)
        if isinstance(item, ImportedNote) and item.former_uuid in known and item.draft.uuid not in known
        else item
        for item in items
    ]


async def _with_former_id(library: Library, item: ImportedNote) -> ImportedNote:
    """The owner of a former id is remembered by its new one, so that it stays the owner when its text changes."""
    name, draft, new_id = _key("former", item.former_uuid), item.draft, str(item.draft.uuid)
    owner = await library.bookmarks.get(name)
    if owner is None:
        try:
            stored = await library.notes.get(item.former_uuid)
        except NotFound:
            # Deleted, and stays so.
            is_owner = True
        else:
            # The note with the former id has the same text, or an older version of it.
            modified = draft.created_at if draft.last_modified is UNSET else draft.last_modified
            stored_at = str(stored.metadata.get("updated", stored.created_at))
            is_owner = stored.content == draft.content or (isinstance(modified, str) and modified >= stored_at)
        if is_owner:
            await library.bookmarks.set(name, new_id)
            owner = new_id
    return structs.replace(item, draft=structs.replace(draft, uuid=item.former_uuid)) if owner == new_id else item


def _key(kind: str, value: str) -> str:
    return sha256(f"{kind}\0{value}".encode()).hexdigest()
