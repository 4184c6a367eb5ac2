"""Settings are loaded from four places in a fixed order, with their origins, and every mistake is reported."""

import json
import os
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ConfigurationError
from config.loading import (
    FIXED,
    REPLACED,
    default_config_files,
    describe_settings,
    format_toml,
    load_settings,
    sample_toml,
    settings_markdown,
)
from config.settings import SETTINGS, Settings
from tests.cases import each_case

HOME = {"HOME": "/home/ada"}
SECRET = "canary-0123456789abcdef0123456789abcdef"
REPOSITORY = Path(__file__).parents[2]


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "florilegium.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def secret_file(tmp_path: Path, content: bytes, mode: int = 0o600) -> str:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def load_error(cli: dict[str, str | None], environ: dict[str, str], file: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(cli, HOME | environ, file)
    return caught.value.message


def test_defaults_apply_if_nothing_is_set() -> None:
    loaded = load_settings({"port": None}, HOME, None)
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.settings == Settings(data_dir="/home/ada/.local/share/florilegium")
    assert loaded.warnings == ()


def test_command_line_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = toml(tmp_path, "port = 1\nmessage_page_max = 1\nlog_requests = false\n")
    environ = HOME | {"FLORILEGIUM_PORT": "2", "FLORILEGIUM_MESSAGE_PAGE_MAX": "2"}
    loaded = load_settings({"port": "3"}, environ, file)
    names = ("port", "message_page_max", "log_requests", "log_level")
    assert [getattr(loaded.settings, name) for name in names] == [3, 2, False, "info"]
    assert [loaded.origins[name] for name in names] == [
        "command line",
        "environment FLORILEGIUM_MESSAGE_PAGE_MAX",
        f"file {file}",
        "default",
    ]


@each_case(
    ("name", "text", "expected"),
    [
        ("port", " 9000 ", 9000),
        ("session_ttl_s", "2.5", 2.5),
        ("log_requests", "No", False),
        ("log_requests", "off", False),
        ("log_requests", "0", False),
        ("require_auth", "YES", True),
        ("require_auth", "on", True),
        ("require_auth", "1", True),
        ("log_level", "debug", "debug"),
        ("allowed_hosts", "a.example, b.example,", ("a.example", "b.example")),
        ("jwt_role_claims", "", ()),
        ("jwt_audience", "", ""),
        ("jwt_audience", " a,b ", " a,b "),
    ],
)
def test_text_is_converted_to_the_type_of_the_setting(name: str, text: str, expected: Any) -> None:
    by_command = load_settings({name: text}, HOME, None)
    by_environment = load_settings({}, HOME | {f"FLORILEGIUM_{name.upper()}": text}, None)
    assert getattr(by_command.settings, name) == getattr(by_environment.settings, name) == expected


@each_case(
    ("name", "text", "expected"),
    [
        ("port", "http", "integer from 0 to 65535"),
        ("port", "65536", "integer from 0 to 65535"),
        ("port", "", "integer from 0 to 65535"),
        ("port", "8.5", "integer from 0 to 65535"),
        ("port", "tcp://10.0.0.1:8765", "integer from 0 to 65535"),
        ("tracing_sample_ratio", "nan", "number from 0 to 1"),
        ("session_ttl_s", "inf", "number from 1 to 2592000"),
        ("log_requests", "maybe", "true or false"),
        ("log_level", "INFO", "debug or info or warning or error"),
        ("host", "", "non-empty text"),
        ("single_user_name", "local\n", "text matching `^[A-Za-z0-9._@+-]{1,128}\\Z`"),
        ("public_url", "http://\udcff", "text"),
    ],
)
def test_invalid_text_is_reported_with_setting_origin_type_and_value(name: str, text: str, expected: str) -> None:
    variable = f"FLORILEGIUM_{name.upper()}"
    assert load_error({name: text}, {}) == f"{name} (command line): expected {expected}, got {text!r}"
    message = load_error({}, {variable: text})
    assert message == f"{name} (environment {variable}): expected {expected}, got {text!r}"


