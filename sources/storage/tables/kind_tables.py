"""The tables of characters, notes, prompts and observations: the columns of each, and how a row becomes a record."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Mapping, Sequence
from posixpath import basename
from typing import Any, get_args
from uuid import uuid4

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from sources.drafts import CharacterDraft, NoteDraft, ObservationDraft, PromptDraft
from sources.records import Character, Note, Observation, Origin, SavedPrompt, SavedPromptArgument
from sources.storage.contract import ObservationFilter
from sources.storage.tables import validation
from sources.storage.tables.item_table import (
    ComputedColumn,
    IndexFormColumn,
    ItemKey,
    ItemTable,
    TableColumn,
    WriteContext,
    decode_object,
    decode_texts,
    index_form_of,
)
from sources.storage.tables.sql import (
    CHARACTER_FIELDS,
    CHARACTERS_INDEX,
    NOTES_INDEX,
    OBSERVATION_FIELDS,
    OBSERVATIONS_INDEX,
    PROMPTS_INDEX,
    SqlConnection,
    SqlFilter,
    SqlValue,
    between,
    placeholders,
)
from sources.storage.tables.validation import FieldLimits, fold_tag, invalid_field, is_storable

_LONG_TEXTS = (
    "description",
    "personality",
    "scenario",
    "first_message",
    "message_example",
    "system_prompt",
    "post_history_instructions",
    "creator_notes",
)
_SHORT_TEXTS = ("creator", "character_version", "nickname")

CHARACTERS: ItemTable[Character, CharacterDraft] = ItemTable(
    table="characters",
    kind="character",
    record=Character,
    key="id",
    columns=(
        TableColumn("name", validation.required_short_text, is_required=True),
        *(TableColumn(name, validation.long_text) for name in _LONG_TEXTS),
        *(TableColumn(name, validation.short_text) for name in _SHORT_TEXTS),
        TableColumn("alternate_greetings", validation.text_list, "[]", decode_texts),
        TableColumn("group_only_greetings", validation.text_list, "[]", decode_texts),
        TableColumn("card", validation.json_text, "{}", decode_object),
    ),
    hashed_columns=("name", *CHARACTER_FIELDS, "group_only_greetings", "card"),
    # The body is joined in the same way in the view that the index reads.
    index_forms=(index_form_of("name"), IndexFormColumn("body_seg", CHARACTER_FIELDS)),
    index=CHARACTERS_INDEX,
    computed=(ComputedColumn("id", "characters.id"),),
)


# -- note table --------------------------------------------------------------------------------------------------------
# The table of notes.

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


# -- prompt table ------------------------------------------------------------------------------------------------------
# The table of prompts. Their keywords are stored as tags.

_decode_arguments: Callable[[Any], tuple[SavedPromptArgument, ...]] = msgspec.json.Decoder(
    tuple[SavedPromptArgument, ...]
).decode

PROMPTS: ItemTable[SavedPrompt, PromptDraft] = ItemTable(
    table="prompts",
    kind="prompt",
    record=SavedPrompt,
    key="id",
    columns=(
        TableColumn("name", validation.required_short_text, is_required=True),
        TableColumn("author", validation.short_text),
        TableColumn("details", validation.long_text),
        TableColumn("system_prompt", validation.long_text),
        TableColumn("user_prompt", validation.long_text),
        TableColumn("arguments", validation.json_text, "[]", _decode_arguments),
    ),
    hashed_columns=("name", "author", "details", "system_prompt", "user_prompt", "arguments", "tags"),
    index_forms=tuple(
        index_form_of(name) for name in ("name", "author", "details", "system_prompt", "user_prompt", "tags")
    ),
    index=PROMPTS_INDEX,
    computed=(ComputedColumn("id", "prompts.id"),),
)


# -- filters -----------------------------------------------------------------------------------------------------------
# Conditions on items by their tags and by other folded values.


def has_tags(tags: Sequence[str], table: str, rowid: str) -> SqlFilter:
    """Items that have all of the tags."""
    condition = f"{rowid} IN (SELECT id FROM {table}_tags WHERE folded = ?)"
    return SqlFilter((condition,) * len(tags), tuple(fold_tag(tag) for tag in tags))


def in_values(table: str, field: str, rowid: str, folded: Sequence[str]) -> SqlFilter:
    """Items with one of the values in a table of folded values such as `observations_values`."""
    condition = f"{rowid} IN (SELECT id FROM {table} WHERE field = '{field}' AND folded IN ({placeholders(folded)}))"
    return SqlFilter((condition,), tuple(folded))


# -- observation table -------------------------------------------------------------------------------------------------
# The table of observations, and the values they can be filtered by.

_ORIGINS = get_args(Origin)
OBSERVATION_LISTS = ("facts", "concepts", "files_read", "files_modified")
# The fields whose values each list of an `ObservationFilter` is compared with.
_FILTERED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "projects": ("project",),
    "types": ("type",),
    "concepts": ("concepts",),
    "files": ("files_read", "files_modified"),
}


def _origin(_limits: FieldLimits, field: str, value: Any) -> str:
    if value not in _ORIGINS:
        raise invalid_field(field, expected=f"one of {', '.join(_ORIGINS)}", got=repr(value))
    return str(value)


def _line_number(_limits: FieldLimits, field: str, value: Any) -> int | None:
    if value is not None and not (isinstance(value, int) and value > 0 and is_storable(value)):
        raise invalid_field(field, expected="a line number of 1 or more", got=repr(value))
    return value


class ObservationTable(ItemTable[Observation, ObservationDraft]):
    """Also stores the values that filters are compared with, in `observations_values`."""

    def insert(
        self, connection: SqlConnection, draft: ObservationDraft, context: WriteContext, **columns: SqlValue
    ) -> int:
        if draft.uuid is UNSET:
            draft = replace(draft, uuid=f"obs-{uuid4().hex[:16]}")
        _require_line_order(draft)
        return super().insert(connection, draft, context, **columns)

    def update(
        self,
        connection: SqlConnection,
        key: ItemKey,
        draft: ObservationDraft,
        expected_version: int | None,
        context: WriteContext,
        **columns: SqlValue,
    ) -> int:
        _require_line_order(draft)
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        connection.execute("DELETE FROM observations_values WHERE id = ?", (rowid,))
        self._link_values(connection, rowid, self.stored_values(connection, key))
        return rowid

    def _link(self, connection: SqlConnection, rowid: int, values: Mapping[str, Any]) -> None:
        super()._link(connection, rowid, values)
        self._link_values(connection, rowid, values)

    def _link_values(self, connection: SqlConnection, rowid: int, values: Mapping[str, Any]) -> None:
        links = {
            (name, fold_tag(value), rowid)
            for name, fields in _FILTERED_FIELDS.items()
            for field in fields
            for value in _listed_values(field, values[field])
        }
        links |= {(name, fold_tag(basename(value)), rowid) for name, value, _ in links if name == "files"}
        sql = "INSERT INTO observations_values (field, folded, id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        connection.executemany_later(sql, sorted(links))


OBSERVATIONS = ObservationTable(
    table="observations",
    kind="observation",
    record=Observation,
    key="uuid",
    columns=(
        TableColumn("type", validation.required_short_text, "general"),
        TableColumn("title", validation.required_short_text, is_required=True),
        TableColumn("subtitle", validation.short_text),
        TableColumn("narrative", validation.long_text),
        *(TableColumn(name, validation.text_list, "[]", decode_texts) for name in OBSERVATION_LISTS),
        TableColumn("project", validation.short_text),
        TableColumn("session_id", validation.short_text),
        TableColumn("origin", _origin, "client"),
        TableColumn("conversation_id", validation.optional_short_text, None),
        TableColumn("line_start", _line_number, None),
        TableColumn("line_end", _line_number, None),
    ),
    hashed_columns=("title", *OBSERVATION_FIELDS),
    # The body is joined in the same way in the view that the index reads.
    index_forms=(index_form_of("title"), IndexFormColumn("body_seg", OBSERVATION_FIELDS)),
    index=OBSERVATIONS_INDEX,
)


def observation_conditions(where: ObservationFilter, rowid: str, created_at: str) -> SqlFilter | None:
    """Returns the filter as SQL conditions on these two columns, or None if no observation can match."""
    conditions = between(created_at, where.date_from, where.date_to)
    for name in _FILTERED_FIELDS:
        values: tuple[str, ...] = getattr(where, name)
        folded = [fold_tag(value) for value in values if is_storable(value)]
        if values and not folded:
            return None
        if folded:
            conditions &= in_values("observations_values", name, rowid, folded)
    return conditions


def _require_line_order(draft: ObservationDraft) -> None:
    start, end = draft.line_start, draft.line_end
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise invalid_field("line_end", expected=f"{start} (line_start) or more", got=str(end))


def _listed_values(field: str, stored: str) -> tuple[str, ...]:
    return decode_texts(stored) if field in OBSERVATION_LISTS else (stored,)
