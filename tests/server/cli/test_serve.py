import json
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import httpx2
import pytest
from msgspec import Struct

from server.version import VERSION
from tests.live import HTTP_OPTIONS, free_port
from tests.server.cli.program import ROOT, Program
from tests.server.cli.requests import who_am_i
from tests.servers.storage import uses_postgres

SECRET = "a shared secret of more than thirty-two bytes"
# Only reached if a test fails.
REVOCATION_WAIT_S = 60.0


class Deployment(Struct, frozen=True):
    """A server behind authentication, and the command line of its operator."""

    program: Program
    mcp: str


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    program = Program(tmp_path_factory.mktemp("deployment"))
    (program.home / "florilegium.toml").write_text(f'port = {free_port()}\njwt_secret = "{SECRET}"\n')
    with program.serving() as up:
        yield Deployment(program, up.mcp)


def first_call(welcome: str, **variables: str) -> urllib.request.Request:
    """The printed curl command as the request it makes; the shell's part is done here."""
    command = welcome[welcome.index("curl") :]
    for name, value in variables.items():
        command = command.replace(f"${name}", value)
    words = iter(shlex.split(command.replace("\\\n", " ")))
    url, headers, body = "", {}, b""
    for word in words:
        match word:
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "-d":
                body = next(words).encode()
            case word if word.startswith("http"):
                url = word
    return urllib.request.Request(url, body, headers)


def setup_link(welcome: str) -> str:
    return next(line.strip() for line in welcome.splitlines() if "/setup/" in line)


def user_of(call: urllib.request.Request) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(call, timeout=60) as response:
        user: str = json.load(response)["result"]["structuredContent"]["user"]
        return user


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_single_user_mode_works_as_printed_and_stops_on_a_signal(program: Program, number: signal.Signals) -> None:
    with program.serving("--port", "0") as up:
        assert "Single-user mode" in up.welcome
        assert f"claude mcp add --transport http florilegium {up.mcp}" in up.welcome
        assert user_of(first_call(up.welcome)) == "local"
        up.process.send_signal(number)
        assert up.process.wait(timeout=60) == 0
    assert "Traceback" not in (program.home / "stderr.log").read_text()


@pytest.mark.parametrize("options", [(), ("--import-sandbox", "off")], ids=" ".join)
def test_active_layers_of_the_sandbox_are_logged_as_doctor_reports_them(
    program: Program, options: tuple[str, ...]
) -> None:
    with program.serving("--port", "0", *options) as up:
        # Stopping waits for the line, which is written once the server is ready.
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(timeout=60) == 0
    lines = [json.loads(line) for line in (program.home / "stderr.log").read_text().splitlines() if line[:1] == "{"]
    logged = [line["message"] for line in lines if line["message"].startswith("Import sandbox: ")]
    checks = {check["name"]: check["message"] for check in program.run("doctor", "--json", *options).json}
    assert logged == [f"Import sandbox: {checks['import sandbox']}"]


def test_with_authentication_the_printed_commands_lead_to_a_first_call(program: Program) -> None:
    data_dir = str(program.home / "my data")
    with program.serving("--port", "0", "--require-auth", "true", "--data-dir", data_dir) as up:
        assert "Callers need an API key, or sign in with a browser." in up.welcome
        add, create = (line.strip() for line in up.welcome.splitlines() if "--data-dir" in line)
        program.expect(*shlex.split(add)[1:])
        key = program.expect(*shlex.split(create.removeprefix("KEY=$(").removesuffix(")"))[1:])
        assert who_am_i(up.mcp)[0] == 401
        assert user_of(first_call(up.welcome, KEY=key)) == "ada"


def test_setup_link_is_printed_until_someone_has_an_account(program: Program) -> None:
    options = ("--port", "0", "--require-auth", "true", "--password-hash-memory-kib", "64")
    with program.serving(*options) as up:
        first = setup_link(up.welcome)
    with program.serving(*options) as up:
        second = setup_link(up.welcome)
        assert first.rpartition("/")[2] != second.rpartition("/")[2]
        base_url = second.partition("/setup/")[0]
        assert base_url == up.mcp.removesuffix("/mcp")
        with httpx2.Client(**HTTP_OPTIONS, headers={"Origin": base_url}) as browser:
            assert browser.get(f"{base_url}/setup/{first.rpartition('/')[2]}").status_code == 404
            token = re.search(r'name="csrf_token" value="(\w+)"', browser.get(second).text)
            assert token is not None
            password = "correct lantern 42"
            values = {"csrf_token": token[1], "name": "ada", "password": password, "repeated": password}
            assert browser.post(second, data=values).status_code == 303
            assert "Role: <strong>admin</strong>" in browser.get(f"{base_url}/account").text
    with program.serving(*options) as up:
        assert "/setup/" not in up.welcome


def test_server_for_one_user_has_no_setup_link(program: Program) -> None:
    with program.serving("--port", "0") as up:
        assert "/setup/" not in up.welcome


