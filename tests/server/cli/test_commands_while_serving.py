"""Every command with and without a server on its data directory: the result is the same."""

import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from server.cli import florilegium
from tests.server.cli.program import TIMEOUT_S, Outcome, Program, without_progress
from tests.server.cli.requests import INITIALIZE, lines
from tests.server.cli.test_stdio import LEGACY, MODERN, results

# A data directory without SQLite files needs no lock.
pytestmark = [pytest.mark.sqlite, pytest.mark.slow("runs every command twice, with and without a running server")]

# Commands that use no data directory, or are not about one that is in use.
ELSEWHERE = {
    "serve",  # test_directory_lock.py
    "stdio",  # below
    "migrate-store",  # below
    "config docs",
    "config import-tldw",
    "config init",
    "config show",
    "doctor",
    "healthcheck",
    "completion",
    "version",
    "token mint",
    "token revoke",
}
# In an order in which each has what it needs.
COMMANDS = {
    "add": ("notes", "comet", "--title", "After"),
    "search": ("comet",),
    "get": ("{note}",),
    "list": ("notes",),
    "edit": ("{note}", "--title", "Later"),
    "tag": ("{note}", "+sky"),
    "tags": (),
    "rename-tag": ("sky", "heaven"),
    "delete-tag": ("heaven",),
    "find-duplicates": (),
    "duplicates": (),
    "import": ("other.md", "missing.md"),
    "demo": (),
    "embed": (),
    "reindex": (),
    "export": ("exported",),
    "backup": ("saved-again",),
    "check": (),
    "schema": ("notes",),
    "migrate": (),  # nothing is left to upgrade
    "audit": (),
    "model list": (),
    "connect": (),
    "follow list": (),
    "follow show": ("{followed}",),
    "follow pause": ("{followed}",),
    "follow resume": ("{followed}",),
    "follow run": ("{followed}",),
    "follow resolve": ("{followed}", "halley.md", "--keep", "library"),
    "follow remove": ("{followed}",),
    "follow add": ("comet.md",),
    "user add": ("eve",),
    "user list": (),
    "user role": ("eve", "admin"),
    "user quota": ("eve", "--max-items", "7"),
    "user confirm": ("eve",),
    "user disable": ("eve",),
    "user enable": ("eve",),
    "key create": ("eve",),
    "key list": (),
    "key revoke": ("{key}",),
    "group create": ("team", "--manager", "eve"),
    "group list": (),
    "group add": ("team", "local", "--role", "reader"),
    "group role": ("team", "local", "manager"),
    "group members": ("team",),
    "group invite": ("team",),
    "group invitations": ("team",),
    "group rename": ("team", "crew"),
    "group incoming": ("--user", "eve"),
    "group leave": ("crew", "--user", "eve"),
    "share create": ("tag", "comet", "crew", "--user", "local"),
    "share list": (),
    "group delete": ("crew", "--yes"),
    "user delete": ("eve", "--purge", "--yes"),
    "client add": ("reader", "--device"),
    "client list": (),
    "client remove": ("{client}",),
    "rm": ("{note}", "--yes"),
    "repair": ("--user", "local"),
    "restore": ("saved", "--user", "local"),
}
# They need passwords or a model; their own tests cover what they do.
NEEDS_MORE = {
    *("similar", "model install", "model remove", "user invite", "user reset-password", "user adopt-local"),
    # They need what another command printed, or a third person.
    *(
        "ask",
        "copy",
        "undo",
        "user demo",
        "group remove",
        "group accept",
        "group decline",
        "group uninvite",
        "share delete",
    ),
}


def leaf_commands(group: click.Group, prefix: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaf_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_every_command_has_a_decision() -> None:
    assert set(leaf_commands(florilegium)) == ELSEWHERE | NEEDS_MORE | COMMANDS.keys()


def prepare(program: Program) -> dict[str, str]:
    """Creates what the commands work on. Returns the values of the names in braces."""
    for name in ("halley", "comet", "other"):
        (program.home / f"{name}.md").write_text(f"# {name.title()}\n\ncomet\n")
    note = program.run("add", "notes", "comet", "--title", "Before", "--json").json["uri"]
    followed = program.run("follow", "add", "halley.md", "--json").json["id"]
    program.expect("follow", "run")  # a server would do it at once
    key = program.run("key", "create", "local", "--json").json["id"]
    client = program.run("client", "add", "other", "--device", "--json").json["id"]
    program.expect("backup", "saved")
    return {"note": note, "followed": followed, "key": key, "client": client}


def line(command: str, arguments: tuple[str, ...], names: Mapping[str, str]) -> list[str]:
    return [*command.split(), *(argument.format(**names) for argument in arguments)]


# What differs between two runs: ids, secrets, times, durations and sizes, and the paths of the two homes.
_VOLATILE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16}\b|\b[a-z]+_[a-z2-7]{10,}|flog?_\S+|\d{4}-\d\d-\d\d(T[\d:.]+Z)?"
    r"|\b\d+(\.\d+)? [kMG]?B\b|replaced-\d+|127\.0\.0\.1:\d+| in \d+:\d+|\d+/s"
)


