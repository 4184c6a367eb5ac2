"""Prompts: named texts with arguments, searchable by any of their fields."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from config.errors import NotFound
from sources.drafts import PromptDraft
from sources.records import SavedPrompt, SavedPromptArgument
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.schema.prompts import PROMPTS_INDEX
from sources.storage.sqlite.search.candidates import NamedFieldsCandidate
from sources.storage.sqlite.search.target import SearchTarget
from sources.storage.sqlite.vectors.kinds import PROMPT_VECTORS
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.item_table import (
    ComputedColumn,
    ItemTable,
    TableColumn,
    WriteContext,
    decode_texts,
    index_form_of,
)

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
    computed=(ComputedColumn("id", "id"),),
)


class PromptCandidate(NamedFieldsCandidate, gc=False):
    """The title is the name of the prompt."""

    embedded = PROMPT_VECTORS.texts

    author: str
    details: str
    system_prompt: str
    user_prompt: str

    def fields(self) -> dict[str, str]:
        return {
            "details": self.details,
            "system_prompt": self.system_prompt,
            "user_prompt": self.user_prompt,
            "author": self.author,
            "keywords": ", ".join(decode_texts(self.tags)),
        }

    @property
    def item_chars(self) -> int:
        return sum(map(len, (self.author, self.details, self.system_prompt, self.user_prompt)))


_CANDIDATE_FIELDS = ("author", "details", "system_prompt", "user_prompt")
_BODY = " || ' ' || ".join(f"coalesce(r.{name}_seg, r.{name})" for name in (*_CANDIDATE_FIELDS, "tags"))

PROMPTS_TARGET = SearchTarget(
    table="prompts",
    id_column="id",
    index=PROMPTS_INDEX,
    weights=(2.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    title_column="name",
    candidate=PromptCandidate,
    candidate_sql=f"""
        SELECT r.id, r.name, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.name_seg, {_BODY}, {", ".join(f"r.{name}" for name in _CANDIDATE_FIELDS)}
        FROM json_each(?) wanted CROSS JOIN prompts r ON r.id = wanted.value
    """,
    vectors=(PROMPT_VECTORS,),
)

_BY_NAME = "name = ?1 COLLATE NOCASE ORDER BY name = ?1 DESC, last_modified DESC, id DESC LIMIT 1"


class SqlitePrompts(SqliteItemCollection[SavedPrompt, PromptDraft, int]):
    source = "prompts"
    target = PROMPTS_TARGET
    table = PROMPTS

    async def get_by_name(self, name: str) -> SavedPrompt:
        return await self._read(lambda connection: self.table.get_first(connection, _BY_NAME, name))

    async def save(
        self, draft: PromptDraft, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> SavedPrompt:
        name = validation.required_short_text(self._settings.limits, "name", draft.name)

        def work(connection: sqlite3.Connection, context: WriteContext) -> SavedPrompt:
            def write() -> Sequence[str]:
                rowid = self._save(connection, name, draft, expected_version, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            [uuid] = self._run_once(connection, idempotency_key, ("save", draft, expected_version), write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work, 1, may_exist=True)

    def _save(
        self,
        connection: sqlite3.Connection,
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
