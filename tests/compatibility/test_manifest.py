"""The manifests: every promise is kept by tests that exist or has a reason, and the generated page is up to date."""

import ast
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.cases import each_case
from tests.compatibility.manifest import Promise
from tests.compatibility.page import SYSTEMS, CompatibleSystem, compatibility_markdown

ROOT = Path(__file__).parents[2]
PROMISES = tuple(promise for system in SYSTEMS.values() for promise in system.promises)


@cache
def function_names(path: str) -> frozenset[str]:
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@each_case("promise", PROMISES)
def test_every_promise_names_tests_that_exist_unless_it_is_not_offered(promise: Promise) -> None:
    assert bool(promise.tests) != (promise.status == "not offered")
    for test in promise.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert name.startswith("test_"), test
        assert name in function_names(path), test


def test_no_promise_has_two_statuses() -> None:
    assert [one.id for one in PROMISES if one.difference is not None and one.not_offered is not None] == []


def test_promise_ids_are_unique_and_start_with_their_system() -> None:
    assert [key for key, count in Counter(one.id for one in PROMISES).items() if count > 1] == []
    for name, system in SYSTEMS.items():
        assert [one.id for one in system.promises if not one.id.startswith(f"{name}.")] == []


def test_statements_and_reasons_are_sentences_on_one_line() -> None:
    texts = [text for one in PROMISES for text in (one.statement, one.difference, one.not_offered) if text is not None]

    assert [text for text in texts if not text.endswith(".")] == []
    assert [text for text in texts if "\n" in text] == []


def test_every_manifest_is_on_the_page() -> None:
    manifests = [
        import_module(f"tests.compatibility.manifests.{path.stem}")
        for path in (Path(__file__).parent / "manifests").glob("[a-z]*.py")
    ]
    ids = {promise.id for manifest in manifests for promise in manifest.PROMISES}

    assert ids == {promise.id for promise in PROMISES}


def test_page_is_generated_from_the_manifests() -> None:
    assert (ROOT / "docs" / "compatibility.md").read_text() == compatibility_markdown(SYSTEMS)


def test_page_counts_the_promises_and_lists_the_differences() -> None:
    kept = Promise(id="birds.voice.a", statement="It sings.", tests=("t.py::test_it_sings",))
    different = Promise(
        id="birds.wings.b",
        statement="It flies.",
        tests=("t.py::test_it_walks",),
        difference="It walks: it has no wings.",
    )
    missing = Promise(id="birds.wings.c", statement="It swims.", not_offered="There is no water.")

    page = compatibility_markdown({"birds": CompatibleSystem("Birds", "About birds.", (kept, different, missing))})

    assert "| Birds | 3 | 1 | 1 | 1 |" in page
    assert "Kept differently (1):\n\n- It flies. *It walks: it has no wings.*\n" in page
    assert "Not offered (1):\n\n- It swims. *There is no water.*\n" in page
    assert "It sings." not in page


@each_case("system", SYSTEMS)
def test_every_test_of_a_system_verifies_a_promise(system: str) -> None:
    path = f"tests/compatibility/test_{system}.py"
    named = {test for promise in SYSTEMS[system].promises for test in promise.tests}

    assert {f"{path}::{name}" for name in function_names(path) if name.startswith("test_")} - named == set()
