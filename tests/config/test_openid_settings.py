"""The settings of OpenID Connect providers: from a file and from the environment, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.errors import ConfigurationError
from config.loading import describe_settings, load_settings
from config.openid import OpenIdProvider
from config.settings import Settings, check
from tests.cases import each_case

HOME = {"HOME": "/home/ada"}
GOOGLE = {
    "id": "google",
    "issuer": "https://accounts.google.com",
    "client_id": "c",
    "client_secret": "hidden-secret",
    "allowed_domains": ["example.com"],
}
TOML = """
require_auth = true

[[openid_providers]]
id = "google"
issuer = "https://accounts.google.com"
client_id = "c"
client_secret = "hidden-secret"
allowed_domains = ["example.com"]
"""
EXPECTED = OpenIdProvider(
    id="google",
    issuer="https://accounts.google.com",
    client_id="c",
    client_secret="hidden-secret",
    allowed_domains=("example.com",),
)


def test_providers_are_tables_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "florilegium.toml"
    path.write_text(TOML)
    loaded = load_settings({}, HOME, path)

    assert loaded.settings.openid_providers == (EXPECTED,)
    assert "hidden-secret" not in repr(describe_settings(loaded))
    assert "hidden-secret" not in repr(loaded.settings)


def test_providers_are_json_in_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "providers.json"
    path.write_text(json.dumps([GOOGLE]) + "\n")
    environment = {**HOME, "FLORILEGIUM_REQUIRE_AUTH": "true"}
    in_variable = {**environment, "FLORILEGIUM_OPENID_PROVIDERS": json.dumps([GOOGLE])}
    in_file = {**environment, "FLORILEGIUM_OPENID_PROVIDERS_FILE": str(path)}

    assert load_settings({}, in_variable, None).settings.openid_providers == (EXPECTED,)
    assert load_settings({}, in_file, None).settings.openid_providers == (EXPECTED,)


@each_case("text", ["", "{", "{}", '[{"id": "x"}]', json.dumps([{**GOOGLE, "typo": 1}])])
def test_invalid_json_is_an_error_without_the_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"openid_providers \(environment .*\): expected list of providers"):
        load_settings({}, {**HOME, "FLORILEGIUM_OPENID_PROVIDERS": text}, None)


@each_case(
    ("changes", "problem"),
    [
        ({"id": "Google"}, "expected an id"),
        ({"id": ""}, "expected an id"),
        ({"id": "a/b"}, "expected an id"),
        ({"issuer": "http://id.example.com"}, "expected an https:// URL"),
        ({"issuer": "https://id.example.com?x"}, "expected an https:// URL"),
        ({"issuer": "https://a:b@id.example.com"}, "expected an https:// URL"),
        ({"client_id": ""}, "client_id is empty"),
        ({"client_secret_file": "/run/x"}, "are both set"),
        ({"scopes": ("profile",)}, "expected the scope openid"),
        ({"allowed_domains": ()}, "everyone with an account at https://accounts.google.com could sign in"),
        ({"allow_everyone": True}, "makes the allowed lists useless"),
    ],
)
def test_unsafe_provider_is_refused(changes: dict[str, Any], problem: str) -> None:
    values = {**GOOGLE, "allowed_domains": ("example.com",), **changes}
    with pytest.raises(ConfigurationError, match=problem):
        check(Settings(require_auth=True, openid_providers=(OpenIdProvider(**values),)))


def test_two_providers_with_one_id_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="is used twice"):
        check(Settings(require_auth=True, openid_providers=(EXPECTED, EXPECTED)))


def test_server_for_one_user_has_no_providers() -> None:
    with pytest.raises(ConfigurationError, match="require_auth"):
        check(Settings(openid_providers=(EXPECTED,)))
