"""Decides under which ids the items of a followed file are stored, so that a file that is renamed keeps its item.

Importers derive the id of an item without one from the path of its file. An item keeps the id under which it was first
stored: the ids of the importer are translated, and the translation is stored with the file.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from auth.follows import FollowRecord
from sources.importers.engine.imported_items import ImportedConversation, ImportedItem, ItemKind, stable_uuid
from sources.storage.contract import FollowedFiles, FollowedItem

# Files of these kinds usually hold one item, whose id comes from the path. Conversations have ids of their own.
_TRANSLATED_KINDS = ("notes", "media", "characters", "prompts")
_INHERITING_KINDS = ("notes", "media", "characters")


class FileIdentities:
    """The ids of the items of one file. `known` are those of its last state, or of the file that it was renamed from;
    `names` are its names, the current one first. With `fixed_key`, the id of a single item is derived from this key
    instead of the importer's."""

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
        self._names = names
        self._known = {(item.kind, item.key): item.uuid for item in known}
        self._fixed_key = fixed_key

    async def assign(self, kind: ItemKind, items: Sequence[ImportedItem]) -> Sequence[ImportedItem]:
        if kind not in _TRANSLATED_KINDS:
            for item in items:
                self._record_unchanged(kind, item)
            return items
        uuids = await self._assign_uuids(kind, [str(item.draft.uuid) for item in items])
        return [_with_uuid(item, uuids[str(item.draft.uuid)]) for item in items]

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

    def _record_unchanged(self, kind: str, item: ImportedItem) -> None:
        ids = [(kind, str(item.draft.uuid))]
        if isinstance(item, ImportedConversation):
            ids += [("messages", str(message.uuid)) for message in item.messages]
        for name, uuid in ids:
            self.items[name, uuid] = FollowedItem(name, uuid, uuid)

    async def _assign_uuids(self, kind: str, keys: Sequence[str]) -> Mapping[str, str]:
        inherited = self._inherited(kind, keys)
        uuids = {key: inherited or self._known.get((kind, key)) or "" for key in keys}
        for key in [key for key, uuid in uuids.items() if not uuid]:
            uuids[key] = await self._free_uuid(kind, key, is_only=len(keys) == 1)
        for key, uuid in uuids.items():
            self.items[kind, key] = FollowedItem(kind, key, uuid)
        return uuids

    def _inherited(self, kind: str, keys: Sequence[str]) -> str | None:
        """A file that held one item, and now holds one with another key, holds the same item."""
        known = [uuid for (known_kind, _), uuid in self._known.items() if known_kind == kind]
        is_first = not any(item_kind == kind for item_kind, _ in self.items)
        has_one = len(known) == 1 and len(keys) == 1 and is_first
        return known[0] if has_one and kind in _INHERITING_KINDS else None

    async def _free_uuid(self, kind: str, key: str, *, is_only: bool) -> str:
        """Returns the id of the importer, or one derived from it if an item of another file has it: that file may have
        been renamed, or this one may be a copy of it."""
        if self._fixed_key is not None and is_only:
            key = stable_uuid("follow", kind, self._fixed_key)
        candidate, number = key, 0
        while (kind, candidate) in await self._files.other_owners(self._follow, self._names, [candidate]):
            number += 1
            # Not the id of the followed source: if it is removed and added again, its items are the same.
            parts = (self._location, self._names[0].decode("utf-8", "backslashreplace"), key, str(number))
            candidate = stable_uuid("follow", kind, "\0".join(parts))
        return candidate


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


def _with_uuid(item: ImportedItem, uuid: str) -> ImportedItem:
    draft: object = item.draft if item.draft.uuid == uuid else replace(item.draft, uuid=uuid)
    return item if draft is item.draft else replace(item, draft=draft)
