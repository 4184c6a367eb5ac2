"""Runs the attack corpus against configured servers: attacks are rejected and valid tokens are accepted."""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from auth.authenticator import RegistryAuthenticator
from auth.principal import Principal
from auth.registry import Registry
from config.errors import Unauthenticated
from tests.auth.attack_tokens import AUDIENCE, REVOKED_JTI, REVOKED_WITHOUT_JTI, attacks
from tests.auth.auth_fixture import ISSUER, NOW, SECRET, FakeClock, make_authenticator, make_settings, write
from tests.auth.issuers import ABSENT, Issuer, eddsa, es256, hs256, jwks, rs256

ISSUERS = (hs256, rs256, es256, eddsa)
CORPUS_MIN_SIZE = 150
ERROR_MESSAGES = {
    "token not accepted",
    "token expired",
    "access withdrawn",
    "API key not accepted",
    "Authorization header not accepted",
}


async def _fetch_jwks(url: str) -> bytes:
    assert url == "https://id.example.com/keys"  # no token can redirect the fetch
    return jwks(es256(), eddsa())


@asynccontextmanager
async def open_server(issuer: Issuer, directory: Path) -> AsyncIterator[RegistryAuthenticator]:
    """A server that trusts this issuer, with a user in each possible state."""
    key_file = write(directory / "key.pem", rs256().public["pem"])
    keys = {
        "HS256": {"jwt_secret": SECRET},
        "RS256": {"jwt_key_file": key_file, "jwt_issuer": ISSUER},
        "ES256": {"jwt_jwks_url": "https://id.example.com/keys", "jwt_issuer": ISSUER},
        "EdDSA": {"jwt_jwks_url": "https://id.example.com/keys", "jwt_issuer": ISSUER},
    }
    clock = FakeClock(NOW - 30)
    async with Registry.open(directory / "control.db", clock=clock) as registry:
        await _populate(registry, issuer)
        clock.now = NOW
        yield make_authenticator(make_settings(**keys[issuer.algorithm]), registry, clock, _fetch_jwks)


async def _populate(registry: Registry, issuer: Issuer) -> None:
    users = {name: await registry.add_user(name) for name in ("alice", "bob", "disabled", "deleted", "returned")}
    await registry.disable_user(users["disabled"].id)
    await registry.delete_user(users["deleted"].id)
    await registry.disable_user(users["returned"].id)
    await registry.enable_user(users["returned"].id)
    await registry.revoke_token(REVOKED_JTI, NOW + 600)
    signing_input = issuer.token(**REVOKED_WITHOUT_JTI).rpartition(".")[0]
    await registry.revoke_token(hashlib.sha256(signing_input.encode()).hexdigest(), NOW + 600)


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


@pytest.mark.parametrize("make_issuer", ISSUERS)
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
@pytest.mark.parametrize("name", VALID_TOKENS)
async def test_valid_token_is_accepted(name: str, make_issuer: Callable[[], Issuer], tmp_path: Path) -> None:
    issuer = make_issuer()
    async with open_server(issuer, tmp_path) as server:
        principal = await server.authenticate(f"Bearer {VALID_TOKENS[name](issuer)}")

    assert principal.kind == "jwt"
    assert principal.scopes == {"knowledge:read", "knowledge:write"}
