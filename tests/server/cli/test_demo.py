"""The demo library from the command line: put into one's own, or served and searched apart from everything real."""

import json
import shlex
import urllib.request

import pytest

from tests.server.cli.program import Program
from tests.server.cli.test_serve import first_call


def test_the_demo_is_added_once_and_the_printed_commands_work(program: Program) -> None:
    added = program.expect("demo")
    again = program.expect("demo", "--json")

    assert added.startswith("23 notes, 7 media, 9 chats, 5 characters, 9 prompts; 53 new in the library of 'local'")
    assert json.loads(again)["new"] == 0
    commands = [shlex.split(line) for line in added.splitlines() if line.startswith("    florilegium ")]
    assert len(commands) == 5
    for command in commands:
        assert program.run(*command[1:]).code == 0, command


def test_the_demo_of_one_user_is_not_another_users(program: Program) -> None:
    program.with_users("ada", "ben")
    added = program.expect("demo", "--user", "ada", "--data-dir", str(program.data_dir))

    [first, *_] = [shlex.split(line) for line in added.splitlines() if line.startswith("    florilegium ")]
    assert program.run(*first[1:]).code == 0
    assert program.run("search", "dome", "--user", "ben").code == 1


def test_the_demo_is_served_apart_from_the_real_library_and_answers_as_printed(program: Program) -> None:
    with program.serving("--demo", "--port", "0") as up:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(first_call(up.welcome), timeout=10) as response:
            answer = json.load(response)["result"]["structuredContent"]
        [command] = [shlex.split(line) for line in up.welcome.splitlines() if "search --demo" in line]
        beside = program.run(*command[1:])

    assert answer["results"][0]["title"] == "Dome: where and when it sticks"
    assert "Dome: where and when it sticks" in beside.stdout
    assert program.run("search", "dome").code == 1


def test_a_search_of_the_demo_needs_no_server_and_no_filling(program: Program) -> None:
    assert program.run("search", "--demo", "dome").code == 0
    assert program.run("get", "--demo", "prompts://Night report").code == 0
    assert not program.data_dir.exists()


@pytest.mark.parametrize("command", ["search", "serve"])
def test_a_data_directory_that_the_command_names_is_obeyed(program: Program, command: str) -> None:
    named = str(program.home / "here")
    if command == "serve":
        with program.serving("--demo", "--port", "0", "--data-dir", named):
            pass
    else:
        program.expect("search", "--demo", "dome", "--data-dir", named)

    assert program.run("search", "dome", "--data-dir", named).code == 0
    assert not program.data_dir.with_name("florilegium-demo").exists()


def test_the_demo_is_not_served_where_callers_need_a_credential(program: Program) -> None:
    outcome = program.run("serve", "--demo", "--require-auth", "true")

    assert outcome.code == 2
    assert "`florilegium demo --user NAME`" in outcome.stderr
    assert not program.data_dir.with_name("florilegium-demo").exists()
