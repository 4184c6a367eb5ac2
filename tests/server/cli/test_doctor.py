import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from config.paths import DataRoot
from server.cli.doctor import (
    check_auth,
    check_control_database,
    check_data_directory,
    check_port,
    evaluate_clock,
    evaluate_disk,
    evaluate_open_files,
    evaluate_sqlite,
)
from server.doctor.tokens import Check
from sources.importers.sandbox import SandboxReport
from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.cli.program import Program
from tests.servers.storage import uses_postgres
from tests.sources.semantic.api_server import serve_api

NOW = 1_800_000_000.0


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[int]:
    """The port of an HTTP server that always says the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


FILE_CHECKS = ("control database", "audit log", "libraries", "quotas", "SQLite")


def test_a_fresh_machine_is_fit_to_serve(program: Program) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    outcome = program.run("doctor", "--json", "--port", port)
    assert outcome.code == 0
    names = [check["name"] for check in outcome.json]
    assert names == [
        "settings",
        "config file",
        "data directory",
        "disk",
        # Quotas are in the database, which has no tables yet.
        *(["PostgreSQL"] if uses_postgres() else FILE_CHECKS),
        "port",
        "authentication",
        "semantic search",
        "import sandbox",
        "clock",
        "open files",
    ]
    assert not (program.home / ".local").exists(), "looking must not create anything"


def test_each_check_is_a_line_and_a_failed_one_ends_with_1(program: Program) -> None:
    with answering(b"hello") as port:
        outcome = program.run("doctor", "--port", str(port))
    assert outcome.code == 1
    lines = {line[6:24].strip(): line[:6].strip() for line in outcome.stdout.splitlines()}
    assert lines["port"] == "fail"
    assert lines["data directory"] == "ok"


def test_settings_that_do_not_load_are_a_failed_check(program: Program) -> None:
    outcome = program.run("doctor", "--port", "many")
    assert outcome.code == 1
    assert outcome.stdout.startswith("fail  settings          port (command line): expected integer")


def test_data_directory_check_covers_private_shared_missing_and_file(tmp_path: Path) -> None:
    private, shared, file = tmp_path / "private", tmp_path / "shared", tmp_path / "file"
    private.mkdir(0o700)
    shared.mkdir()
    shared.chmod(0o755)
    file.touch()
    outcomes = [check_data_directory(path) for path in (private, shared, tmp_path / "absent", file)]
    assert [check.outcome for check in outcomes] == ["ok", "warn", "ok", "fail"]
    assert "chmod 700" in outcomes[1].message


def test_a_damaged_control_database_is_found(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    assert check_control_database(DataRoot(tmp_path)).outcome == "ok"
    path.write_bytes(b"this is no database, but long enough to be one" * 100)
    assert check_control_database(DataRoot(tmp_path)).outcome == "fail"


@each_case(
    ("check", "outcome"),
    [
        (evaluate_disk(10 * 1024**3), "ok"),
        (evaluate_disk(500 * 1024**2), "warn"),
        (evaluate_disk(1024**2), "fail"),
        (evaluate_sqlite((3, 51, 3), True), "ok"),
        (evaluate_sqlite((3, 51, 2), True), "warn"),
        (evaluate_sqlite((3, 60, 0), False), "fail"),
        (evaluate_clock(NOW, NOW - 5), "ok"),
        (evaluate_clock(NOW, NOW + 3600), "warn"),
        (evaluate_clock(0.0, 0.0), "fail"),
        (evaluate_open_files(-1), "ok"),
        (evaluate_open_files(4096), "ok"),
        (evaluate_open_files(256), "warn"),
    ],
)
def test_measurements_are_evaluated(check: Check, outcome: str) -> None:
    assert check.outcome == outcome


def test_an_old_sqlite_is_warned_about_the_wal_reset_bug() -> None:
    assert "WAL-reset bug" in evaluate_sqlite((3, 40, 1), True).message


async def test_port_check_distinguishes_free_ours_and_taken(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    assert check_port(settings).message.endswith("is free")
    for body, outcome in (
        (b'{"status":"ok","version":"0.0.1"}', "warn"),
        (b"<html>", "fail"),
        (b'{"status":"ok"}', "fail"),
    ):
        with answering(body) as port:
            assert check_port(make_settings(tmp_path, port=port)).outcome == outcome


async def test_authentication_check_distinguishes_the_modes(tmp_path: Path) -> None:
    single = await check_auth(make_settings(tmp_path, jwt_secret=""), NOW)
    keys = await check_auth(make_settings(tmp_path, jwt_secret="", require_auth=True), NOW)
    shared = await check_auth(make_settings(tmp_path), NOW)
    assert "single-user mode" in single.message
    assert keys.message == "API keys, and sign-in with a browser"
    assert "minted and verified" in shared.message
    assert {single.outcome, keys.outcome, shared.outcome} == {"ok"}


async def test_a_key_file_without_a_key_fails(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("not a key")
    settings = make_settings(tmp_path, jwt_secret="", jwt_key_file=str(file), jwt_issuer="https://login.example.com")
    assert (await check_auth(settings, NOW)).outcome == "fail"


@each_case(
    ("body", "outcome"),
    [
        (
            json.dumps(
                {
                    "keys": [
                        {
                            "kty": "OKP",
                            "crv": "Ed25519",
                            "alg": "EdDSA",
                            "kid": "1",
                            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
                        }
                    ]
                }
            ),
            "ok",
        ),
        ('{"keys": []}', "fail"),
        ("<html>", "fail"),
    ],
)
async def test_a_jwks_url_must_return_a_usable_key(tmp_path: Path, body: str, outcome: str) -> None:
    with answering(body.encode()) as port:
        url = f"http://127.0.0.1:{port}/jwks"
        settings = make_settings(tmp_path, jwt_secret="", jwt_jwks_url=url, jwt_issuer="https://login.example.com")
        assert (await check_auth(settings, NOW)).outcome == outcome


async def test_an_identity_provider_that_is_down_fails_the_check(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path, jwt_secret="", jwt_jwks_url="http://127.0.0.1:1/jwks", jwt_issuer="https://login.example.com"
    )
    assert (await check_auth(settings, NOW)).outcome == "fail"


async def test_a_running_server_of_this_version_is_ok(tmp_path: Path, program: Program) -> None:
    async with live(make_settings(tmp_path)) as server:
        port = server.url.rpartition(":")[2]
        outcome = await asyncio.to_thread(program.run, "doctor", "--json", "--port", port)
    (check,) = [check for check in outcome.json if check["name"] == "port"]
    assert check["outcome"] == "ok"
    assert "which is running" in check["message"]


def test_missing_sandbox_is_a_failure_only_if_it_is_required() -> None:
    whole = SandboxReport({"Landlock": "Landlock 7", "seccomp": "seccomp"}, {"user id": "requires root"})
    partial = SandboxReport({"seccomp": "seccomp"}, {"Landlock": "function not implemented"})

    assert [whole.judge(mode)[0] for mode in ("auto", "required", "off")] == ["ok", "ok", "warn"]
    assert [partial.judge(mode)[0] for mode in ("auto", "required", "off")] == ["warn", "fail", "warn"]
    assert whole.judge("auto")[1] == "Landlock 7, seccomp active; not available: user id (requires root)"
    assert "Landlock (function not implemented)" in partial.judge("required")[1]


def test_addresses_behind_a_proxy_are_reported(program: Program) -> None:
    provider = ("--jwt-jwks-url", "http://127.0.0.1:1/keys", "--jwt-issuer", "https://idp.test")
    options = (*provider, "--chat-upstream-url", "https://api.test/v1")
    proxies = {"HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1"}

    def lines(**environment: str) -> list[tuple[str, str]]:
        checks = program.run("doctor", "--json", *options, **environment).json
        return [(check["outcome"], check["message"]) for check in checks if check["name"] == "proxy"]

    through_proxy = ("ok", "chat_upstream_url is requested through the proxy of the environment")
    local, remote = lines(**proxies)
    assert local[0] == "warn"
    assert local[1].endswith("add 127.0.0.1 to NO_PROXY")
    assert remote == through_proxy
    assert lines(**proxies, NO_PROXY="127.0.0.1") == [through_proxy]
    assert lines() == []


def semantic_line(program: Program, *arguments: str, **environment: str) -> dict[str, str]:
    checks = program.run("doctor", "--json", *arguments, **environment).json
    return next(check for check in checks if check["name"] == "semantic search")


@pytest.mark.slow("loads a model in a process of its own")
def test_the_model_of_semantic_search_is_tried(program: Program) -> None:
    assert semantic_line(program)["message"] == "off; set semantic_model = minilm to use the model that is installed"
    fast = semantic_line(program, "--semantic-model", "fast")
    assert (fast["outcome"], fast["message"]) == ("ok", "wordllama-256-2, 256 dimensions, weight 0.22")
    auto = semantic_line(program, "--semantic-model", "auto")
    assert auto["message"].startswith("auto chose all-minilm-l6-v2-int8-2, 384 dimensions")


def test_an_embeddings_api_with_another_dimension_is_reported(program: Program) -> None:
    body = b'{"data": [{"index": 0, "embedding": [1, 0, 0]}]}'
    with serve_api(lambda request: (200, body)) as server:
        options = ("--semantic-model", server.url, "--semantic-endpoint-model", "m", "--semantic-endpoint-dimension")
        right = semantic_line(program, *options, "3")
        wrong = semantic_line(program, *options, "768")

    assert (right["outcome"], right["message"]) == (
        "ok",
        f"endpoint:m:3 at {server.url}, 3 dimensions, weight 0.3",
    )
    assert wrong["outcome"] == "warn"
    assert "sent vectors of 3 numbers, expected 768" in wrong["message"]


def test_a_reranker_that_fails_is_reported(program: Program) -> None:
    with serve_api(lambda request: (500, b"")) as server:
        checks = program.run("doctor", "--json", "--reranker-url", server.url).json

    line = next(check for check in checks if check["name"] == "reranker")
    assert line["outcome"] == "warn"
    assert line["message"] == "the reranker answered with status 500; until then, hits keep their order"


@pytest.mark.sqlite  # a data directory without files
def test_the_command_reads_the_token_from_stdin_and_creates_nothing(program: Program) -> None:
    outcome = program.run("doctor", "--token", "-", "--json", stdin="flo_" + "a" * 43 + "\n")
    refused = program.run("doctor", "--token", "flo_secret")

    assert outcome.code == 1
    assert json.loads(outcome.stdout)[0]["message"] == "this data directory has no API keys yet"
    assert not program.data_dir.exists()
    assert (refused.code, "reads the token from stdin" in refused.stderr) == (2, True)


def test_the_command_replays_a_connection(program: Program) -> None:
    outcome = program.run("doctor", "--client", "claude-ai", "http://127.0.0.1:9/mcp")

    assert outcome.code == 1
    assert "only to https:// at port 443" in outcome.stdout
