"""Drafts that come from elsewhere, again and again: which are new, which came otherwise than the last time.

Every row keeps the digest of the draft it was last made of. So a draft that came before costs one lookup in many, and
what was done with an item here is undone only when the item changed where it came from. Of what an export of ours
brings, the versions tell.
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
from sources.drafts import ConversationDraft, UpsertResult
from sources.storage.sqlite.search.target import json_list
from sources.storage.sqlite.write.validation import is_storable

# 64 bits tell two states of one item apart; two items are never compared by it.
_DIGEST_BYTES = 8
NEW, UPDATED, UNCHANGED, DELETED = (
    UpsertResult("new"),
    UpsertResult("updated"),
    UpsertResult("unchanged"),
    UpsertResult("deleted"),
)


class Held(Struct, frozen=True):
    """A row as far as an arrival is concerned; `arrived` is what is known of the last draft from elsewhere."""

    number: int
    uuid: str
    arrived: str | None
    is_deleted: bool = False
    version: int = 1
    last_modified: str = ""
    # Of a message, the number of its conversation.
    owner: int = 0


class Upserter(Struct, frozen=True):
    """How drafts of one table are taken. `insert` and `change` write a row and what is known of its draft, `is_same`
    says whether a row holds what a draft sets; they refuse a draft before they write. `held` are the rows that are
    there, by uuid; `owner` is the column with that of a row."""

    connection: sqlite3.Connection
    table: str
    held: dict[str, Held]
    insert: Callable[[Any, str | None], Held]
    change: Callable[[Held, Any, str | None], None]
    is_same: Callable[[Held, Any], bool]
    owner: str = "0"

    def put(self, draft: Struct) -> UpsertResult:
        try:
            return self._put(draft, uuid_of(draft), _arrived(draft))
        except (InvalidParams, Conflict) as error:
            return UpsertResult("refused", error.message)

    def _put(self, draft: Struct, uuid: str, arrived: str | None) -> UpsertResult:
        found = self.held.get(uuid)
        if found is None:
            self._hold(self.insert(draft, arrived), draft)
            return NEW
        if found.is_deleted:
            return DELETED
        # Its age is the item's own since it was made: that of a file changes with every copy of the file.
        changes = replace(draft, created_at=UNSET)
        if self._is_known(found, changes, arrived):
            return UNCHANGED
        self.change(found, changes, arrived)
        self._hold(replace(found, arrived=arrived), draft)
        return UPDATED

    def _is_known(self, found: Held, draft: Any, arrived: str | None) -> bool:
        if draft.bookkeeping is not UNSET:
            return self._is_no_newer(found, draft)
        if found.arrived == arrived:
            return True
        # It was made here and is what arrives, or nothing but its time is new: from now on it is known as that.
        is_known = self.is_same(found, draft) if found.arrived is None else _digest(found.arrived) == _digest(arrived)
        if is_known:
            self.connection.execute(f"UPDATE {self.table} SET arrived = ? WHERE id = ?", (arrived, found.number))
            self._hold(replace(found, arrived=arrived), draft)
        return is_known

    def _is_no_newer(self, found: Held, draft: Any) -> bool:
        """Of two states of one item the versions tell which is newer; of one version that was changed in two places,
        the times."""
        kept = draft.bookkeeping
        if (kept.version, kept.last_modified) < (found.version, found.last_modified):
            return True
        return bool(kept.version == found.version) and self.is_same(found, draft)

    def _hold(self, written: Held, draft: Any) -> None:
        """Only of what an export of ours brings the version is asked for again, within the same batch."""
        if draft.bookkeeping is UNSET:
            self.held[written.uuid] = written
        else:
            self.held.update(held_rows(self.connection, self.table, [draft], self.owner))


def held_rows(
    connection: sqlite3.Connection, table: str, drafts: Iterable[Struct], owner: str = "0"
) -> dict[str, Held]:
    """The rows of these drafts that are there, by uuid; `owner` is the column with that of a row."""
    uuids = [uuid for draft in drafts if isinstance(uuid := getattr(draft, "uuid", UNSET), str) and is_storable(uuid)]
    # CROSS JOIN: SQLite keeps this order, and so looks up these rows instead of walking through all.
    rows = connection.execute(
        f"SELECT r.id, r.uuid, r.arrived, r.deleted, r.version, r.last_modified, {owner} FROM json_each(?) wanted "
        f"CROSS JOIN {table} r ON r.uuid = wanted.value",
        (json_list(uuids),),
    )
    return {row[1]: Held(*row) for row in rows}


def uuid_of(draft: Struct) -> str:
    """Without one nothing could be known again."""
    uuid = getattr(draft, "uuid", UNSET)
    if not isinstance(uuid, str):
        raise InvalidParams("uuid: got nothing, expected the item's own, by which it is known again")
    return uuid


def is_older(draft: Struct, found: Held) -> bool:
    """Whether a draft says that it was changed before the one that came last; those that do not say when are not."""
    came, last = _moment(draft), (found.arrived or "").partition(" ")[2]
    return bool(came) and came < last


def _arrived(draft: Any) -> str | None:
    """What is known of a draft when it comes again: its digest and, where it tells, when it was changed there. What an
    export of ours brings is known as it was in the library that was exported."""
    if draft.bookkeeping is not UNSET:
        kept: str | None = draft.bookkeeping.arrived
        return kept
    return f"{_digest_of(draft)} {_moment(draft)}".rstrip()


def _digest(arrived: str | None) -> str:
    return (arrived or "").partition(" ")[0]


def _moment(draft: Struct) -> str:
    """In the one ISO form, so that two are compared as texts."""
    return draft.last_modified if isinstance(draft, ConversationDraft) and draft.last_modified is not UNSET else ""


def _digest_of(draft: Any) -> str:
    """Of what is set in it, but for times. A draft that has no JSON form is refused when it is cleaned, so it needs no
    digest."""
    timeless = replace(draft, created_at=UNSET)
    if isinstance(draft, ConversationDraft):
        timeless = replace(timeless, last_modified=UNSET)
    try:
        encoded = msgspec.json.encode(timeless)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return ""
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


def summed(parts: Sequence[UpsertResult], own: UpsertResult) -> UpsertResult:
    """A conversation is updated by what comes into it."""
    if own.outcome == "unchanged" and any(part.outcome in ("new", "updated") for part in parts):
        return UPDATED
    return own
