import base64
import json

import pytest

from tests.cases import each_case
from tests.server.cli.program import Program

SECRET = "a shared secret of more than thirty-two bytes"


@pytest.fixture
def program(program: Program) -> Program:
    """With a user."""
    program.expect("user", "add", "ada", "--subject", "ada-at-work")
    return program


def claims(token: str) -> dict[str, object]:
    payload = token.split(".")[1]
    decoded: dict[str, object] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return decoded


def test_a_minted_token_contains_the_subject_audience_and_scopes(program: Program) -> None:
    token = program.expect("token", "mint", "ada", "--lifetime", "2h", FLORILEGIUM_JWT_SECRET=SECRET)
    payload = claims(token)
    assert payload["sub"] == "ada-at-work"
    assert payload["aud"] == "http://127.0.0.1:8765/mcp"
    assert payload["scope"] == "knowledge:read knowledge:write"
    assert float(str(payload["exp"])) - float(str(payload["iat"])) == 7200


def test_json_output_contains_scopes_and_expiry(program: Program) -> None:
    options = ("--scope", "admin", "--json")
    data = program.run("token", "mint", "ada", *options, FLORILEGIUM_JWT_SECRET=SECRET).json
    assert claims(data["token"])["scope"] == "admin"
    assert (data["user"], data["scopes"]) == ("ada", ["admin"])
    assert data["expires_at"].endswith("Z")


def test_a_token_can_be_revoked_from_stdin_if_it_is_valid(program: Program) -> None:
    token = program.expect("token", "mint", "ada", FLORILEGIUM_JWT_SECRET=SECRET)
    output = program.expect("token", "revoke", "-", stdin=token + "\n", FLORILEGIUM_JWT_SECRET=SECRET)
    assert output == f"Revoked token {claims(token)['jti']} of ada-at-work."
    other = program.expect("token", "mint", "ada", FLORILEGIUM_JWT_SECRET=SECRET)
    data = program.run("token", "revoke", other, "--json", FLORILEGIUM_JWT_SECRET=SECRET).json
    assert (data["id"], data["subject"], data["state"]) == (claims(other)["jti"], "ada-at-work", "revoked")
    foreign = program.run("token", "revoke", token, FLORILEGIUM_JWT_SECRET=SECRET[::-1])
    assert foreign.code == 1
    assert foreign.stderr.endswith("\nflorilegium: token not accepted\n")


@each_case(
    ("arguments", "code", "sentence"),
    [
        (("mint", "nobody"), 1, "user 'nobody' not found"),
        (
            ("mint", "ada", "--lifetime", "soon"),
            2,
            "lifetime: expected a number and s, m, h, d or w",
        ),
        (("revoke", "flo_" + "A" * 43), 2, "florilegium key revoke ID"),
        (("revoke", "garbage"), 1, "token not accepted"),
    ],
)
def test_invalid_arguments_are_reported(program: Program, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    outcome = program.run("token", *arguments, FLORILEGIUM_JWT_SECRET=SECRET)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert sentence in outcome.stderr


def test_a_token_of_a_disabled_user_is_not_minted(program: Program) -> None:
    program.expect("user", "disable", "ada")
    outcome = program.run("token", "mint", "ada", FLORILEGIUM_JWT_SECRET=SECRET)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "is disabled" in outcome.stderr


def test_a_token_of_another_issuers_user_is_not_minted(program: Program) -> None:
    program.expect("user", "add", "ben", "--issuer", "https://login.example.com")
    outcome = program.run("token", "mint", "ben", FLORILEGIUM_JWT_SECRET=SECRET)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "belongs to issuer 'https://login.example.com'" in outcome.stderr


def test_minting_and_revoking_require_a_secret(program: Program) -> None:
    minting = program.run("token", "mint", "ada")
    assert (minting.code, minting.stdout) == (2, "")
    assert "jwt_secret is not set" in minting.stderr
    revoking = program.run("token", "revoke", "a.b.c")
    assert revoking.code == 2
    assert "no JWT key is configured" in revoking.stderr


def test_minting_is_rejected_if_an_identity_provider_signs_tokens(program: Program) -> None:
    keys = {
        "FLORILEGIUM_JWT_JWKS_URL": "https://login.example.com/jwks",
        "FLORILEGIUM_JWT_ISSUER": "https://login.example.com",
    }
    outcome = program.run("token", "mint", "ada", **keys)
    assert outcome.code == 2
    assert "signed by your identity provider" in outcome.stderr
