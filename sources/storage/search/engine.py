"""What a search runs on: candidates, targets, and what the engine that stores the full-text index provides."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from sources.query import Expression, ParsedQuery
from sources.records import Hit, HitFacets, SemanticStatus
from sources.search.scoring import TITLE_AND_BODY, BoostedPeriod, Prominence
from sources.search.term_matching import TermCounter
from sources.semantic.model import ModelInfo
from sources.storage.contract import Corpus, Search
from sources.storage.tables.dialect import Dialect
from sources.storage.tables.item_table import decode_texts
from sources.storage.tables.kind_tables import has_tags
from sources.storage.tables.sql import SqlFilter, Statement, TextIndex, between, equals, json_array

if TYPE_CHECKING:
    from sources.storage.vector_kinds import VectorKind


class SearchConnection(Protocol):
    """A connection in a job. Parameters are written as `?` in SQL."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """Returns a cursor, as `sqlite3.Connection.execute` does."""
        ...


# -- candidates --------------------------------------------------------------------------------------------------------
# Index entries that may become hits, with the columns that scoring and hits need.


class FieldChoice(Struct, frozen=True):
    """Decides which field of an item a hit shows: one that was searched, and matches best."""

    searched: tuple[str, ...]
    counter: TermCounter


class MatchedEntry(Struct, gc=False):
    """What a statement says about an index entry before the columns of its candidate: its rowid, its rank if it has
    one (lower is better), and whether it matches `MatchTier.first`, which scoring sets for what has all terms."""

    entry: int
    bm25: float | None
    has_all_terms: int


class RankingResult(MatchedEntry, kw_only=True, gc=False):
    """What the search computes for a candidate."""

    more_in_item: int = 0
    # Whether the less prominent text contains words of the query, and whether only that does.
    is_matched_in_other: bool = False
    is_matched_aside: bool = False
    # Whether the name of its author is all of the query that it has, and all of the query.
    is_only_named: bool = False
    score: float = 0.0
    # The parts of the score, and the passage with the nearest meaning, if meanings were compared.
    lexical: float | None = None
    cosine: float | None = None
    passage: tuple[int, int] | None = None
    # The factors of the second stage, by feature.
    boosts: Mapping[str, float] = {}
    # For hits that show one of several fields: how it is chosen.
    field_choice: FieldChoice | None = None
    # The hit if it is already built, which nothing above may change then.
    complete_hit: Hit | None = None


class HitCandidate(RankingResult, gc=False):
    """The columns that every source selects after those of the entry, in this order; subclasses add their own columns
    after them. Implements `RankedMatch`."""

    # Whether candidates of this class can have a speaker, or an author whose name is part of the other text.
    has_speakers: ClassVar[bool] = False
    has_authors: ClassVar[bool] = False
    # Constants here, because most classes have none and scoring reads them for each candidate; properties for type
    # checkers, because some classes compute them.
    if TYPE_CHECKING:

        @property
        def speaker(self) -> str:
            """The name of the person who said it, if it was said."""
            ...

        @property
        def author_name(self) -> str:
            """The name of the person who wrote it, if that is searched with the other text."""
            ...

        @property
        def part_id(self) -> str | None:
            """The id of a part whose prominent text is not the title of the item, such as a message."""
            ...

        @property
        def role(self) -> str | None:
            """Whether a person or a model said it, if it was said."""
            ...
    else:
        role: ClassVar[str | None] = None
        speaker: ClassVar[str] = ""
        author_name: ClassVar[str] = ""
        part_id: ClassVar[str | None] = None

    id: str | int
    title: str
    # A JSON array, decoded only for hits.
    tags: str
    created_at: str
    last_modified: str
    version: int
    content_hash: str

    def scored_texts(self) -> tuple[str, str, int]:
        """Returns the text with the higher weight, usually the title, the rest of the text, and the length of both, by
        which scores are normalized. Of each text, the stored index form if it has one."""
        raise NotImplementedError

    @property
    def written_text(self) -> str | None:
        """The rest of the text as it is indexed, but not segmented, if it is a column of its own."""
        return None

    @property
    def item_chars(self) -> int:
        raise NotImplementedError

    @property
    def text_chars(self) -> int:
        raise NotImplementedError

    @property
    def hit_text(self) -> str:
        return self.hit().text

    def shows_same_text(self, other: "HitCandidate") -> bool:
        text = self.hit_text
        return bool(text) and text == other.hit_text

    @property
    def facets(self) -> HitFacets:
        tags = () if self.tags == "[]" else decode_texts(self.tags)
        # Fields of media and of messages.
        return HitFacets(self.created_at, tags, getattr(self, "media_type", None), getattr(self, "sender", None))

    def hit(self) -> Hit:
        """Returns the hit, which is built once: one that is shown is read for its snippet, for a longer one, and for
        its other fields."""
        if self.complete_hit is None:
            self.complete_hit = self.build_hit()
        return self.complete_hit

    def build_hit(self) -> Hit:
        raise NotImplementedError

    def make_hit(self, text: str, passage: tuple[int, int] | None, **details: Any) -> Hit:
        """Returns a hit with the fields that all sources have; `details` are those of one source."""
        return Hit(
            id=self.id,
            title=self.title,
            text=text,
            score=self.score,
            bm25=self.bm25,
            lexical=self.lexical,
            cosine=self.cosine,
            passage=passage,
            created_at=self.created_at,
            last_modified=self.last_modified,
            version=self.version,
            tags=() if self.tags == "[]" else decode_texts(self.tags),
            content_hash=self.content_hash,
            item_chars=self.item_chars,
            **details,
        )


class TextCandidate(HitCandidate, gc=False):
    """A candidate with a title and one text, each with its index form."""

    title_seg: str | None
    text: str
    text_seg: str | None

    def scored_texts(self) -> tuple[str, str, int]:
        title = self.title if self.title_seg is None else self.title_seg
        text = self.text if self.text_seg is None else self.text_seg
        return title, text, len(self.title) + len(self.text)

    @property
    def written_text(self) -> str:
        return self.text

    @property
    def text_chars(self) -> int:
        return len(self.text)

    @property
    def hit_text(self) -> str:
        return self.text or self.title


class FieldsCandidate(HitCandidate, gc=False):
    """A candidate with a title and several other fields. `body` joins their index forms."""

    title_seg: str | None
    body: str

    def scored_texts(self) -> tuple[str, str, int]:
        title = self.title if self.title_seg is None else self.title_seg
        return title, self.body, len(self.title) + len(self.body)

    @property
    def text_chars(self) -> int:
        return len(self.title) + len(self.body)


# -- target ------------------------------------------------------------------------------------------------------------
# What a search runs on: the full-text index of a source, the tables behind it, and the conditions on their rows.


class CandidateSql(Struct, frozen=True):
    """Selects the columns of candidates. `tables` are joined with a table `wanted`, whose `value` is an index rowid;
    each join is written as `{join}`. `more_tables` is the SQL of further joins."""

    columns: str
    tables: str
    more_tables: str = ""


# Only the filters of searches make pages differ.
@lru_cache(maxsize=256)
def select_page(select: CandidateSql, page: str, rowid: str = "value") -> str:
    """Selects the rowid, `rank` and `is_first` of a page of entries, followed by the columns. These are NULL for an
    entry without a row, such as that of a title."""
    columns = f"wanted.{rowid}, wanted.rank, wanted.is_first, {select.columns}"
    return f"SELECT {columns} FROM ({page}) AS wanted {select.tables.format(join='LEFT JOIN')} {select.more_tables}"


@cache
def select_listed(select: CandidateSql, dialect: Dialect) -> str:
    """Selects the rowids in a list, which is the parameter, each without a rank and followed by the columns. In any
    order."""
    columns = f"CAST(wanted.value AS BIGINT), NULL, 0, {select.columns}"
    return f"SELECT {columns} FROM {dialect.listed()} {select.tables.format(join=dialect.join)} {select.more_tables}"


class SearchTarget(Struct, frozen=True, kw_only=True):
    """The searchable form of one collection whose rows have one index entry each; subclasses handle the other cases.

    In SQL the rows of `table` are named `r`. `id_column` holds the public id. `weights` are the bm25 weights of the
    index columns. `select` has the fields of `candidate`.

    If an item has several index entries, the rowid of an entry is the item's rowid shifted left by `item_bits`, plus a
    number; the best entry becomes the item's hit. `phrase_columns` are the columns in which phrases are searched, if
    not in all.
    """

    dialect: Dialect
    table: str
    id_column: str
    index: TextIndex
    weights: tuple[float, ...]
    title_column: str
    candidate: type[HitCandidate]
    select: CandidateSql
    # The column of the index form of the text, if that is in one column.
    text_form: str = ""
    prominence: Prominence = TITLE_AND_BODY
    item_bits: int = 0
    phrase_columns: tuple[str, ...] = ()
    # The kinds of vectors that belong to the index entries.
    vectors: tuple["VectorKind", ...] = ()
    # How many of the first matches by words are ranked by words and meaning together, in whole blocks; half as many if
    # several sources are searched. A second stage sorts blocks of this size.
    lexical_head: int = 20
    # Whether matches with all words of a plain query come before the others. They score higher in any case.
    prefers_all_terms: bool = True

    def without_text_form(self) -> Self:
        """Returns the target for queries in scripts without spaces, whose terms are found in the text as it is written.
        Its index form is four times as long, and need not be read."""
        columns = self.select.columns.replace(self.text_form, "NULL")
        return replace(self, select=replace(self.select, columns=columns))

    @property
    def join(self) -> str:
        """The join that makes `r` available for conditions and for `age`."""
        return self.join_on(f"{self.index.table}.rowid")

    def join_on(self, rowid: str) -> str:
        """Returns the same join for index rowids from elsewhere."""
        shift = f" >> {self.item_bits}" if self.item_bits else ""
        return f"{self.dialect.join} {self.table} r ON r.id = {rowid}{shift}"

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
        """The conditions that SQL can compare. Those on folded and literal texts are up to the engine."""
        return (
            has_tags(search.tags, self.table, "r.id")
            & between(self.created_at, search.date_from, search.date_to)
            & equals(f"r.{self.id_column}", search.within)
        )

    def list_sql(self, _search: Search) -> str:
        """Selects the index rowid as `number` and the `age` of every live item. Conditions are appended to it."""
        shift = f" << {self.item_bits}" if self.item_bits else ""
        return f"SELECT r.id{shift} AS number, r.last_modified AS age FROM {self.table} r WHERE r.deleted = 0"

    def candidates(self, connection: SearchConnection, rowids: Sequence[int]) -> list[HitCandidate]:
        """Returns the candidates of these index entries, in the same order."""
        return self._read_candidates(connection, rowids, self.select) if rowids else []

    def _read_candidates(
        self, connection: SearchConnection, rowids: Sequence[int], select: CandidateSql
    ) -> list[HitCandidate]:
        found: dict[int, HitCandidate] = {}
        for row in connection.execute(select_listed(select, self.dialect), (json_array(rowids),)):
            found[row[0]] = self.candidate(*row)
        return [found[rowid] for rowid in rowids if rowid in found]

    def complete(self, _connection: SearchConnection, candidates: Sequence[HitCandidate], _choice: FieldChoice) -> None:
        """Adds what hits need besides their own rows."""


# -- engine ------------------------------------------------------------------------------------------------------------
# What the engine that stores the full-text index provides.

# Rowid, rank, and whether it matches `MatchTier.first`. If the engine reads both, the columns of a candidate follow. A
# plain tuple: one is read per match.
EntryRow = tuple[Any, ...]
ENTRY_COLUMNS = 3


class MatchTier(Struct, frozen=True):
    """Matches with one sort order. The tiers of a search follow one another and have no match in common."""

    match: str
    order: Literal["rank", "newest", "recent"]
    # Matches of this expression come before the other matches of the tier.
    first: str = ""
    # Only matches of this expression belong to the tier. Always empty for engines that read ahead.
    within: str = ""
    # Matches of this expression belong to the previous tier.
    excluded: str = ""

    @property
    def has_all_matches(self) -> bool:
        return not (self.within or self.excluded)


class TierSql(Struct, frozen=True):
    """Statements over the index entries of one match tier that pass a filter, in order. Rowids that differ only in the
    lowest `item_bits` bits belong to the same item."""

    target: SearchTarget
    tier: MatchTier
    filter: SqlFilter
    item_bits: int
    is_ranked: bool
    # Factors by which ranks are multiplied, if they are the order.
    boost: tuple[BoostedPeriod, ...] = ()
    # Items to leave out.
    skipped: tuple[int, ...] = ()

    @abstractmethod
    def read_entries(self, connection: Any, limit: int, offset: int, items_max: int, /) -> Sequence[EntryRow]:
        """Reads a page of entries, with the columns of their candidates or without. If items have several entries,
        the columns of a candidate are those of the first entry of each of the first `items_max` items, and NULL for all
        other entries."""

    @abstractmethod
    def select_items(self) -> Statement:
        """Selects the items of all entries as one JSON array; fetching single rows would acquire the interpreter lock
        for each."""

    @abstractmethod
    def select_texts_of(self, item: int, limit: int, *, is_ranked: bool) -> Statement:
        """Selects the rowids of the entries of an item whose own text matches, and not only the title."""

    def select_extremes(self) -> Statement:
        """Selects the best and the worst rank of an item."""
        sql, parameters = self._ranked_entries()
        items = f"SELECT min(rank) AS rank FROM ({sql}) AS entry GROUP BY number >> {self.item_bits}"
        return f"SELECT min(rank), max(rank) FROM ({items}) AS item", parameters

    def count_entries_of(self, items: Sequence[int]) -> Statement:
        """Counts the entries of each of these items that match, whatever the filter is."""
        sql, parameters = self._all_matching(is_joined=False)
        sql = f"{sql} AND {self._item} IN ({self._listed_numbers}) GROUP BY 1"
        return f"SELECT {self._item}, count(*) {sql}", (*parameters, json_array(items))

    def select_any(self) -> Statement:
        """Selects whether there is an entry at all."""
        sql, parameters = self._matching()
        return f"SELECT EXISTS (SELECT 1 {sql})", parameters

    def count_entries(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT count(*) {sql}", parameters

    def count_items(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT count(DISTINCT {self._item}) {sql}", parameters

    def _boosted_rank(self) -> Statement:
        """The SQL expression of a rank that also depends on when a row was `created`. The better of two ranks is the
        more negative one."""
        if not self.boost:
            return "rank", ()
        cases = " ".join(["WHEN created >= ? AND created < ? THEN CAST(? AS DOUBLE PRECISION)"] * len(self.boost))
        values = [value for period in self.boost for value in (period.start, period.end, period.factor)]
        return f"rank * CASE {cases} ELSE 1 END", tuple(values)

    def _matching(self) -> Statement:
        """Returns the SQL from FROM on."""
        is_joined = bool(self.filter.conditions or self.tier.order == "recent" or self.boost)
        sql, parameters = self._all_matching(is_joined=is_joined)
        sql, parameters = sql + self.filter.sql, (*parameters, *self.filter.parameters)
        if self.tier.excluded:
            condition, values = self._is_not_excluded()
            sql, parameters = f"{sql} AND {condition}", (*parameters, *values)
        if self.skipped:
            sql = f"{sql} AND {self._item} NOT IN ({self._listed_numbers})"
            parameters = (*parameters, json_array(self.skipped))
        return sql, parameters

    @property
    def _item(self) -> str:
        """The SQL expression of the item of an entry."""
        return f"{self._rowid} >> {self.item_bits}"

    @property
    def _listed_numbers(self) -> str:
        return f"SELECT CAST(value AS BIGINT) FROM {self.target.dialect.listed()}"

    @property
    @abstractmethod
    def _rowid(self) -> str:
        """The SQL expression of the rowid of an entry."""

    @abstractmethod
    def _ranked_entries(self) -> Statement:
        """Selects the rowid as `number` and the `rank` of each entry."""

    @abstractmethod
    def _all_matching(self, *, is_joined: bool) -> Statement:
        """Returns the SQL from FROM on for the matches of the tier, whatever the filter is. If `is_joined`, `r` can be
        used in conditions."""

    @abstractmethod
    def _is_not_excluded(self) -> Statement:
        """The condition that an entry does not belong to the previous tier."""


class SearchEngine(Protocol):
    """How one engine writes full-text expressions and reads the entries that match them."""

    @property
    def reads_ahead(self) -> bool:
        """Whether the first entries of a search are read before its words are counted (`TextSearch.first_page`)."""
        ...

    def filter(self, connection: Any, target: SearchTarget, search: Search) -> SqlFilter:
        """Returns the conditions of a search."""
        ...

    def compiler(self, target: SearchTarget | None = None, fields: Sequence[str] = ()) -> Callable[[Expression], str]:
        """Returns a function that compiles expressions for the index of a target, or for any index. `fields` restricts
        the whole search to some columns; all are searched if it is empty."""
        ...

    def scale_ranks(self, best: float, worst: float, ranks: Sequence[float | None]) -> Sequence[float]:
        """Returns scores from 0 to 1 for ranks of a query, given its best and its worst rank."""
        ...

    def both(self, one: str, other: str) -> str:
        """Returns the expression of what two others match."""
        ...

    @property
    def tier_sql(self) -> type[TierSql]: ...


class NearWords(Protocol):
    def near_words(self, words: Sequence[str]) -> list[list[str]]:
        """Returns for each word the nearest ones, or else compounds with it, the most frequent first."""
        ...


# Returns the single number that a statement selects.
CountRows = Callable[[str, tuple[str | int, ...]], int]


class NearEntry(Struct, frozen=True, gc=False):
    """An index entry that is near to a query, and where its nearest passage is in its text."""

    rowid: int
    cosine: float
    passage: tuple[int, int]


class PassageScan(Protocol):
    """The cosines of the vectors of some kinds with one query. Items are the rowids of index entries without their
    lowest bits."""

    @property
    def has_vectors(self) -> bool: ...
    def status(self, count: CountRows) -> SemanticStatus: ...
    def nearest(
        self, count: int, least: float, floor: float, allowed: Collection[int] | None = None
    ) -> list[NearEntry]:
        """Returns the nearest entries with at least the cosine `least`, one of each item, nearest first. None if even
        the nearest has not the cosine `floor`: it is no nearer than one of as many unrelated texts would be."""
        ...

    def best_cosines(self, rowids: Sequence[int]) -> list[float]:
        """Returns the cosine of the best passage of the item of each of these entries, 0 if it is less or if there is
        no passage."""
        ...


class QueryVector(Protocol):
    """The vector of a query, ready to be compared with the passages of a collection."""

    @property
    def vector(self) -> bytes: ...
    @property
    def model(self) -> ModelInfo: ...
    def scan(self, connection: Any, kinds: "Sequence[VectorKind]", item_bits: int) -> PassageScan: ...


# With this many rows, a source's own counts order the hits of all sources as well as the counts of the whole library
# do. With twelve rows they do not.
OWN_ROWS_MIN = 100


class SearchStatistics(Protocol):
    """How common terms are, as one reader of a library sees it."""

    @property
    def engine(self) -> SearchEngine: ...
    def refresh(self, connection: Any, /) -> None:
        """Drops counts that a write made obsolete. Must be called once in each job that counts."""
        ...

    def count_each(self, connection: Any, index: Any, matches: Sequence[str]) -> list[int]:
        """Counts the entries of an index that match each of these expressions."""
        ...

    def count_rows(self, connection: Any, index: Any) -> int:
        """Counts the entries of an index."""
        ...

    def count(self, connection: Any, index: Any, sql: str, parameters: tuple[str | int | float, ...], /) -> int:
        """Returns the single number that a statement selects. It changes only with the items of the index."""
        ...

    def count_each_in_library(self, connection: Any, matches: Sequence[str], enough: int | None = None) -> list[int]:
        """Counts the entries of all sources that match each of these expressions, or only until they are `enough`."""
        ...

    def vocabulary(self, connection: Any, own_index: Any, words_max: int) -> NearWords:
        """Returns the words of the sources and of the searched index. At most `words_max` words of an index are
        compared."""
        ...

    def source_corpus(self, query: ParsedQuery, connection: Any, index: Any) -> Corpus:
        """Returns how common the terms of a query are in an index, or, if it is small, in the library."""
        ...

    def corpus(self, query: ParsedQuery, connection: Any) -> Corpus:
        """Returns how common the terms of a query are in the library."""
        ...
