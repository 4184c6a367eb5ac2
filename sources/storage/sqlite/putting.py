"""Drafts that come from elsewhere, again and again: which are new, which came otherwise than the last time.

Every row keeps the digest of the draft it was last made of. So a draft that came before costs one lookup in many, and
what was done with an item here is undone only when the item changed where it came from.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import Conflict, InvalidParams
from sources.drafts import Put
from sources.storage.sqlite.cleaning import is_storable
from sources.storage.sqlite.target import json_list

# 64 bits tell two states of one item apart; two items are never compared by it.
_DIGEST_BYTES = 8
NEW, UPDATED, UNCHANGED, DELETED = Put("new"), Put("updated"), Put("unchanged"), Put("deleted")


class Held(Struct, frozen=True):
    """A row as far as an arrival is concerned: `digest` is that of the last draft that came from elsewhere."""

    number: int
    uuid: str
    digest: str | None
    is_deleted: bool = False
    # Of a message, the number of its conversation.
    owner: int = 0


class Putting(Struct, frozen=True):
    """How drafts of one table are taken. `insert` and `change` write a row with its digest, `is_same` says whether a
    row holds what a draft sets; they refuse a draft before they write. `held` are the rows that are there, by uuid."""

    connection: sqlite3.Connection
    table: str
    held: dict[str, Held]
    insert: Callable[[Any, str], Held]
    change: Callable[[Held, Any, str], None]
    is_same: Callable[[Held, Any], bool]

    def put(self, draft: Struct) -> Put:
        try:
            return self._put(draft, uuid_of(draft), digest_of(draft))
        except (InvalidParams, Conflict) as error:
            return Put("refused", error.message)

    def _put(self, draft: Struct, uuid: str, digest: str) -> Put:
        found = self.held.get(uuid)
        if found is None:
            self.held[uuid] = self.insert(draft, digest)
            return NEW
        if found.is_deleted:
            return DELETED
        if found.digest == digest:
            return UNCHANGED
        if found.digest is None and self.is_same(found, draft):
            # It was made here and is what arrives: from now on it is known as that.
            self.connection.execute(f"UPDATE {self.table} SET arrived = ? WHERE id = ?", (digest, found.number))
            self.held[uuid] = replace(found, digest=digest)
            return UNCHANGED
        self.change(found, draft, digest)
        self.held[uuid] = replace(found, digest=digest)
        return UPDATED


def held_rows(
    connection: sqlite3.Connection, table: str, drafts: Iterable[Struct], owner: str = "0"
) -> dict[str, Held]:
    """The rows of these drafts that are there, by uuid; `owner` is the column with that of a row."""
    uuids = [uuid for draft in drafts if isinstance(uuid := getattr(draft, "uuid", UNSET), str) and is_storable(uuid)]
    # CROSS JOIN: SQLite keeps this order, and so looks up these rows instead of walking through all.
    rows = connection.execute(
        f"SELECT r.uuid, r.id, r.arrived, r.deleted, {owner} FROM json_each(?) wanted "
        f"CROSS JOIN {table} r ON r.uuid = wanted.value",
        (json_list(uuids),),
    )
    return {uuid: Held(number, uuid, digest, bool(deleted), owned) for uuid, number, digest, deleted, owned in rows}


def uuid_of(draft: Struct) -> str:
    """Without one nothing could be known again."""
    uuid = getattr(draft, "uuid", UNSET)
    if not isinstance(uuid, str):
        raise InvalidParams("uuid: got nothing, expected the item's own, by which it is known again")
    return uuid


def digest_of(draft: Struct) -> str:
    """Of what is set in it. A draft that has no JSON form is refused when it is cleaned, so it needs no digest."""
    try:
        encoded = msgspec.json.encode(draft)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return ""
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


def summed(parts: Sequence[Put], own: Put) -> Put:
    """A conversation is updated by what comes into it."""
    if own.outcome == "unchanged" and any(part.outcome in ("new", "updated") for part in parts):
        return UPDATED
    return own
