import ast
import base64
import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams
from server.cli.connect import render
from server.cli.output import local_url, require_url
from server.client_guides import CLIENTS, ClientGuide, ConfigSnippet, ConnectionTarget
from server.doctor.replay import FLOWS
from tests.cases import each_case
from tests.live import make_settings
from tests.server.cli.program import Program

URL = "https://kb.example.com/mcp"
KEY = "flo_" + "k" * 43
TARGETS = {
    "variable": ConnectionTarget(URL, token_env="FLORILEGIUM_TOKEN"),
    "key": ConnectionTarget(URL, key=KEY),
    "open": ConnectionTarget("http://127.0.0.1:8765/mcp"),
}


def read_yaml(text: str) -> dict[str, Any]:
    """Nested mappings by indentation, with JSON scalars: the part of YAML that is printed, and nothing more."""
    root: dict[str, Any] = {}
    open_at = [root]
    for line in text.splitlines():
        name, _, value = line.strip().partition(":")
        depth = (len(line) - len(line.lstrip())) // 2
        del open_at[depth + 1 :]
        open_at[depth][name] = json.loads(value) if value else {}
        if not value:
            open_at.append(open_at[depth][name])
    return root


READERS: dict[str, Callable[[str], Any]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": read_yaml,
    "python": ast.parse,
    "sh": shlex.split,
    "text": str.splitlines,
}


def snippet(client: str, target: ConnectionTarget, language: str) -> Any:
    guide = CLIENTS[client](target)
    return READERS[language](next(s.text for s in guide.snippets if s.language == language))


@each_case("target", TARGETS.values())
@each_case("client", CLIENTS)
def test_every_snippet_can_be_read_and_names_the_server(client: str, target: ConnectionTarget) -> None:
    guide = CLIENTS[client](target)
    for shown in guide.snippets:
        assert READERS[shown.language](shown.text)
    assert any(target.url in shown.text for shown in guide.snippets)


@each_case("client", CLIENTS)
def test_a_key_appears_only_if_it_was_passed(client: str) -> None:
    assert (KEY in render(CLIENTS[client](TARGETS["key"]))) == FLOWS[client].accepts_keys
    assert "flo_" not in render(CLIENTS[client](TARGETS["variable"]))


@each_case("client", CLIENTS)
def test_no_credential_is_printed_for_an_open_server(client: str) -> None:
    text = render(CLIENTS[client](TARGETS["open"]))
    assert not [word for word in ("Bearer", "FLORILEGIUM_TOKEN", "API key") if word in text]


@each_case(
    ("client", "reference"),
    [
        ("claude-code", "${FLORILEGIUM_TOKEN}"),
        ("cursor", "${env:FLORILEGIUM_TOKEN}"),
        ("gemini-cli", "${FLORILEGIUM_TOKEN}"),
    ],
)
def test_a_client_reads_the_variable_in_its_own_syntax(client: str, reference: str) -> None:
    (server,) = snippet(client, TARGETS["variable"], "json")["mcpServers"].values()
    assert server["headers"] == {"Authorization": f"Bearer {reference}"}


def test_claude_code_is_added_by_a_command_whose_header_comes_last() -> None:
    words = snippet("claude-code", TARGETS["variable"], "sh")
    assert words[:7] == ["claude", "mcp", "add", "--transport", "http", "florilegium", URL]
    assert words[7:] == ["--header", "Authorization: Bearer $FLORILEGIUM_TOKEN"]


def test_claude_desktop_runs_the_bridge_or_a_local_library() -> None:
    remote, local = (json.loads(s.text) for s in CLIENTS["claude-desktop"](TARGETS["variable"]).snippets)
    assert remote["mcpServers"]["florilegium"] == {
        "command": "florilegium",
        "args": ["stdio", "--remote", URL, "--token-env", "FLORILEGIUM_TOKEN"],
        "env": {"FLORILEGIUM_TOKEN": "<your API key>"},
    }
    assert local["mcpServers"]["florilegium"] == {"command": "florilegium", "args": ["stdio"]}


def test_codex_names_the_variable_and_never_a_headers_key_that_it_would_ignore() -> None:
    (server,) = snippet("codex", TARGETS["variable"], "toml")["mcp_servers"].values()
    assert server == {"url": URL, "bearer_token_env_var": "FLORILEGIUM_TOKEN"}
    (server,) = snippet("codex", TARGETS["key"], "toml")["mcp_servers"].values()
    assert server == {"url": URL, "http_headers": {"Authorization": f"Bearer {KEY}"}}


def test_vscode_asks_for_the_key_under_the_name_that_the_header_uses() -> None:
    value = snippet("vscode", TARGETS["variable"], "json")
    (question,) = value["inputs"]
    assert question["password"] is True
    assert value["servers"]["florilegium"]["headers"]["Authorization"] == f"Bearer ${{input:{question['id']}}}"


def test_gemini_gets_the_url_under_the_name_that_means_streamable_http() -> None:
    (server,) = snippet("gemini-cli", TARGETS["variable"], "json")["mcpServers"].values()
    assert server["httpUrl"] == URL
    assert "url" not in server


