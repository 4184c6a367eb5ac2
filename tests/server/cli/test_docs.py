import re
import shlex
from collections.abc import Iterator

import click

from server.cli import COMMANDS, florilegium
from server.cli.lazy_group import SettingOption
from server.client_guides import CLIENTS, ConnectionTarget
from tests.cases import each_case
from tests.server.cli.program import ROOT, Program

CLI = (ROOT / "docs" / "cli.md").read_text()
CLIENT_PAGE = (ROOT / "docs" / "clients.md").read_text()
TARGET = ConnectionTarget("https://kb.example.com/mcp", token_env="FLORILEGIUM_TOKEN")


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its full name."""
    for name in COMMANDS:
        command = florilegium.get_command(click.Context(florilegium), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {child}", leaf) for child, leaf in command.commands.items())
        else:
            yield name, command


def section(page: str, title: str) -> str:
    _, heading, rest = page.partition(f"\n## {title}\n")
    assert heading, f"there is no section {title}"
    return rest.partition("\n## ")[0]


@each_case(("name", "command"), list(leaves()))
def test_every_command_and_each_of_its_own_options_is_in_the_manual(name: str, command: click.Command) -> None:
    text = section(CLI, name)
    own = [p for p in command.params if isinstance(p, click.Option) and not isinstance(p, SettingOption)]
    in_the_conventions = {"--config", "--help-all"}
    missing = [option.opts[0] for option in own if option.opts[0] not in text]
    assert set(missing) <= in_the_conventions


def test_the_manual_has_no_section_for_a_command_that_is_gone() -> None:
    assert set(re.findall(r"^## (.+)$", CLI, re.MULTILINE)) == {name for name, _ in leaves()}


def test_the_help_in_the_manual_is_the_help_that_is_printed(program: Program) -> None:
    assert f"$ florilegium --help\n{program.run_process('--help').stdout}```" in CLI


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
