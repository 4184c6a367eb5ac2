"""What all commands have in common: short help, suggestions, JSON, tables that fit, errors that name what is wrong."""

import os
import pty
import subprocess
from pathlib import Path

import click
import pytest

from server.cli import FIRST_COMMANDS, florilegium
from server.cli.output import cell_width
from tests.cases import each_case
from tests.server.cli.program import EXECUTABLE, TIMEOUT_S, Program
from tests.server.cli.test_commands_while_serving import leaf_commands

# They print a document for another program, or run until they are stopped.
WITHOUT_JSON = {"serve", "stdio", "completion", "config docs", "config import-tldw"}


def test_the_program_alone_shows_six_commands(program: Program) -> None:
    outcome = program.run_process()
    shown = [line.split()[0] for line in outcome.stderr.splitlines() if line.startswith("  ")]
    assert (outcome.code, shown) == (2, list(FIRST_COMMANDS))
    assert len(FIRST_COMMANDS) == 6
    assert "`florilegium --help` lists all" in outcome.stderr


def test_every_command_can_print_json() -> None:
    for name in leaf_commands(florilegium):
        command: click.Command = florilegium
        for part in name.split():
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), part)
            assert found is not None
            command = found
        has_json = any("--json" in parameter.opts for parameter in command.params)
        assert has_json is (name not in WITHOUT_JSON), name


def test_arguments_that_are_not_utf8_are_refused_in_one_line(program: Program) -> None:
    program.with_users("ada")
    for arguments in (("user", "disable"), ("key", "create"), ("group", "members")):
        outcome = program.run(*arguments, os.fsdecode(b"caf\xe9"))
        assert outcome.code == 2, arguments
        assert outcome.stderr.splitlines()[-1] == r"florilegium: expected arguments in UTF-8, got 'caf\udce9'"


@each_case(
    ("arguments", "suggestion"),
    [
        (("serch",), "search"),
        (("connect", "claude"), "Did you mean claude-ai or claude-code or claude-desktop?"),
        (("doctor", "--client", "chatgp"), "Did you mean chatgpt?"),
        (("add", "nots", "x"), "Did you mean notes?"),
        (("import", "--format", "chatgtp", "x.zip"), "did you mean 'chatgpt'?"),
        (("model", "install", "fats"), "did you mean fast?"),
        (("search", "--sorce", "notes", "x"), "--source"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    program: Program, arguments: tuple[str, ...], suggestion: str
) -> None:
    outcome = program.run(*arguments)
    assert outcome.code == 2
    assert suggestion in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.sqlite
def test_what_is_no_backup_is_called_so(program: Program, tmp_path: Path) -> None:
    for folder, problem in ((tmp_path, "it has no backup.json"), (tmp_path / "missing", "there is no such folder")):
        outcome = program.run("restore", str(folder))
        assert outcome.code == 1
        assert f"{folder} is not a backup: {problem}" in outcome.stderr


@each_case(
    ("command", "code", "message"),
    [
        ("$F list notes >&-", 0, "1 of 1 notes\n"),
        ("$F add note - --title Tea <&- >&-", 0, ""),
        ("$F list notes >/dev/full", 1, "florilegium: the output cannot be written: the disk is full\n"),
        ("mkdir a; cd a; rmdir ../a; $F import .", 1, "florilegium: the working directory does not exist any more\n"),
    ],
)
def test_closed_streams_a_full_disk_and_a_removed_directory_cause_no_traceback(
    program: Program, command: str, code: int, message: str
) -> None:
    program.expect("add", "note", "steep", "--title", "Kettle")
    environment = program.environment(F=" ".join(EXECUTABLE))

    process = subprocess.run(
        ["sh", "-c", command], cwd=program.home, env=environment, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False
    )

    assert (process.returncode, process.stderr.decode()) == (code, message)


def test_an_unreachable_postgresql_server_is_named_with_its_port(program: Program) -> None:
    for address, shown in (("127.0.0.1:1", "127.0.0.1:1/x"), ("127.0.0.2", "127.0.0.2:5432/x")):
        outcome = program.run("user", "list", FLORILEGIUM_STORAGE_URL=f"postgresql://ada:secret@{address}/x")
        assert outcome.code == 1
        assert f"the PostgreSQL server at {shown} cannot be reached" in outcome.stderr
        assert "secret" not in outcome.stderr


@pytest.mark.slow("starts a process on a terminal")
def test_a_table_fits_the_terminal_and_is_whole_elsewhere(program: Program) -> None:
    title = "a title that is far longer than the terminal is wide, " * 3
    program.expect("add", "notes", "comet", "--title", title)
    assert title.strip() in program.expect("list", "notes")
    controller, terminal = pty.openpty()
    os.set_blocking(controller, False)
    subprocess.run(["stty", "cols", "60"], stdin=terminal, check=True)
    subprocess.run(
        [*EXECUTABLE, "list", "notes"], env=program.environment(), stdout=terminal, timeout=TIMEOUT_S, check=True
    )
    lines = os.read(controller, 65536).decode().splitlines()
    os.close(controller)
    os.close(terminal)
    assert len(lines) == 2
    assert all(cell_width(line) <= 60 for line in lines)
    assert lines[1].endswith("\N{HORIZONTAL ELLIPSIS}")
