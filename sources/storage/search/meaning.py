"""Compares the meaning of a query with the passages of one collection: what a search needs from the engine."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from sources.records import SemanticStatus
from sources.semantic.model import ModelInfo
from sources.storage.contract import Search

if TYPE_CHECKING:
    from sources.storage.sqlite.vectors.kinds import VectorKind

NOT_APPLICABLE = SemanticStatus("not_applicable")
# The vector of a message is that of its own text, so it can be compared if only that is searched.
_EMBEDDED_FIELDS = ((), ("own",))
# Returns the single number that a statement selects.
CountRows = Callable[[str, tuple[str | int, ...]], int]


class NearEntry(Struct, frozen=True, gc=False):
    """An index entry that is near to a query. `vector` is the rowid of the vector of its nearest passage."""

    rowid: int
    cosine: float
    kind: "VectorKind"
    vector: int


class PassageScan(Protocol):
    """The cosines of the vectors of some kinds with one query. Items are the rowids of index entries without their
    lowest bits."""

    @property
    def has_vectors(self) -> bool: ...
    def status(self, count: CountRows) -> SemanticStatus: ...
    def nearest(self, count: int, least: float, allowed: Collection[int] | None = None) -> list[NearEntry]:
        """Returns the nearest entries with at least this cosine, one of each item, nearest first."""
        ...

    def best_cosines(self, rowids: Sequence[int]) -> dict[int, float]:
        """Returns the cosine of the best passage of the items of these entries, by item."""
        ...

    def passage_ranges(self, entries: Sequence[NearEntry]) -> dict[int, tuple[int, int]]:
        """Returns where the nearest passages are in the texts of their entries, by the rowid of the entry."""
        ...


class QueryVector(Protocol):
    """The vector of a query, ready to be compared."""

    @property
    def vector(self) -> bytes: ...
    @property
    def model(self) -> ModelInfo: ...
    def scan(self, connection: Any, kinds: "Sequence[VectorKind]", item_bits: int) -> PassageScan: ...


def has_meaning(search: Search) -> bool:
    """Whether meanings can be compared: not for a literal query, another order, or if only some fields are searched."""
    return bool(
        search.query.prose
        and search.query.expression is not None
        and search.ranking != "words"
        and search.order == "relevance"
        and search.scoring == "comparable"
        and search.fields in _EMBEDDED_FIELDS
    )
