"""Changes of many items in one transaction, with what undoes them.

The previous values are rows of the table `state`, written in the transaction of the change and in the same file. What
was changed before a crash can therefore be undone, and nothing can be undone twice.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import Conflict, InvalidParams, NotFound
from config.times import format_timestamp, parse_time
from sources.drafts import make_draft
from sources.kinds import Record, is_pinned
from sources.storage.contract import ChangeResult, ItemChange, ItemsChange
from sources.storage.tables.item_table import ItemKey, ItemTable, WriteContext
from sources.storage.tables.sql import SAVE_STATE, Delete, SqlConnection, Update
from sources.storage.tables.validation import fold_tag

# How long changes can be undone. Expired rows are deleted by the next change or undo in the same file.
UNDO_KEPT_S = 86_400
_PREFIX = "undo:"
# The time of the change in the stored form, and a random number.
_TOKEN = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z-[0-9a-f]{16}\Z")


class _OldState(Struct, frozen=True, kw_only=True):
    """What a change did to an item: the fields with their values before and after it. Only if a field was changed again
    since, undoing would lose something. Undoing also restores the modification time, by which lists are ordered."""

    key: ItemKey
    changed_at: str
    last_modified: str
    is_deleted: bool = False
    is_pinned: bool | None = None
    old: Mapping[str, Any] = {}
    new: Mapping[str, Any] = {}


_decode_states = msgspec.json.Decoder(list[_OldState]).decode


def change_items(
    connection: SqlConnection,
    table: ItemTable[Any, Any],
    source: str,
    changes: Sequence[ItemChange],
    undo: str,
    context: WriteContext,
) -> ChangeResult:
    """Changes items. Without `undo`, a new token is made; with one, the changes are added to those of the token."""
    _forget_expired(connection, context)
    undo = undo or f"{context.time}-{secrets.token_hex(8)}"
    states: list[_OldState] = []
    skipped: list[ItemKey] = []
    problem = ""
    for one in changes:
        try:
            record = table.get(connection, one.id)
            if one.version not in (None, record.version):
                raise Conflict(f"{table.kind} {str(one.id)!r} has changed since")
            state = _change(connection, table, source, one.id, record, one.change, context)
        except (NotFound, Conflict, InvalidParams) as error:
            # Raised before anything of this item is written.
            skipped.append(one.id)
            problem = problem or error.message
        else:
            states += [state] if state else []
    if states:
        prefix = f"{_PREFIX}{undo}:{source}:"
        [batches] = connection.execute(*_count(prefix)).fetchone()
        connection.execute(SAVE_STATE, (f"{prefix}{batches:06}", msgspec.json.encode(states).decode()))
    return ChangeResult(
        changed=tuple(state.key for state in states), skipped=tuple(skipped), problem=problem, undo=undo
    )


def _change(
    connection: SqlConnection,
    table: ItemTable[Any, Any],
    source: str,
    key: ItemKey,
    record: Record,
    change: ItemsChange,
    context: WriteContext,
) -> _OldState | None:
    """Returns what the item was, or None if it is already as it should be."""
    if change.deletes:
        table.delete(connection, key, None, context)
        return _OldState(key=key, changed_at=context.time, last_modified=record.last_modified, is_deleted=True)
    values = dict(change.values)
    pins = change.is_pinned
    if pins is not None and table.has_column("is_pinned"):
        values["is_pinned"], pins = pins, None
    if unknown := next((name for name in values if not table.has_column(name)), None):
        raise InvalidParams(f"{unknown}: a {table.kind} has none")
    new = {name: value for name, value in values.items() if getattr(record, name) != value}
    replaced = {fold_tag(old): new_tag for old, new_tag in change.replaced_tags.items()}
    tags = tuple(filter(None, (replaced.get(fold_tag(tag), tag) for tag in record.tags)))
    known = {fold_tag(tag) for tag in tags}
    tags += tuple(tag for tag in change.added_tags if fold_tag(tag) not in known)
    if tags != record.tags:
        new["tags"] = tags
    stored: Record = record
    if new:
        rowid = table.update(connection, key, _draft(source, new), None, context)
        stored = table.get_by_rowid(connection, rowid)
    was_pinned = None
    if pins is not None and is_pinned(record) != pins:
        was_pinned = not pins
        table.set_pinned(connection, key, is_pinned=pins)
    if not new and was_pinned is None:
        return None
    return _OldState(
        key=key,
        changed_at=context.time,
        last_modified=record.last_modified,
        is_pinned=was_pinned,
        old=_values(record, new),
        new=_values(stored, new),
    )


def _draft(source: str, values: Mapping[str, Any]) -> Any:
    own = {name: value for name, value in values.items() if name != "tags"}
    return make_draft(source, own, **({"tags": values["tags"]} if "tags" in values else {}))


def _values(record: Record, names: Iterable[str]) -> dict[str, Any]:
    """Returns the values of fields in the form that they have after encoding them as JSON."""
    return {name: msgspec.to_builtins(getattr(record, name)) for name in names}


def next_batch(connection: SqlConnection, source: str, undo: str, time: str) -> tuple[str, list[_OldState]] | None:
    """Returns the last batch of changes that a token can undo, or None if there is none (any more)."""
    if not _TOKEN.match(undo) or f"{_PREFIX}{undo}" < _oldest(time):
        return None
    prefix = f"{_PREFIX}{undo}:{source}:"
    sql = "SELECT name, value FROM state WHERE name >= ? AND name < ? ORDER BY name DESC LIMIT 1"
    row = connection.execute(sql, (prefix, f"{prefix}~")).fetchone()
    return None if row is None else (row[0], _decode_states(row[1]))


def undo_items(
    connection: SqlConnection, table: ItemTable[Any, Any], source: str, undo: str, context: WriteContext
) -> ChangeResult | None:
    """Undoes the last batch of changes. Items that were changed since stay as they are, and are reported."""
    _forget_expired(connection, context)
    batch = next_batch(connection, source, undo, context.time)
    if batch is None:
        return None
    name, states = batch
    changed: list[ItemKey] = []
    skipped: list[ItemKey] = []
    problem = ""
    for state in reversed(states):
        try:
            if state.is_deleted:
                sql = f"SELECT last_modified FROM {table.name} WHERE deleted = 1 AND {table.key} = ?"
                row = connection.execute(sql, (state.key,)).fetchone()
                modified = row[0] if row else ""
                table.restore(connection, state.key, context)
            else:
                record = table.get(connection, state.key)
                modified = record.last_modified
                if msgspec.json.encode(_values(record, state.new)) != msgspec.json.encode(state.new):
                    raise Conflict(f"{table.kind} {str(state.key)!r} has changed since")
                if state.old:
                    table.update(connection, state.key, _draft(source, state.old), None, context)
                if state.is_pinned is not None:
                    table.set_pinned(connection, state.key, is_pinned=state.is_pinned)
        except (NotFound, Conflict, InvalidParams) as error:
            skipped.append(state.key)
            problem = problem or error.message
        else:
            changed.append(state.key)
            if modified == state.changed_at:  # nothing else has changed the item since
                restore_time = Update(table.name, "last_modified = ?", f"{table.key} = ?")
                connection.execute(restore_time, (state.last_modified, state.key))
    connection.execute(Delete("state", "name = ?"), (name,))
    return ChangeResult(changed=tuple(changed), skipped=tuple(skipped), problem=problem, undo=undo)


def _count(prefix: str) -> tuple[str, tuple[str, str]]:
    return "SELECT count(*) FROM state WHERE name >= ? AND name < ?", (prefix, f"{prefix}~")


def _oldest(time: str) -> str:
    """Everything before it has expired. Times in the stored form sort as text."""
    return _PREFIX + format_timestamp(parse_time(time).timestamp() - UNDO_KEPT_S)


def _forget_expired(connection: SqlConnection, context: WriteContext) -> None:
    connection.execute(Delete("state", "name >= ? AND name < ?"), (_PREFIX, _oldest(context.time)))
