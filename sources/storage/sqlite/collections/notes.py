"""Notes: a title and a text."""

import sqlite3
from collections.abc import Sequence

from sources.drafts import NoteDraft
from sources.records import Hit, Note
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.schema.chacha import NOTES_INDEX
from sources.storage.sqlite.search.candidates import TextCandidate
from sources.storage.sqlite.search.target import SearchTarget
from sources.storage.sqlite.vectors.kinds import NOTE_VECTORS
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.item_table import ItemTable, TableColumn, WriteContext, index_form_of

NOTES: ItemTable[Note, NoteDraft] = ItemTable(
    table="notes",
    kind="note",
    record=Note,
    key="uuid",
    columns=(TableColumn("title", validation.short_text), TableColumn("content", validation.long_text)),
    hashed_columns=("title", "content"),
    index_forms=(index_form_of("title"), index_form_of("content", has_tags=True)),
    index=NOTES_INDEX,
)


class NoteCandidate(TextCandidate, gc=False):
    def hit(self) -> Hit:
        return self.make_hit(self.text or self.title, len(self.text))


NOTES_TARGET = SearchTarget(
    table="notes",
    id_column="uuid",
    index=NOTES_INDEX,
    weights=(2.0, 1.0),
    title_column="title",
    candidate=NoteCandidate,
    candidate_sql="""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, r.content, r.content_seg
        FROM json_each(?) wanted CROSS JOIN notes r ON r.id = wanted.value
    """,
    vectors=(NOTE_VECTORS,),
)


class SqliteNotes(SqliteItemCollection[Note, NoteDraft, str]):
    source = "notes"
    target = NOTES_TARGET
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

        def work(connection: sqlite3.Connection, context: WriteContext) -> Note:
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