@each_case(
    ("line", "problem"),
    [
        ("port = '80'", "expected integer from 0 to 65535, got '80'"),
        ("port = true", "expected integer from 0 to 65535, got True"),
        ("port = 1979-05-27", "expected integer from 0 to 65535, got datetime.date(1979, 5, 27)"),
        ("session_ttl_s = inf", "expected number from 1 to 2592000, got inf"),
        ("allowed_hosts = 'a'", "expected list of strings, got 'a'"),
        ("allowed_hosts = [1]", "expected list of strings, got [1]"),
        ("[host]\nx = 1", "expected non-empty text, got {'x': 1}"),
    ],
)
def test_invalid_file_value_is_reported_with_setting_origin_type_and_value(
    tmp_path: Path, line: str, problem: str
) -> None:
    file = toml(tmp_path, line)
    message = load_error({}, {}, file)
    assert f"(file {file}): " in message
    assert message.endswith(problem)


def test_file_can_contain_every_type_of_value(tmp_path: Path) -> None:
    file = toml(tmp_path, "allowed_hosts = ['a', 'b']\nsession_ttl_s = 5\ntracing_sample_ratio = 0.5\nhost = '::1'\n")
    settings = load_settings({}, HOME, file).settings
    assert settings.allowed_hosts == ("a", "b")
    assert (settings.session_ttl_s, settings.tracing_sample_ratio, settings.host) == (5, 0.5, "::1")


def test_no_setting_of_an_earlier_version_is_still_one_and_each_replacement_is() -> None:
    names = {setting.name for setting in SETTINGS}
    assert not names & (FIXED | set(REPLACED))
    assert not FIXED & set(REPLACED)
    assert all(replacement.split()[0] in names for replacement in REPLACED.values())


def test_unknown_names_are_rejected_with_a_suggestion(tmp_path: Path) -> None:
    file = toml(tmp_path, "log-level = 'info'\nxyzzy = 1\n[server]\nport = 1\n")
    environ = {"FLORILEGIUM_PROT": "1", "FLORILEGIUM_JWT_KEY": "x", "FLORILEGIUM_XYZZY": "1", "OTHER_PORT": "1"}
    assert load_error({"hots": "x"}, environ, file).splitlines() == [
        f"file {file}: unknown setting 'log-level'; did you mean log_level?",
        f"file {file}: unknown setting 'xyzzy'; `florilegium config show` lists all settings",
        f"file {file}: unknown setting 'server'; settings are not grouped in tables",
        "environment: unknown variable FLORILEGIUM_JWT_KEY; did you mean FLORILEGIUM_JWT_KEY_FILE?",
        "environment: unknown variable FLORILEGIUM_PROT; did you mean FLORILEGIUM_PORT?",
        "environment: unknown variable FLORILEGIUM_XYZZY; `florilegium config show` lists all settings",
        "command line: unknown setting 'hots'; did you mean host?",
    ]


def test_invalid_value_is_rejected_even_if_overridden() -> None:
    assert "environment FLORILEGIUM_PORT" in load_error({"port": "1"}, {"FLORILEGIUM_PORT": "x"})


def test_client_credential_in_the_environment_is_ignored() -> None:
    loaded = load_settings({}, HOME | {"FLORILEGIUM_TOKEN": SECRET}, None)
    assert set(loaded.origins.values()) == {"default"}


def test_combinations_of_settings_are_checked() -> None:
    assert "florilegium key create" in load_error({"host": "0.0.0.0"}, {})


