"""The table of settings is complete, and combinations that are unsafe or cannot work are rejected."""

from typing import Any

import msgspec
import pytest

from config.errors import ConfigurationError
from config.settings import SETTINGS, Settings, check, is_loopback
from tests.build_settings import build_settings
from tests.cases import each_case

SECRET = "0123456789abcdef0123456789abcdef"
OPEN = {"host": "0.0.0.0"}
KEY_FILE = {"jwt_key_file": "key.pem", "jwt_issuer": "https://login.example.com"}
KEY_URL = {"jwt_jwks_url": "https://login.example.com/jwks", "jwt_issuer": "https://login.example.com"}

ACCEPTED: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "IPv6 loopback": {"host": "::1"},
    "open with a secret": OPEN | {"jwt_secret": SECRET},
    "open with a key file": OPEN | KEY_FILE,
    "open with a key URL": OPEN | KEY_URL,
    "open with API keys alone": OPEN | {"require_auth": True},
    "a secret of 32 bytes in 16 characters": {"jwt_secret": "é" * 16},
    "HS256 with a secret": {"jwt_secret": SECRET, "jwt_algorithms": ("HS256",)},
    "two public-key algorithms": KEY_FILE | {"jwt_algorithms": ("ES256", "EdDSA")},
    "a chat URL in the clear without a key": {"chat_upstream_url": "http://ollama:11434/v1"},
    "a chat key in the clear on loopback": {"chat_upstream_url": "http://127.0.0.1:9/v1", "chat_upstream_key": "k"},
    "a chat key over https": {"chat_upstream_url": "https://a.example/v1", "chat_upstream_key": "k"},
    "a key URL in the clear on loopback": KEY_URL | {"jwt_jwks_url": "http://127.0.0.1:9/jwks?v=1"},
    "a public URL with a path": {"public_url": "https://example.com/kb"},
    "a public URL of an IPv6 address": {"public_url": "http://[::1]:8765"},
    "origins": {"allowed_origins": ("https://app.example.com", "http://localhost:3000", "vscode-webview://id")},
    "issuers with and without slash": {"authorization_servers": ("https://a.example/", "https://b.example/x")},
    "proxies": {"trusted_proxies": ("10.0.0.7", "10.0.0.0/8", "::1")},
}

REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "open without authentication": (OPEN, "require_auth = true"),
    "open by name": ({"host": "kb.example.com"}, "listen on 127.0.0.1"),
    "open on all IPv6 addresses": ({"host": "::"}, "set a JWT key"),
    "a secret and a key file": (KEY_FILE | {"jwt_secret": SECRET}, "jwt_secret and jwt_key_file: only one"),
    "a key file and a key URL": (KEY_FILE | KEY_URL, "jwt_key_file and jwt_jwks_url: only one"),
    "a short secret": ({"jwt_secret": SECRET[1:]}, "expected at least 32 bytes"),
    "a key file without issuer": ({"jwt_key_file": "key.pem"}, "jwt_issuer: required with"),
    "a key URL without issuer": ({"jwt_jwks_url": "https://a.example/jwks"}, "jwt_issuer: required with"),
    "the algorithm none": ({"jwt_algorithms": ("none",)}, "got 'none'"),
    "an algorithm in lower case": ({"jwt_algorithms": ("hs256",)}, "expected only HS256, RS256, ES256, EdDSA"),
    "mixed algorithms": (KEY_FILE | {"jwt_algorithms": ("HS256", "RS256")}, "HS256 cannot be combined"),
    "RS256 with a secret": ({"jwt_secret": SECRET, "jwt_algorithms": ("RS256",)}, "only HS256 can be used"),
    "HS256 with a key file": (KEY_FILE | {"jwt_algorithms": ("HS256",)}, "HS256 cannot be used"),
    "HS256 with a key URL": (KEY_URL | {"jwt_algorithms": ("HS256",)}, "HS256 cannot be used"),
    "a key URL in the clear": (KEY_URL | {"jwt_jwks_url": "http://a.example/jwks"}, "expected an https:// URL"),
    "a chat key in the clear": (
        {"chat_upstream_url": "http://models.example/v1", "chat_upstream_key": "k"},
        "expected an https:// URL or a loopback address with chat_upstream_key",
    ),
    "a chat URL that is a file": ({"chat_upstream_url": "file:///v1"}, "got 'file:///v1'"),
    "a chat URL with a user": ({"chat_upstream_url": "https://me:pw@a.example/v1"}, "without user"),
    "a chat URL with a slash": ({"chat_upstream_url": "https://a.example/v1/"}, "trailing slash"),
    "a key URL that is a file": (KEY_URL | {"jwt_jwks_url": "file:///etc/jwks"}, "expected an https:// URL"),
    "a key URL with a password": (KEY_URL | {"jwt_jwks_url": "http://me:pw@a.example/"}, "got 'a.example/'"),
    "a key URL without host": (KEY_URL | {"jwt_jwks_url": "https:///jwks"}, "expected an https:// URL"),
    "a key URL with a loopback user name": (KEY_URL | {"jwt_jwks_url": "http://127.0.0.1@a.example/"}, "jwks"),
    "a public URL with a slash": ({"public_url": "https://a.example/"}, "trailing slash"),
    "a public URL with a query": ({"public_url": "https://a.example?x"}, "without user, query"),
    "a public URL with a fragment": ({"public_url": "https://a.example#x"}, "without user, query"),
    "a public URL without scheme": ({"public_url": "a.example"}, "got 'a.example'"),
    "a public URL of another scheme": ({"public_url": "ftp://a.example"}, "public_url"),
    "a public URL with a port of letters": ({"public_url": "https://a.example:http"}, "public_url"),
    "a public URL with a port too high": ({"public_url": "https://a.example:65536"}, "public_url"),
    "a public URL with a line break": ({"public_url": "https://a.example\n"}, "public_url"),
    "a public URL with an open bracket": ({"public_url": "https://[::1"}, "public_url"),
    "any origin": ({"allowed_origins": ("*",)}, "allowed_origins: expected lower-case"),
    "the null origin": ({"allowed_origins": ("null",)}, "got 'null'"),
    "an origin with a slash": ({"allowed_origins": ("https://a.example/",)}, "without a path"),
    "an origin in upper case": ({"allowed_origins": ("https://A.example",)}, "lower-case"),
    "an origin with a user name": ({"allowed_origins": ("https://x@a.example",)}, "allowed_origins"),
    "an origin without scheme": ({"allowed_origins": ("a.example",)}, "allowed_origins"),
    "an issuer with a query": ({"authorization_servers": ("https://a.example?x",)}, "authorization_servers"),
    "every proxy": (
        {"trusted_proxies": ("*",)},
        "trusted_proxies: expected an address or a network such as 10.0.0.0/8, got '*'",
    ),
    "an unknown time zone": (
        {"time_zone": "Mars/Olympus"},
        "time_zone: expected an IANA time zone such as Europe/Berlin, got 'Mars/Olympus'",
    ),
    "a second factor that is switched off": (
        {"password_requires_passkey": True, "require_auth": True, "passkey_sign_in": False},
        "expected passkey_sign_in = true",
    ),
    "a second factor without sign-in": ({"password_requires_passkey": True}, "set require_auth = true"),
    "a followed folder without a name": ({"follow_roots": ("",)}, "follow_roots: expected absolute paths, such as"),
    "a followed folder of the working directory": ({"follow_roots": ("{user}",)}, "got '{user}'"),
    "a proxy by name": ({"trusted_proxies": ("proxy.local",)}, "expected an address or a network"),
}


@each_case("changes", ACCEPTED.values())
def test_combination_is_accepted(changes: dict[str, Any]) -> None:
    check(build_settings(**changes))


