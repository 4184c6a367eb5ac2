"""Messages that hold a text as it stands, newest first. Answers with numbers; others read the rows.

In a small library the messages themselves are looked through. In a large one the three-letter parts of the text are
looked up in an index, and what has them all is looked at; a text that is in every other message is found sooner by
walking back in time. Which way is taken changes nothing but the time.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
import unicodedata
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from sources.storage.contract import MessageSearch
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.sqlite.search.target import Filter, json_list
from sources.storage.sqlite.write.validation import count, is_storable

_GRAM = 3
_LAST_CHARACTER = chr(0x10FFFF)
# Parts that are looked up of a long text: more would take longer and say little more.
_GRAMS_MAX = 10
# Parts that begin with a text too short to be one.
_TERMS_MAX = 1_000
# For each message that is asked for, so many of the newest are looked through before an index is: a text that is in
# every other message is found there.
_NEAR_TIMES = 2
# Of the messages that may be scanned: how many are at once, where there is an index.
_FEW_SHARE = 10

# Without positions it is a third as large. Texts are folded by Python, because SQLite knows no `ß`, and followed by two
# spaces, so that every character of a text begins a part. A newer Unicode may fold otherwise.
SUBSTRING_INDEX = MessageIndex(
    table="substring_index",
    column="text",
    options="content='', columnsize=0, detail=none, tokenize=\"trigram case_sensitive 1\"",
    version=f"1 {unicodedata.unidata_version}",
    taken="casefold({}) || '  '",
    has_titles=True,
    more=("CREATE VIRTUAL TABLE substring_index_terms USING fts5vocab (substring_index, row)",),
)

_NUMBERS = "SELECT rowid FROM substring_index WHERE substring_index MATCH ?"
_NEWEST = "ORDER BY m.created_at DESC, m.id DESC"
_LIVE = "m.deleted = 0 AND c.deleted = 0"
_IN_CONTENT = "instr(casefold(m.content), ?)"
_IN_TITLE = "instr(casefold(c.title), ?)"


class Numbers(Struct, frozen=True):
    """Of messages, in order. They are all there are, or as many as were asked for, where `is_complete`."""

    numbers: tuple[int, ...]
    is_complete: bool = True


def find(connection: sqlite3.Connection, search: MessageSearch, scanned_rows_max: int) -> Numbers:
    """At most `scanned_rows_max` messages are looked through one by one."""
    if not is_storable(search.text or "") or not is_storable(search.conversation_id or ""):
        return Numbers(())
    return _Finder(connection, search, scanned_rows_max).find()


class _Finder:
    def __init__(self, connection: sqlite3.Connection, search: MessageSearch, scanned_rows_max: int) -> None:
        self._connection = connection
        self._search = search
        self._scanned_rows_max = scanned_rows_max
        self._few = max(1, scanned_rows_max // _FEW_SHARE)
        self._limit = count(search.limit)
        self._text = (search.text or "").casefold()
        self._filter = _filter_of(search)

    def find(self) -> Numbers:
        if self._search.conversation_id is not None:
            [conversation] = self._conversation(self._search.conversation_id) or [0]
            if not conversation or self._has_few([conversation]):
                return Numbers(self._said_in([conversation]))
            self._filter &= Filter(("m.conversation_id = ?",), (conversation,))
        if not self._text:
            return self._walk(self._limit)
        progress = SUBSTRING_INDEX.progress(self._connection)
        if progress is None or not progress.is_complete:
            return self._walk(self._scanned_rows_max)
        return self._look_up() if len(self._text) >= _GRAM else self._look_up_short()

    # By the index

    def _look_up(self) -> Numbers:
        near = self._walk(self._limit * _NEAR_TIMES)
        if near.is_complete:
            return near
        match = _match_all(self._text)
        found = [number for (number,) in self._connection.execute(f"{_NUMBERS} LIMIT ?", (match, self._few + 1))]
        if len(found) <= self._few:
            titled = self._titled([-number for number in found if number < 0])
            if self._has_few(titled):
                own = self._holding([number for number in found if number > 0])
                return Numbers(self._newest({*own, *self._said_in(titled)}))
        walked = self._walk(self._few)
        return walked if walked.is_complete else Numbers(self._pick(match))

    def _look_up_short(self) -> Numbers:
        walked = self._walk(self._few)
        if walked.is_complete:
            return walked
        terms = self._terms()
        if len(terms) > _TERMS_MAX:
            return self._walk(self._scanned_rows_max)
        return Numbers(self._pick(" OR ".join(map(_quoted, terms)))) if terms else Numbers(())

    def _terms(self) -> list[str]:
        """The parts that begin with the text."""
        rows = self._connection.execute(
            "SELECT term FROM substring_index_terms WHERE term >= ? AND term <= ? LIMIT ?",
            (self._text, self._text + _LAST_CHARACTER * _GRAM, _TERMS_MAX + 1),
        )
        return [term for (term,) in rows]

    def _pick(self, match: str) -> tuple[int, ...]:
        """Of many that may hold it: back in time, and only those are looked at."""
        marked, parameters = f"m.id IN ({_NUMBERS} AND rowid > 0)", [match]
        if self._search.in_titles:
            marked = f"({marked} OR -m.conversation_id IN ({_NUMBERS} AND rowid < 0))"
            parameters.append(match)
        holds = self._holds()
        return self._numbers(
            f"SELECT m.id FROM messages m INDEXED BY messages_by_time "
            f"CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE {marked} AND {_LIVE}{self._filter.sql}{holds.sql} {_NEWEST} LIMIT ?",
            (*parameters, *self._filter.parameters, *holds.parameters, self._limit),
        )

    # One by one

    def _walk(self, rows_max: int) -> Numbers:
        """Back in time from the newest."""
        rows = self._connection.execute(
            "SELECT m.id, m.content, c.title FROM messages m INDEXED BY messages_by_time "
            f"CROSS JOIN conversations c ON c.id = m.conversation_id WHERE {_LIVE}{self._filter.sql} {_NEWEST}",
            self._filter.parameters,
        )
        found: list[int] = []
        if not self._limit:
            return Numbers(())
        text, in_titles, limit = self._text, self._search.in_titles, self._limit
        for number, content, title in islice(rows, rows_max):
            if text in content.casefold() or (in_titles and text in title.casefold()):
                found.append(number)
                if len(found) == limit:
                    return Numbers(tuple(found))
        return Numbers(tuple(found), is_complete=rows.fetchone() is None)

    def _holding(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return self._numbers(
            "SELECT m.id FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value "
            f"CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE {_LIVE}{self._filter.sql} AND {_IN_CONTENT} {_NEWEST} LIMIT ?",
            (json_list(numbers), *self._filter.parameters, self._text, self._limit),
        )

    def _newest(self, numbers: set[int]) -> tuple[int, ...]:
        return self._numbers(
            f"SELECT m.id FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value {_NEWEST} LIMIT ?",
            (json_list(sorted(numbers)), self._limit),
        )

    # By conversation

    def _conversation(self, uuid: str) -> list[int]:
        sql = "SELECT id FROM conversations WHERE uuid = ? AND deleted = 0"
        return [number for (number,) in self._connection.execute(sql, (uuid,))]

    def _titled(self, numbers: Sequence[int]) -> list[int]:
        """Of some conversations those whose title holds the text."""
        if not self._search.in_titles or not numbers:
            return []
        sql = "SELECT c.id FROM json_each(?) wanted CROSS JOIN conversations c ON c.id = wanted.value "
        rows = self._connection.execute(f"{sql} WHERE c.deleted = 0 AND {_IN_TITLE}", (json_list(numbers), self._text))
        return [number for (number,) in rows]

    def _has_few(self, conversations: Sequence[int]) -> bool:
        sql = (
            "SELECT count(*) FROM (SELECT 1 FROM json_each(?) wanted CROSS JOIN messages m "
            "INDEXED BY messages_in_order ON m.conversation_id = wanted.value LIMIT ?)"
        )
        found: int = self._connection.execute(sql, (json_list(conversations), self._few + 1)).fetchone()[0]
        return found <= self._few

    def _said_in(self, conversations: Sequence[int]) -> tuple[int, ...]:
        holds = self._holds()
        return self._numbers(
            "SELECT m.id FROM json_each(?) wanted CROSS JOIN messages m INDEXED BY messages_in_order "
            "ON m.conversation_id = wanted.value CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE {_LIVE}{self._filter.sql}{holds.sql} {_NEWEST} LIMIT ?",
            (json_list(conversations), *self._filter.parameters, *holds.parameters, self._limit),
        )

    def _holds(self) -> Filter:
        if not self._text:
            return Filter()
        if not self._search.in_titles:
            return Filter((_IN_CONTENT,), (self._text,))
        return Filter((f"({_IN_CONTENT} OR {_IN_TITLE})",), (self._text, self._text))

    def _numbers(self, sql: str, parameters: Sequence[str | int]) -> tuple[int, ...]:
        return tuple(number for (number,) in self._connection.execute(sql, parameters))


def _filter_of(search: MessageSearch) -> Filter:
    found = Filter()
    if search.roles:
        marks = ", ".join("?" * len(search.roles))
        found &= Filter((f"m.role IN ({marks})",), search.roles)
    if search.date_from:
        found &= Filter(("m.created_at >= ?",), (search.date_from,))
    if search.date_to:
        found &= Filter(("m.created_at <= ?",), (search.date_to,))
    return found


def _match_all(text: str) -> str:
    """What has all parts of a text, spread over it where there are many."""
    grams = list(dict.fromkeys(text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)))
    step = -(-len(grams) // _GRAMS_MAX)
    return " AND ".join(map(_quoted, grams[::step]))


def _quoted(gram: str) -> str:
    doubled = gram.replace('"', '""')
    return f'"{doubled}"'
