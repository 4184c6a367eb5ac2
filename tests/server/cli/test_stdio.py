import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.cli.program import EXECUTABLE, TIMEOUT_S, Program
from tests.server.cli.requests import INITIALIZE, INITIALIZED, lines, modern, request

LEGACY = lines(INITIALIZE, INITIALIZED, request(1, "tools/list"), request(2, "tools/call", name="server_info"))
MODERN = lines(
    modern(0, "server/discover"), modern(1, "tools/list"), modern(2, "tools/call", name="server_info", arguments={})
)


def results(messages: list[Any]) -> dict[Any, Any]:
    return {message["id"]: message["result"] for message in messages}


@pytest.mark.parametrize("conversation", [LEGACY, MODERN], ids=["legacy", "modern"])
def test_a_conversation_of_either_era_is_served_and_ends_with_its_input(program: Program, conversation: str) -> None:
    outcome = program.run("stdio", stdin=conversation)
    answers = results(outcome.messages)
    assert (outcome.code, len(answers)) == (0, 3)
    assert "knowledge_search" in [tool["name"] for tool in answers[1]["tools"]]
    assert answers[2]["structuredContent"]["user"] == "local"
    assert answers[2]["structuredContent"]["scopes"] == ["admin", "knowledge:read", "knowledge:write"]


@pytest.mark.parametrize("conversation", [LEGACY, MODERN], ids=["legacy", "modern"])
def test_the_profile_named_on_the_command_line_is_listed(program: Program, conversation: str) -> None:
    answers = results(program.run("stdio", "--profile", "research", stdin=conversation).messages)
    assert [tool["name"] for tool in answers[1]["tools"]] == ["search", "fetch"]
    assert answers[2]["structuredContent"]["user"] == "local"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--profile", "deep"), "'deep' is not one of 'default', 'compact'"),
        (("--profile", "research", "--remote", "https://host/mcp"), "put the profile into the URL"),
    ],
)
def test_a_profile_that_cannot_be_served_is_refused(program: Program, options: tuple[str, ...], sentence: str) -> None:
    outcome = program.run("stdio", *options)
    assert outcome.code == 2
    assert sentence in outcome.stderr


def test_the_demo_library_is_served_from_its_own_data_directory(program: Program) -> None:
    query = modern(1, "tools/call", name="knowledge_search", arguments={"query": "why does the dome stick"})

    answers = results(program.run("stdio", "--demo", stdin=lines(query)).messages)

    assert answers[1]["structuredContent"]["results"][0]["title"] == "Dome: where and when it sticks"
    assert not program.data_dir.exists()
    assert "--demo cannot be combined" in program.run("stdio", "--demo", "--remote", "https://host/mcp").stderr


def test_the_named_user_is_served_and_no_other(program: Program) -> None:
    program.with_users("ada", "ben")
    call = lines(modern(1, "tools/call", name="server_info", arguments={}))
    users = [
        results(program.run("stdio", "--user", name, stdin=call).messages)[1]["structuredContent"]["user"]
        for name in ("ada", "ben")
    ]
    assert users == ["ada", "ben"]


def test_the_single_user_is_made_once_and_then_stays_the_same(program: Program) -> None:
    for _ in range(2):
        assert program.run("stdio", "--single-user-name", "ada", stdin=MODERN).code == 0
    assert [row["name"] for row in program.run("user", "list", "--json").json] == ["ada"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--user", "nobody"), 1, "user 'nobody' not found"),
        (("--user", "ada"), 1, "user 'ada' is disabled"),
        (("--user", "ada", "--remote", "https://host/mcp"), 2, "the token determines the user"),
        (("--token-env", "T"), 2, "require --remote"),
        (("--remote", "https://host/mcp", "--token-env", "UNSET"), 2, "the environment variable UNSET is not set"),
        (("--remote", "http://kb.example.com/mcp"), 2, "would not be encrypted"),
        (("--remote", "kb.example.com"), 2, "expected a URL such as https://host/mcp"),
    ],
)
def test_errors_are_printed_to_stderr_only(
    program: Program, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    program.with_users("ada")
    if code == 1:
        program.expect("user", "disable", "ada")
    outcome = program.run("stdio", *arguments, stdin=MODERN)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert sentence in outcome.stderr


@pytest.mark.slow("is a long property run")
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200) | st.just(b'{"jsonrpc":"2.0"') | st.just(b"\xff\x00"), min_size=5, max_size=40))
def test_garbage_never_puts_anything_but_messages_on_stdout(program: Program, garbage: list[bytes]) -> None:
    outcome = program.run("stdio", "--log-level", "debug", stdin=b"\n".join([*garbage, MODERN.encode()]))
    answers = outcome.messages
    assert outcome.code == 0
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert {0, 1, 2} <= {answer["id"] for answer in answers}


