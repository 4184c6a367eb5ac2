"""Case-insensitive substring search over messages, newest first. Returns rowids; the caller reads the rows.

In a small library the messages are scanned. In a large one the trigrams of the text are looked up in an index, and the
messages that contain all of them are checked. A text that occurs in every other message is found faster by scanning
from the newest. The strategy affects only the time, never the result. Before the index is built, only the newest
messages of a large library are scanned here; `FullScan` continues with the others.

Human-only messages are not in the index. For people they are scanned, apart from the others.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
import unicodedata
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from sources.storage.contract import MessageSearch
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.tables.conversation_tables import message_filter
from sources.storage.tables.sql import SqlFilter, json_array
from sources.storage.tables.validation import clamp_count, is_storable

_TRIGRAM_CHARS = 3
_LAST_CHARACTER = chr(0x10FFFF)
# Trigrams of a long text that are looked up; more would take longer and hardly narrow the result.
_TRIGRAMS_MAX = 10
# Trigrams that may start with a text of one or two characters before the index is not worth using.
_SHORT_TEXT_TRIGRAMS_MAX = 1_000
# Before the index is used, this many of the newest messages are scanned per requested one: a text that occurs in every
# other message is found there.
_NEWEST_PER_LIMIT = 2
# With an index, at most this fraction of the scan limit is scanned at once.
_SCAN_FRACTION = 10

# Without positions the index is a third as large. Texts are folded by Python, because SQLite cannot fold `ß`, and
# followed by two spaces, so that every character starts a trigram. The Unicode version is part of the index version,
# because another one may fold differently.
SUBSTRING_INDEX = MessageIndex(
    table="substring_index",
    column="text",
    options="content='', columnsize=0, detail=none, tokenize=\"trigram case_sensitive 1\"",
    version=f"2 {unicodedata.unidata_version}",
    text_expression="casefold({}) || '  '",
    has_titles=True,
    extra_ddl=("CREATE VIRTUAL TABLE substring_index_terms USING fts5vocab (substring_index, row)",),
)

_MATCHING_ROWIDS = "SELECT rowid FROM substring_index WHERE substring_index MATCH ?"
NEWEST_FIRST = "ORDER BY m.created_at DESC, m.id DESC"
IS_LIVE = "m.deleted = 0 AND c.deleted = 0"
_IN_CONTENT = "instr(casefold(m.content), ?)"
_IN_TITLE = "instr(casefold(c.title), ?)"


class SubstringMatches(Struct, frozen=True):
    """Rowids of messages, in order. If `is_complete`, they are all matches or as many as were requested."""

    rowids: tuple[int, ...]
    is_complete: bool = True


def find(
    connection: sqlite3.Connection, search: MessageSearch, scanned_rows_max: int, *, is_agent: bool = True
) -> SubstringMatches:
    """Scans at most `scanned_rows_max` messages of each kind."""
    if not is_storable(search.text or "") or not is_storable(search.conversation_id or ""):
        return SubstringMatches(())
    public = _SubstringSearch(connection, search, scanned_rows_max)
    matches = public.run()
    if is_agent:
        return matches
    human_only = _SubstringSearch(connection, search, scanned_rows_max, is_human_only=True).run()
    rowids = public.newest({*matches.rowids, *human_only.rowids}) if human_only.rowids else matches.rowids
    return SubstringMatches(rowids, matches.is_complete and human_only.is_complete)


class _SubstringSearch:
    """Searches either the human-only messages, which are not in the index, or all others."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        search: MessageSearch,
        scanned_rows_max: int,
        *,
        is_human_only: bool = False,
    ) -> None:
        self._connection = connection
        self._search = search
        self._scanned_rows_max = scanned_rows_max
        self._is_human_only = is_human_only
        self._few_rows = max(1, scanned_rows_max // _SCAN_FRACTION)
        self._limit = clamp_count(search.limit)
        self._text = (search.text or "").casefold()
        self._filter = SqlFilter((f"m.human_only = {int(is_human_only)}",)) & message_filter(search)

    def run(self) -> SubstringMatches:
        if self._search.conversation_id is not None:
            # By conversation
            sql = "SELECT id FROM conversations WHERE uuid = ? AND deleted = 0"
            conversation = next(iter(self._select_rowids(sql, (self._search.conversation_id,))), None)
            if conversation is None:
                return SubstringMatches(())
            if self._has_few_messages([conversation]):
                return SubstringMatches(self._find_in_conversations([conversation]))
            self._filter &= SqlFilter(("m.conversation_id = ?",), (conversation,))
        if not self._text:
            return self._scan(self._limit)
        progress = None if self._is_human_only else SUBSTRING_INDEX.progress(self._connection)
        if progress is None or not progress.is_complete:
            return self._scan(self._scanned_rows_max)
        return self._look_up() if len(self._text) >= _TRIGRAM_CHARS else self._look_up_short_text()

    # With the index

    def _look_up(self) -> SubstringMatches:
        newest = self._scan(self._limit * _NEWEST_PER_LIMIT)
        if newest.is_complete:
            return newest
        # An FTS5 expression of the trigrams of a text, evenly sampled if there are many.
        trigrams = list(
            dict.fromkeys(self._text[at : at + _TRIGRAM_CHARS] for at in range(len(self._text) - _TRIGRAM_CHARS + 1))
        )
        step = -(-len(trigrams) // _TRIGRAMS_MAX)
        match = " AND ".join(map(_quote, trigrams[::step]))
        rowids = self._select_rowids(f"{_MATCHING_ROWIDS} LIMIT ?", (match, self._few_rows + 1))
        if len(rowids) <= self._few_rows:
            conversations = self._title_matches([-rowid for rowid in rowids if rowid < 0])
            if self._has_few_messages(conversations):
                messages = self._content_matches([rowid for rowid in rowids if rowid > 0])
                return SubstringMatches(self.newest({*messages, *self._find_in_conversations(conversations)}))
        scanned = self._scan(self._few_rows)
        return scanned if scanned.is_complete else SubstringMatches(self._check_matches(match))

    def _look_up_short_text(self) -> SubstringMatches:
        scanned = self._scan(self._few_rows)
        if scanned.is_complete:
            return scanned
        rows = self._connection.execute(
            "SELECT term FROM substring_index_terms WHERE term >= ? AND term <= ? LIMIT ?",
            (self._text, self._text + _LAST_CHARACTER * _TRIGRAM_CHARS, _SHORT_TEXT_TRIGRAMS_MAX + 1),
        )
        trigrams = [term for (term,) in rows]
        if len(trigrams) > _SHORT_TEXT_TRIGRAMS_MAX:
            return self._scan(self._scanned_rows_max)
        return SubstringMatches(self._check_matches(" OR ".join(map(_quote, trigrams))) if trigrams else ())

    def _check_matches(self, match: str) -> tuple[int, ...]:
        """Walks back in time and checks only the messages that match in the index."""
        is_match, parameters = f"m.id IN ({_MATCHING_ROWIDS} AND rowid > 0)", [match]
        if self._search.in_titles:
            is_match = f"({is_match} OR -m.conversation_id IN ({_MATCHING_ROWIDS} AND rowid < 0))"
            parameters.append(match)
        contains = self._contains_text()
        return self._select_rowids(
            f"SELECT m.id FROM messages m INDEXED BY messages_by_time "
            f"CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE {is_match} AND {IS_LIVE}{self._filter.sql}{contains.sql} {NEWEST_FIRST} LIMIT ?",
            (*parameters, *self._filter.parameters, *contains.parameters, self._limit),
        )

    # Without the index

    def _scan(self, rows_max: int) -> SubstringMatches:
        """Checks the newest messages one by one."""
        index = "messages_human_only" if self._is_human_only else "messages_by_time"
        rows = self._connection.execute(
            f"SELECT m.id, m.content, c.title FROM messages m INDEXED BY {index} "
            "CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE {IS_LIVE}{self._filter.sql} {NEWEST_FIRST}",
            self._filter.parameters,
        )
        rowids: list[int] = []
        if not self._limit:
            return SubstringMatches(())
        text, in_titles, limit = self._text, self._search.in_titles, self._limit
        for rowid, content, title in islice(rows, rows_max):
            if text in content.casefold() or (in_titles and text in title.casefold()):
                rowids.append(rowid)
                if len(rowids) == limit:
                    return SubstringMatches(tuple(rowids))
        return SubstringMatches(tuple(rowids), is_complete=rows.fetchone() is None)

    def _content_matches(self, rowids: Sequence[int]) -> tuple[int, ...]:
        """Of these messages, returns those that contain the text."""
        return self._select_rowids(
            "SELECT m.id FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value "
            f"CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE {IS_LIVE}{self._filter.sql} AND {_IN_CONTENT} {NEWEST_FIRST} LIMIT ?",
            (json_array(rowids), *self._filter.parameters, self._text, self._limit),
        )

    def newest(self, rowids: set[int]) -> tuple[int, ...]:
        return self._select_rowids(
            f"SELECT m.id FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value {NEWEST_FIRST} LIMIT ?",
            (json_array(sorted(rowids)), self._limit),
        )

    def _title_matches(self, conversations: Sequence[int]) -> tuple[int, ...]:
        """Of these conversations, returns those whose title contains the text."""
        if not self._search.in_titles or not conversations:
            return ()
        sql = (
            "SELECT c.id FROM json_each(?) wanted CROSS JOIN conversations c ON c.id = wanted.value "
            f"WHERE c.deleted = 0 AND {_IN_TITLE}"
        )
        return self._select_rowids(sql, (json_array(conversations), self._text))

    def _has_few_messages(self, conversations: Sequence[int]) -> bool:
        sql = (
            "SELECT count(*) FROM (SELECT 1 FROM json_each(?) wanted CROSS JOIN messages m "
            "INDEXED BY messages_in_order ON m.conversation_id = wanted.value LIMIT ?)"
        )
        [messages] = self._connection.execute(sql, (json_array(conversations), self._few_rows + 1)).fetchone()
        return int(messages) <= self._few_rows

    def _find_in_conversations(self, conversations: Sequence[int]) -> tuple[int, ...]:
        contains = self._contains_text()
        return self._select_rowids(
            "SELECT m.id FROM json_each(?) wanted CROSS JOIN messages m INDEXED BY messages_in_order "
            "ON m.conversation_id = wanted.value CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE {IS_LIVE}{self._filter.sql}{contains.sql} {NEWEST_FIRST} LIMIT ?",
            (json_array(conversations), *self._filter.parameters, *contains.parameters, self._limit),
        )

    def _contains_text(self) -> SqlFilter:
        if not self._text:
            return SqlFilter()
        if not self._search.in_titles:
            return SqlFilter((_IN_CONTENT,), (self._text,))
        return SqlFilter((f"({_IN_CONTENT} OR {_IN_TITLE})",), (self._text, self._text))

    def _select_rowids(self, sql: str, parameters: Sequence[str | int]) -> tuple[int, ...]:
        return tuple(rowid for (rowid,) in self._connection.execute(sql, parameters))


def _quote(trigram: str) -> str:
    doubled = trigram.replace('"', '""')
    return f'"{doubled}"'
