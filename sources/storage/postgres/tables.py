"""The tables of all libraries in PostgreSQL: those of the three SQLite files, in one schema.

Every table begins with `tenant_id`, and so do its keys and indexes: a library is a range of each index, the number of
relations does not depend on the number of users, and Citus can distribute the tables by this column. The other columns
are those of SQLite, so that both engines run the same statements: integers stay integers, times and JSON stay texts,
and texts are compared by their bytes. Ids do not come from sequences: all writes of a library take turns, and its ids
begin with 1.

Row-level security is a second wall besides the tenant that every statement names (`statements.py`): the role
`florilegium_tenant`, which owns nothing, sees the rows of the tenant that the transaction has set, or none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256

from sources.installed import ADDED_KINDS
from sources.kinds import Kind
from sources.records import CHARACTER, NOTE, OBSERVATION, PROMPT
from sources.storage.tables.kind_tables import ITEM_COLUMNS, TABLE_COLUMNS, column_definitions

LIBRARY_SCHEMA = "florilegium_library"
TENANT_ROLE = "florilegium_tenant"
# The setting of a transaction that row-level security and the lexemes of queries are compared with.
TENANT_SETTING = "florilegium.tenant"
# Without the setting it is NULL, or an empty text after a transaction that had it.
_IS_OWN = f"tenant_id = current_setting('{TENANT_SETTING}', TRUE)"
_TYPES = {"TEXT": 'TEXT COLLATE "C"', "INTEGER": "BIGINT", "BLOB": "BYTEA"}


def _table(
    name: str,
    key: str,
    *columns: str,
    references: Mapping[str, str] | None = None,
    policies: Sequence[str] = (f"tenant USING ({_IS_OWN})",),
) -> tuple[str, ...]:
    """A column has a name, a type (TEXT, INTEGER or BLOB, as in SQLite) and constraints. `references` are the tables
    whose ids columns have: their rows are deleted together."""
    definitions = [f"tenant_id {_TYPES['TEXT']} NOT NULL"]
    constraints = [f"PRIMARY KEY (tenant_id, {key})"]
    for column in columns:
        definitions += _typed([column.removesuffix(" UNIQUE")])
        if column.endswith(" UNIQUE"):
            constraints.append(f"UNIQUE (tenant_id, {column.split()[0]})")
    for column, table in (references or {}).items():
        target = f"{LIBRARY_SCHEMA}.{table} (tenant_id, id)"
        constraints.append(f"FOREIGN KEY (tenant_id, {column}) REFERENCES {target} ON DELETE CASCADE")
    table = f"{LIBRARY_SCHEMA}.{name}"
    return (
        f"CREATE TABLE {table} ({', '.join([*definitions, *constraints])})",
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        *(f"CREATE POLICY {policy.replace(' ', f' ON {table} ', 1)}" for policy in policies),
    )


def _typed(columns: Iterable[str]) -> Iterator[str]:
    for column in columns:
        words = column.split(" ", 2)
        yield " ".join((words[0], _TYPES.get(words[1], words[1]), *words[2:]))


def _lexeme_table(name: str, key: str, *columns: str, references: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """An index that is read by its lexemes, which begin with the tenant. It has no text. Every tenant may read it: a
    condition that a policy adds would keep PostgreSQL from using the index, because `@@` is not leakproof."""
    policies = (
        "read FOR SELECT USING (TRUE)",
        f"add FOR INSERT WITH CHECK ({_IS_OWN})",
        f"change FOR UPDATE USING ({_IS_OWN})",
        f"remove FOR DELETE USING ({_IS_OWN})",
    )
    return (
        *_table(name, key, *columns, "tsv TSVECTOR NOT NULL", references=references, policies=policies),
        # A search reads the list of pending entries as a whole, so it must stay short.
        f"CREATE INDEX {name}_by_lexeme ON {LIBRARY_SCHEMA}.{name} USING gin (tsv) WITH (gin_pending_list_limit = 256)",
    )


def _index(name: str, table: str, columns: str, where: str = "", *, is_unique: bool = False) -> str:
    unique, condition = "UNIQUE " if is_unique else "", f" WHERE {where}" if where else ""
    return f"CREATE {unique}INDEX {name} ON {LIBRARY_SCHEMA}.{table} (tenant_id, {columns}){condition}"


def _texts(*names: str) -> tuple[str, ...]:
    return tuple(f"{name} TEXT NOT NULL" for name in names)


def _item_table(name: str, *columns: str) -> tuple[str, ...]:
    """Returns a table of items, the index that lists them by age, and the table that finds them by folded tag."""
    return (
        *_table(name, "id", "id INTEGER NOT NULL", *columns, *ITEM_COLUMNS),
        _index(f"{name}_by_age", name, "last_modified DESC, id DESC", "deleted = 0"),
        *_table(f"{name}_tags", "folded, id", "folded TEXT NOT NULL", "id INTEGER NOT NULL", references={"id": name}),
        _index(f"{name}_tags_of_item", f"{name}_tags", "id"),
    )


def kind_table(kind: Kind) -> tuple[str, ...]:
    return _item_table(kind.source, *column_definitions(kind))


_SHARED = (
    *_table("state", "name", *_texts("name", "value")),
    *_table("idempotency", "key", *_texts("key", "digest", "made", "made_at")),
    _index("idempotency_by_age", "idempotency", "made_at"),
)

_NOTES = (
    *kind_table(NOTE),
    *_table(
        "note_images",
        "note, name",
        "note INTEGER NOT NULL",
        *TABLE_COLUMNS["note_images"],
        references={"note": "notes"},
    ),
)

_CHATS = (
    *_item_table("conversations", *TABLE_COLUMNS["conversations"], "title_seg TEXT"),
    _index(
        "conversations_by_session", "conversations", "session_id", "deleted = 0 AND session_id <> ''", is_unique=True
    ),
    _index("conversations_by_namespace", "conversations", "namespace, last_modified DESC, id DESC", "deleted = 0"),
    *_table("namespaces", "name", "name TEXT NOT NULL"),
    *_table(
        "messages",
        "id",
        "id INTEGER NOT NULL",
        "conversation_id INTEGER NOT NULL",
        *TABLE_COLUMNS["messages"],
        *ITEM_COLUMNS,
        "content TEXT NOT NULL",
        "text_seg TEXT",
        references={"conversation_id": "conversations"},
    ),
    _index("messages_in_order", "messages", "conversation_id, position", is_unique=True),
    _index("messages_by_time", "messages", "created_at, id", "deleted = 0"),
    _index("messages_human_only", "messages", "created_at, id", "human_only = 1 AND deleted = 0"),
)

_OBSERVATIONS = (
    *kind_table(OBSERVATION),
    _index("observations_by_time", "observations", "created_at, id", "deleted = 0"),
    # The values that filters are compared with, in folded form.
    *_table(
        "observations_values",
        "field, folded, id",
        *_texts("field", "folded"),
        "id INTEGER NOT NULL",
        references={"id": "observations"},
    ),
    _index("observations_values_of_item", "observations_values", "id"),
)

_MEDIA = (
    *_item_table("media", *TABLE_COLUMNS["media"], "title_seg TEXT"),
    *_table("texts", "id", "id INTEGER NOT NULL", "content TEXT NOT NULL", references={"id": "media"}),
    *_table("chunks", "id", "id INTEGER NOT NULL", *TABLE_COLUMNS["chunks"]),
    *_table(
        "segments",
        "media_id, position",
        "media_id INTEGER NOT NULL",
        *TABLE_COLUMNS["segments"],
        references={"media_id": "media"},
    ),
)

_PROMPTS = (*kind_table(PROMPT), _index("prompts_by_name", "prompts", "lower(name)", "deleted = 0"))

# The agents on the message bus, and the files of followed sources.
_AGENTS_AND_FILES = (
    *_table(
        "agents", "id", "id TEXT NOT NULL", "name TEXT NOT NULL UNIQUE", "token_hash BLOB NOT NULL", *_texts("used_at")
    ),
    *_table("followed_files", "follow, name", *TABLE_COLUMNS["followed_files"]),
    *_table("followed_items", "follow, name, kind, key", *TABLE_COLUMNS["followed_items"]),
    _index("followed_items_by_uuid", "followed_items", "uuid, kind"),
)

# The full-text index; see `index/entries.py`.
_INDEX = (
    *_lexeme_table("index_entries", "kind, id", "kind SMALLINT NOT NULL", "id INTEGER NOT NULL", "words INT NOT NULL"),
    *_lexeme_table("message_trigrams", "id", "id INTEGER NOT NULL", references={"id": "messages"}),
    *_table("index_words", "word", "word TEXT NOT NULL"),
    *_table("vector_queue", "kind, id", "kind SMALLINT NOT NULL", "id INTEGER NOT NULL"),
)

# The first version of the tables. After a release, neither these statements nor the migrations may change, because they
# have already run. Only append migrations.
LIBRARY_STATEMENTS = (
    *_SHARED,
    *_NOTES,
    *_CHATS,
    *kind_table(CHARACTER),
    *_OBSERVATIONS,
    *_MEDIA,
    *_PROMPTS,
    *_AGENTS_AND_FILES,
    *_INDEX,
)


def vectors_table(vector_type: str) -> tuple[str, ...]:
    columns = (
        "kind SMALLINT NOT NULL",
        "id INTEGER NOT NULL",
        "model SMALLINT NOT NULL",
        "passage INT NOT NULL",
        "char_start INT NOT NULL",
        "char_end INT NOT NULL",
        "digest INTEGER NOT NULL",
        f"vector {vector_type} NOT NULL",
    )
    return _table("vectors", "kind, id, model, passage", *columns)


def _created_tables(statements: Iterable[str]) -> list[str]:
    start = f"CREATE TABLE {LIBRARY_SCHEMA}."
    return [text.removeprefix(start).split(" ", 1)[0] for text in statements if text.startswith(start)]


# Tables that others refer to come first.
TENANT_TABLES = (
    *_created_tables(LIBRARY_STATEMENTS),
    *(name for kind in ADDED_KINDS for name in _created_tables(kind_table(kind))),
    "vectors",
)


# -- kinds of other distributions --------------------------------------------------------------------------------------
# Their tables are created when a server first starts with them installed. If a later version declares more fields,
# columns are added and the rows are indexed again.


@cache
def kind_digests() -> Mapping[str, str]:
    """The digests of the statements that make the tables of installed kinds, by table."""
    return {kind.source: sha256("\0".join(kind_table(kind)).encode()).hexdigest() for kind in ADDED_KINDS}


def added_columns(kind: Kind) -> str:
    """The statement that adds the columns that an older table lacks."""
    columns = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in _typed(column_definitions(kind)))
    return f"ALTER TABLE {LIBRARY_SCHEMA}.{kind.source} {columns}"
