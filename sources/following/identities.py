"""Decides under which ids the items of a followed file are stored, so that a file that is renamed keeps its item.

Importers derive the id of an item without one from the path of its file. An item keeps the id under which it was first
stored: the ids of the importer are translated, and the translation is stored with the file.
"""

import asyncio
import os
import secrets
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from auth.follows import FollowRecord
from config.errors import StorageError
from config.times import format_timestamp
from sources.following.note_files import SourceLayout, file_name, new_file, with_body, with_fields
from sources.following.scan import SourceMissing, file_signature
from sources.importers.engine.confined_files import open_file_in, open_folder, open_parent
from sources.importers.engine.events import ImportedConversation, ImportedItem, ItemKind, stable_uuid
from sources.importers.engine.files import decode_text
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.markdown_text import normalize_keys, remove_code, split_front_matter
from sources.importers.formats.markdown import title_and_tags
from sources.installed import ADDED_KINDS
from sources.records import Note, has_edits
from sources.storage.collections.library import FollowedFiles
from sources.storage.contract import FollowedItem, Library

# Files of these kinds usually hold one item, whose id comes from the path. Conversations have ids of their own.
_TRANSLATED_KINDS = ("notes", "media", "characters", "prompts", *(kind.source for kind in ADDED_KINDS))


class FileIdentities:
    """The ids of the items of one file."""

    def __init__(
        self,
        files: FollowedFiles,
        record: FollowRecord,
        names: Sequence[bytes],
        known: Sequence[FollowedItem],
        *,
        fixed_key: str | None = None,
    ) -> None:
        self.is_partial = False
        self.items: dict[tuple[str, str], FollowedItem] = {}
        self.deleted: dict[str, set[str]] = {}
        self._files = files
        self._follow = record.id
        self._location = record.location
        # The current name first, then the one that the file was renamed from.
        self._names = names
        # Those of the file's last state, under its last name.
        self._known = {(item.kind, item.key): item.uuid for item in known}
        # The id of a single item is derived from this key instead of the importer's.
        self._fixed_key = fixed_key

    async def assign(self, kind: ItemKind, items: Sequence[ImportedItem]) -> Sequence[ImportedItem]:
        if kind not in _TRANSLATED_KINDS:
            for item in items:
                ids = [(kind, str(item.draft.uuid))]
                if isinstance(item, ImportedConversation):
                    ids += [("messages", str(message.uuid)) for message in item.messages]
                for name, uuid in ids:
                    self.items[name, uuid] = FollowedItem(name, uuid, uuid)
            return items
        keys = [str(item.draft.uuid) for item in items]
        inherited = self._inherited(kind, keys)
        uuids = {key: inherited or self._known.get((kind, key)) or "" for key in keys}
        for key in [key for key, uuid in uuids.items() if not uuid]:
            # The id of the importer, or one derived from it if an item of another file has it: that file may have been
            # renamed, or this one may be a copy of it.
            is_fixed = self._fixed_key is not None and len(keys) == 1
            own = stable_uuid("follow", kind, self._fixed_key or "") if is_fixed else key
            candidate, number = own, 0
            while (kind, candidate) in await self._files.other_owners(self._follow, self._names, [candidate]):
                number += 1
                # Not the id of the followed source: if it is removed and added again, its items are the same.
                parts = (self._location, self._names[0].decode("utf-8", "backslashreplace"), own, str(number))
                candidate = stable_uuid("follow", kind, "\0".join(parts))
            uuids[key] = candidate
        for key, uuid in uuids.items():
            self.items[kind, key] = FollowedItem(kind, key, uuid)
        # Any: `replace` does not know which draft belongs to which item.
        drafts: list[Any] = [structs.replace(item.draft, uuid=uuids[str(item.draft.uuid)]) for item in items]
        return [structs.replace(item, draft=draft) for item, draft in zip(items, drafts, strict=True)]

    def add_deleted(self, kind: str, uuid: str) -> None:
        self.deleted.setdefault(kind, set()).add(uuid)

    def missing(self) -> list[FollowedItem]:
        """Returns the items that the file had and no longer has."""
        stored = {(item.kind, item.uuid) for item in self.items.values()}
        return [
            FollowedItem(kind, key, uuid)
            for (kind, key), uuid in self._known.items()
            if (kind, uuid) not in stored and not self.is_partial
        ]

    def all_items(self, *, keeps_known: bool) -> list[FollowedItem]:
        """Returns the items to store with the file. `keeps_known` includes those that were not read this time."""
        known = {key: FollowedItem(*key, uuid) for key, uuid in self._known.items()} if keeps_known else {}
        return list((known | self.items).values())

    def _inherited(self, kind: str, keys: Sequence[str]) -> str | None:
        """A file that held one item, and now holds one with another key, holds the same item."""
        known = [uuid for (known_kind, _), uuid in self._known.items() if known_kind == kind]
        is_first = not any(item_kind == kind for item_kind, _ in self.items)
        has_one = len(known) == 1 and len(keys) == 1 and is_first
        return known[0] if has_one and kind in ("notes", "media", "characters") else None


