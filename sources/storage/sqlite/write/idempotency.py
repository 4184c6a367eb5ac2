"""Idempotency keys: repeating a write with the same key and the same request returns the result of the first call."""

import sqlite3
from collections.abc import Callable, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from config.errors import Conflict
from config.times import format_timestamp
from sources.storage.sqlite.write.item_table import decode_texts


class IdempotencyLimits(Struct, frozen=True):
    """How long keys are kept, and how many."""

    ttl_s: float
    max_keys: int


def run_once(
    connection: sqlite3.Connection,
    key: str,
    request: object,
    write: Callable[[], Sequence[str]],
    *,
    limits: IdempotencyLimits,
    now_s: float,
) -> Sequence[str]:
    """Returns the uuids that `write` returns, or those it returned when it ran under this key before. Raises `Conflict`
    if the key was used for a different request."""
    digest = sha256(repr(request).encode()).hexdigest()
    _delete_old_keys(connection, limits, now_s)
    row = connection.execute("SELECT digest, made FROM idempotency WHERE key = ?", (key,)).fetchone()
    if row is None:
        uuids = write()
        values = (key, digest, msgspec.json.encode(uuids).decode(), format_timestamp(now_s))
        connection.execute("INSERT INTO idempotency VALUES (?, ?, ?, ?)", values)
        return uuids
    stored_digest, stored_uuids = row
    if stored_digest != digest:
        raise Conflict(f"idempotency key {key!r} was already used for a different request")
    return decode_texts(stored_uuids)


def _delete_old_keys(connection: sqlite3.Connection, limits: IdempotencyLimits, now_s: float) -> None:
    """Deletes expired keys, and the oldest ones if there is no room for one more."""
    connection.execute("DELETE FROM idempotency WHERE made_at < ?", (format_timestamp(now_s - limits.ttl_s),))
    connection.execute(
        "DELETE FROM idempotency WHERE key IN (SELECT key FROM idempotency ORDER BY made_at DESC LIMIT -1 OFFSET ?)",
        (limits.max_keys - 1,),
    )
