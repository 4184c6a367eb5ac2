"""Prompts: named texts with arguments, found by any of their fields."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from config.errors import NotFound
from sources.drafts import PromptDraft
from sources.records import Hit, SavedPrompt, SavedPromptArgument
from sources.search.scoring import TITLE_AND_BODY
from sources.storage.contract import Search
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.index.text_index import counted_form
from sources.storage.sqlite.schema.prompts import PROMPTS_INDEX
from sources.storage.sqlite.search.counting import Counter, best_field
from sources.storage.sqlite.search.target import Candidate, Filter, Target, dated, equal, json_list, tagged
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.items import Column, Derived, Items, Stamp, form_of, read_texts
from sources.text.folding import fold

_read_arguments: Callable[[Any], tuple[SavedPromptArgument, ...]] = msgspec.json.Decoder(
    tuple[SavedPromptArgument, ...]
).decode

PROMPTS = Items(
    table="prompts",
    kind="prompt",
    record=SavedPrompt,
    key="id",
    columns=(
        Column("name", validation.name, is_required=True),
        Column("author", validation.line),
        Column("details", validation.text),
        Column("system_prompt", validation.text),
        Column("user_prompt", validation.text),
        Column("arguments", validation.json, "[]", _read_arguments),
    ),
    hashed=("name", "author", "details", "system_prompt", "user_prompt", "arguments", "tags"),
    forms=tuple(form_of(name) for name in ("name", "author", "details", "system_prompt", "user_prompt", "tags")),
    index=PROMPTS_INDEX,
    derived=(Derived("id", "id"),),
)

_FIELDS = ("author", "details", "system_prompt", "user_prompt")
_ROWS = f"""
    SELECT r.id, r.name, r.name_seg, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
        {" || ' ' || ".join(f"coalesce(r.{name}_seg, r.{name})" for name in (*_FIELDS, "tags"))},
        {", ".join(f"r.{name}" for name in _FIELDS)}
    FROM json_each(?) wanted CROSS JOIN prompts r ON r.id = wanted.value
"""


def _filter(search: Search) -> Filter:
    return tagged(search, "prompts", "r.id") & dated(search, "r.created_at") & equal("r.id", search.within)


def _listed(_search: Search) -> str:
    return "SELECT r.id AS number, r.last_modified AS age FROM prompts r WHERE r.deleted = 0"


def _candidates(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[Candidate]:
    return [
        Candidate(
            row=row,
            prominent=counted_form(row[1], row[2]),
            other=fold(row[8]),
            chars=len(row[1]) + len(row[8]),
            has_title=True,
            age=row[5],
            identity=row[0],
        )
        for row in connection.execute(_ROWS, (json_list(numbers),))
    ]


def _hit(found: Candidate, search: Search, counter: Counter) -> Hit:
    number, name, _, tags, created_at, last_modified, version, content_hash, _, *texts = found.row
    author, details, system_prompt, user_prompt = texts
    labels = read_texts(tags)
    fields = {
        "details": details,
        "system_prompt": system_prompt,
        "user_prompt": user_prompt,
        "author": author,
        "keywords": ", ".join(labels),
    }
    searched = {field: text for field, text in fields.items() if field in search.fields} or fields
    field, text = best_field(searched, counter) or ("name", name)
    return Hit(
        id=number,
        title=name,
        text=text,
        score=found.score,
        bm25=found.bm25,
        created_at=created_at,
        last_modified=last_modified,
        version=version,
        tags=labels,
        content_hash=content_hash,
        item_chars=sum(map(len, texts)),
        field=field,
    )


TARGET = Target(
    index=PROMPTS_INDEX,
    bm25="bm25(prompts_index, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0)",
    title="name",
    join="CROSS JOIN prompts r ON r.id = prompts_index.rowid",
    age="r.last_modified",
    prominence=TITLE_AND_BODY,
    filter=_filter,
    listed=_listed,
    candidates=_candidates,
    hit=_hit,
)

_BY_NAME = "name = ?1 COLLATE NOCASE ORDER BY name = ?1 DESC, last_modified DESC, id DESC LIMIT 1"


class SqlitePrompts(SqliteItemCollection[SavedPrompt, PromptDraft, int]):
    source = "prompts"
    target = TARGET
    items = PROMPTS

    async def get_by_name(self, name: str) -> SavedPrompt:
        """In any case, if not as it is written; of several, the one changed last."""
        return await self._read(lambda connection: self.items.first(connection, _BY_NAME, name))

    async def save(
        self, draft: PromptDraft, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> SavedPrompt:
        name = validation.name(self._settings.limits, "name", draft.name)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> SavedPrompt:
            def make() -> Sequence[str]:
                number = self._save(connection, name, draft, expected_version, stamp)
                return [self.items.made(connection, number).uuid]

            [uuid] = self._once(connection, idempotency_key, ("save", draft, expected_version), make)
            return self.items.get_by_uuid(connection, uuid)

        return await self._write(work)

    def _save(
        self, connection: sqlite3.Connection, name: str, draft: PromptDraft, expected_version: int | None, stamp: Stamp
    ) -> int:
        try:
            held = self.items.first(connection, _BY_NAME, name)
        except NotFound:
            if expected_version:
                raise
            return self._insert(connection, draft, stamp)
        return self._change(connection, held.id, draft, expected_version, stamp)
