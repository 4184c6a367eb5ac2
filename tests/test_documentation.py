"""Links in the documentation resolve, every page is listed, generated pages are current, and the architecture page
shows every package and names only files that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from config.loading import REPLACED
from tests.cases import each_case
from tests.reference_pages import generated_parts, written_part

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
PACKAGES = ("aggregator", "auth", "config", "florilegium", "server", "sessions", "sources")
_CODE_SUFFIXES = (".py", ".toml", ".html", ".js", ".json", ".yaml", ".yml", ".sh")
# A program of PostgreSQL, and a tool of AgentChatBus that is not offered.
_NAMES_OF_OTHERS = frozenset(("pg_basebackup", "msg_edit", "asyncio_mode"))


def prose(page: Path) -> str:
    """A page without its code blocks, where `[...](...)` and `#` mean something else."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def relative_links(page: Path) -> Iterator[tuple[Path, str]]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith(("http://", "https://", "mailto:")):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


def layout() -> set[str]:
    """The folders in the layout block of the architecture page, as paths."""
    block = re.search(r"^```\n(config/.*?)^```$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    folders: set[str] = set()
    parents: list[str] = []
    for indent, name in re.findall(r"^( *)(\w+)/", block[1], re.MULTILINE):
        parents = [*parents[: len(indent) // 2], name]
        folders.add("/".join(parents))
    return folders


@each_case("page", PAGES)
def test_every_relative_link_resolves(page: Path) -> None:
    broken = [
        f"{path.name}#{anchor}"
        for path, anchor in relative_links(page)
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path))
    ]
    assert broken == []


def test_the_index_lists_every_page() -> None:
    listed = {path for path, _ in relative_links(ROOT / "docs/README.md")}
    assert {page for page in ROOT.glob("docs/*.md") if page.name != "README.md"} <= listed


def test_generated_pages_are_current() -> None:
    """Tools, commands and REST operations. The settings and the compatibility page have tests of their own."""
    outdated = [
        page
        for page, generated in generated_parts().items()
        if (ROOT / "docs" / page).read_text() != written_part(page) + generated
    ]
    assert outdated == [], "run make docs"


def test_names_in_the_documentation_occur_in_the_code() -> None:
    """Settings, tools, fields and metrics that are renamed or removed must not stay in the documentation."""
    folders = (*PACKAGES, "tests", "bench", "deploy")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in _CODE_SUFFIXES]
    own = (path for path in (*files, ROOT / ".ci/run") if "node_modules" not in path.parts)
    words = {word for path in own for word in re.findall(r"\w+", path.read_text())}
    words |= {f"{word}_total" for word in words} | _NAMES_OF_OTHERS
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        spans = re.findall(r"`([^`\n]+)`", page.read_text())
        names = {name for span in spans for name in re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", span)}
        unknown = {name for name in names - words if not name.startswith("test_")}
        # The code knows the names of settings that were replaced, to say what replaced them.
        assert unknown | (names & REPLACED.keys()) == set(), page.name


def test_the_threat_model_names_tests_and_attacks_that_exist() -> None:
    text = (ROOT / "docs/threat-model.md").read_text()
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    named = {part for parts in re.findall(r"`make attack`\s\(([^)]+)\)", text) for part in re.split(r",\s", parts)}
    table = (ROOT / "docs/limits.md").read_text().partition("## `make attack`")[2].partition("\n## ")[0]
    parts = set(re.findall(r"^\| ([\w -]+) \|", table, re.MULTILINE)) - {"part"}

    assert {name for name in files if not (ROOT / name).exists()} == set()
    assert named == parts
    assert ROOT / "docs/threat-model.md" in {path for path, _ in relative_links(ROOT / "SECURITY.md")}


def test_the_architecture_page_shows_every_package() -> None:
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
    }
    below = ("server/compat/agentkit/",)
    assert {name for name in packages if not name.startswith(below)} == layout() - {"tests", "bench"}


def test_the_architecture_page_names_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(rf"`((?:{'|'.join((*PACKAGES, 'tests', 'bench'))})/[\w/]+(?:\.py|/))`", text)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []
