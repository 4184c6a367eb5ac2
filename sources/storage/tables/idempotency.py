"""Idempotency keys: repeating a write with the same key and the same request returns the result of the first call."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from config.errors import Conflict
from config.times import format_timestamp, parse_time
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.item_table import decode_texts
from sources.storage.tables.validation import COUNT_MAX


class IdempotencyLimits(Struct, frozen=True):
    """How long keys are kept, and how many."""

    ttl_s: float
    max_keys: int


def run_once(
    connection: SqlConnection,
    key: str,
    request: object,
    write: Callable[[], Sequence[str]],
    *,
    limits: IdempotencyLimits,
    now_s: float,
) -> Sequence[str]:
    """Returns the uuids that `write` returns, or those it returned when it ran under this key before.

    Raises `Conflict` if the key was used for a different request. `now_s` must not jump while the process runs, or keys
    would be lost early.
    """
    digest = sha256(repr(request).encode()).hexdigest()
    _delete_old_keys(connection, limits, now_s)
    row = connection.execute("SELECT digest, made FROM idempotency WHERE key = ?", (key,)).fetchone()
    if row is None:
        uuids = write()
        values = (key, digest, msgspec.json.encode(uuids).decode(), _next_time(connection, now_s))
        connection.execute("INSERT INTO idempotency (key, digest, made, made_at) VALUES (?, ?, ?, ?)", values)
        return uuids
    stored_digest, stored_uuids = row
    if stored_digest != digest:
        raise Conflict(f"idempotency key {key!r} was already used for a different request")
    return decode_texts(stored_uuids)


def _next_time(connection: SqlConnection, now_s: float) -> str:
    """Returns a time after that of every stored key, so that the order of keys survives a clock that was set back."""
    (newest,) = connection.execute("SELECT max(made_at) FROM idempotency").fetchone()
    now = format_timestamp(now_s)
    return now if newest is None or newest < now else format_timestamp(parse_time(newest).timestamp() + 0.001)


def _delete_old_keys(connection: SqlConnection, limits: IdempotencyLimits, now_s: float) -> None:
    """Deletes expired keys, and the oldest ones if there is no room for one more."""
    connection.execute("DELETE FROM idempotency WHERE made_at < ?", (format_timestamp(now_s - limits.ttl_s),))
    connection.execute(
        "DELETE FROM idempotency WHERE key IN ("
        f"SELECT key FROM idempotency ORDER BY made_at DESC LIMIT {COUNT_MAX} OFFSET ?)",
        (limits.max_keys - 1,),
    )
