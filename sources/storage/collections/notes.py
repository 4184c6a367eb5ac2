"""Notes: a title and a text."""

from collections.abc import Sequence

from sources.drafts import NoteDraft
from sources.records import Note
from sources.storage.collections.collection import StoredItems
from sources.storage.tables import validation
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.item_table import WriteContext
from sources.storage.tables.note_table import NOTES


class StoredNotes(StoredItems[Note, NoteDraft, str]):
    source = "notes"
    table = NOTES

    async def append(
        self,
        item_id: str,
        text: str,
        expected_version: int | None = None,
        *,
        separator: str = "",
        idempotency_key: str | None = None,
    ) -> Note:
        addition = validation.long_text(self._settings.limits, "text", text)

        def work(connection: SqlConnection, context: WriteContext) -> Note:
            def write() -> Sequence[str]:
                content: str = self.table.stored_values(connection, item_id)["content"]
                between = "" if not content or content.endswith(separator) else separator
                draft = NoteDraft(content=f"{content}{between}{addition}")
                self.table.update(connection, item_id, draft, expected_version, context)
                return [item_id]

            request = ("append", item_id, addition, expected_version)
            [uuid] = self._run_once(connection, idempotency_key, request, write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work)
