"""Deletes items that disappeared from their followed source. They are restored if they come back."""

from collections.abc import Sequence

from auth.follows import FollowRecord
from sources.following.state import SyncReport
from sources.storage.contract import FollowedItem, Library

_WITHDRAWN_ITEMS = 100


class Withdrawals:
    def __init__(self, library: Library, record: FollowRecord, report: SyncReport) -> None:
        self._library = library
        self._record = record
        self._report = report

    async def withdraw(
        self, names: Sequence[bytes], items: Sequence[FollowedItem], *, keeps_edits: bool
    ) -> list[FollowedItem]:
        """Withdraws items that no other file contains. Returns those that are kept because they were edited."""
        if self._record.keeps_deleted:
            return []
        kept: list[FollowedItem] = []
        conversations = [item.uuid for item in items if item.kind == "chats"]
        # Conversations first: the messages of one that is kept are kept, too.
        for kind in sorted({item.kind for item in items}):
            of_kind = [item for item in items if item.kind == kind]
            for start in range(0, len(of_kind), _WITHDRAWN_ITEMS):
                part = of_kind[start : start + _WITHDRAWN_ITEMS]
                kept += await self._withdraw_some(names, kind, part, conversations, keeps_edits=keeps_edits)
        return kept

    async def _withdraw_some(
        self,
        names: Sequence[bytes],
        kind: str,
        items: Sequence[FollowedItem],
        conversations: Sequence[str],
        *,
        keeps_edits: bool,
    ) -> list[FollowedItem]:
        elsewhere = await self._library.followed_files.other_owners(
            self._record.id, names, [item.uuid for item in items]
        )
        uuids = [item.uuid for item in items if (kind, item.uuid) not in elsewhere]
        if kind == "messages":
            kept = await self._library.chats.withdraw_messages(uuids, outside=conversations, keeps_edits=keeps_edits)
        else:
            kept = await getattr(self._library, kind).withdraw_many(uuids, keeps_edits=keeps_edits)
            self._report.deleted += len(uuids) - len(kept)
        return [item for item in items if item.uuid in kept]
