"""Runs the attack corpus against configured servers: attacks are rejected and valid tokens are accepted."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from auth.authenticator import RegistryAuthenticator
from auth.context import Principal
from config.errors import Unauthenticated
from tests.auth.attack_server import ISSUERS, open_server
from tests.auth.attack_tokens import AUDIENCE, attacks
from tests.auth.auth_fixture import NOW
from tests.auth.issuers import ABSENT, Issuer, es256
from tests.cases import each_case

CORPUS_MIN_SIZE = 150
ERROR_MESSAGES = {
    "token not accepted",
    "token expired",
    "access withdrawn",
    "API key not accepted",
    "Authorization header not accepted",
}


async def outcome_of(server: RegistryAuthenticator, token: str) -> Principal | Unauthenticated:
    try:
        return await server.authenticate(f"Bearer {token}")
    except Unauthenticated as error:
        return error


@pytest.mark.parametrize("make_issuer", ISSUERS)
async def test_no_attack_token_is_accepted(make_issuer: Callable[[], Issuer], tmp_path: Path) -> None:
    issuer = make_issuer()
    async with open_server(issuer, tmp_path) as server:
        outcomes = {name: await outcome_of(server, token) for name, token in attacks(issuer)}

    accepted = [name for name, outcome in outcomes.items() if not isinstance(outcome, Unauthenticated)]
    assert accepted == []
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, Unauthenticated)]
    assert all(error.presented for error in errors)
    assert {error.message for error in errors} <= ERROR_MESSAGES


@each_case("make_issuer", ISSUERS)
def test_corpus_is_large_and_has_no_duplicates(make_issuer: Callable[[], Issuer]) -> None:
    corpus = attacks(make_issuer())

    assert len(corpus) == len({name for name, _ in corpus}) == len({token for _, token in corpus})
    assert len(corpus) >= CORPUS_MIN_SIZE


VALID_TOKENS: Mapping[str, Callable[[Issuer], str]] = {
    "plain": lambda issuer: issuer.token(),
    "of the second user": lambda issuer: issuer.token(sub="bob"),
    "with aud in a list": lambda issuer: issuer.token(aud=["account", AUDIENCE]),
    "with typ JWT": lambda issuer: issuer.token({"typ": "JWT"}),
    "with typ in other case": lambda issuer: issuer.token({"typ": "AT+jwt"}),
    "with typ in full": lambda issuer: issuer.token({"typ": "application/at+jwt"}),
    "with scopes in a list": lambda issuer: issuer.token(scope=["knowledge:read", "knowledge:write"]),
    "with a fraction in exp": lambda issuer: issuer.token(exp=NOW + 0.5),
    "expired within the leeway": lambda issuer: issuer.token(exp=NOW - 29),
    "not yet valid, within the leeway": lambda issuer: issuer.token(nbf=NOW + 30, iat=NOW + 30),
    "without iat": lambda issuer: issuer.token(iat=ABSENT),
    "without client_id": lambda issuer: issuer.token(client_id=ABSENT),
    "with jti": lambda issuer: issuer.token(jti="an unrevoked one"),
    "with additional claims": lambda issuer: issuer.token(realm_access={"roles": ["x"]}, email="a@example.com"),
    "with jku": lambda issuer: issuer.token({"jku": "https://evil.example.com/keys"}),
    "with x5u": lambda issuer: issuer.token({"x5u": "https://evil.example.com/cert"}),
    "with an attacker's jwk": lambda issuer: issuer.token({"jwk": dict(es256("attacker").jwk)}),
    "with x5c": lambda issuer: issuer.token({"x5c": ["AAAA"]}),
    "issued after the user was enabled": lambda issuer: issuer.token(sub="returned", iat=NOW),
}


@pytest.mark.parametrize("make_issuer", ISSUERS)
async def test_every_valid_token_is_accepted(make_issuer: Callable[[], Issuer], tmp_path: Path) -> None:
    issuer = make_issuer()
    async with open_server(issuer, tmp_path) as server:
        outcomes = {name: await outcome_of(server, make(issuer)) for name, make in VALID_TOKENS.items()}

    assert {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, Principal)} == {}
    principals = [outcome for outcome in outcomes.values() if isinstance(outcome, Principal)]
    assert {principal.kind for principal in principals} == {"jwt"}
    assert {principal.scopes for principal in principals} == {frozenset(("knowledge:read", "knowledge:write"))}
