"""The manifests, held against the tests that exist and the page that is written from them."""

import ast
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.compatibility.manifest import Promise
from tests.compatibility.page import DESIGNS, Design, compatibility_markdown

ROOT = Path(__file__).parents[2]
PROMISES = tuple(promise for design in DESIGNS.values() for promise in design.promises)
# Whatever is tested in these, a design promised it: they are about nothing else.
KEEPING = (
    "tests/compatibility/test_tldw.py",
    "tests/server/compat/letta/test_tools.py",
    "tests/server/compat/agentchatbus/test_tools.py",
    "tests/server/compat/agentchatbus/test_routes.py",
    "tests/server/compat/agentchatbus/test_search.py",
    "tests/server/compat/agentkit/test_namespaces.py",
    "tests/server/compat/letta/test_arguments.py",
    "tests/server/compat/letta/test_service.py",
    "tests/server/compat/letta/test_responses.py",
)


@cache
def names_in(path: str) -> frozenset[str]:
    found = ast.walk(ast.parse((ROOT / path).read_text()))
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def cases_in(path: str) -> set[str]:
    return {f"{path}::{name}" for name in names_in(path) if name.startswith("test_")}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.id)
def test_every_promise_is_kept_by_tests_that_exist(promise: Promise) -> None:
    assert promise.tests
    for test in promise.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert name.startswith("test_"), test
        assert name in names_in(path), test


def test_every_promise_has_an_id_of_its_own_that_starts_with_its_system() -> None:
    assert [key for key, times in Counter(promise.id for promise in PROMISES).items() if times > 1] == []
    for number, design in DESIGNS.items():
        assert [promise.id for promise in design.promises if not promise.id.startswith(f"{number}.")] == []


def test_a_promise_is_one_or_more_sentences() -> None:
    said = [sentence for promise in PROMISES for sentence in (promise.says, promise.differs) if sentence is not None]

    assert [sentence for sentence in said if not sentence.endswith(".")] == []
    assert [sentence for sentence in said if "\n" in sentence] == []


def test_every_manifest_is_on_the_page() -> None:
    manifests = [
        import_module(f"tests.compatibility.manifests.{path.stem}")
        for path in (Path(__file__).parent / "manifests").glob("[a-z]*.py")
    ]
    written = {promise.id for manifest in manifests for promise in manifest.PROMISES}

    assert written == {promise.id for promise in PROMISES}


@pytest.mark.parametrize("path", KEEPING)
def test_every_test_of_a_compatible_api_backs_a_promise(path: str) -> None:
    kept = {test for promise in PROMISES for test in promise.tests}

    assert cases_in(path) - kept == set()


def test_the_page_tells_what_the_manifests_say() -> None:
    assert (ROOT / "docs" / "compatibility.md").read_text() == compatibility_markdown(DESIGNS)


def test_the_page_has_a_row_for_every_difference_and_a_line_for_every_promise() -> None:
    kept = Promise(id="900.a", says="It sings.", tests=("t.py::test_it_sings",))
    changed = Promise(
        id="900.b", says="It flies.", tests=("t.py::test_it_walks",), differs="It walks | it has no wings."
    )

    page = compatibility_markdown({"900": Design("Birds", "About birds.", (kept, changed))})

    assert "| It flies. | It walks \\| it has no wings. |" in page
    assert "| It sings." not in page
    assert "- `900.a` It sings.\n  - `t.py::test_it_sings`\n- `900.b` It flies." in page