@pytest.mark.parametrize("settings", [{}, {"FLORILEGIUM_REQUIRE_AUTH": "true"}], ids=["open", "with authentication"])
def test_a_local_user_has_no_rate_limit(program: Program, settings: dict[str, str]) -> None:
    program.with_users("local")
    calls = [modern(number, "tools/call", name="server_info") for number in range(1, 301)]
    outcome = program.run("stdio", "--user", "local", stdin=lines(*calls), **settings)
    codes = [message["error"]["code"] for message in outcome.messages if "error" in message]
    assert (outcome.code, len(outcome.messages)) == (0, 300)
    assert 429 not in codes


def test_stdio_ends_at_once_without_input(program: Program) -> None:
    with Path(os.devnull).open("rb") as nothing:
        process = subprocess.run(
            [*EXECUTABLE, "stdio"],
            cwd=program.home,
            env=program.environment(),
            stdin=nothing,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (process.returncode, process.stdout) == (0, b"")


def test_stdio_starts_without_the_web_stack(program: Program) -> None:
    outcome = program.run("stdio", stdin=MODERN, PYTHONPROFILEIMPORTTIME="1")
    imported = set(re.findall(r"\| +(\w+)", outcome.stderr))
    assert "msgspec" in imported
    web = {"starlette", "uvicorn", "jwt", "cryptography", "prometheus_client", "websockets", "httpx2"}
    assert not (web | {"lxml", "numpy"}) & imported


# -- the bridge to a server elsewhere ----------------------------------------------------------------------------


def test_the_bridge_acts_as_the_token_owner_and_never_prints_the_token(program: Program) -> None:
    program.with_users("ada", "ben")
    ada, ben = (program.expect("key", "create", name, "--quiet") for name in ("ada", "ben"))
    with program.serving("--port", "0", "--require-auth", "true") as up:
        command = ("stdio", "--remote", up.mcp, "--log-level", "debug")
        named = program.run(*command, "--token-env", "KEY", stdin=LEGACY, KEY=ada)
        usual = program.run(*command, stdin=MODERN, FLORILEGIUM_TOKEN=ben)
        wrong = program.run(*command, stdin=LEGACY, FLORILEGIUM_TOKEN=f"{ada[:-4]}xxxx")
    users = [results(outcome.messages)[2]["structuredContent"]["user"] for outcome in (named, usual)]
    assert (users, named.code, usual.code) == (["ada", "ben"], 0, 0)
    assert wrong.code == 1
    assert {message["id"] for message in wrong.messages} == {"hello", 1, 2}
    assert {message["error"]["code"] for message in wrong.messages} == {401}
    shown = "".join(outcome.stdout + outcome.stderr for outcome in (named, usual, wrong))
    assert ada not in shown
    assert ben not in shown


def test_the_session_continues_after_a_server_restart(program: Program) -> None:
    def exchange(*messages: Any) -> Any:
        """Sends them all, and returns the one answer."""
        bridge.stdin.write(lines(*messages))
        bridge.stdin.flush()
        return json.loads(bridge.stdout.readline())

    with program.serving("--port", "0") as first, program.start("stdio", "--remote", first.mcp) as bridge:
        assert exchange(INITIALIZE)["result"]["protocolVersion"] == "2025-11-25"
        assert exchange(INITIALIZED, request(1, "tools/list"))["result"]["tools"]
        first.process.send_signal(signal.SIGTERM)
        first.process.wait(timeout=60)
        assert exchange(request(2, "tools/list"))["error"]["code"] == 503
        with program.serving("--port", first.mcp.removesuffix("/mcp").rpartition(":")[2]):
            assert exchange(request(3, "tools/list"))["result"]["tools"]
            bridge.stdin.close()
            assert bridge.wait(timeout=60) == 0
