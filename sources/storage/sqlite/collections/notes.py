"""Notes: a title and a text each."""

import sqlite3
from collections.abc import Sequence

from sources.drafts import NoteDraft
from sources.records import Hit, Note
from sources.search.scoring import TITLE_AND_BODY
from sources.storage.contract import Search
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.index.text_index import counted_form
from sources.storage.sqlite.schema.chacha import NOTES_INDEX
from sources.storage.sqlite.search.counting import Counter
from sources.storage.sqlite.search.target import Candidate, Filter, Target, dated, equal, json_list, tagged
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.items import Column, Items, Stamp, form_of, read_texts

NOTES = Items(
    table="notes",
    kind="note",
    record=Note,
    key="uuid",
    columns=(Column("title", validation.line), Column("content", validation.text)),
    hashed=("title", "content"),
    forms=(form_of("title"), form_of("content")),
    index=NOTES_INDEX,
)

_ROWS = """
    SELECT n.uuid, n.title, n.content, n.title_seg, n.content_seg, n.tags, n.created_at, n.last_modified, n.version,
        n.content_hash
    FROM json_each(?) wanted CROSS JOIN notes n ON n.id = wanted.value
"""


def _filter(search: Search) -> Filter:
    return tagged(search, "notes", "r.id") & dated(search, "r.created_at") & equal("r.uuid", search.within)


def _listed(_search: Search) -> str:
    return "SELECT r.id AS number, r.last_modified AS age FROM notes r WHERE r.deleted = 0"


def _candidates(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[Candidate]:
    return [
        Candidate(
            row=row,
            prominent=counted_form(row[1], row[3]),
            other=counted_form(row[2], row[4]),
            chars=len(row[1]) + len(row[2]),
            has_title=True,
            age=row[7],
            identity=row[0],
        )
        for row in connection.execute(_ROWS, (json_list(numbers),))
    ]


def _hit(found: Candidate, _search: Search, _counter: Counter) -> Hit:
    uuid, title, content, _, _, tags, created_at, last_modified, version, content_hash = found.row
    return Hit(
        id=uuid,
        title=title,
        text=content or title,
        score=found.score,
        bm25=found.bm25,
        created_at=created_at,
        last_modified=last_modified,
        version=version,
        tags=read_texts(tags),
        content_hash=content_hash,
        item_chars=len(content),
    )


TARGET = Target(
    index=NOTES_INDEX,
    bm25="bm25(notes_index, 2.0, 1.0)",
    title="title",
    join="CROSS JOIN notes r ON r.id = notes_index.rowid",
    age="r.last_modified",
    prominence=TITLE_AND_BODY,
    filter=_filter,
    listed=_listed,
    candidates=_candidates,
    hit=_hit,
)


class SqliteNotes(SqliteItemCollection[Note, NoteDraft, str]):
    source = "notes"
    target = TARGET
    items = NOTES

    async def append(
        self,
        note_id: str,
        text: str,
        expected_version: int | None = None,
        *,
        separator: str = "",
        idempotency_key: str | None = None,
    ) -> Note:
        added = validation.text(self._settings.limits, "text", text)
        request = ("append", note_id, added, expected_version)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Note:
            def make() -> Sequence[str]:
                held: str = self.items.row(connection, note_id)["content"]
                between = "" if not held or held.endswith(separator) else separator
                whole = NoteDraft(content=f"{held}{between}{added}")
                self._change(connection, note_id, whole, expected_version, stamp)
                return [note_id]

            [uuid] = self._once(connection, idempotency_key, request, make)
            return self.items.get_by_uuid(connection, uuid)

        return await self._write(work)