@each_case(
    ("content", "problem"),
    [
        (b"port = \n", "Invalid value (at line 1, column 8)"),
        (b"host = '::1'\nport 1\n", "Expected '=' after a key in a key/value pair (at line 2, column 6)"),
        (b"port = 1\nport = 2\n", "a setting is set twice (at line 2, column 9)"),
        (b"host = '\xff'", "invalid UTF-8 at byte 8"),
        (b"#" * (1024 * 1024 + 1), "it is larger than 1048576 bytes"),
        (b"host = " + b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_malformed_file_is_reported_with_file_and_position(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "florilegium.toml"
    file.write_bytes(content)
    assert load_error({}, {}, file) == f"file {file} cannot be read: {problem}"


def test_config_file_is_chosen_by_argument_variable_or_working_directory(tmp_path: Path) -> None:
    for port, name in enumerate(("named.toml", "variable.toml", "florilegium.toml"), start=1):
        (tmp_path / name).write_text(f"port = {port}")
    variable = HOME | {"FLORILEGIUM_CONFIG": "variable.toml"}
    with chdir(tmp_path):
        results = (
            load_settings({}, variable, Path("named.toml")),
            load_settings({}, variable, None),
            load_settings({}, HOME, None),
            load_settings({}, HOME | {"FLORILEGIUM_CONFIG": ""}, None),
        )
    assert [loaded.settings.port for loaded in results] == [1, 2, 3, 3]
    assert results[2].origins["port"] == "file florilegium.toml"


def test_without_a_named_file_the_working_directory_wins_over_the_users_and_the_systems_file(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    fallback = {"HOME": environ["HOME"], "XDG_CONFIG_HOME": "relative"}

    assert default_config_files(environ) == (
        Path("florilegium.toml"),
        tmp_path / "xdg" / "florilegium" / "florilegium.toml",
        Path("/etc/florilegium/florilegium.toml"),
    )
    assert default_config_files(fallback)[1] == tmp_path / "home" / ".config" / "florilegium" / "florilegium.toml"
    assert default_config_files({}) == (Path("florilegium.toml"), Path("/etc/florilegium/florilegium.toml"))


def test_file_that_may_not_be_looked_at_is_an_error_instead_of_being_skipped(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "florilegium"
    folder.mkdir(parents=True)
    folder.chmod(0o000)
    try:
        if os.access(folder, os.X_OK):  # root may look into every directory
            assert load_settings({}, {"HOME": str(tmp_path)}, None).config_file is None
        else:
            message = load_error({}, {"HOME": str(tmp_path)})
            assert message == f"file {folder / 'florilegium.toml'} cannot be read: permission denied"
    finally:
        folder.chmod(0o700)


def test_relative_data_directory_in_a_file_is_relative_to_that_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "data_dir = 'libraries'")
    assert load_settings({}, HOME, file).settings.data_dir == str(tmp_path / "libraries")
    assert load_settings({"data_dir": "mine"}, HOME, file).settings.data_dir == "mine"


def test_sample_file_changes_nothing_and_its_lines_are_the_defaults(tmp_path: Path) -> None:
    assert load_settings({}, HOME, toml(tmp_path, sample_toml())).settings == load_settings({}, HOME, None).settings

    names = "|".join(setting.name for setting in SETTINGS)
    assignments = re.findall(rf"^# ((?:{names}) = .+)$", sample_toml(), re.MULTILINE)
    assert len(assignments) == len(SETTINGS)
    uncommented = load_settings({}, HOME, toml(tmp_path, "\n".join(assignments)))
    assert uncommented.settings == load_settings({}, HOME, None).settings


def test_named_file_must_exist(tmp_path: Path) -> None:
    absent = Path("florilegium.toml")
    with chdir(tmp_path):
        assert load_error({}, {}, absent) == "file florilegium.toml cannot be read: no such file or directory"
        assert "cannot be read" in load_error({}, {"FLORILEGIUM_CONFIG": "florilegium.toml"})
        assert load_settings({}, HOME, None).settings.port == 8765


@each_case(
    ("content", "expected"),
    [
        (SECRET.encode(), SECRET),
        (SECRET.encode() + b"\n", SECRET),
        (SECRET.encode() + b"\r\n", SECRET),
        (SECRET.encode() + b"\n\n", SECRET + "\n"),
        (b" " + SECRET.encode() + b" ", f" {SECRET} "),
    ],
)
def test_secret_file_is_read_without_its_last_newline(tmp_path: Path, content: bytes, expected: str) -> None:
    loaded = load_settings({}, HOME | {"FLORILEGIUM_JWT_SECRET_FILE": secret_file(tmp_path, content)}, None)
    assert loaded.settings.jwt_secret == expected
    assert loaded.origins["jwt_secret"] == "environment FLORILEGIUM_JWT_SECRET_FILE"
    assert loaded.warnings == ()


@each_case(
    ("content", "problem"),
    [
        (b"", "is empty; expected the secret"),
        (b"\n", "is empty; expected the secret"),
        (b"\xff" + SECRET.encode(), "cannot be read: invalid UTF-8 at byte 0"),
    ],
)
def test_secret_file_without_a_secret_is_rejected(tmp_path: Path, content: bytes, problem: str) -> None:
    path = secret_file(tmp_path, content)
    message = load_error({}, {"FLORILEGIUM_JWT_SECRET_FILE": path})
    assert message == f"jwt_secret (environment FLORILEGIUM_JWT_SECRET_FILE): {path} {problem}"


def test_empty_name_of_a_secret_file_is_rejected() -> None:
    message = load_error({}, {"FLORILEGIUM_JWT_SECRET_FILE": ""})
    assert message == "environment: FLORILEGIUM_JWT_SECRET_FILE is empty; set it to the path of a file, or unset it"


def test_secret_set_directly_and_by_file_is_rejected(tmp_path: Path) -> None:
    path = secret_file(tmp_path, SECRET.encode())
    message = load_error({}, {"FLORILEGIUM_JWT_SECRET": SECRET, "FLORILEGIUM_JWT_SECRET_FILE": path})
    assert "FLORILEGIUM_JWT_SECRET and FLORILEGIUM_JWT_SECRET_FILE are both set" in message
    assert SECRET not in message


def test_only_secrets_can_be_read_from_a_file(tmp_path: Path) -> None:
    path = secret_file(tmp_path, b"::1")
    assert "unknown variable FLORILEGIUM_HOST_FILE" in load_error({}, {"FLORILEGIUM_HOST_FILE": path})


@each_case("mode", [0o640, 0o604, 0o444])
def test_secret_readable_by_others_causes_a_warning(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path, SECRET.encode(), mode)
    by_variable = load_settings({}, HOME | {"FLORILEGIUM_JWT_SECRET_FILE": path}, None)
    file = toml(tmp_path, f"metrics_token = '{SECRET}'\nport = 1\n")
    file.chmod(mode)
    by_file = load_settings({}, HOME, file)
    assert by_variable.warnings == (
        f"{path} contains jwt_secret and is readable by other users; run `chmod 600 {path}`",
    )
    assert by_file.warnings == (
        f"{file} contains metrics_token and is readable by other users; run `chmod 600 {file}`",
    )


@pytest.mark.parametrize(("mode", "is_warned"), [(0o640, False), (0o644, True)])
def test_service_may_read_a_secret_of_another_account_by_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_warned: bool
) -> None:
    path = secret_file(tmp_path, SECRET.encode(), mode)
    service = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: service)

    warnings = load_settings({}, HOME | {"FLORILEGIUM_JWT_SECRET_FILE": path}, None).warnings

    assert bool(warnings) == is_warned
    assert all(f"give it a group of uid {service}" in warning for warning in warnings)


@each_case(
    ("name", "value", "warning"),
    [
        ("trusted_proxies", "0.0.0.0/0", "trusted_proxies: 0.0.0.0/0 covers clients as well as proxies"),
        ("trusted_proxies", "10.0.0.1,::/0", "trusted_proxies: ::/0 covers clients as well as proxies"),
        ("allowed_hosts", "*", "allowed_hosts: * is compared literally"),
        ("jwt_secret", "a" * 64, "jwt_secret: the value is easy to guess"),
        ("jwt_secret", "correct horse " * 4, "jwt_secret: the value is easy to guess"),
        ("jwt_secret", "my-very-long-and-Secret-key-2026-x7", "jwt_secret: the value is easy to guess"),
        ("metrics_token", "letmein", "metrics_token: the value is easy to guess"),
        ("jwt_issuer", "https://id.example.com", "jwt_issuer: no token is accepted without a key to verify tokens"),
    ],
)
def test_risky_value_causes_a_warning(name: str, value: str, warning: str) -> None:
    [message] = load_settings({name: value}, HOME, None).warnings
    assert message.startswith(warning)
    assert name.endswith("s") or value not in message


def test_issuer_of_a_sign_in_provider_needs_no_key() -> None:
    issuer = "https://id.example.com"
    provider = [
        {"id": "corp", "issuer": issuer, "client_id": "kb", "client_secret": SECRET, "allowed_domains": ["a.b"]}
    ]
    variables = {"FLORILEGIUM_OPENID_PROVIDERS": json.dumps(provider), "FLORILEGIUM_JWT_ISSUER": issuer}
    assert load_settings({"require_auth": "true"}, HOME | variables, None).warnings == ()


def test_ordinary_values_cause_no_warning() -> None:
    values = {
        "trusted_proxies": "10.0.0.0/8,192.168.1.4,fd00::/8",
        "allowed_hosts": "kb.example.com",
        "jwt_secret": "9f86d081884c7d659a2feaa0c55ad015",
    }
    assert load_settings(values, HOME, None).warnings == ()


def test_invalid_secret_is_rejected_without_showing_it(tmp_path: Path) -> None:
    file = toml(tmp_path, f"metrics_token = ['{SECRET}']")
    message = load_error({"jwt_secret": SECRET + "\udcff"}, {"FLORILEGIUM_METRICS_TOKEN": SECRET + "\udcff"}, file)
    assert message.count("expected text; the value is not shown") == 3
    assert SECRET not in message


def test_long_invalid_value_is_truncated() -> None:
    assert len(load_error({"port": "x" * 10_000}, {})) < 200


@each_case(
    ("given_dir", "environ", "expected"),
    [
        (None, {"HOME": "/home/ada"}, "/home/ada/.local/share/florilegium"),
        (None, {"HOME": "/home/ada", "XDG_DATA_HOME": "/data"}, "/data/florilegium"),
        (None, {"HOME": "/home/ada", "XDG_DATA_HOME": "relative"}, "/home/ada/.local/share/florilegium"),
        (None, {"XDG_DATA_HOME": "/data"}, "/data/florilegium"),
        ("/srv/kb", {}, "/srv/kb"),
        ("~/kb", {"HOME": "/home/ada"}, "/home/ada/kb"),
        ("~", {"HOME": "/home/ada"}, "/home/ada"),
        ("~kb", {}, "~kb"),
    ],
)
def test_data_directory_is_resolved(given_dir: str | None, environ: dict[str, str], expected: str) -> None:
    assert load_settings({"data_dir": given_dir}, environ, None).settings.data_dir == expected


def test_data_directory_below_an_unknown_home_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="data_dir depends on HOME, which is not set"):
        load_settings({}, {}, None)


def test_rows_contain_value_unit_and_origin_of_every_setting() -> None:
    environ = HOME | {"FLORILEGIUM_ALLOWED_HOSTS": "a,b", "FLORILEGIUM_SESSION_TTL_S": "90"}
    rows = {row.name: row for row in describe_settings(load_settings({"port": "1"}, environ, None))}
    assert list(rows) == [setting.name for setting in SETTINGS]
    values = [(rows[name].value, rows[name].unit) for name in ("allowed_hosts", "session_ttl_s", "require_auth")]
    assert values == [('["a", "b"]', ""), ("90", "s"), ("false", "")]
    assert rows["port"].origin == "command line"


def test_rows_mask_secrets_and_show_unset_ones() -> None:
    rows = describe_settings(load_settings({}, HOME | {"FLORILEGIUM_JWT_SECRET": SECRET}, None))
    assert [row.value for row in rows if row.name in ("jwt_secret", "metrics_token")] == ["********", "(not set)"]
    assert SECRET not in str(rows)


@given(st.sampled_from([setting.name for setting in SETTINGS]), st.text())
def test_arbitrary_text_is_accepted_or_rejected_with_the_setting_name(name: str, text: str) -> None:
    try:
        outcome = load_settings({name: text}, HOME, None).origins[name]
    except ConfigurationError as error:
        outcome = error.message
    assert outcome == "command line" or name in outcome


@given(st.dictionaries(st.text(), st.text()))
def test_arbitrary_environment_is_accepted_or_rejected(environ: dict[str, str]) -> None:
    prefixed = {f"FLORILEGIUM_{name}": value for name, value in environ.items()}
    if prefixed:
        assert load_error({}, prefixed)
    else:
        assert load_settings({}, HOME | environ, None).settings.port == 8765


def test_settings_page_is_up_to_date() -> None:
    page = REPOSITORY / "docs" / "settings.md"
    assert page.read_bytes() == settings_markdown().encode()


def test_settings_page_lists_every_setting_once_with_its_default() -> None:
    rows = [line for line in settings_markdown().splitlines() if line.startswith("- `")]
    assert [row.split("`")[1] for row in rows] == [
        f"{setting.name} = {format_toml(setting.default)}" for setting in SETTINGS
    ]
