"""Computes the weights of media texts that were stored before the column `text_weight` existed, while the file is in
use. If the computation is interrupted, it continues with the rows that still lack a weight.
"""

import sqlite3

from sources.text.token_estimates import TokenScale

# How much text is weighed in one transaction: some ten milliseconds, so that other writes are not delayed.
_BATCH_ROWS = 200
_BATCH_CHARS = 1_000_000


def lacks_weights(connection: sqlite3.Connection) -> bool:
    [is_lacking] = connection.execute("SELECT EXISTS (SELECT 1 FROM media WHERE text_weight IS NULL)").fetchone()
    return bool(is_lacking)


def weigh_batch(connection: sqlite3.Connection) -> bool:
    """Weighs one batch of texts, at least one. Returns whether there are more."""
    rows = connection.execute(
        "SELECT id, length_chars FROM media WHERE text_weight IS NULL ORDER BY id LIMIT ?", (_BATCH_ROWS,)
    ).fetchall()
    left = _BATCH_CHARS
    for rowid, length_chars in rows:
        [content] = connection.execute("SELECT content FROM texts WHERE id = ?", (rowid,)).fetchone()
        weight = TokenScale().weigh(content)
        connection.execute("UPDATE media SET text_weight = ? WHERE id = ?", (weight, rowid))
        left -= length_chars
        if left <= 0:
            break
    return lacks_weights(connection)
