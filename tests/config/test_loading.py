"""Settings come from four places in one order, each with its origin, and every mistake is told."""

from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ConfigurationError
from config.loading import describe, load, settings_markdown
from config.settings import SETTINGS, Settings

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


def refusal(cli: dict[str, str | None], environ: dict[str, str], file: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(cli, HOME | environ, file)
    return caught.value.message


def test_nothing_given_means_the_defaults() -> None:
    loaded = load({"port": None}, HOME, None)
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.settings == Settings(data_dir="/home/ada/.local/share/florilegium")
    assert loaded.warnings == ()


def test_command_line_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = toml(tmp_path, "port = 1\nlist_page_size = 1\nlog_requests = false\n")
    environ = HOME | {"FLORILEGIUM_PORT": "2", "FLORILEGIUM_LIST_PAGE_SIZE": "2"}
    loaded = load({"port": "3"}, environ, file)
    names = ("port", "list_page_size", "log_requests", "log_level")
    assert [getattr(loaded.settings, name) for name in names] == [3, 2, False, "info"]
    assert [loaded.origins[name] for name in names] == [
        "command line",
        "environment FLORILEGIUM_LIST_PAGE_SIZE",
        f"file {file}",
        "default",
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("port", " 9000 ", 9000),
        ("jwt_leeway_s", "2.5", 2.5),
        ("log_requests", "No", False),
        ("log_requests", "off", False),
        ("log_requests", "0", False),
        ("require_auth", "YES", True),
        ("require_auth", "on", True),
        ("require_auth", "1", True),
        ("log_level", "debug", "debug"),
        ("allowed_hosts", "a.example, b.example,", ("a.example", "b.example")),
        ("jwt_token_types", "", ()),
        ("jwt_audience", "", ""),
        ("jwt_audience", " a,b ", " a,b "),
    ],
)
def test_text_is_read_by_the_type_of_its_setting(name: str, text: str, expected: Any) -> None:
    by_command = load({name: text}, HOME, None)
    by_environment = load({}, HOME | {f"FLORILEGIUM_{name.upper()}": text}, None)
    assert getattr(by_command.settings, name) == getattr(by_environment.settings, name) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("port", "http", "whole number from 0 to 65535"),
        ("port", "65536", "whole number from 0 to 65535"),
        ("port", "", "whole number from 0 to 65535"),
        ("port", "8.5", "whole number from 0 to 65535"),
        ("port", "tcp://10.0.0.1:8765", "whole number from 0 to 65535"),
        ("jwt_leeway_s", "nan", "number from 0 to 600"),
        ("session_ttl_s", "inf", "number from 1 to 2592000"),
        ("log_requests", "maybe", "true or false"),
        ("log_level", "INFO", "debug or info or warning or error"),
        ("host", "", "text that is not empty"),
        ("single_user_name", "local\n", "text matching `^[A-Za-z0-9._@+-]{1,128}\\Z`"),
        ("public_url", "http://\udcff", "text"),
    ],
)
def test_bad_text_is_refused_naming_setting_origin_value_and_type(name: str, text: str, expected: str) -> None:
    variable = f"FLORILEGIUM_{name.upper()}"
    assert refusal({name: text}, {}) == f"{name} (command line) is {text!r}; expected {expected}"
    message = refusal({}, {variable: text})
    assert message == f"{name} (environment {variable}) is {text!r}; expected {expected}"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("port = '80'", "is '80'; expected whole number from 0 to 65535"),
        ("port = true", "is True; expected whole number from 0 to 65535"),
        ("port = 1979-05-27", "expected whole number from 0 to 65535"),
        ("session_ttl_s = inf", "is inf; expected number from 1 to 2592000"),
        ("allowed_hosts = 'a'", "is 'a'; expected list of texts"),
        ("allowed_hosts = [1]", "is [1]; expected list of texts"),
        ("[host]\nx = 1", "is {'x': 1}; expected text that is not empty"),
    ],
)
def test_bad_file_value_is_refused_naming_setting_origin_value_and_type(
    tmp_path: Path, line: str, problem: str
) -> None:
    file = toml(tmp_path, line)
    message = refusal({}, {}, file)
    assert f"(file {file}) " in message
    assert message.endswith(problem)


def test_a_file_may_hold_every_kind_of_value(tmp_path: Path) -> None:
    file = toml(tmp_path, "allowed_hosts = ['a', 'b']\nsession_ttl_s = 5\njwt_leeway_s = 0.5\nhost = '::1'\n")
    settings = load({}, HOME, file).settings
    assert settings.allowed_hosts == ("a", "b")
    assert (settings.session_ttl_s, settings.jwt_leeway_s, settings.host) == (5, 0.5, "::1")


