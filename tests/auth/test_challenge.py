"""What a refused caller is told."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.challenge import METADATA_PATH, challenge, resource_metadata
from auth.principal import ADMIN, SCOPES
from config.errors import Forbidden, Unauthenticated
from tests.auth.scene import ISSUER, PUBLIC_URL, make_settings

METADATA = f'resource_metadata="{PUBLIC_URL}/.well-known/oauth-protected-resource/mcp"'


def test_without_a_credential_there_is_no_error_code() -> None:
    assert challenge(make_settings(), Unauthenticated()) == f'Bearer {METADATA}, scope="knowledge:read knowledge:write"'


def test_a_refused_credential_is_called_an_invalid_token() -> None:
    text = challenge(make_settings(), Unauthenticated("token expired", presented=True))

    assert text == (
        f'Bearer {METADATA}, error="invalid_token", error_description="token expired", '
        'scope="knowledge:read knowledge:write"'
    )


def test_a_missing_scope_is_named() -> None:
    text = challenge(make_settings(), Forbidden(ADMIN))

    assert text == f'Bearer {METADATA}, error="insufficient_scope", scope="admin"'


@given(st.text())
def test_no_text_breaks_out_of_its_quotes(message: str) -> None:
    text = challenge(make_settings(), Unauthenticated(message, presented=True))

    assert re.fullmatch(r'Bearer (?:[a-z_]+="(?:[ !#-\[\]-~]|\\["\\])*"(?:, |$))+', text)
    assert len(re.findall(r'(?:^Bearer |", )([a-z_]+)="', text)) >= 4


def test_the_metadata_names_the_resource_and_the_configured_servers() -> None:
    settings = make_settings(authorization_servers=("https://login.example.com",))

    assert resource_metadata(settings) == {
        "resource": settings.resource_url,
        "resource_name": "Florilegium",
        "authorization_servers": ["https://login.example.com"],
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
    }
    assert METADATA_PATH == "/.well-known/oauth-protected-resource/mcp"


def test_the_issuer_of_foreign_keys_is_the_authorization_server_unless_others_are_named() -> None:
    settings = make_settings(jwt_jwks_url="https://id.example.com/keys", jwt_issuer=ISSUER)

    assert resource_metadata(settings)["authorization_servers"] == [ISSUER]


@pytest.mark.parametrize("changes", [{}, {"jwt_secret": "s" * 32}, {"jwt_key_file": "key.pem", "jwt_issuer": "us"}])
def test_without_an_authorization_server_the_field_is_left_out(changes: dict[str, str]) -> None:
    assert "authorization_servers" not in resource_metadata(make_settings(**changes))
