"""Redirect URIs: which can be registered, and which tricks match none of those that are."""

import pytest

from auth.oauth.grants import OAuthError, describe_target, form_target, is_registered, require_redirect_uris
from tests.cases import each_case

REGISTERED = (
    "https://app.example.com/callback",
    "https://app.example.com/callback?app=1",
    "http://127.0.0.1:8765/callback",
    "http://localhost/callback",
    "http://[::1]/callback",
    "com.example.app:/callback",
    "cursor://anysphere.cursor-mcp/oauth/callback",
)

# Each is not the same as a registered URI, but some parser may take it for one.
TRICKS = (
    # other hosts
    *("https://evil.example.com/callback", "https://app.example.com.evil.example/callback"),
    *("https://evilapp.example.com/callback", "https://app.example.comevil/callback", "https://example.com/callback"),
    *("https://app.example.com@evil.example/callback", "https://evil.example/@app.example.com/callback"),
    *("https://app.example.com:443@evil.example/callback", "https://app.example.com%2f@evil.example/callback"),
    *("https://app.example.com\\@evil.example/callback", "https://evil.example\\app.example.com/callback"),
    *("https://evil.example#app.example.com/callback", "https://evil.example?app.example.com/callback"),
    *("https://app.example.com%00.evil.example/callback", "https://app.example.com%23.evil.example/callback"),
    *("https://app\u3002example\u3002com/callback", "https://\u0430pp.example.com/callback", "https:/evil.example/x"),
    *("//app.example.com/callback", "//evil.example/callback", "/callback", "callback", "", " ", "null"),
    # other schemes
    *("http://app.example.com/callback", "HTTPS://app.example.com/callback", "javascript:alert(1)//callback"),
    *("data:text/html,callback", "file:///callback", "ftp://app.example.com/callback", "https:app.example.com/c"),
    *("view-source:https://app.example.com/callback", "blob:https://app.example.com/callback"),
    *("javascript://app.example.com/callback%0aalert(1)", "com.example.app://callback", "com.example.app:callback"),
    *("com.example.app.evil:/callback", "com.example.app:/callback/x", "cursor://evil/oauth/callback"),
    # other spellings of the host
    *("https://APP.example.com/callback", "https://app.example.com./callback", "https://app.example.com:443/callback"),
    *("https://app.example.com:8443/callback", "https://app.example.com:/callback", "https://a%70p.example.com/callback"),
    # other paths
    *("https://app.example.com/callback/", "https://app.example.com/Callback", "https://app.example.com/callback/../x"),
    *("https://app.example.com/x/../callback", "https://app.example.com/./callback", "https://app.example.com//callback"),
    *("https://app.example.com/callback/%2e%2e/x", "https://app.example.com/%63allback", "https://app.example.com/"),
    *("https://app.example.com/callback;x", "https://app.example.com/callback%00", "https://app.example.com/callback%20"),
    *("https://app.example.com/callbackx", "https://app.example.com", "https://app.example.com/callback\t"),
    *("https://app.example.com/callback\n", " https://app.example.com/callback", "https://app.example.com/callback "),
    # other queries and fragments
    *("https://app.example.com/callback?", "https://app.example.com/callback?x=1", "https://app.example.com/callback#"),
    *("https://app.example.com/callback#x", "https://app.example.com/callback?app=1&x=2"),
    *("https://app.example.com/callback?app=2", "https://app.example.com/callback?app=1#x"),
    # loopback: only the port is free
    *("http://127.0.0.1.evil.example/callback", "http://127.0.0.1@evil.example/callback", "http://127.0.0.2/callback"),
    *("http://127.0.0.1:8765@evil.example/callback", "http://127.1/callback", "http://0.0.0.0/callback"),
    *("http://2130706433/callback", "http://0x7f.0.0.1/callback", "http://127.0.0.1:99999/callback"),
    *("http://127.0.0.1:8765/other", "http://127.0.0.1:x/callback", "http://127.0.0.1:/callback", "http://127.0.0.1:0/callback"),
    *("http://127.0.0.1:8765/callback?x=1", "http://127.0.0.1:8765/callback#x", "https://127.0.0.1:8765/callback"),
    *("http://localhost.evil.example/callback", "http://localhost:80:80/callback", "http://LOCALHOST/callback"),
    *("http://localhost\\evil.example/callback", "http://[::1].evil.example/callback", "http://[::ffff:127.0.0.1]/callback"),
    *("http://[::1]:1234/other", "http://::1/callback", "http://user@localhost/callback", "http://localhost%2f/callback"),
)  # fmt: skip

MATCHES = (
    *REGISTERED,
    "http://127.0.0.1/callback",
    "http://127.0.0.1:1/callback",
    "http://127.0.0.1:65535/callback",
    "http://localhost:49152/callback",
    "http://[::1]:49152/callback",
)


def test_there_are_many_different_tricks() -> None:
    assert len(TRICKS) == len(set(TRICKS)) >= 60


@each_case("uri", TRICKS)
def test_trick_matches_no_registered_uri(uri: str) -> None:
    assert not is_registered(uri, REGISTERED)


@each_case("uri", MATCHES)
def test_registered_uri_and_free_loopback_ports_match(uri: str) -> None:
    assert is_registered(uri, REGISTERED)


@each_case("uri", REGISTERED)
def test_usual_uris_can_be_registered_by_native_clients(uri: str) -> None:
    require_redirect_uris((uri,), is_native=True, uris_max=1)


@each_case("uri", ["com.example.app:/callback", "cursor://anysphere.cursor-mcp/oauth/callback"])
def test_web_client_cannot_have_the_scheme_of_an_application(uri: str) -> None:
    with pytest.raises(OAuthError, match="only native clients"):
        require_redirect_uris((uri,), is_native=False, uris_max=1)


@each_case(
    "uri",
    [
        "https://*.example.com/callback",
        "https://app.example.com/*",
        "https://app.example.com/callback#x",
        "https://user@app.example.com/",
        "https://app.example.com/../callback",
        "https://app.example.com/%2E%2e/callback",
        "https://app.example.com:0/",
        "https://",
        "https:///callback",
        "http://app.example.com/",
        "http://127.0.0.1.evil.example/",
        "javascript:alert(1)",
        "javascript:/alert(1)",
        "data:text/html,x",
        "vbscript:/x",
        "file:///etc/passwd",
        "HTTPS://app.example.com/",
        "app:",
        "app:/",
        "app:callback",
        "https://app.example.com/" + "x" * 2000,
        'https://app.example.com/"onload=x',
        "https://app.example.com/<script>",
        "https://app.example.com/\u00e9",
        "https://app.example.com/a b",
        "https://app.example.com\r\nLocation: https://evil.example",
        "",
    ],
)
def test_unsafe_uri_cannot_be_registered(uri: str) -> None:
    with pytest.raises(OAuthError) as error:
        require_redirect_uris((uri,), is_native=True, uris_max=1)
    assert error.value.error == "invalid_redirect_uri"


def test_target_is_described_and_allowed_in_forms() -> None:
    assert [describe_target(uri) for uri in (REGISTERED[0], REGISTERED[2], REGISTERED[5])] == [
        "app.example.com",
        "a program on your own computer",
        "an application on your device (com.example.app:)",
    ]
    assert [form_target(uri) for uri in (REGISTERED[0], REGISTERED[2], REGISTERED[5])] == [
        "https://app.example.com",
        "http://127.0.0.1:8765",
        "com.example.app:",
    ]