class PartIdentities(FileIdentities):
    """The ids of items of which only those were read that changed. What is known is looked up for each batch."""

    def __init__(self, files: FollowedFiles, record: FollowRecord, name: bytes) -> None:
        super().__init__(files, record, [name], ())
        self.is_partial = True

    async def assign(self, kind: ItemKind, items: Sequence[ImportedItem]) -> Sequence[ImportedItem]:
        if kind in _TRANSLATED_KINDS:
            keys = [str(item.draft.uuid) for item in items]
            known = await self._files.items(self._follow, self._names[0], kind, keys)
            self._known = {(item.kind, item.key): item.uuid for item in known}
        return await super().assign(kind, items)

    async def find_deleted(self) -> list[FollowedItem]:
        """Returns the known items that their origin marks as deleted."""
        return [
            item
            for kind, uuids in self.deleted.items()
            for item in await self._files.items(self._follow, self._names[0], kind, sorted(uuids))
        ]

    def _inherited(self, kind: str, keys: Sequence[str]) -> str | None:
        return None


# -- write back --------------------------------------------------------------------------------------------------------
# Writes notes that were created or edited in the library to their files in a followed folder.
#
# A file is replaced atomically, and only if it is still the one that was read last; otherwise both sides changed,
# which is a conflict. Files are never deleted.

_PAGE = 100
_FILE_MODE = 0o644
# Notes of the same title get a number. Each one is a call of link(2).
_NAMES_MAX = 1_000


class WrittenNotes(Struct, frozen=True):
    names: list[bytes]  # files that were written, and must be read again
    pending: list[bytes]  # files that changed meanwhile
    until: str  # notes that were modified before need not be looked at again


async def write_notes(
    library: Library, record: FollowRecord, layout: SourceLayout, since: str, limits: ImportLimits
) -> WrittenNotes:
    """Writes the notes that were modified since a time. Those with a conflict are left alone, and so are notes that
    were created before the folder was followed."""
    follow_id, created_since = record.id, format_timestamp(record.created_at)
    names: list[bytes] = []
    pending: list[bytes] = []
    until = since
    async for note in _modified_notes(library, since):
        until = max(until, note.last_modified)
        if not has_edits(note.arrived, note.version):
            continue
        item = FollowedItem("notes", note.uuid, note.uuid)
        name = await library.followed_files.file_of(follow_id, item)
        if name is None and note.arrived is None and note.created_at >= created_since:
            names.append(await asyncio.to_thread(_create, layout.root, note))
        elif name is not None:
            [known] = await library.followed_files.find(follow_id, [name])
            if known.conflicts:
                continue
            is_written = await asyncio.to_thread(_replace, layout.path_of(name), note, known.signature, limits)
            (names if is_written else pending).append(name)
    return WrittenNotes(names, pending, since if pending else until)


async def _modified_notes(library: Library, since: str) -> AsyncIterator[Note]:
    offset = 0
    while rows := (await library.notes.list(_PAGE, offset)).rows:
        for note in rows:
            if note.last_modified < since:
                return
            yield note
        offset += _PAGE


def _create(root: Path, note: Note) -> bytes:
    """Returns the name of the new file. An existing file is never overwritten."""
    try:
        with open_folder(root) as folder, _temporary_file(folder, new_file(note), _FILE_MODE) as temporary:
            for number in range(1, _NAMES_MAX):
                name = f"{file_name(note.title)}{f' {number}' if number > 1 else ''}.md"
                # Unlike a rename, a link never replaces a file.
                with suppress(FileExistsError):
                    os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                    return os.fsencode(name)
    except OSError as error:
        raise StorageError(f"the note cannot be written to the folder: {error.strerror}") from error
    raise StorageError(f"the folder has {_NAMES_MAX} notes with the same title")


def _replace(path: Path, note: Note, signature: str, limits: ImportLimits) -> bool:
    """Returns False if the file changed since it was read, or is gone. The folder that it is in stays open: if another
    one takes its place, that is not written to."""
    try:
        with open_parent(path) as (folder, name):
            if file_signature(folder, os.fsencode(name)) != signature:
                return False
            with open_file_in(folder, name) as file:
                data, mode = file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = with_body(decode_text(data, limits), note.content)
            # Title and tags are written to the front matter only if the text alone would give the note others.
            front_matter, body = split_front_matter(text, limits.depth_max)
            title, tags = title_and_tags(normalize_keys(front_matter), remove_code(body), path.name)
            if title != note.title:
                text = with_fields(text, title=note.title)
            if set(tags) != set(note.tags):
                text = with_fields(text, tags=note.tags)
            content = text.replace("\n", "\r\n") if b"\r\n" in data else text
            with _temporary_file(folder, content, mode) as temporary:
                # Once more, as late as possible: what an editor saved meanwhile would be lost.
                if file_signature(folder, os.fsencode(name)) != signature:
                    return False
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except (OSError, SourceMissing):
        return False
    return True


@contextmanager
def _temporary_file(folder: int, text: str, mode: int) -> Iterator[str]:
    """Returns the name of a file in an open folder, which is removed at the end. The suffix keeps scans from reading
    it."""
    name = f".florilegium-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            # Otherwise a crash after the rename could leave an empty file in the place of the note.
            os.fsync(descriptor)
    except OSError as error:
        raise StorageError(f"the note cannot be written to the folder: {error.strerror}") from error
    try:
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
