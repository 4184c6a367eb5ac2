"""Links in the documentation resolve, every page is listed, and the architecture page shows every package."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
PACKAGES = ("aggregator", "auth", "config", "florilegium", "server", "sessions", "sources")


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
    below = ("sources/importers/formats/", "server/compat/agentkit/")
    assert {name for name in packages if not name.startswith(below)} == layout() - {"tests", "bench"}
