"""The manifest of promises, held against the tests that exist."""

import ast
from pathlib import Path

import pytest

from tests.sources.promises import KEPT, PROMISES

ROOT = Path(__file__).parent.parent.parent


def names_in(path: str) -> set[str]:
    found = ast.walk(ast.parse((ROOT / path).read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_a_test(promise: str) -> None:
    kept = {name for tests in KEPT.values() for promises in tests.values() for name in promises}

    assert promise in kept


@pytest.mark.parametrize("path", KEPT)
def test_every_listed_test_exists_and_keeps_a_promise(path: str) -> None:
    assert set(KEPT[path]) <= names_in(path)
    for name, promises in KEPT[path].items():
        assert name.startswith("test_")
        assert promises
        assert set(promises) <= set(PROMISES), f"{name} is listed for what is no promise"
