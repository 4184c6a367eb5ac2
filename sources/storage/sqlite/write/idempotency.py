"""Writes that were made under a key: the same key with the same request gives what the first one gave."""

import sqlite3
from collections.abc import Callable, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from config.errors import Conflict
from sources.storage.sqlite.write.items import read_texts
from sources.storage.sqlite.write.validation import time_of


class KeyMemory(Struct, frozen=True):
    """How long keys are remembered, and how many."""

    ttl_s: float
    max_keys: int


def once(
    connection: sqlite3.Connection,
    key: str,
    request: object,
    make: Callable[[], Sequence[str]],
    *,
    memory: KeyMemory,
    now_s: float,
) -> Sequence[str]:
    """The uuids that `make` gives, or gave when it ran under this key. `request` tells one request from another."""
    digest = sha256(repr(request).encode()).hexdigest()
    _forget(connection, memory, now_s)
    found = connection.execute("SELECT digest, made FROM idempotency WHERE key = ?", (key,)).fetchone()
    if found is None:
        made = make()
        row = (key, digest, msgspec.json.encode(made).decode(), time_of(now_s))
        connection.execute("INSERT INTO idempotency VALUES (?, ?, ?, ?)", row)
        return made
    if found[0] != digest:
        raise Conflict(f"the idempotency key {key!r} was used for another request")
    return read_texts(found[1])


def _forget(connection: sqlite3.Connection, memory: KeyMemory, now_s: float) -> None:
    """Make room for one more: old keys go, and the oldest when there are too many."""
    connection.execute("DELETE FROM idempotency WHERE made_at < ?", (time_of(now_s - memory.ttl_s),))
    connection.execute(
        "DELETE FROM idempotency WHERE key IN (SELECT key FROM idempotency ORDER BY made_at DESC LIMIT -1 OFFSET ?)",
        (memory.max_keys - 1,),
    )
