"""Leases on work that one process at a time does for a library. They are rows of the library's table `state`, because
a lock of a session does not work behind a connection pooler."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from config.postgres.connection import PostgresConnection

_NOW_S = "extract(epoch FROM clock_timestamp())"
_END_S = "CAST(split_part(state.value, ' ', 2) AS DOUBLE PRECISION)"
_CLAIM = f"""
    INSERT INTO state (name, value) VALUES (?1, CAST(?2 AS TEXT) || ' ' || CAST({_NOW_S} + CAST(?3 AS INTEGER) AS TEXT))
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
    WHERE split_part(state.value, ' ', 1) = ?2 OR {_END_S} < {_NOW_S}
    RETURNING name
"""
_IS_HELD = f"SELECT 1 FROM state WHERE name = ? AND {_END_S} > {_NOW_S}"


def claim(connection: PostgresConnection, name: str, owner: str, lease_s: int) -> bool:
    """Returns False if another process holds the lease. One that ends without releasing it keeps others from the work
    until the lease ends."""
    return connection.execute(_CLAIM, (name, owner, lease_s)).fetchone() is not None


def is_held(connection: PostgresConnection, name: str) -> bool:
    """Whether a process, which may be this one, holds the lease."""
    return connection.execute(_IS_HELD, (name,)).fetchone() is not None


def release(connection: PostgresConnection, name: str, owner: str) -> None:
    connection.execute("DELETE FROM state WHERE name = ? AND split_part(value, ' ', 1) = ?", (name, owner))
