"""The SQL for PostgreSQL stays within what Citus can distribute, so that no statement fails there first. That every
statement names the distribution column is shown in `test_plans.py`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).parents[4]
FILES = sorted(
    path
    for pattern in ("config/postgres/*.py", "auth/postgres*.py", "sources/storage/postgres/**/*.py")
    for path in ROOT.glob(pattern)
)
# Row ids differ between the machines of a cluster. The others exist only on the machine that created them, or need a
# statement for each machine.
NOT_DISTRIBUTED = re.compile(
    r"\bctid\b|\b(?:TRIGGER|LISTEN|NOTIFY|TEMP|TEMPORARY|SERIAL|BIGSERIAL|SEQUENCE|nextval|PREPARE TRANSACTION)\b"
    r"|\bCREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE|VIEW|MATERIALIZED VIEW|RULE|DOMAIN|TYPE)\b"
)


def texts_of(path: Path) -> Iterator[str]:
    """Yields the texts of a module that are not documentation."""
    tree = ast.parse(path.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


@each_case("path", FILES)
def test_statements_use_nothing_that_citus_does_not_distribute(path: Path) -> None:
    assert [text for text in texts_of(path) if NOT_DISTRIBUTED.search(text)] == []


def test_row_ids_would_be_noticed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""TEMPORARY names."""\nSQL = f"DELETE FROM notes WHERE ctid = {1}"\n')

    assert [text for text in texts_of(module) if NOT_DISTRIBUTED.search(text)] == ["DELETE FROM notes WHERE ctid = "]
