"""Prompts: named texts with arguments."""

from collections.abc import Sequence

from config.errors import NotFound
from sources.drafts import PromptDraft
from sources.records import SavedPrompt
from sources.storage.collections.collection import StoredItems
from sources.storage.tables import validation
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.item_table import WriteContext
from sources.storage.tables.prompt_table import PROMPTS

_BY_NAME = "name = ?1 COLLATE NOCASE ORDER BY name = ?1 DESC, last_modified DESC, id DESC LIMIT 1"


class StoredPrompts(StoredItems[SavedPrompt, PromptDraft, int]):
    source = "prompts"
    table = PROMPTS

    async def get_by_name(self, name: str) -> SavedPrompt:
        return await self._read(lambda connection: self.table.get_first(connection, _BY_NAME, name))

    async def save(
        self, draft: PromptDraft, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> SavedPrompt:
        name = validation.required_short_text(self._settings.limits, "name", draft.name)

        def work(connection: SqlConnection, context: WriteContext) -> SavedPrompt:
            def write() -> Sequence[str]:
                rowid = self._save(connection, name, draft, expected_version, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            [uuid] = self._run_once(connection, idempotency_key, ("save", draft, expected_version), write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work, 1, may_exist=True)

    def _save(
        self,
        connection: SqlConnection,
        name: str,
        draft: PromptDraft,
        expected_version: int | None,
        context: WriteContext,
    ) -> int:
        try:
            prompt = self.table.get_first(connection, _BY_NAME, name)
        except NotFound:
            if expected_version:
                raise
            return self.table.insert(connection, draft, context)
        return self.table.update(connection, prompt.id, draft, expected_version, context)
