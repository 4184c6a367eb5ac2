"""The table of notes."""

from sources.drafts import NoteDraft
from sources.records import Note
from sources.storage.tables import validation
from sources.storage.tables.indexes import NOTES_INDEX
from sources.storage.tables.item_table import ItemTable, TableColumn, index_form_of

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
