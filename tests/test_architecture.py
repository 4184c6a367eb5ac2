"""Rules of the code base: imports inside functions, the error tree, up-to-date documentation, and package names."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

import pytest

import config.errors
from config.errors import FlorilegiumError
from server.protocol.messages import error_message
from tests.mutations import DEFECTS
from tests.reference_pages import product_catalog

ROOT = Path(__file__).parent.parent
PACKAGES = ("aggregator", "auth", "config", "florilegium", "server", "sessions", "sources")
PARSES_EVERY_FILE = pytest.mark.slow("parses every file of the product")


@cache
def product_files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def syntax_nodes(path: Path) -> list[ast.AST]:
    """Returns the statements that a rule is about. Most nodes of a tree are expressions."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def all_errors() -> list[type[FlorilegiumError]]:
    """Returns the errors of all modules by name, whichever of them the tests have imported before."""
    for path in product_files():
        if path.stem != "__main__":
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    return sorted(derived_errors(FlorilegiumError), key=lambda error: error.__name__)


def derived_errors(root: type[FlorilegiumError]) -> Iterator[type[FlorilegiumError]]:
    yield root
    for child in root.__subclasses__():
        yield from derived_errors(child)


@PARSES_EVERY_FILE
def test_imports_inside_functions_state_a_reason() -> None:
    unexplained = []
    for path in product_files():
        functions = [node for node in syntax_nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        bodies = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in functions]
        lines = path.read_text().splitlines()
        unexplained += [
            f"{path.name}:{node.lineno}"
            for node in syntax_nodes(path)
            if isinstance(node, ast.Import | ast.ImportFrom)
            and " - " not in lines[node.lineno - 1]
            and any(node.lineno in body for body in bodies)
        ]
    assert unexplained == []


@PARSES_EVERY_FILE
def test_only_outermost_handlers_catch_any_exception() -> None:
    catching = {
        str(path.relative_to(ROOT))
        for path in product_files()
        for node in syntax_nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or re.search(r"\bException\b", ast.unparse(node.type)))
    }
    assert catching == {
        "server/transports/http.py",  # one HTTP request
        "server/transports/sse.py",  # one HTTP request
        "server/compat/tldw/endpoints.py",  # one message of a batch, which is answered separately
        "server/app.py",  # errors outside the routes
        "sources/semantic/named_models.py",  # libraries that raise bare exceptions for damaged weights
        "server/following/service.py",  # one run of a followed source
        "server/protocol/connection.py",  # one request of a WebSocket, HTTP+SSE or stdio connection
        "server/protocol/call.py",  # one tool, resource, prompt or completion
        "server/protocol/listing.py",  # one source in a list
        "sources/installed.py",  # one third-party source, kind or format, at start-up
    }


def test_importers_open_files_in_one_place() -> None:
    """Only that place knows which links may be followed, and does not wait for pipes."""
    opened_elsewhere = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "sources" / "importers").rglob("*.py")
        if re.search(r"\.open\(\"r|\.read_(bytes|text)\(\)", path.read_text("utf-8"))
    ]
    assert opened_elsewhere == []


@PARSES_EVERY_FILE
def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in product_files():
        for node in syntax_nodes(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_every_error_has_status_and_code_and_is_in_the_documented_tree() -> None:
    tree = set(re.findall(r"\w+", config.errors.__doc__ or ""))
    wrong = [
        error.__name__
        for error in all_errors()
        if not (400 <= error.status < 600 and error.code)
        or (error.__module__ == "config.errors" and error.__name__ not in tree)
    ]
    assert wrong == []


def test_an_error_is_converted_to_a_json_rpc_error() -> None:
    body = error_message(7, FlorilegiumError("it broke", {"why": "test"}))
    assert body == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": -32603, "message": "it broke", "data": {"why": "test"}},
    }


def test_every_tool_description_has_an_example_and_every_name_is_short() -> None:
    for tool in product_catalog().tools.values():
        assert "Example:" in tool.description
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", tool.name)


def test_no_installed_distribution_uses_one_of_our_package_names() -> None:
    claimed = {
        f"{distribution.metadata['Name']}: {file.parts[0]}"
        for distribution in distributions()
        if distribution.metadata["Name"] != "florilegium"
        for file in distribution.files or ()
        if file.parts[0].removesuffix(".py") in PACKAGES
    }
    assert claimed == set()


def test_no_tracked_file_contains_a_machine_path_or_a_registry() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    own = Path(__file__).relative_to(ROOT).as_posix()
    matches = []
    for name in tracked:
        path = ROOT / name
        if name == own or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        matches += [
            name
            for pattern in (r"(?<![\w.])/(work|root|farm)/", r"registry\.npmjs|pypi\.org|pythonhosted")
            if re.search(pattern, text)
        ]
    assert matches == []


def test_every_seeded_defect_can_be_seeded() -> None:
    """Otherwise `python -m tests.mutations` would fail when somebody needs it."""
    stale = [defect.before for defect in DEFECTS if (ROOT / defect.file).read_text().count(defect.before) != 1]
    assert stale == []
