import click

from config.loading import settings_markdown
from config.settings import SETTINGS
from server.cli import COMMANDS, florilegium
from server.cli.lazy_group import SettingOption
from server.version import VERSION
from tests.cases import each_case
from tests.server.cli.program import Program

OFFERED = {setting.name for setting in SETTINGS if not setting.is_secret}


def command(*path: str) -> click.Command:
    found: click.Command = florilegium
    for name in path:
        assert isinstance(found, click.Group)
        child = found.get_command(click.Context(found), name)
        assert child is not None
        found = child
    return found


@each_case("path", [("serve",), ("stdio",), ("doctor",), ("config", "show")])
def test_every_setting_except_secrets_is_an_option(path: tuple[str, ...]) -> None:
    options = {option.name: option.opts for option in command(*path).params if isinstance(option, SettingOption)}
    assert options == {name: ["--" + name.replace("_", "-")] for name in OFFERED}


def test_no_command_accepts_a_secret() -> None:
    secrets = {setting.name for setting in SETTINGS if setting.is_secret}
    groups = [command(name) for name in COMMANDS]
    leaves = [leaf for group in groups for leaf in getattr(group, "commands", {"": group}).values()]
    assert secrets
    assert not secrets & {parameter.name for leaf in leaves for parameter in leaf.params}


def test_the_command_line_overrides_environment_and_file(program: Program) -> None:
    (program.home / "florilegium.toml").write_text("port = 1001\nsession_max = 11\nmessage_page_max = 7\n")
    outcome = program.run(
        "config", "show", "--json", "--port", "1003", FLORILEGIUM_PORT="1002", FLORILEGIUM_SESSION_MAX="12"
    )
    rows = {row["name"]: (row["value"], row["origin"]) for row in outcome.json}
    assert rows["port"] == ("1003", "command line")
    assert rows["session_max"] == ("12", "environment FLORILEGIUM_SESSION_MAX")
    assert rows["message_page_max"] == ("7", "file florilegium.toml")
    assert rows["host"] == ('"127.0.0.1"', "default")


def test_the_config_option_works_before_and_after_the_command(program: Program) -> None:
    (program.home / "mine.toml").write_text("port = 1001\n")
    before = program.expect("--config", "mine.toml", "config", "show")
    assert before == program.expect("config", "show", "--config", "mine.toml")
    assert "1001" in before


def test_origins_are_shown_on_request_and_secrets_never(program: Program) -> None:
    secret = "a secret that is longer than 32 bytes"
    shown = program.expect("config", "show", "--origin", FLORILEGIUM_JWT_SECRET=secret)
    assert secret not in shown
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("jwt_secret")]
    assert row == ["jwt_secret", "********", "environment", "FLORILEGIUM_JWT_SECRET"]
    assert "ORIGIN" not in program.expect("config", "show")


def test_invalid_settings_are_all_reported_and_exit_with_2(program: Program) -> None:
    outcome = program.run("serve", "--port", "many", FLORILEGIUM_PROT="1")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "port (command line): expected integer from 0 to 65535, got 'many'" in outcome.stderr
    assert "did you mean FLORILEGIUM_PORT?" in outcome.stderr
    assert all(line.startswith("florilegium: ") for line in outcome.stderr.splitlines())


def test_a_world_readable_secret_file_is_warned_about(program: Program) -> None:
    secret = program.home / "secret"
    secret.write_text("a secret that is longer than 32 bytes")
    secret.chmod(0o644)
    outcome = program.run("config", "show", FLORILEGIUM_JWT_SECRET_FILE=str(secret))
    assert outcome.code == 0
    assert "warning" in outcome.stderr
    assert "chmod 600" in outcome.stderr


def test_settings_of_earlier_versions_are_ignored_with_a_warning(program: Program) -> None:
    (program.home / "florilegium.toml").write_text("jwks_ttl_s = 60\nport = 1001\n")
    outcome = program.run("config", "show", FLORILEGIUM_WS_PING_INTERVAL_S="5")
    assert outcome.code == 0
    assert "1001" in outcome.stdout
    assert "jwks_ttl_s: the value is fixed now; this one is ignored" in outcome.stderr
    assert "FLORILEGIUM_WS_PING_INTERVAL_S: replaced by sse_keepalive_s; the value is ignored" in outcome.stderr


def test_config_docs_prints_the_settings_reference(program: Program) -> None:
    assert program.run("config", "docs").stdout == settings_markdown()