def status_after_revocation(mcp: str, credential: str) -> int:
    """A server notices a change of SQLite files at the next call, and one in PostgreSQL within two seconds."""
    status, _ = who_am_i(mcp, credential)
    due = time.monotonic() + REVOCATION_WAIT_S
    while status == 200 and uses_postgres() and time.monotonic() < due:
        time.sleep(0.1)
        status, _ = who_am_i(mcp, credential)
    return status


def test_a_key_works_at_once_and_ends_at_once_when_it_is_revoked(deployment: Deployment) -> None:
    program, mcp = deployment.program, deployment.mcp
    program.with_users("ada", "ben")
    ada, ben = (program.run("key", "create", name, "--json").json for name in ("ada", "ben"))
    assert who_am_i(mcp, ada["secret"]) == (200, "ada")
    assert who_am_i(mcp, ben["secret"]) == (200, "ben")
    program.expect("key", "revoke", ada["id"])
    assert status_after_revocation(mcp, ada["secret"]) == 401
    assert who_am_i(mcp, ben["secret"]) == (200, "ben")


def test_disabling_a_user_ends_its_keys_and_tokens_at_once(deployment: Deployment) -> None:
    program, mcp = deployment.program, deployment.mcp
    program.with_users("cleo", "dan")
    key = program.expect("key", "create", "cleo", "--quiet")
    credentials = [key, *(program.expect("token", "mint", name) for name in ("cleo", "dan"))]
    assert [who_am_i(mcp, credential)[1] for credential in credentials] == ["cleo", "cleo", "dan"]
    program.expect("user", "disable", "cleo")
    assert [status_after_revocation(mcp, credential) for credential in credentials[:2]] == [401, 401]
    assert who_am_i(mcp, credentials[2]) == (200, "dan")


def test_a_revoked_token_is_refused_at_once(deployment: Deployment) -> None:
    program, mcp = deployment.program, deployment.mcp
    program.with_users("eve")
    first, second = (program.expect("token", "mint", "eve") for _ in range(2))
    assert who_am_i(mcp, first) == (200, "eve")
    program.expect("token", "revoke", "-", stdin=first)
    assert status_after_revocation(mcp, first) == 401
    assert who_am_i(mcp, second) == (200, "eve")


def test_healthcheck_tells_a_live_server_from_none(program: Program) -> None:
    with program.serving("--port", "0") as up:
        base = up.mcp.removesuffix("/mcp")
        port = base.rpartition(":")[2]
        assert program.expect("healthcheck", "--port", port).startswith(f"{base} is ok")
        assert program.run("healthcheck", "--url", f"{base}/", http_proxy="http://127.0.0.1:1").code == 0
        alive = program.run("healthcheck", "--port", port, "--json")
        assert (alive.code, alive.json) == (0, {"url": base, "status": "ok", "version": VERSION})
        up.process.terminate()
        up.process.wait(timeout=60)
    dead = program.run("healthcheck", "--port", port)
    assert (dead.code, dead.stdout) == (1, "")
    cause = f"{base}/healthz does not respond: connection refused"
    assert dead.stderr == f"florilegium: {cause}\n"
    dead_as_json = program.run("healthcheck", "--port", port, "--json")
    assert (dead_as_json.code, dead_as_json.json) == (1, {"url": base, "status": "unavailable", "error": cause})
    assert program.run("healthcheck", "--url", "file:///etc/passwd").code == 2


def test_a_port_that_is_taken_is_told_in_a_sentence(program: Program) -> None:
    with program.serving("--port", "0") as up:
        port = up.mcp.removesuffix("/mcp").rpartition(":")[2]
        outcome = program.run("serve", "--port", port, "--data-dir", str(program.home / "elsewhere"))
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"florilegium: cannot listen on 127.0.0.1 port {port}")


def test_an_open_address_without_authentication_is_refused(program: Program) -> None:
    outcome = program.run("serve", "--host", "0.0.0.0")
    assert outcome.code == 2
    assert "no authentication is configured" in outcome.stderr


@pytest.mark.sqlite  # PostgreSQL serves several workers
def test_several_workers_are_refused_with_sqlite(program: Program) -> None:
    outcome = program.run("serve", "--workers", "2", FLORILEGIUM_SESSION_URL="redis://127.0.0.1:1/0")
    assert outcome.code == 2
    assert (
        "only one process can use a data directory with SQLite databases; set storage_url to a Post" in outcome.stderr
    )
    assert program.run("serve", "--workers", "0").code == 2


def test_a_data_directory_that_cannot_be_made_is_told_in_a_sentence(program: Program) -> None:
    (program.home / "file").touch()
    outcome = program.run("serve", "--data-dir", str(program.home / "file" / "data"))
    assert outcome.code == 1
    assert outcome.stderr.startswith("florilegium: the data directory")
    assert "Traceback" not in outcome.stderr


def test_no_command_imports_the_web_stack_but_serve() -> None:
    script = (
        "import sys, click\n"
        "from server.cli import COMMANDS, florilegium\n"
        "context = click.Context(florilegium)\n"
        "assert all(florilegium.get_command(context, name) for name in COMMANDS)\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"starlette", "uvicorn", "jwt", "prometheus_client", "websockets", "lxml"} & set(loaded.stdout.split())