@each_case(("changes", "message"), REJECTED.values())
def test_combination_is_rejected_with_a_message(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check(build_settings(**changes))
    assert message in raised.value.message
    assert SECRET[1:] not in raised.value.message


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigurationError) as raised:
        check(Settings(host="0.0.0.0", public_url="x", allowed_origins=("*", "null")))
    assert len(raised.value.message.splitlines()) == 4


def test_every_setting_has_a_row_with_group_description_and_type() -> None:
    assert [row.name for row in SETTINGS] == [name for name in Settings.__struct_fields__ if name != "fixed"]
    for row in SETTINGS:
        assert row.group, row.name
        assert row.type_text, row.name
        assert row.description.endswith("."), row.name


def test_every_number_has_limits_and_a_unit_that_matches_its_name() -> None:
    endings = {"s": "_s", "ms": "_ms", "bytes": "_bytes"}
    for row in SETTINGS:
        if isinstance(row.default, int | float) and not isinstance(row.default, bool):
            assert " from " in row.type_text, row.name
            assert row.unit or row.name == "port", row.name
            assert row.name.endswith(endings.get(row.unit, "")), row.name


def test_every_default_is_valid() -> None:
    defaults = msgspec.to_builtins(Settings())
    assert msgspec.convert(defaults, Settings) == Settings()
    assert all(getattr(Settings(), row.name) == row.default for row in SETTINGS)


@each_case("row", [row for row in SETTINGS if " from " in row.type_text])
def test_number_outside_its_limits_is_rejected(row: Any) -> None:
    low, high = (float(text) for text in row.type_text.rpartition(" from ")[2].split(" to "))
    for edge in (low, high):
        msgspec.convert({row.name: edge}, Settings, strict=False)
    for beyond in (low - 1, high + 1, float("inf"), float("nan")):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({row.name: beyond}, Settings, strict=False)


def test_environment_variable_is_the_name_in_upper_case() -> None:
    assert {row.name: row.environment for row in SETTINGS}["jwt_secret"] == "FLORILEGIUM_JWT_SECRET"


def test_credentials_are_secret() -> None:
    assert [row.name for row in SETTINGS if row.is_secret] == [
        "storage_url",
        "semantic_endpoint_key",
        "reranker_key",
        "chat_upstream_key",
        "session_url",
        "jwt_secret",
        "jwt_previous_secrets",
        "openid_providers",
        "metrics_token",
    ]


def test_repr_shows_changes_but_no_secrets() -> None:
    text = repr(Settings(port=1, jwt_secret=SECRET, metrics_token="canary"))
    assert text == "Settings(port=1, jwt_secret=********, metrics_token=********)"


@each_case(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("127.0.0.1.example.com", False),
        ("localhost.example.com", False),
        ("127.1", False),
        ("", False),
    ],
)
def test_is_loopback_accepts_only_local_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_urls_are_derived_from_host_and_port() -> None:
    settings = Settings(host="::1", port=9000)
    assert settings.base_url == "http://[::1]:9000"
    assert settings.resource_url == settings.audience == "http://[::1]:9000/mcp"
    assert settings.issuer == "http://[::1]:9000"


def test_urls_are_derived_from_the_public_url_unless_set() -> None:
    settings = Settings(public_url="https://kb.example.com", jwt_issuer="https://login.example.com")
    assert settings.resource_url == settings.audience == "https://kb.example.com/mcp"
    assert settings.issuer == "https://login.example.com"
    assert Settings(jwt_audience="urn:kb").audience == "urn:kb"


@each_case(
    ("changes", "expected"),
    [
        ({}, False),
        ({"metrics_token": "x"}, False),
        ({"require_auth": True}, True),
        ({"jwt_secret": SECRET}, True),
        (KEY_FILE, True),
        (KEY_URL, True),
    ],
)
def test_authentication_is_configured_by_a_key_or_require_auth(changes: dict[str, Any], expected: bool) -> None:
    assert build_settings(**changes).is_auth_configured is expected


def test_settings_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]  # assignment must fail
    assert all(isinstance(row.default, str | int | float | tuple) for row in SETTINGS)
