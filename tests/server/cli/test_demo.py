"""The demo library on the command line: added to a library, or served and searched separately."""

import json
import shlex
import time
import urllib.request

import pytest

from tests.server.cli.program import Program
from tests.server.cli.requests import call_tool
from tests.server.cli.test_serve import first_call


def test_demo_is_added_once_and_the_printed_commands_work(program: Program) -> None:
    first = program.expect("demo")
    second = program.expect("demo", "--json")

    assert first.startswith("23 notes, 7 media, 9 chats, 5 characters, 9 prompts; 53 new in the library of 'local'")
    assert json.loads(second)["new"] == 0
    commands = [shlex.split(line) for line in first.splitlines() if line.startswith("    florilegium ")]
    assert len(commands) == 5
    for command in commands:
        assert program.run(*command[1:]).code == 0, command


def test_demo_of_one_user_is_invisible_to_others(program: Program) -> None:
    program.with_users("ada", "ben")
    output = program.expect("demo", "--user", "ada", "--data-dir", str(program.data_dir))

    [first, *_] = [shlex.split(line) for line in output.splitlines() if line.startswith("    florilegium ")]
    assert program.run(*first[1:]).code == 0
    assert program.run("search", "dome", "--user", "ben").code == 1


def test_demo_is_served_separately_and_the_printed_calls_work(program: Program) -> None:
    with program.serving("--demo", "--port", "0") as up:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(first_call(up.welcome), timeout=60) as response:
            content = json.load(response)["result"]["structuredContent"]
        [command] = [shlex.split(line) for line in up.welcome.splitlines() if "search --demo" in line]
        search = program.run(*command[1:])

    assert content["results"][0]["title"] == "Dome: where and when it sticks"
    assert "Dome: where and when it sticks" in search.stdout
    assert program.run("search", "dome").code == 1


@pytest.mark.slow("waits until a model has embedded the demo library")
def test_the_best_installed_model_searches_by_meaning(program: Program) -> None:
    with program.serving("--demo", "--port", "0", FLORILEGIUM_SEMANTIC_MODEL="auto") as up:
        # No item contains the word.
        while (response := call_tool(up.mcp, "knowledge_search", query="vehicle"))["semantic"]["status"] != "on":
            assert response["semantic"]["status"] in ("partial", "unavailable")
            time.sleep(0.1)

    assert response["results"]


def test_demo_can_be_searched_without_a_server(program: Program) -> None:
    assert program.run("search", "--demo", "dome").code == 0
    assert program.run("get", "--demo", "prompts://Night report").code == 0
    assert not program.data_dir.exists()


@pytest.mark.parametrize("command", ["search", "serve"])
@pytest.mark.sqlite  # the demo library is always in files
def test_demo_uses_the_given_data_directory(program: Program, command: str) -> None:
    data_dir = str(program.home / "here")
    if command == "serve":
        with program.serving("--demo", "--port", "0", "--data-dir", data_dir):
            pass
    else:
        program.expect("search", "--demo", "dome", "--data-dir", data_dir)

    assert program.run("search", "dome", "--data-dir", data_dir).code == 0
    assert not program.data_dir.with_name("florilegium-demo").exists()


def test_demo_with_required_authentication_is_rejected(program: Program) -> None:
    outcome = program.run("serve", "--demo", "--require-auth", "true")

    assert outcome.code == 2
    assert "`florilegium demo --user NAME`" in outcome.stderr
    assert not program.data_dir.with_name("florilegium-demo").exists()