def test_the_version_is_printed_as_text_and_json(program: Program) -> None:
    assert program.expect("version") == program.expect("--version") == VERSION
    data = program.run("version", "--json").json
    assert data["version"] == VERSION
    assert "2026-07-28" in data["protocol_versions"]


def test_help_lists_every_command_and_the_exit_codes(program: Program) -> None:
    text = program.expect("--help")
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert "Exit codes: 0 success, 1 failure, 2 wrong usage or settings." in text


def test_help_lists_common_settings_and_help_all_every_setting_by_group(program: Program) -> None:
    short, text = program.expect("serve", "--help"), program.expect("serve", "--help-all")
    assert 10 <= sum(line.startswith("  --") for line in short.splitlines()) <= 14
    assert "--help-all" in short
    assert all(f"  --{name.replace('_', '-')} " in text for name in OFFERED)
    for group in {setting.group for setting in SETTINGS if not setting.is_secret}:
        assert f"\n{group} settings:\n" in text


@each_case("arguments", [("serv",), ("user", "ad"), ("serve", "--prot", "1"), ("user", "add")])
def test_invalid_usage_exits_with_2_and_a_message(program: Program, arguments: tuple[str, ...]) -> None:
    outcome = program.run(*arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "Error:" in outcome.stderr


@each_case("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_calls_florilegium(program: Program, shell: str) -> None:
    assert f"_FLORILEGIUM_COMPLETE={shell}_complete" in program.expect("completion", shell)


def test_commands_and_options_are_completed(program: Program) -> None:
    def complete(words: str) -> list[str]:
        last = str(len(words.split()) - 1)
        said = program.run(_FLORILEGIUM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)
        return said.stdout.split()

    assert complete("florilegium ser") == ["plain,serve"]
    assert "plain,--jwt-issuer" in complete("florilegium serve --jwt-")


def test_another_working_directory_uses_the_same_users_file_and_data_directory(program: Program) -> None:
    folder = program.home / ".config" / "florilegium"
    folder.mkdir(parents=True)
    (folder / "florilegium.toml").write_text("data_dir = 'libraries'\n")
    elsewhere = Program(program.home, program.home / "elsewhere")
    (program.home / "elsewhere").mkdir()

    added = program.run("user", "add", "ada")
    listed = elsewhere.run("user", "list", "--json")

    location = f"data directory: {folder / 'libraries'}, config file: {folder / 'florilegium.toml'}\n"
    assert (added.code, added.stderr) == (0, location)
    assert added.stdout.startswith("Added ada ")
    assert [user["name"] for user in listed.json] == ["ada"]
    checks = {check["name"]: check["message"] for check in elsewhere.run("doctor", "--json").json}
    assert checks["config file"] == str(folder / "florilegium.toml")
    assert checks["data directory"].startswith(str(folder / "libraries"))


def test_a_file_in_the_working_directory_wins_over_the_users_file(program: Program) -> None:
    program.expect("config", "init")
    (program.home / "florilegium.toml").write_text(f"data_dir = '{program.home}/here'\n")

    added = program.run("user", "add", "ada")

    assert added.stderr == f"data directory: {program.home}/here, config file: {program.home}/florilegium.toml\n"


def test_config_init_writes_a_private_sample_and_does_not_overwrite_it(program: Program) -> None:
    path = program.home / ".config" / "florilegium" / "florilegium.toml"

    written = program.expect("config", "init")
    path.write_text("port = 1001\n")
    again = program.run("config", "init")

    assert written.startswith(f"Wrote {path}.")
    assert path.stat().st_mode & 0o777 == 0o600
    assert (again.code, again.stderr) == (1, f"florilegium: {path} already exists; remove it or pass another path\n")
    assert path.read_text() == "port = 1001\n"


def test_config_init_says_how_to_use_a_file_that_is_not_read_by_default(program: Program) -> None:
    written = program.expect("config", "init", "mine.toml")

    assert "pass `--config mine.toml`" in written
    assert program.expect("--config", "mine.toml", "config", "show") == program.expect("config", "show")
    assert program.expect("config", "init", "-") == (program.home / "mine.toml").read_text().strip()


def test_the_address_of_agentchatbus_is_explained_and_not_used(program: Program) -> None:
    foreign = {"AGENTCHATBUS_PORT": "39765", "AGENTCHATBUS_HOST": "0.0.0.0"}
    outcome = program.run("config", "show", "--json", **foreign)
    rows = {row["name"]: row["origin"] for row in outcome.json}

    assert (rows["port"], rows["host"]) == ("default", "default")
    assert "AGENTCHATBUS_PORT has no effect here; set FLORILEGIUM_PORT or pass --port" in outcome.stderr
    assert "AGENTCHATBUS_HOST has no effect here; set FLORILEGIUM_HOST or pass --host" in outcome.stderr
    own = program.run("config", "show", "--port", "1", FLORILEGIUM_HOST="127.0.0.1", **foreign)
    assert "AGENTCHATBUS" not in own.stderr


# -- tldw's modules file ----------------------------------------------------------------------------------------

MODULES = """\
modules:
  - id: media
    class: tldw_Server_API.app.core.MCP_unified.modules.implementations.media_module:MediaModule
    enabled: true
    name: Media
    max_concurrent: 16
    timeout_seconds: 1.5
    circuit_breaker_threshold: 3   # failures
    circuit_breaker_timeout: 30
    settings:
      db_path: Databases/user_databases/1/hunter2.db
  - id: prompts
    enabled: false
  - id: kanban
    enabled: true
    settings: {}
  - id: knowledge
    enabled: true
"""


def test_the_settings_of_tldws_modules_file_are_printed_and_valid(program: Program) -> None:
    (program.home / "mcp_modules.yaml").write_text(MODULES)

    printed = program.expect("config", "import-tldw", "mcp_modules.yaml")
    (program.home / "florilegium.toml").write_text(printed)
    shown = {row["name"]: row["value"] for row in program.run("config", "show", "--json").json}

    assert shown["sources_off"] == '["prompts"]'
    assert shown["source_limits"] == (
        '["media.search_deadline_ms=1500", "media.breaker_failures=3", "media.breaker_pause_s=30"]'
    )
    comments = [line for line in printed.splitlines() if line.startswith("#")]
    assert [comment.partition(":")[0] for comment in comments[:3]] == [
        "# media.max_concurrent",
        "# media.settings (db_path)",
        "# kanban",
    ]
    assert "does not have notes, chats, characters" in comments[3]
    assert "hunter2" not in printed, "the settings of a module can be secrets"


@each_case(
    ("text", "message"),
    [
        ("", "expected a list `modules:`"),
        ("modules: none", "expected a list `modules:`"),
        ("- media", "expected a list `modules:`"),
        ("modules:\n  - media", "expected a map with an id as entry 1"),
        ("modules:\n  - {enabled: true}", "expected a map with an id as entry 1"),
        ("modules:\n  - {id: media}\n  - {id: media}", "modules: media is there twice"),
        ("modules:\n  - {id: media, enabled: perhaps}", "media.enabled: expected true or false, got perhaps"),
        ("modules:\n  - {id: media, timeout_seconds: nan}", "media.timeout_seconds: expected a number, got nan"),
        ("modules:\n  - {id: media, circuit_breaker_threshold: 0}", "media.circuit_breaker_threshold: source_limits"),
        ("modules: [", "YAML is invalid"),
        ("modules: &all\n  - {id: media, settings: *all}", "YAML aliases are not supported"),
        ("modules: !!python/object/apply:os.system [id]", "modules: expected a map with an id as entry 1"),
        ("modules: " + "[" * 100, "nested more than 16 levels deep"),
        ("#" * ((1 << 20) + 1), "expected at most 1048576 bytes"),
        (b"\xff", "expected a text file in UTF-8"),
    ],
)
def test_a_modules_file_that_cannot_be_read_is_refused_with_the_reason(
    program: Program, text: str | bytes, message: str
) -> None:
    (program.home / "modules.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())

    outcome = program.run("config", "import-tldw", "modules.yaml")

    assert (outcome.code != 0, outcome.stdout) == (True, "")
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_missing_modules_file_is_reported(program: Program) -> None:
    assert "missing.yaml cannot be read: no such file" in program.run("config", "import-tldw", "missing.yaml").stderr


def test_text_of_a_modules_file_stays_in_its_comment(program: Program) -> None:
    (program.home / "modules.yaml").write_text('modules:\n  - {id: "x\\nport = 1", enabled: true}\n')

    printed = program.expect("config", "import-tldw", "modules.yaml")

    assert all(line.startswith("#") for line in printed.splitlines())
