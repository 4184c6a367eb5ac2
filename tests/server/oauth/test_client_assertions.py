"""Clients that prove their identity with a key (`private_key_jwt`), over a real server and a real host of documents."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.http_client import fetch
from tests.server.oauth.browser import open_browser
from tests.server.oauth.document_host import DocumentHost
from tests.server.oauth.oauth_client import REDIRECT_URI, post_form, user_of
from tests.server.oauth.signing_client import ASSERTION_TYPE, ClientKey, SigningClient

KEY, OTHER_KEY = ClientKey(), ClientKey()
RSA_KEY = ClientKey("RS256", "key-2")
DOCUMENT: dict[str, Any] = {
    "client_name": "Signing App",
    "redirect_uris": [REDIRECT_URI],
    "grant_types": ["authorization_code", "refresh_token"],
    "token_endpoint_auth_method": "private_key_jwt",
}
INLINE = {**DOCUMENT, "jwks": {"keys": [KEY.jwk]}}


@pytest.fixture
async def server(tmp_path: Path, host: DocumentHost) -> AsyncIterator[LiveServer]:
    settings = make_settings(
        tmp_path / "data",
        oauth_client_metadata_hosts=(f"127.0.0.1:{host.port}",),
        oauth_client_metadata_timeout_s=30.0,
        jwks_refresh_min_s=1.0,
        rate_failures_per_minute=0,
        rate_oauth_per_minute=0,
    )
    async with live(settings) as running:
        yield running


def published_keys(host: DocumentHost, *keys: ClientKey) -> None:
    body = msgspec.json.encode({"keys": [key.jwk for key in keys]})
    host.serve_bytes("/keys.json", body, **{"Content-Type": "application/jwk-set+json"})


async def test_client_with_a_key_connects_each_user(server: LiveServer, host: DocumentHost) -> None:
    client = SigningClient(server, host.serve("/inline.json", INLINE), KEY)
    async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
        tokens = [await client.connect(ada), await client.connect(bob)]
    refreshed = (await client.refresh(tokens[0]["refresh_token"])).json()
    users = [await user_of(server, token["access_token"]) for token in (*tokens, refreshed)]
    metadata = (await fetch(server.url, "GET", "/.well-known/oauth-authorization-server")).json()
    values = {"token": tokens[1]["refresh_token"], "client_id": client.client_id}
    refused = await post_form(server, "/revoke", values)
    proof = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": KEY.sign(client.claims())}
    revoked = await post_form(server, "/revoke", {**values, **proof})

    assert users == ["ada", "bob", "ada"]
    assert "private_key_jwt" in metadata["token_endpoint_auth_methods_supported"]
    assert metadata["token_endpoint_auth_signing_alg_values_supported"] == ["RS256", "ES256", "EdDSA"]
    assert (refused.status, revoked.status) == (401, 200)
    assert await user_of(server, tokens[1]["access_token"]) == "401"


async def test_keys_are_fetched_from_their_address_and_can_be_replaced(server: LiveServer, host: DocumentHost) -> None:
    published_keys(host, RSA_KEY)
    document = {**DOCUMENT, "jwks_uri": host.url("/keys.json"), "token_endpoint_auth_signing_alg": "RS256"}
    client = SigningClient(server, host.serve("/remote.json", document), RSA_KEY)
    async with open_browser(server, "ada") as ada:
        tokens = await client.connect(ada)
    wrong_algorithm = await client.refresh(tokens["refresh_token"], client_assertion=KEY.sign(client.claims()))
    # The client id may be left out: the assertion names it.
    refreshed = (await client.refresh(tokens["refresh_token"], client_id=None)).json()
    assert host.requests.count("/keys.json") == 1
    client.key = ClientKey("RS256", "key-3")
    published_keys(host, client.key)
    while (rotated := await client.refresh(refreshed["refresh_token"])).status != 200:
        assert rotated.json()["error"] == "invalid_client"

    assert wrong_algorithm.json() == {
        "error": "invalid_client",
        "error_description": "client_assertion: alg is not accepted",
    }
    assert await user_of(server, rotated.json()["access_token"]) == "ada"


def hmac_with_the_public_key(client: SigningClient) -> str:
    return unsigned_parts({"alg": "HS256", "kid": KEY.kid}, client.claims()) + "." + "A" * 43


def unsigned_parts(header: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims))
    return ".".join(parts)


FORGERIES: dict[str, Callable[[SigningClient], str | None]] = {
    "none": lambda client: None,
    "empty": lambda client: "",
    "not a token": lambda client: "x.y.z",
    "alg none": lambda client: unsigned_parts({"alg": "none"}, client.claims()) + ".AA",
    "alg HS256": hmac_with_the_public_key,
    "own key in the header": lambda client: OTHER_KEY.sign(client.claims(), jwk=OTHER_KEY.jwk),
    "other key": lambda client: OTHER_KEY.sign(client.claims()),
    "unknown kid": lambda client: OTHER_KEY.sign(client.claims(), kid="key-9"),
    "altered": lambda client: KEY.sign(client.claims())[:-8] + "AAAAAAAA",
    "other issuer": lambda client: KEY.sign(client.claims(iss="https://evil.example.com/c")),
    "other subject": lambda client: KEY.sign(client.claims(sub="https://evil.example.com/c")),
    "other audience": lambda client: KEY.sign(client.claims(aud="https://other.example.com")),
    "no audience": lambda client: KEY.sign(client.claims(aud=None)),
    "expired": lambda client: KEY.sign(client.claims(exp=1_700_000_000)),
    "no expiry": lambda client: KEY.sign(client.claims(exp=None)),
    "expires too late": lambda client: KEY.sign(client.claims(exp=client.claims()["exp"] + 86_400)),
    "issued in the future": lambda client: KEY.sign(client.claims(iat=client.claims()["iat"] + 3600)),
    "no id": lambda client: KEY.sign(client.claims(jti=None)),
    "access token": lambda client: KEY.sign(client.claims(), typ="at+jwt"),
    "critical header": lambda client: KEY.sign(client.claims(), crit=["exp"]),
}


async def test_forged_assertion_is_refused_and_costs_the_client_nothing(server: LiveServer, host: DocumentHost) -> None:
    client = SigningClient(server, host.serve("/forged.json", INLINE), KEY)
    async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
        tokens = await client.connect(ada)
        stolen_code = await client.code(bob)
    refresh_token = tokens["refresh_token"]
    outcomes = {
        name: await client.refresh(refresh_token, client_assertion=forge(client)) for name, forge in FORGERIES.items()
    }
    assertion = KEY.sign(client.claims(aud=[f"{server.url}/token", "https://other.example.com"]))
    first = await client.refresh(refresh_token, client_assertion=assertion)
    replayed = await client.refresh(first.json()["refresh_token"], client_assertion=assertion)
    without_key = await client.redeem(stolen_code, client_assertion=None, client_assertion_type=None)

    refusals = {name: (outcome.status, outcome.json()["error"]) for name, outcome in outcomes.items()}
    assert set(refusals.values()) == {(401, "invalid_client")}, refusals
    assert first.status == 200
    assert replayed.json() == {"error": "invalid_client", "error_description": "client_assertion: already used"}
    assert without_key.json()["error"] == "invalid_client"


@each_case(
    "changes",
    [
        {"client_secret": "flos_secret"},
        {"client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:saml2-bearer"},
        {"client_assertion_type": None},
    ],
)
async def test_client_authenticates_in_one_way(
    changes: dict[str, str | None], server: LiveServer, host: DocumentHost
) -> None:
    client = SigningClient(server, host.serve("/one.json", INLINE), KEY)
    refused = await client.refresh("flor_" + "A" * 43, **changes)

    assert (refused.status, refused.json()["error"]) == (400, "invalid_request")


async def test_nothing_is_fetched_for_strangers(server: LiveServer, host: DocumentHost) -> None:
    published_keys(host, KEY)
    document = {**DOCUMENT, "jwks_uri": host.url("/keys.json")}
    client = SigningClient(server, host.serve("/stranger.json", document), KEY)
    before = len(host.requests)
    outcomes = [await client.redeem("floc_" + "A" * 43), await client.refresh("flor_" + "A" * 43)]

    assert [outcome.json()["error"] for outcome in outcomes] == ["invalid_grant"] * 2
    assert len(host.requests) == before


async def test_keys_at_a_private_address_are_not_fetched(server: LiveServer, host: DocumentHost) -> None:
    document = {**DOCUMENT, "jwks_uri": "https://127.0.0.1/keys.json"}
    client = SigningClient(server, host.serve("/private.json", document), KEY)
    async with open_browser(server, "ada") as ada:
        refused = await client.redeem(await client.code(ada))

    assert refused.status == 503


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, "expected jwks or jwks_uri"),
        ({"jwks": {"keys": [KEY.jwk]}, "jwks_uri": "https://example.com/k"}, "expected jwks or jwks_uri"),
        ({"jwks": []}, "jwks: expected a JWK set"),
        ({"jwks": {"keys": []}}, "jwks: expected a JWK set"),
        ({"jwks_uri": "http://example.com/k"}, "jwks_uri: expected an https URL"),
        ({"jwks": {"keys": [KEY.jwk]}, "token_endpoint_auth_signing_alg": "HS256"}, "expected RS256, ES256, EdDSA"),
    ],
)
async def test_document_without_usable_keys_is_explained(
    changes: dict[str, Any], problem: str, server: LiveServer, host: DocumentHost
) -> None:
    client = SigningClient(server, host.serve("/bad.json", {**DOCUMENT, **changes}), KEY)
    async with open_browser(server, "ada") as ada:
        page = await ada.open(client.authorization_url())

    assert (page.status, page.location) == (400, "")
    assert problem in page.words
