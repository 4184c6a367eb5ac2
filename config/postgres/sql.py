"""Turns SQL that SQLite understands too into SQL for one schema of PostgreSQL.

Tables are named without a schema (`FROM notes`) and parameters as SQLite has them (`?`, `?1`, `:name`). `qualify` is
the only place that adds the schema. A name that it misses is an error of the server, because the search path is empty.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from config.errors import StorageError

_SCHEMA = re.compile(r"florilegium\Z|u_[a-z2-7]{26}\Z")
# What the schema replaces in a template. SQL cannot contain it.
_MARK = "\x00"
_TOKEN = re.compile(
    r"""(?P<skip>'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|::|\s+)
    |\?(?P<number>\d*)
    |:(?P<name>[A-Za-z_]\w*)
    |(?P<word>[A-Za-z_]\w*|"(?:[^"]|"")+")
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# A parameter of PostgreSQL, or a text, which has none.
_PARAMETER = re.compile(r"'(?:[^']|'')*+'|\$(\d+)")
# A table expression: `WITH name AS (`, `name (columns) AS (`.
_COMMON_TABLE = re.compile(r"\b(\w++)(?:\s*+\([^()]*+\))?+\s++AS\s++(?:(?:NOT\s++)?MATERIALIZED\s++)?\(", re.IGNORECASE)
_BEFORE_TABLE = {"FROM", "JOIN", "INTO", "UPDATE", "TABLE", "REFERENCES", "TRUNCATE"}
# After these words a parenthesis does not make the name a function.
_WITH_COLUMNS = {"INTO", "TABLE", "REFERENCES", "ON"}
_BETWEEN = {"IF", "NOT", "EXISTS", "ONLY", "LATERAL"}
# The words that end the list of tables after FROM.
_AFTER_TABLES = {
    "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "RETURNING", "SELECT",
    "SET", "VALUES", "WINDOW", "FETCH", "FOR",
}  # fmt: skip


class Statement(Struct, frozen=True):
    """SQL for PostgreSQL. `names` are those of its parameters, if they have names. `returns_rows` says whether to fetch
    rows or only their number."""

    text: str
    names: tuple[str, ...]
    returns_rows: bool

    def arguments(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        if isinstance(parameters, Mapping):
            return [parameters[name] for name in self.names]
        return parameters


def qualify(sql: str, schema: str) -> Statement:
    """Puts the schema before the name of every table and numbers the parameters."""
    template = _template(sql)
    if _MARK not in template.text:
        return template
    return Statement(template.text.replace(_MARK, quote_schema(schema)), template.names, template.returns_rows)


def qualify_together(queries: Sequence[tuple[str, int]], schema: str) -> str:
    """Returns one statement that selects the rows of each query as a JSON array, or NULL if there are none. A query
    comes with the number of its parameters, which follow those of the query before. As JSON, because PostgreSQL does
    not accept anonymous records as input: Citus could not pass them on."""
    arrays, parameters = [], 0
    for sql, count in queries:
        query = _renumber(sql, parameters)
        arrays.append(f"(SELECT CAST(json_agg(part) AS TEXT) FROM ({query}) AS part)")  # noqa: S608 - constants
        parameters += count
    return f"SELECT {', '.join(arrays)}".replace(_MARK, quote_schema(schema))


@lru_cache(maxsize=1_000)
def quote_schema(schema: str) -> str:
    """Returns the schema as an identifier. Names of schemas are never derived from texts of users."""
    if not _SCHEMA.match(schema):
        raise StorageError("the name of a schema is invalid")
    return f'"{schema}"'


@lru_cache(maxsize=5_000)
def _template(sql: str) -> Statement:
    return _Translation(sql).statement()


@lru_cache(maxsize=5_000)
def _renumber(sql: str, added: int) -> str:
    """Returns the template of a query with higher numbers of its parameters."""
    return _PARAMETER.sub(lambda token: f"${int(token[1]) + added}" if token[1] else token[0], _template(sql).text)


class _Translation:
    """Reads one statement from left to right. For each open parenthesis it knows whether it is in a list of tables."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._common_tables = {name.lower() for name in _COMMON_TABLE.findall(sql)}
        self._tokens = list(_TOKEN.finditer(sql))
        self._output: list[str] = []
        self._names: list[str] = []
        self._positions = 0
        self._in_tables = [False]
        # The word after which a table is expected.
        self._expecting: str | None = None
        self._previous = ""
        self._words: list[str] = []

    def statement(self) -> Statement:
        for index, token in enumerate(self._tokens):
            self._output.append(self._translate(index, token))
        returns_rows = bool(self._words) and (
            self._words[0] in ("SELECT", "WITH", "VALUES", "SHOW", "EXPLAIN") or "RETURNING" in self._words
        )
        return Statement("".join(self._output), tuple(self._names), returns_rows)

    def _translate(self, index: int, token: re.Match[str]) -> str:
        kind = token.lastgroup
        if kind == "skip":
            return token[0]
        if kind == "number":
            self._expecting = None
            self._positions += not token["number"]
            return f"${token['number'] or self._positions}"
        if kind == "name":
            self._expecting = None
            # A name that is used twice is one parameter.
            if token["name"] not in self._names:
                self._names.append(token["name"])
            return f"${self._names.index(token['name']) + 1}"
        if kind == "word":
            return self._word(index, token[0])
        return self._punctuation(token[0])

    def _punctuation(self, text: str) -> str:
        if text == "(":
            self._in_tables.append(False)
            self._expecting = None
        elif text == ")" and len(self._in_tables) > 1:
            self._in_tables.pop()
        elif text == "," and self._in_tables[-1]:
            self._expecting = "FROM"
        else:
            self._expecting = None
        self._previous = ""
        return text

    def _word(self, index: int, text: str) -> str:
        word, previous = text.upper(), self._previous
        self._previous = word
        self._words.append(word)
        if self._expecting and word in _BETWEEN:
            return text
        if self._expecting and word != "SET" and word not in ("SELECT", "VALUES"):
            return self._table(index, text)
        self._expecting = None
        if word in _AFTER_TABLES:
            self._in_tables[-1] = False
        if self._is_before_table(word, previous):
            self._expecting = word
            self._in_tables[-1] = self._in_tables[-1] or word == "FROM"
        return text

    def _is_before_table(self, word: str, previous: str) -> bool:
        if word == "FROM":
            return previous != "DISTINCT"  # IS DISTINCT FROM
        if word == "UPDATE":
            return previous not in ("FOR", "DO", "ON")  # FOR UPDATE, DO UPDATE SET, ON UPDATE CASCADE
        if word == "ON":  # CREATE INDEX name ON table
            return self._words[0] == "CREATE" and "INDEX" in self._words[:4] and self._words.count("ON") == 1
        if word == "INDEX":
            return self._words[0] == "DROP"
        return word in _BEFORE_TABLE or (word == "USING" and self._words[0] == "DELETE" and len(self._in_tables) == 1)

    def _table(self, index: int, text: str) -> str:
        keyword, self._expecting = self._expecting, None
        following = next((t[0] for t in self._tokens[index + 1 :] if not t[0].isspace()), "")
        if following == "." or text.strip('"').lower() in self._common_tables:
            return text
        if following == "(" and keyword not in _WITH_COLUMNS:
            return text
        if keyword == "TRUNCATE" and text.upper() == "TABLE":
            self._expecting = "TABLE"
            return text
        return f"{_MARK}.{text}"
