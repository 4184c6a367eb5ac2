"""One process per data directory: who is refused, what the refusal says, and when the lock ends."""

import sqlite3

import pytest

from server.directory_lock import WAL_RESET_FIXED
from tests.server.cli.program import Program
from tests.server.cli.requests import who_am_i

# A data directory without SQLite files needs no lock.
pytestmark = pytest.mark.sqlite

# With a fixed SQLite, commands that write share the directory with a server.
needs_a_lock = pytest.mark.skipif(
    sqlite3.sqlite_version_info >= WAL_RESET_FIXED, reason="this SQLite allows several writing processes"
)


def test_a_second_server_is_refused_and_told_who_is_running(program: Program) -> None:
    with program.serving("--port", "0") as first:
        second = program.run("serve", "--port", "0")
        assert second.code == 1
        assert f"is in use by `florilegium serve` (pid {first.process.pid} on " in second.stderr
        assert who_am_i(first.mcp) == (200, "local")
        first.process.kill()
        first.process.wait()
        with program.serving("--port", "0") as third:
            assert who_am_i(third.mcp) == (200, "local")


@needs_a_lock
def test_commands_that_write_are_refused_and_say_how_to_write(program: Program) -> None:
    program.expect("add", "notes", "comet", "--title", "Before")
    with program.serving("--port", "0") as server:
        base = server.mcp.removesuffix("/mcp")
        (program.home / "note.md").write_text("# Halley\n\ncomet\n")
        for command in (("add", "notes", "comet"), ("import", "note.md"), ("reindex",), ("stdio",), ("demo",)):
            outcome = program.run(*command)
            assert outcome.code == 1, command
            assert f"write through that server at {base}" in outcome.stderr
            assert f"florilegium stdio --remote {base}/mcp" in outcome.stderr
    assert program.expect("list", "notes").count("Before") == 1


def test_reading_and_managing_users_work_beside_a_server(program: Program) -> None:
    program.expect("add", "notes", "comet", "--title", "Before")
    with program.serving("--port", "0"):
        assert "Before" in program.expect("search", "comet")
        program.expect("export", "out")
        program.expect("backup", "saved")
        program.expect("user", "add", "eve")
        key = program.run("key", "create", "eve", "--json").json["id"]
        program.expect("key", "revoke", key)
        program.expect("user", "delete", "eve", "--purge", "--yes")
        refused = program.run("restore", "saved", "--user", "local")
    assert (refused.code, "; stop it first" in refused.stderr) == (1, True)
    assert program.expect("restore", "saved", "--user", "local").startswith("local in saved was restored")
