"""What a search runs on: the index of each source, the tables behind it and the fields of a hit."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.kinds import Kind
from sources.records import ALTERNATE_BRANCH_LABEL, CHARACTER, NOTE, OBSERVATION, PROMPT, Hit
from sources.search.scoring import MESSAGE_AND_CONTEXT
from sources.search.term_matching import best_field
from sources.storage import vector_kinds
from sources.storage.contract import Search
from sources.storage.embedding import field_at
from sources.storage.search import engine
from sources.storage.tables import sql
from sources.storage.tables.dialect import Dialect
from sources.storage.tables.item_table import decode_texts
from sources.storage.tables.kind_tables import has_tags, indexed_sql, text_index
from sources.text.chunking import SHORT_CHARS
from sources.text.segmentation import segment

# The rowid of an index entry in `CandidateSql`, and the columns that every candidate has after its id and title.
_ROWID = "CAST(wanted.value AS BIGINT)"
_ITEM_COLUMNS = "r.tags, r.created_at, r.last_modified, r.version, r.content_hash"


class NoteCandidate(engine.TextCandidate, gc=False):
    @property
    def written_text(self) -> str:
        return sql.text_with_tags(self.text, self.tags)

    @property
    def item_chars(self) -> int:
        return len(self.text)

    def build_hit(self) -> Hit:
        return self.make_hit(self.hit_text, self.passage)


def _notes_target(dialect: Dialect) -> engine.SearchTarget:
    columns = f"r.uuid, r.title, {_ITEM_COLUMNS}, r.title_seg, r.content, r.content_seg"
    return engine.SearchTarget(
        dialect=dialect,
        table="notes",
        id_column="uuid",
        index=text_index(NOTE),
        weights=(2.0, 1.0),
        title_column="title",
        candidate=NoteCandidate,
        select=engine.CandidateSql(columns, f"{{join}} notes r ON r.id = {_ROWID}"),
        text_form="r.content_seg",
        vectors=(vector_kinds.ITEM_VECTORS["notes"],),
    )


# -- media -------------------------------------------------------------------------------------------------------------
# How media are searched: by their chunks.


class MediaCandidate(engine.TextCandidate, gc=False):
    """One chunk of an item."""

    # A stored value instead of a property.
    item_chars: int  # pyright: ignore[reportIncompatibleMethodOverride] - see above
    media_type: str
    url: str
    chunk_index: int
    chunk_uuid: str
    start_ms: int | None
    text_weight: int | None

    def build_hit(self) -> Hit:
        return self.make_hit(
            self.hit_text,
            self.passage,
            media_type=self.media_type,
            url=self.url,
            chunk_index=self.chunk_index,
            chunk_uuid=self.chunk_uuid,
            start_ms=self.start_ms,
            more_in_item=self.more_in_item,
            text_weight=self.text_weight,
        )


def _media_target(dialect: Dialect) -> engine.SearchTarget:
    columns = (
        f"r.id, r.title, {_ITEM_COLUMNS}, r.title_seg, c.text, c.text_seg, r.length_chars, r.media_type, r.url, "
        f"c.id & {sql.CHUNKS_MAX - 1}, c.uuid, c.start_ms, r.text_weight"
    )
    tables = f"{{join}} chunks c ON c.id = {_ROWID} {{join}} media r ON r.id = c.id >> {sql.CHUNK_BITS}"
    return engine.SearchTarget(
        dialect=dialect,
        table="media",
        id_column="id",
        index=sql.MEDIA_INDEX,
        weights=(2.0, 1.0),
        title_column="title",
        candidate=MediaCandidate,
        select=engine.CandidateSql(columns, tables),
        text_form="c.text_seg",
        item_bits=sql.CHUNK_BITS,
        vectors=(vector_kinds.CHUNK_VECTORS,),
    )


# -- kinds with several fields -----------------------------------------------------------------------------------------
# How characters, prompts and the kinds of other distributions are searched: by any of their fields.


class KindCandidate(engine.FieldsCandidate, gc=False):
    """An item of the kind `source`. `values` is a JSON array of its fields in reading order, without the tags. Its hit
    shows the field that matches best. If it was found by its meaning, that is the one with the nearest passage."""

    has_authors = True

    source: str
    values: str
    # A stored value instead of a property.
    author_name: str  # pyright: ignore[reportIncompatibleMethodOverride] - see above

    def build_hit(self) -> Hit:
        layout, choice = _layout(self.source), self.field_choice
        assert choice is not None
        # The texts of all fields but the title.
        values = {"tags": self.tags}
        values.update(zip(layout.stored, decode_texts(self.values), strict=True))
        for name, separator in layout.lists.items():
            values[name] = separator.join(decode_texts(values[name]))
        fields: dict[str, str] = {}
        # Of these, one that was searched is shown. Some are part of the hit but not of the index.
        requested: dict[str, str] = {}
        indexed: dict[str, str] = {}
        for name, shown in layout.names.items():
            fields[shown] = text = values[name]
            if shown in choice.searched:
                requested[shown] = text
            if shown not in layout.unsearched:
                indexed[shown] = text
        # A hit without a word of the query was found by its meaning alone.
        if self.passage is None or self.lexical:
            best = best_field(requested or indexed, choice.counter)
            if best is not None:
                return self.make_hit(best[1], self.passage, field=best[0], fields=fields)
        kind = ITEM_KINDS[self.source]
        embedded = kind.embedded
        if self.passage is None or not any(fields[name] for name in embedded):
            return self.make_hit(self.title, None, field=kind.title, fields=fields)
        start, end = self.passage
        index, offset = field_at([fields[name] for name in embedded], start)
        nearest = embedded[index]
        passage = offset, offset + end - start
        return self.make_hit(fields[nearest], passage, field=nearest, fields=fields)

    def shows_same_text(self, other: engine.HitCandidate) -> bool:
        """Copies, as libraries that share items have them, need not be searched for the field that matches best."""
        if isinstance(other, KindCandidate) and (self.source, self.title, self.tags, self.values) == (
            other.source,
            other.title,
            other.tags,
            other.values,
        ):
            return True
        return super().shows_same_text(other)

    @property
    def item_chars(self) -> int:
        return len(self.body)

    @property
    def text_chars(self) -> int:
        return len(self.body)


class _KindTarget(engine.SearchTarget, frozen=True, kw_only=True):
    def complete(
        self,
        _connection: engine.SearchConnection,
        candidates: Sequence[engine.HitCandidate],
        choice: engine.FieldChoice,
    ) -> None:
        for candidate in candidates:
            candidate.field_choice = choice
            # Choosing a field takes time in proportion to the text, and hits are built on the event loop.
            if candidate.item_chars > SHORT_CHARS:
                candidate.hit()


class _KindLayout(Struct, frozen=True):
    """The fields of a kind: all in reading order with the names that are shown, those in `KindCandidate.values`, the
    separators of lists, and the fields that are not searched."""

    names: Mapping[str, str]
    stored: tuple[str, ...]
    lists: Mapping[str, str]
    unsearched: frozenset[str]


@lru_cache(maxsize=64)
def _layout(source: str) -> _KindLayout:
    kind = ITEM_KINDS[source]
    names, searched = kind.read_fields, kind.searched
    stored = tuple(name for name in names if name != "tags")
    lists = {field.name: "\n\n" for field in kind.fields if field.shape == "list" and field.name in names}
    return _KindLayout(
        {name: kind.tags_name if name == "tags" else name for name in names},
        stored,
        {**lists, "tags": ", "},
        frozenset(name for name in stored if name not in searched),
    )


def _kind_target(kind: Kind, dialect: Dialect) -> engine.SearchTarget:
    """The weight of a title is twice that of each other column."""
    _, *body = indexed_sql(kind, dialect.character(10), "r.")
    values = ", ".join(f"r.{name}" for name in _layout(kind.source).stored)
    joined = " || ' ' || ".join(body)
    author = f"r.{kind.author}" if kind.author is not None else "''"
    columns = (
        f"r.{kind.key}, r.{kind.title}, {_ITEM_COLUMNS}, r.{kind.title}_seg, {joined}, "
        f"'{kind.source}', CAST({dialect.json_array}({values}) AS TEXT), {author}"
    )
    return _KindTarget(
        dialect=dialect,
        table=kind.source,
        id_column=kind.key,
        index=text_index(kind),
        weights=(2.0, *(1.0 for _ in body)),
        title_column=kind.title,
        candidate=KindCandidate,
        select=engine.CandidateSql(columns, f"{{join}} {kind.source} r ON r.id = {_ROWID}"),
        vectors=(vector_kinds.ITEM_VECTORS[kind.source],),
    )


# -- observations ------------------------------------------------------------------------------------------------------
# How observations are searched.


class ObservationCandidate(engine.FieldsCandidate, gc=False):
    subtitle: str
    narrative: str
    facts: str

    @property
    def item_chars(self) -> int:
        return len(self._text)

    def build_hit(self) -> Hit:
        return self.make_hit(self._text or self.title, self.passage)

    @property
    def _text(self) -> str:
        return "\n".join(part for part in (self.subtitle, self.narrative, *decode_texts(self.facts)) if part)


def _observations_target(dialect: Dialect) -> engine.SearchTarget:
    body = indexed_sql(OBSERVATION, dialect.character(10), "r.")[1]
    columns = f"r.uuid, r.title, {_ITEM_COLUMNS}, r.title_seg, {body}, r.subtitle, r.narrative, r.facts"
    return engine.SearchTarget(
        dialect=dialect,
        table="observations",
        id_column="uuid",
        index=text_index(OBSERVATION),
        weights=(2.0, 1.0),
        title_column="title",
        candidate=ObservationCandidate,
        select=engine.CandidateSql(columns, f"{{join}} observations r ON r.id = {_ROWID}"),
        vectors=(vector_kinds.ITEM_VECTORS["observations"],),
    )


# -- chats -------------------------------------------------------------------------------------------------------------
# How conversations and their messages are searched as one source.


class ChatCandidate(engine.HitCandidate, gc=False):
    """A message, whose id is `part_id`, or the title of a conversation. For a title, the message fields are None and
    `entry` is negative."""

    has_speakers = True

    content: str
    # Stored values instead of properties.
    item_chars: int  # pyright: ignore[reportIncompatibleMethodOverride] - see above
    part_id: str | None  # pyright: ignore[reportIncompatibleMethodOverride] - see above
    position: int | None
    speaker: str  # pyright: ignore[reportIncompatibleMethodOverride] - see above
    role: str | None  # pyright: ignore[reportIncompatibleMethodOverride] - see above
    own: str
    context: str
    is_canonical: int
    # The messages before it, through which it may match, or None if they have not been read.
    found_through: str | None = None

    @property
    def sender(self) -> str | None:
        return self.speaker if self.part_id is not None else None

    def scored_texts(self) -> tuple[str, str, int]:
        """The prominent text is what the message says, without the name of its sender, which says nothing about its
        content."""
        text, context, speaker = self.own, self.context, self.speaker
        chars = len(text)
        if speaker:
            text = text.removeprefix(f"{speaker}: ")
            if len(text) == chars:
                # The index form of a message, if it has one, begins with that of the name.
                text = text.removeprefix(f"{_indexed_name(speaker)} ")
        return text, context, chars + len(context)

    @property
    def text_chars(self) -> int:
        return len(self.content)

    @property
    def hit_text(self) -> str:
        return self.content

    def build_hit(self) -> Hit:
        is_found_through_others = self.is_matched_aside and self.part_id is not None
        return self.make_hit(
            self.content,
            self.passage,
            conversation_id=self.id,
            message_id=self.part_id,
            message_index=self.position,
            sender=None if self.part_id is None else self.speaker,
            role=self.role,
            branch_label="" if self.is_canonical else ALTERNATE_BRANCH_LABEL,
            via="context" if is_found_through_others else None,
            context=(self.found_through or "") if is_found_through_others else "",
        )


@lru_cache(maxsize=1024)
def _indexed_name(sender: str) -> str:
    return segment(sender)


class MessageContext(Struct, frozen=True):
    """How an engine reads the messages before a message `m`. `indexed` is the SQL expression of what the index has of
    them, and `written` that of the messages as they are written and in order, or NULL if they are read later, with
    `select_written`: for a JSON array of uuids, it selects each and the messages. `table` is what the expressions
    need."""

    indexed: str
    select_written: str
    written: str = "NULL"
    table: str = ""


# The text of a title's hit is the first message of its conversation that agents may read.
_TITLES = engine.CandidateSql(
    """c.uuid, c.title, c.tags, c.created_at, c.last_modified, c.version, c.content_hash,
        coalesce(first.content, ''),
        coalesce((SELECT sum(length(m.content)) FROM messages m
            WHERE m.conversation_id = c.id AND m.deleted = 0 AND m.human_only = 0), 0),
        NULL, NULL, '', NULL, coalesce(c.title_seg, c.title), '', 1""",
    f"{{join}} conversations c ON c.id = -{_ROWID}",
    """LEFT JOIN messages first ON first.id = (SELECT m.id FROM messages m
            WHERE m.conversation_id = c.id AND m.deleted = 0 AND m.human_only = 0 ORDER BY m.position LIMIT 1)""",
)
# Compared with a condition on the column, this need not read the rows, which can be long.
_HUMAN_ONLY_IDS = "SELECT id FROM messages WHERE human_only = 1 AND deleted = 0"


class _ChatsTarget(engine.SearchTarget, frozen=True, kw_only=True):
    """An index rowid is the rowid of a message, or the negative rowid of a conversation for its title. In conditions,
    `r` is the message, NULL for titles, and `c` is the conversation."""

    context: MessageContext
    is_human_only: bool = False

    def join_on(self, rowid: str) -> str:
        return (
            f"LEFT JOIN messages r ON r.id = {rowid} "
            f"{self.dialect.join} conversations c ON c.id = coalesce(r.conversation_id, -{rowid})"
        )

    @property
    def is_live(self) -> str:
        return f"c.deleted = 0 AND (r.id IS NULL OR (r.deleted = 0 AND r.human_only = {int(self.is_human_only)}))"

    @property
    def age(self) -> str:
        return "coalesce(r.last_modified, c.last_modified)"

    @property
    def created_at(self) -> str:
        return "coalesce(r.created_at, c.created_at)"

    def filter(self, search: Search) -> sql.SqlFilter:
        conditions = (
            has_tags(search.tags, "conversations", "c.id")
            & sql.between(self.created_at, search.date_from, search.date_to)
            & sql.equals("c.character_id", search.character_id)
            & sql.equals("c.uuid", search.within)
            & sql.equals("c.namespace", search.namespace)
        )
        if search.by != "both":
            conditions &= sql.SqlFilter(("r.id IS NULL" if search.by == "title" else "r.id IS NOT NULL",))
        return conditions

    def list_sql(self, search: Search) -> str:
        if search.by == "title":
            return (
                "SELECT -c.id AS number, c.last_modified AS age FROM conversations c LEFT JOIN messages r ON FALSE "
                f"WHERE c.deleted = 0 AND {not self.is_human_only}"
            )
        return (
            "SELECT r.id AS number, r.last_modified AS age FROM messages r "
            "JOIN conversations c ON c.id = r.conversation_id WHERE r.deleted = 0 AND c.deleted = 0 "
            f"AND r.id {'IN' if self.is_human_only else 'NOT IN'} ({_HUMAN_ONLY_IDS})"
        )

    def candidates(self, connection: engine.SearchConnection, rowids: Sequence[int]) -> list[engine.HitCandidate]:
        messages: list[int] = []
        titles: list[int] = []
        for rowid in rowids:
            (messages if rowid > 0 else titles).append(rowid)
        found = self._read_candidates(connection, messages, self.select) if messages else []
        if titles:
            found += self._read_candidates(connection, titles, _TITLES)
            found.sort(key=lambda candidate: rowids.index(candidate.entry))
        return found

    def complete(
        self,
        connection: engine.SearchConnection,
        candidates: Sequence[engine.HitCandidate],
        _choice: engine.FieldChoice,
    ) -> None:
        """Adds the messages that are part of a message's index entry to those that match only through them."""
        found: dict[str, ChatCandidate] = {}
        for one in candidates:
            if one.is_matched_aside and one.part_id is not None:
                assert isinstance(one, ChatCandidate)
                if one.found_through is None:
                    found[one.part_id] = one
        if found:
            for message_id, text in connection.execute(self.context.select_written, (sql.json_array([*found]),)):
                found[message_id].found_through = text


