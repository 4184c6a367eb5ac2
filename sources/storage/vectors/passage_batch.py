"""What is embedded at once, and how much of a library is embedded."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from sources.storage.search.passages import Passage

# The size of one batch: what the slowest model embeds in about a second.
BATCH_ROWS = 200
BATCH_CHARS = 30_000


class PassageBatch(Struct, frozen=True, kw_only=True):
    """Rows that need vectors, and their passages. How a row is identified depends on the engine."""

    rows: tuple[Any, ...]
    passages: Mapping[Any, Sequence[Passage]]

    @property
    def texts(self) -> list[str]:
        return [passage.text for passages in self.passages.values() for passage in passages]

    def first_rows(self, passages: int) -> Self:
        """Returns the rows up to the one with which the batch has this many passages."""
        count = 0
        for number, row in enumerate(self.rows[:-1], 1):
            count += len(self.passages.get(row, ()))
            if count >= passages:
                return self.only(self.rows[:number])
        return self

    def only(self, rows: tuple[Any, ...]) -> Self:
        """Returns the batch without its other rows. `rows` are the first ones."""
        passages = {row: self.passages[row] for row in rows if row in self.passages}
        return replace(self, rows=rows, passages=passages)


class VectorCoverage(Struct, frozen=True):
    """How many of the rows have vectors."""

    rows: int
    missing: int

    @property
    def share(self) -> float:
        return 1 - min(self.missing, self.rows) / self.rows if self.rows else 1.0

    def __add__(self, other: "VectorCoverage") -> "VectorCoverage":
        return VectorCoverage(self.rows + other.rows, self.missing + other.missing)
