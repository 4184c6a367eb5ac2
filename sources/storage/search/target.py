"""What a search runs on: the full-text index of a source, the tables behind it, and the conditions on their rows."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sources.search.scoring import TITLE_AND_BODY, Prominence
from sources.storage.contract import Search
from sources.storage.search.candidates import HitCandidate
from sources.storage.search.engine import SearchConnection
from sources.storage.tables.filters import has_tags
from sources.storage.tables.sql import SqlFilter, between, contains, equals, json_array
from sources.storage.tables.text_index import TextIndex

if TYPE_CHECKING:
    from sources.storage.sqlite.vectors.kinds import VectorKind


class SearchTarget(Struct, frozen=True, kw_only=True):
    """The searchable form of one collection whose rows have one index entry each; subclasses handle the other cases.

    In SQL the rows of `table` are named `r`. `id_column` holds the public id. `weights` are the bm25 weights of the
    index columns. `candidate_sql` selects the fields of `candidate` for a JSON array of index rowids, in its order.

    If an item has several index entries, the rowid of an entry is the item's rowid shifted left by `item_bits`, plus a
    number; the best entry becomes the item's hit. `phrase_columns` are the columns in which phrases are searched, if
    not in all.
    """

    table: str
    id_column: str
    index: TextIndex
    weights: tuple[float, ...]
    title_column: str
    candidate: type[HitCandidate]
    candidate_sql: str
    prominence: Prominence = TITLE_AND_BODY
    item_bits: int = 0
    phrase_columns: tuple[str, ...] = ()
    # The kinds of vectors that belong to the index entries.
    vectors: tuple["VectorKind", ...] = ()
    # How many of the first matches by words are ranked by words and meaning together, in whole blocks.
    lexical_head: int = 20
    # Whether matches with all words of a plain query come before the others. They score higher in any case.
    prefers_all_terms: bool = True
    # The SQL expression of the text in which `Search.contains` is looked up, if a source supports it.
    literal_text: str = "NULL"

    @property
    def join(self) -> str:
        """The join that makes `r` available for conditions and for `age`."""
        return self.join_on(f"{self.index.table}.rowid")

    def join_on(self, rowid: str) -> str:
        """Returns the same join for index rowids from elsewhere."""
        shift = f" >> {self.item_bits}" if self.item_bits else ""
        return f"CROSS JOIN {self.table} r ON r.id = {rowid}{shift}"

    @property
    def is_live(self) -> str:
        """The condition that a joined row can be found by this search at all."""
        return "r.deleted = 0"

    @property
    def age(self) -> str:
        return "r.last_modified"

    @property
    def created_at(self) -> str:
        """When the hit itself was created. For a message, that is not when its conversation was."""
        return "r.created_at"

    def filter(self, search: Search) -> SqlFilter:
        return (
            has_tags(search.tags, self.table, "r.id")
            & between(self.created_at, search.date_from, search.date_to)
            & equals(f"r.{self.id_column}", search.within)
            & contains(self.literal_text, search.contains)
        )

    def list_sql(self, _search: Search) -> str:
        """Selects the index rowid as `number` and the `age` of every live item. Conditions are appended to it."""
        shift = f" << {self.item_bits}" if self.item_bits else ""
        return f"SELECT r.id{shift} AS number, r.last_modified AS age FROM {self.table} r WHERE r.deleted = 0"

    def candidates(self, connection: SearchConnection, rowids: Sequence[int]) -> list[HitCandidate]:
        """Returns the candidates of these index entries, in the same order."""
        return [self.candidate(*row) for row in connection.execute(self.candidate_sql, (json_array(rowids),))]

    def add_context(self, _connection: SearchConnection, candidates: Sequence[HitCandidate]) -> None:
        """Adds the texts of other items by which candidates were found."""