@each_case("name", TARGETS)
def test_install_links_contain_the_same_configuration_as_the_snippets(name: str) -> None:
    for client, key in (("cursor", "mcpServers"), ("lm-studio", "mcpServers"), ("vscode", "servers")):
        query = urlsplit(CLIENTS[client](TARGETS[name]).link).query
        (server,) = snippet(client, TARGETS[name], "json")[key].values()
        if client == "vscode":
            installed = json.loads(unquote(query))
            assert (installed.pop("name"), bool(installed.pop("inputs", None))) == ("florilegium", name == "variable")
        else:
            values = parse_qs(query)
            assert values["name"] == ["florilegium"]
            installed = json.loads(base64.b64decode(values["config"][0]))
        assert installed == server


def test_everyone_in_librechat_enters_a_key_of_their_own() -> None:
    (server,) = snippet("librechat", TARGETS["variable"], "yaml")["mcpServers"].values()
    assert server["type"] == "streamable-http"
    assert server["headers"] == {"Authorization": "Bearer {{FLORILEGIUM_TOKEN}}"}
    assert list(server["customUserVars"]) == ["FLORILEGIUM_TOKEN"]


def test_without_a_client_the_clients_are_listed(program: Program) -> None:
    listed = program.run("connect", "--json").json
    assert [row["client"] for row in listed] == list(CLIENTS)
    text = program.expect("connect")
    assert all(row["client"] in text and row["title"] in text for row in listed)


def test_json_holds_the_snippets_of_the_guide(program: Program) -> None:
    data = program.run("connect", "cursor", "--url", URL, "--json").json
    guide = CLIENTS["cursor"](TARGETS["variable"])
    assert data["client"] == "cursor"
    assert (
        ClientGuide(
            data["title"], tuple(ConfigSnippet(**s) for s in data["snippets"]), tuple(data["notes"]), data["link"]
        )
        == guide
    )


def test_the_url_and_the_need_for_a_credential_come_from_the_settings(program: Program) -> None:
    open_server = program.expect("connect", "cursor", "--port", "9000")
    assert "http://127.0.0.1:9000/mcp" in open_server
    assert "Bearer" not in open_server
    closed = program.expect("connect", "cursor", FLORILEGIUM_REQUIRE_AUTH="true", FLORILEGIUM_PUBLIC_URL=URL[:-4])
    assert URL in closed
    assert "${env:FLORILEGIUM_TOKEN}" in closed


def test_a_profile_becomes_part_of_the_url_and_of_the_local_command(program: Program) -> None:
    options = ("--profile", "research", "--public-url", "https://kb.example.com")
    assert '"https://kb.example.com/mcp/research"' in program.expect("connect", "cursor", *options)
    remote, local = program.run("connect", "claude-desktop", *options, "--json").json["snippets"]
    assert "https://kb.example.com/mcp/research" in remote["text"]
    assert json.loads(local["text"])["mcpServers"]["florilegium"]["args"] == ["stdio", "--profile", "research"]


def test_a_key_can_come_from_stdin(program: Program) -> None:
    assert f"Bearer {KEY}" in program.expect("connect", "cursor", "--key", "-", stdin=f"{KEY}\n")


@each_case(
    ("arguments", "sentence"),
    [
        (("netscape",), "'netscape' is not one of"),
        (("cursor", "--profile", "deep"), "'deep' is not one of"),
        (("cursor", "--profile", "research", "--url", "https://h/mcp"), "put the profile into the URL"),
        (
            ("cursor", "--url", "ftp://host/mcp"),
            "url: expected http:// or https:// and a host, without a query, got 'ftp://host/mcp'",
        ),
        (("cursor", "--key", 'x"; rm -rf'), "key: expected an API key or token"),
        (("cursor", "--token-env", "A-B"), "token-env: expected the name of an environment variable"),
        (("cursor", "--token-env", "A", "--key", "b"), "--token-env and --key cannot be combined"),
    ],
)
def test_arguments_that_would_break_a_snippet_are_rejected(
    program: Program, arguments: tuple[str, ...], sentence: str
) -> None:
    outcome = program.run("connect", *arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert sentence in outcome.stderr


@given(st.text(max_size=60).map("https://".__add__) | st.text(max_size=60))
def test_a_url_is_refused_or_safe_in_every_format(text: str) -> None:
    try:
        url = require_url("url", text)
    except InvalidParams:
        return
    assert url.startswith(("http://", "https://"))
    for client in CLIENTS.values():
        for shown in client(ConnectionTarget(url, token_env="T")).snippets:
            READERS[shown.language](shown.text)


@each_case(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:80"), ("0.0.0.0", "http://127.0.0.1:80"), ("::", "http://[::1]:80")],
)
def test_a_server_on_every_address_is_reached_at_the_loopback_one(host: str, url: str, tmp_path: Path) -> None:
    assert local_url(make_settings(tmp_path, host=host, port=80)) == url
