"""Every command on a data directory that a server uses: it works, goes through the server, or says what to do."""

import sqlite3
from collections.abc import Iterator, Mapping

import click
import pytest

from server.cli import florilegium
from server.directory_lock import WAL_RESET_FIXED
from tests.server.cli.program import Program

# A data directory without SQLite files needs no lock.
pytestmark = [pytest.mark.sqlite, pytest.mark.slow("runs every command beside a server")]

# Commands that use no data directory, or are not about one that is in use.
ELSEWHERE = {
    "serve",  # test_directory_lock.py
    "connect",
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
# They write libraries. With a fixed SQLite, they share the directory with a server.
WRITING = {
    "add": ("notes", "comet"),
    "edit": ("{note}", "--title", "After"),
    "rm": ("{note}", "--yes"),
    "tag": ("{note}", "+sky"),
    "demo": (),
    "import": ("halley.md",),
    "embed": (),
    "reindex": (),
    "stdio": (),
    "follow resolve": ("{followed}", "halley.md", "--keep", "library"),
}
# They replace files, which no server may have open.
REPLACING = {
    "restore": ("saved", "--user", "local"),
    "repair": ("--user", "local"),
}
# They read, change users and keys, ask the server, or have nothing to do. In an order in which each has what it needs.
SHARING = {
    "search": ("comet",),
    "get": ("{note}",),
    "list": ("notes",),
    "export": ("exported",),
    "backup": ("saved-again",),
    "check": (),
    "schema": (),
    "migrate": (),  # nothing is left to upgrade
    "audit": (),
    "model list": (),
    "follow list": (),
    "follow show": ("{followed}",),
    "follow pause": ("{followed}",),
    "follow resume": ("{followed}",),
    "follow run": ("{followed}",),
    "follow remove": ("{followed}",),
    "follow add": ("halley.md",),
    "user add": ("eve",),
    "user list": (),
    "user role": ("eve", "admin"),
    "user quota": ("eve",),
    "user confirm": ("eve",),
    "user disable": ("eve",),
    "user enable": ("eve",),
    "key create": ("eve",),
    "key list": (),
    "key revoke": ("{key}",),
    "user delete": ("eve", "--purge", "--yes"),
    "client add": ("reader", "--device"),
    "client list": (),
    "client remove": ("{client}",),
}
# They need passwords or a model; their own tests cover what they do.
NEEDS_MORE = {"similar", "model install", "model remove", "user invite", "user reset-password"}


def leaf_commands(group: click.Group, prefix: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaf_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_every_command_has_a_decision() -> None:
    assert (
        set(leaf_commands(florilegium))
        == ELSEWHERE | NEEDS_MORE | {"migrate-store"} | WRITING.keys() | REPLACING.keys() | SHARING.keys()
    )


def prepare(program: Program) -> dict[str, str]:
    """Creates what the commands work on. Returns the values of the names in braces."""
    (program.home / "halley.md").write_text("# Halley\n\ncomet\n")
    note = program.run("add", "notes", "comet", "--title", "Before", "--json").json["uri"]
    followed = program.run("follow", "add", "halley.md", "--json").json["id"]
    key = program.run("key", "create", "local", "--json").json["id"]
    client = program.run("client", "add", "other", "--device", "--json").json["id"]
    program.expect("backup", "saved")
    return {"note": note, "followed": followed, "key": key, "client": client}


def line(command: str, arguments: tuple[str, ...], names: Mapping[str, str]) -> list[str]:
    return [*command.split(), *(argument.format(**names) for argument in arguments)]


@pytest.mark.skipif(
    sqlite3.sqlite_version_info >= WAL_RESET_FIXED, reason="this SQLite allows several writing processes"
)
def test_commands_that_write_are_refused_and_say_how_to_write(program: Program) -> None:
    names = prepare(program)
    with program.serving("--port", "0") as server:
        base = server.mcp.removesuffix("/mcp")
        for command, arguments in WRITING.items():
            outcome = program.run(*line(command, arguments, names))
            assert outcome.code == 1, (command, outcome)
            assert f"is in use by `florilegium serve` (pid {server.process.pid} on " in outcome.stderr, command
            assert f"write through that server at {base}" in outcome.stderr, command
            assert f"florilegium stdio --remote {base}/mcp" in outcome.stderr, command
    assert "Before" in program.expect("list", "notes")


def test_commands_that_replace_files_ask_to_stop_the_server(program: Program) -> None:
    names = prepare(program)
    with program.serving("--port", "0") as server:
        for command, arguments in REPLACING.items():
            outcome = program.run(*line(command, arguments, names))
            assert outcome.code == 1, (command, outcome)
            assert f"`florilegium serve` (pid {server.process.pid} on " in outcome.stderr, command
            assert "; stop it first" in outcome.stderr, command
    assert program.expect("restore", "saved", "--user", "local").startswith("local in saved was restored")


def test_all_other_commands_work_while_a_server_runs(program: Program) -> None:
    names = prepare(program)
    with program.serving("--port", "0"):
        for command, arguments in SHARING.items():
            outcome = program.run(*line(command, arguments, names))
            assert outcome.code == 0, (command, outcome)


def test_a_move_to_postgresql_is_complete_after_the_server_has_ended(program: Program, database_url: str) -> None:
    program.expect("add", "notes", "comet", "--title", "Before")
    with program.serving("--port", "0"):
        meanwhile = program.run("migrate-store", "--to", database_url)
    afterwards = program.run("migrate-store", "--to", database_url)

    assert (meanwhile.code, "Not complete: " in meanwhile.stdout) == (1, True)
    assert (afterwards.code, "The target is complete." in afterwards.stdout) == (0, True)
