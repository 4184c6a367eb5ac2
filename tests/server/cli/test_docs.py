import re
import shlex
from collections.abc import Iterator

from server.client_guides import CLIENTS, ConnectionTarget
from tests.cases import each_case
from tests.server.cli.program import ROOT, Program

CLIENT_PAGE = (ROOT / "docs" / "clients.md").read_text()
TARGET = ConnectionTarget("https://kb.example.com/mcp", token_env="FLORILEGIUM_TOKEN")


def section(page: str, title: str) -> str:
    _, heading, rest = page.partition(f"\n## {title}\n")
    assert heading, f"there is no section {title}"
    return rest.partition("\n## ")[0]


@each_case("client", CLIENTS)
def test_the_page_of_clients_shows_what_connect_prints(client: str) -> None:
    guide = CLIENTS[client](TARGET)
    text = section(CLIENT_PAGE, guide.title)
    shown = re.findall(r"^```(\w+)\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    assert shown == [(snippet.language, snippet.text) for snippet in guide.snippets]
    assert f"`florilegium connect {client}`" in text
    assert all(note in text for note in guide.notes)


def test_the_page_of_clients_knows_no_other_clients() -> None:
    titles = re.findall(r"^## (.+)$", CLIENT_PAGE, re.MULTILINE)
    assert titles == [guide(TARGET).title for guide in CLIENTS.values()]


def _shown_on_demo() -> Iterator[tuple[str, str, str]]:
    """Every command about the demo library that the README and the manual show, with what they say it prints."""
    for page in ("README.md", "docs/cli.md"):
        blocks = re.findall(r"^```(?:console)?\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        for block in blocks:
            for command, printed in re.findall(
                r"^\$ florilegium ([^\n]*--demo[^\n]*)\n((?:[^$\n].*\n|\n)*)", block, re.MULTILINE
            ):
                yield page, command, printed


@each_case(("page", "command", "printed"), list(_shown_on_demo()))
def test_what_is_shown_of_the_demo_library_is_what_is_printed(
    program: Program, page: str, command: str, printed: str
) -> None:
    assert program.run(*shlex.split(command)).stdout == printed


def test_the_pages_show_something_of_the_demo_library() -> None:
    assert {page for page, _, _ in _shown_on_demo()} == {"README.md", "docs/cli.md"}
