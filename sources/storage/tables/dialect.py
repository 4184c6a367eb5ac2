"""What the two engines spell differently in the statements that they share.

Everything else in these statements is standard SQL. Parameters are `?`, or `?1` if one is used twice. SQLite keeps the
order of a CROSS JOIN, so the rows of a list are looked up in a table instead of scanning it; for PostgreSQL it is like
any other join. Its condition is in the WHERE clause, because only SQLite lets it follow the join.
"""

from msgspec import Struct


class Dialect(Struct, frozen=True):
    """The fields are templates of SQL expressions."""

    list_template: str
    json_template: str
    same_name_template: str
    character_template: str
    # A join whose order SQLite keeps, also with a condition.
    join: str
    # The function that makes a JSON array of its arguments.
    json_array: str

    def listed(self, parameter: str = "?", name: str = "wanted") -> str:
        """A table with the column `value`: the elements of a JSON array that is a parameter. PostgreSQL has them as
        texts, so numbers are compared with `CAST(value AS BIGINT)`."""
        return self.list_template.format(parameter, name)

    def json_value(self, column: str) -> str:
        """The value at a path such as `$._bus.status`, which is a parameter, of a JSON object."""
        return self.json_template.format(column)

    def is_same_name(self, column: str, parameter: str) -> str:
        """Compares texts regardless of the case of ASCII letters, in the way that the table has an index for."""
        return self.same_name_template.format(column, parameter)

    def character(self, code: int) -> str:
        return self.character_template.format(code)


SQLITE = Dialect(
    list_template="json_each({}) {}",
    json_template="json_extract({}, ?)",
    same_name_template="{} = {} COLLATE NOCASE",
    character_template="char({})",
    join="CROSS JOIN",
    json_array="json_array",
)
# A column with JSON. PostgreSQL refuses to read any value of an object that has a NUL character somewhere; with another
# in its place, the rest can be read.
POSTGRES_JSON = r"CAST(replace({}, '\u0000', '\u0001') AS JSON)"
POSTGRES = Dialect(
    list_template="json_array_elements_text(CAST({} AS JSON)) AS {} (value)",
    # Without the two characters at the beginning of the path.
    json_template=f"({POSTGRES_JSON} #>> string_to_array(substr(?, 3), '.'))",
    # With the collation "C", `lower` changes ASCII letters only.
    same_name_template='lower({}) = lower(CAST({} AS TEXT) COLLATE "C")',
    character_template="chr({})",
    join="JOIN",
    json_array="json_build_array",
)
