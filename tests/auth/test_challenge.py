"""The WWW-Authenticate challenge and the protected resource metadata."""

import re

from hypothesis import given
from hypothesis import strategies as st

from auth.context import ADMIN, SCOPES
from auth.rate_limits import METADATA_PATH, challenge, resource_metadata
from config.errors import Forbidden, Unauthenticated
from tests.auth.auth_fixture import ISSUER, PUBLIC_URL, make_settings
from tests.cases import each_case

METADATA = f'resource_metadata="{PUBLIC_URL}/.well-known/oauth-protected-resource/mcp"'


def test_challenge_without_a_credential_has_no_error_code() -> None:
    assert challenge(make_settings(), Unauthenticated()) == f'Bearer {METADATA}, scope="knowledge:read knowledge:write"'


def test_rejected_credential_is_reported_as_invalid_token() -> None:
    text = challenge(make_settings(), Unauthenticated("token expired", presented=True))

    assert text == (
        f'Bearer {METADATA}, error="invalid_token", error_description="token expired", '
        'scope="knowledge:read knowledge:write"'
    )


def test_missing_scope_is_reported() -> None:
    text = challenge(make_settings(), Forbidden(ADMIN))

    assert text == f'Bearer {METADATA}, error="insufficient_scope", scope="admin"'


@given(st.text())
def test_message_cannot_break_out_of_the_quoted_string(message: str) -> None:
    text = challenge(make_settings(), Unauthenticated(message, presented=True))

    assert re.fullmatch(r'Bearer (?:[a-z_]+="(?:[ !#-\[\]-~]|\\["\\])*"(?:, |$))+', text)
    assert len(re.findall(r'(?:^Bearer |", )([a-z_]+)="', text)) >= 4


def test_metadata_lists_the_resource_and_the_configured_servers() -> None:
    settings = make_settings(authorization_servers=("https://login.example.com",))

    assert resource_metadata(settings) == {
        "resource": settings.resource_url,
        "resource_name": "Florilegium",
        "authorization_servers": ["https://login.example.com"],
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
        "resource_documentation": f"{PUBLIC_URL}/about/documentation",
        "resource_policy_uri": f"{PUBLIC_URL}/about/privacy",
        "resource_tos_uri": f"{PUBLIC_URL}/about/terms",
    }
    assert METADATA_PATH == "/.well-known/oauth-protected-resource/mcp"


def test_external_issuer_is_the_default_authorization_server() -> None:
    settings = make_settings(jwt_jwks_url="https://id.example.com/keys", jwt_issuer=ISSUER)

    assert resource_metadata(settings)["authorization_servers"] == [ISSUER]


def test_this_server_is_the_authorization_server_if_tokens_are_not_issued_elsewhere() -> None:
    assert resource_metadata(make_settings(jwt_secret="s" * 32))["authorization_servers"] == ["https://kb.example.com"]


@each_case(
    "changes", [{}, {"jwt_secret": "s" * 32, "oauth_server": "off"}, {"jwt_key_file": "key.pem", "jwt_issuer": "us"}]
)
def test_metadata_omits_authorization_servers_if_there_are_none(changes: dict[str, str]) -> None:
    assert "authorization_servers" not in resource_metadata(make_settings(**changes))