def result(program: Program, outcome: Outcome) -> tuple[int, str, str]:
    texts = (text.replace(str(program.home), "~") for text in (outcome.stdout, without_progress(outcome.stderr)))
    stdout, stderr = (re.sub(r" {2,}", "  ", _VOLATILE.sub("*", text)) for text in texts)
    return outcome.code, stdout, stderr


def run_all(program: Program, names: Mapping[str, str]) -> Iterator[tuple[str, tuple[int, str, str]]]:
    for command, arguments in COMMANDS.items():
        yield command, result(program, program.run(*line(command, arguments, names)))


def test_every_command_has_the_same_result_with_and_without_a_server(tmp_path: Path) -> None:
    programs = [Program(tmp_path / name) for name in ("alone", "served")]
    for program in programs:
        program.home.mkdir()
    alone, served = programs
    expected = dict(run_all(alone, prepare(alone)))
    names = prepare(served)
    with served.serving("--port", "0"):
        actual = dict(run_all(served, names))
    assert {name: (expected[name], actual[name]) for name in COMMANDS if expected[name] != actual[name]} == {}
    # Only a note that cannot be read, a model that is off, and an unedited file fail.
    assert {command for command, (code, *_) in expected.items() if code} == {"import", "embed", "follow resolve"}


def test_a_move_to_postgresql_is_complete_after_the_server_has_ended(program: Program, database_url: str) -> None:
    program.expect("add", "notes", "comet", "--title", "Before")
    with program.serving("--port", "0"):
        meanwhile = program.run("migrate-store", "--to", database_url)
    afterwards = program.run("migrate-store", "--to", database_url)

    assert (meanwhile.code, "Not complete: " in meanwhile.stdout) == (1, True)
    assert (afterwards.code, "The target is complete." in afterwards.stdout) == (0, True)


@pytest.mark.parametrize("conversation", [LEGACY, MODERN], ids=["legacy", "modern"])
def test_stdio_beside_a_server_forwards_to_it(program: Program, conversation: str) -> None:
    alone = results(program.run("stdio", "--profile", "research", stdin=conversation).messages)
    program.expect("user", "add", "ada")
    with program.serving("--port", "0"):
        answers = results(program.run("stdio", "--profile", "research", stdin=conversation).messages)
        assert answers[1] == alone[1]
        assert answers[2]["structuredContent"]["user"] == "local"
        of_ada = results(program.run("stdio", "--user", "ada", stdin=conversation).messages)
        assert of_ada[2]["structuredContent"]["user"] == "ada"


def test_stdio_ends_with_the_server_and_says_so(program: Program) -> None:
    with program.serving("--port", "0") as server, program.start("stdio") as stdio:
        stdio.stdin.write(lines(INITIALIZE))
        stdio.stdin.flush()
        assert "protocolVersion" in stdio.stdout.readline()
        server.process.terminate()
        stdio.wait(TIMEOUT_S)
        assert stdio.returncode == 0
    assert "closed the connection" in (program.home / "stderr.log").read_text()


def test_an_import_through_the_server_shows_progress_and_can_be_interrupted(program: Program) -> None:
    folder = program.home / "vault"
    folder.mkdir()
    for number in range(300):
        (folder / f"{number}.md").write_text(f"# Note {number}\n\ncomet\n")
    with program.serving("--port", "0"):
        with program.start("import", "vault") as importing:
            # Until the server has written some of it.
            while not program.run("list", "notes", "--json").json["total"]:
                assert importing.poll() is None
            importing.send_signal(signal.SIGINT)
            assert importing.wait(TIMEOUT_S) in (0, 130)
        assert program.run("import", "vault", "--json").json["kinds"]["notes"]["new"] < 300
        assert program.run("list", "notes", "--json").json["total"] == 300
