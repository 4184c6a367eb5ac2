"""A server that trusts an issuer, with a user in each possible state, for the corpus of attack tokens."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from auth.authenticator import RegistryAuthenticator
from auth.registry import Registry
from tests.auth.attack_tokens import REVOKED_JTI, REVOKED_WITHOUT_JTI
from tests.auth.auth_fixture import ISSUER, NOW, SECRET, FakeClock, make_authenticator, make_settings, write
from tests.auth.issuers import Issuer, eddsa, es256, hs256, jwks, rs256

ISSUERS = (hs256, rs256, es256, eddsa)


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
