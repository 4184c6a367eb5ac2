"""Characters: cards of version 3, found by everything they say."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sources.drafts import CharacterDraft
from sources.records import Character, Hit
from sources.search.scoring import TITLE_AND_BODY
from sources.storage.contract import Search
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.index.text_index import counted_form
from sources.storage.sqlite.schema.chacha import CHARACTER_BODY, CHARACTER_FIELDS, CHARACTERS_INDEX
from sources.storage.sqlite.search.counting import Counter, best_field
from sources.storage.sqlite.search.target import Candidate, Filter, Target, dated, equal, json_list, tagged
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.items import Column, Derived, Form, Items, form_of, read_object, read_texts
from sources.text.folding import fold

_TEXTS = (
    "description",
    "personality",
    "scenario",
    "first_message",
    "message_example",
    "system_prompt",
    "post_history_instructions",
    "creator_notes",
)
_LINES = ("creator", "character_version", "nickname")


def _body(values: Mapping[str, Any]) -> str:
    """As the schema's view joins the fields."""
    return "\n".join(values[name] for name in CHARACTER_FIELDS)


CHARACTERS = Items(
    table="characters",
    kind="character",
    record=Character,
    key="id",
    columns=(
        Column("name", validation.name, is_required=True),
        *(Column(name, validation.text) for name in _TEXTS),
        *(Column(name, validation.line) for name in _LINES),
        Column("alternate_greetings", validation.texts, "[]", read_texts),
        Column("group_only_greetings", validation.texts, "[]", read_texts),
        Column("card", validation.json, "{}", read_object),
    ),
    hashed=("name", *CHARACTER_FIELDS, "group_only_greetings", "card"),
    forms=(form_of("name"), Form("body_seg", _body)),
    index=CHARACTERS_INDEX,
    derived=(Derived("id", "id"),),
)

_FIELDS = CHARACTER_FIELDS[:-1]
_ROWS = f"""
    SELECT r.id, r.name, r.name_seg, coalesce(r.body_seg, {CHARACTER_BODY}), r.tags, r.created_at, r.last_modified,
        r.version, r.content_hash, {", ".join(f"r.{name}" for name in _FIELDS)}
    FROM json_each(?) wanted CROSS JOIN characters r ON r.id = wanted.value
"""


def _filter(search: Search) -> Filter:
    return tagged(search, "characters", "r.id") & dated(search, "r.created_at") & equal("r.id", search.within)


def _listed(_search: Search) -> str:
    return "SELECT r.id AS number, r.last_modified AS age FROM characters r WHERE r.deleted = 0"


def _candidates(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[Candidate]:
    return [
        Candidate(
            row=row,
            prominent=counted_form(row[1], row[2]),
            other=fold(row[3]),
            chars=len(row[1]) + len(row[3]),
            has_title=True,
            age=row[6],
            identity=row[0],
        )
        for row in connection.execute(_ROWS, (json_list(numbers),))
    ]


def _hit(found: Candidate, _search: Search, counter: Counter) -> Hit:
    number, name, _, body, tags, created_at, last_modified, version, content_hash, *texts = found.row
    labels = read_texts(tags)
    fields = dict(zip(_FIELDS, texts, strict=True))
    fields["alternate_greetings"] = "\n".join(read_texts(fields["alternate_greetings"]))
    field, text = best_field(fields | {"tags": ", ".join(labels)}, counter) or ("name", name)
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
        item_chars=len(body),
        field=field,
    )


TARGET = Target(
    index=CHARACTERS_INDEX,
    bm25="bm25(characters_index, 2.0, 1.0)",
    title="name",
    join="CROSS JOIN characters r ON r.id = characters_index.rowid",
    age="r.last_modified",
    prominence=TITLE_AND_BODY,
    filter=_filter,
    listed=_listed,
    candidates=_candidates,
    hit=_hit,
)


class SqliteCharacters(SqliteItemCollection[Character, CharacterDraft, int]):
    source = "characters"
    target = TARGET
    items = CHARACTERS