def test_unknown_names_are_refused_with_the_nearest_one(tmp_path: Path) -> None:
    file = toml(tmp_path, "log-level = 'info'\nxyzzy = 1\n")
    environ = {"FLORILEGIUM_PROT": "1", "FLORILEGIUM_JWT_KEY": "x", "OTHER_PORT": "1"}
    assert refusal({"hots": "x"}, environ, file).splitlines() == [
        f"file {file}: unknown setting 'log-level'; did you mean log_level?",
        f"file {file}: unknown setting 'xyzzy'; `florilegium config show` lists all",
        "environment: unknown variable FLORILEGIUM_JWT_KEY; did you mean FLORILEGIUM_JWT_KEY_FILE?",
        "environment: unknown variable FLORILEGIUM_PROT; did you mean FLORILEGIUM_PORT?",
        "command line: unknown setting 'hots'; did you mean host?",
    ]


def test_a_bad_value_is_refused_even_where_another_wins() -> None:
    assert "environment FLORILEGIUM_PORT" in refusal({"port": "1"}, {"FLORILEGIUM_PORT": "x"})


def test_a_clients_own_credential_in_the_environment_is_left_alone() -> None:
    loaded = load({}, HOME | {"FLORILEGIUM_TOKEN": SECRET}, None)
    assert set(loaded.origins.values()) == {"default"}


def test_rules_between_settings_are_checked() -> None:
    assert "florilegium key create" in refusal({"host": "0.0.0.0"}, {})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"port = \n", "Invalid value (at line 1, column 8)"),
        (b"host = '::1'\nport 1\n", "Expected '=' after a key in a key/value pair (at line 2, column 6)"),
        (b"port = 1\nport = 2\n", "Cannot overwrite a value (at line 2, column 9)"),
        (b"host = '\xff'", "expected UTF-8, got something else at byte 8"),
        (b"#" * (1024 * 1024 + 1), "it is larger than 1048576 bytes"),
        (b"host = " + b"[" * 100_000, "it is nested too deeply"),
    ],
    ids=["value", "equals sign", "twice", "encoding", "size", "depth"],
)
def test_a_malformed_file_is_refused_naming_file_and_place(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "florilegium.toml"
    file.write_bytes(content)
    assert refusal({}, {}, file) == f"file {file} cannot be read: {problem}"


def test_the_file_is_the_named_one_else_the_variables_else_the_local_one(tmp_path: Path) -> None:
    for port, name in enumerate(("named.toml", "variable.toml", "florilegium.toml"), start=1):
        (tmp_path / name).write_text(f"port = {port}")
    variable = HOME | {"FLORILEGIUM_CONFIG": "variable.toml"}
    with chdir(tmp_path):
        loads = (
            load({}, variable, Path("named.toml")),
            load({}, variable, None),
            load({}, HOME, None),
            load({}, HOME | {"FLORILEGIUM_CONFIG": ""}, None),
        )
    assert [loaded.settings.port for loaded in loads] == [1, 2, 3, 3]
    assert loads[2].origins["port"] == "file florilegium.toml"


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    absent = Path("florilegium.toml")
    with chdir(tmp_path):
        assert refusal({}, {}, absent) == "file florilegium.toml cannot be read: no such file or directory"
        assert "cannot be read" in refusal({}, {"FLORILEGIUM_CONFIG": "florilegium.toml"})
        assert load({}, HOME, None).settings.port == 8765


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (SECRET.encode(), SECRET),
        (SECRET.encode() + b"\n", SECRET),
        (SECRET.encode() + b"\r\n", SECRET),
        (SECRET.encode() + b"\n\n", SECRET + "\n"),
        (b" " + SECRET.encode() + b" ", f" {SECRET} "),
    ],
)
def test_a_secret_is_read_from_a_file_without_its_last_newline(tmp_path: Path, content: bytes, expected: str) -> None:
    loaded = load({}, HOME | {"FLORILEGIUM_JWT_SECRET_FILE": secret_file(tmp_path, content)}, None)
    assert loaded.settings.jwt_secret == expected
    assert loaded.origins["jwt_secret"] == "environment FLORILEGIUM_JWT_SECRET_FILE"
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty; expected the secret in it"),
        (b"\n", "is empty; expected the secret in it"),
        (b"\xff" + SECRET.encode(), "cannot be read: expected UTF-8, got something else at byte 0"),
    ],
)
def test_a_secret_file_without_a_secret_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = secret_file(tmp_path, content)
    message = refusal({}, {"FLORILEGIUM_JWT_SECRET_FILE": path})
    assert message == f"jwt_secret (environment FLORILEGIUM_JWT_SECRET_FILE): {path} {problem}"