def _chats_target(dialect: Dialect, context: MessageContext) -> _ChatsTarget:
    columns = (
        "c.uuid, c.title, c.tags, m.created_at, m.last_modified, m.version, m.content_hash, m.content, "
        "length(m.content), m.uuid, m.position, m.sender, m.role, "
        f"{sql.MESSAGE_OWN}, {context.indexed}, m.is_canonical, {context.written}"
    )
    tables = f"{{join}} messages m ON m.id = {_ROWID} {{join}} conversations c ON c.id = m.conversation_id"
    return _ChatsTarget(
        dialect=dialect,
        context=context,
        table="conversations",
        id_column="uuid",
        index=sql.CHATS_INDEX,
        weights=(3.0, 3.0, 1.0),
        title_column="title",
        candidate=ChatCandidate,
        select=engine.CandidateSql(columns, tables, context.table),
        prominence=MESSAGE_AND_CONTEXT,
        # A single word may occur in the preceding messages (the context), but a phrase must be in the message itself.
        phrase_columns=("title", "own"),
        vectors=(vector_kinds.MESSAGE_VECTORS, vector_kinds.TITLE_VECTORS),
        # A long message, such as an assistant's answer, contains all words of a question by chance more often than not.
        prefers_all_terms=False,
        # Messages are short, so that words alone order them less reliably than other texts. With the second stage, R@10
        # of LoCoMo is 0.807 with 20 rows, 0.817 with 40 and 0.819 with 60.
        lexical_head=40,
    )


def search_targets(dialect: Dialect, context: MessageContext) -> Mapping[str, engine.SearchTarget]:
    """Returns the targets of an engine by source. That of human-only messages is what only people search."""
    chats = _chats_target(dialect, context)
    human_only = replace(
        chats, index=sql.HUMAN_ONLY_INDEX, is_human_only=True, vectors=(vector_kinds.HUMAN_ONLY_VECTORS,)
    )
    return {
        "notes": _notes_target(dialect),
        "media": _media_target(dialect),
        "observations": _observations_target(dialect),
        "chats": chats,
        "human_only": human_only,
        **{kind.source: _kind_target(kind, dialect) for kind in (CHARACTER, PROMPT, *ADDED_KINDS)},
    }
