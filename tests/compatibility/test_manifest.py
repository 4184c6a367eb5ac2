"""The manifests: every requirement has tests that exist, and the generated page is up to date."""

import ast
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.compatibility.manifest import Requirement
from tests.compatibility.page import SYSTEMS, CompatibleSystem, compatibility_markdown

ROOT = Path(__file__).parents[2]
REQUIREMENTS = tuple(requirement for system in SYSTEMS.values() for requirement in system.requirements)
# Every test in these files must verify a requirement.
COMPATIBILITY_TESTS = (
    "tests/compatibility/test_tldw.py",
    "tests/server/compat/letta/test_tools.py",
    "tests/server/compat/letta/test_arguments.py",
    "tests/server/compat/letta/test_service.py",
    "tests/server/compat/letta/test_responses.py",
    "tests/server/compat/agentchatbus/test_tools.py",
    "tests/server/compat/agentchatbus/test_routes.py",
    "tests/server/compat/agentchatbus/test_search.py",
    "tests/server/compat/agentkit/test_namespaces.py",
)


@cache
def function_names(path: str) -> frozenset[str]:
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def cases_in(path: str) -> set[str]:
    return {f"{path}::{name}" for name in function_names(path) if name.startswith("test_")}


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.id)
def test_every_requirement_names_tests_that_exist(requirement: Requirement) -> None:
    assert requirement.tests
    for test in requirement.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert name.startswith("test_"), test
        assert name in function_names(path), test


def test_requirement_ids_are_unique_and_start_with_their_system() -> None:
    assert [key for key, count in Counter(one.id for one in REQUIREMENTS).items() if count > 1] == []
    for name, system in SYSTEMS.items():
        assert [one.id for one in system.requirements if not one.id.startswith(f"{name}.")] == []


def test_statements_and_differences_are_sentences_on_one_line() -> None:
    texts = [text for one in REQUIREMENTS for text in (one.statement, one.difference) if text is not None]

    assert [text for text in texts if not text.endswith(".")] == []
    assert [text for text in texts if "\n" in text] == []


def test_every_manifest_is_on_the_page() -> None:
    manifests = [
        import_module(f"tests.compatibility.manifests.{path.stem}")
        for path in (Path(__file__).parent / "manifests").glob("[a-z]*.py")
    ]
    ids = {requirement.id for manifest in manifests for requirement in manifest.REQUIREMENTS}

    assert ids == {requirement.id for requirement in REQUIREMENTS}


@pytest.mark.parametrize("path", COMPATIBILITY_TESTS)
def test_every_compatibility_test_verifies_a_requirement(path: str) -> None:
    verifying = {test for requirement in REQUIREMENTS for test in requirement.tests}

    assert cases_in(path) - verifying == set()


def test_page_is_generated_from_the_manifests() -> None:
    assert (ROOT / "docs" / "compatibility.md").read_text() == compatibility_markdown(SYSTEMS)


def test_page_has_a_row_for_every_difference_and_a_line_for_every_requirement() -> None:
    same = Requirement(id="birds.a", statement="It sings.", tests=("t.py::test_it_sings",))
    different = Requirement(
        id="birds.b", statement="It flies.", tests=("t.py::test_it_walks",), difference="It walks | it has no wings."
    )

    page = compatibility_markdown({"birds": CompatibleSystem("Birds", "About birds.", (same, different))})

    assert "| It flies. | It walks \\| it has no wings. |" in page
    assert "| It sings." not in page
    assert "- `birds.a` It sings.\n  - `t.py::test_it_sings`\n- `birds.b` It flies." in page