def test_a_secret_given_directly_and_by_file_is_refused(tmp_path: Path) -> None:
    path = secret_file(tmp_path, SECRET.encode())
    message = refusal({}, {"FLORILEGIUM_JWT_SECRET": SECRET, "FLORILEGIUM_JWT_SECRET_FILE": path})
    assert "FLORILEGIUM_JWT_SECRET and FLORILEGIUM_JWT_SECRET_FILE are both set" in message
    assert SECRET not in message


def test_only_a_secret_can_be_read_from_a_file(tmp_path: Path) -> None:
    path = secret_file(tmp_path, b"::1")
    assert "unknown variable FLORILEGIUM_HOST_FILE" in refusal({}, {"FLORILEGIUM_HOST_FILE": path})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o444])
def test_a_secret_that_others_may_read_is_allowed_with_a_warning(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path, SECRET.encode(), mode)
    by_variable = load({}, HOME | {"FLORILEGIUM_JWT_SECRET_FILE": path}, None)
    file = toml(tmp_path, f"metrics_token = '{SECRET}'\nport = 1\n")
    file.chmod(mode)
    by_file = load({}, HOME, file)
    assert by_variable.warnings == (f"{path} holds jwt_secret and others may read it; run `chmod 600 {path}`",)
    assert by_file.warnings == (f"{file} holds metrics_token and others may read it; run `chmod 600 {file}`",)


def test_a_bad_secret_is_refused_without_showing_it(tmp_path: Path) -> None:
    file = toml(tmp_path, f"metrics_token = ['{SECRET}']")
    message = refusal({"jwt_secret": SECRET + "\udcff"}, {"FLORILEGIUM_METRICS_TOKEN": SECRET + "\udcff"}, file)
    assert message.count("is not valid; expected text") == 3
    assert SECRET not in message


def test_a_long_bad_value_is_cut() -> None:
    assert len(refusal({"port": "x" * 10_000}, {})) < 200


@pytest.mark.parametrize(
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
def test_the_data_directory_is_spelled_out(given_dir: str | None, environ: dict[str, str], expected: str) -> None:
    assert load({"data_dir": given_dir}, environ, None).settings.data_dir == expected


def test_a_data_directory_below_an_unknown_home_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="data_dir depends on HOME, which is not set"):
        load({}, {}, None)


def test_rows_show_value_unit_and_origin_of_every_setting() -> None:
    environ = HOME | {"FLORILEGIUM_ALLOWED_HOSTS": "a,b", "FLORILEGIUM_SESSION_TTL_S": "90"}
    rows = {row.name: row for row in describe(load({"port": "1"}, environ, None))}
    assert list(rows) == [setting.name for setting in SETTINGS]
    shown = [(rows[name].value, rows[name].unit) for name in ("allowed_hosts", "session_ttl_s", "require_auth")]
    assert shown == [('["a", "b"]', ""), ("90", "s"), ("false", "")]
    assert rows["port"].origin == "command line"


def test_rows_mask_a_secret_and_say_when_there_is_none() -> None:
    rows = describe(load({}, HOME | {"FLORILEGIUM_JWT_SECRET": SECRET}, None))
    assert [row.value for row in rows if row.name in ("jwt_secret", "metrics_token")] == ["********", "(not set)"]
    assert SECRET not in str(rows)


@given(st.sampled_from([setting.name for setting in SETTINGS]), st.text())
def test_any_text_for_any_setting_is_taken_or_refused_with_its_name(name: str, text: str) -> None:
    told: Mapping[str, str]
    try:
        told = load({name: text}, HOME, None).origins
    except ConfigurationError as error:
        told = {name: error.message}
    assert told[name] == "command line" or name in told[name]


@given(st.dictionaries(st.text(), st.text()))
def test_any_environment_is_taken_or_refused(environ: dict[str, str]) -> None:
    prefixed = {f"FLORILEGIUM_{name}": value for name, value in environ.items()}
    if prefixed:
        assert refusal({}, prefixed)
    else:
        assert load({}, HOME | environ, None).settings.port == 8765


def test_the_manual_page_is_what_the_table_says() -> None:
    page = REPOSITORY / "docs" / "settings.md"
    assert page.read_bytes() == settings_markdown().encode()


def test_the_manual_page_names_every_setting_once_in_a_table_of_five_columns() -> None:
    rows = [line for line in settings_markdown().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [setting.name for setting in SETTINGS]
    assert {row.count("|") for row in rows} == {6}
