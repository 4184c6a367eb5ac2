"""Enterprise sign-in: assertions of an identity provider (ID-JAG) are exchanged for access tokens."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import uvicorn
from msgspec import Struct

from auth.context import ADMIN, READ, WRITE
from auth.oauth.clients import JWT_BEARER, OAuthClients
from auth.oauth.grants import PRIVATE_KEY
from config.openid import OpenIdProvider
from tests.auth.issuers import ABSENT, Issuer, b64, compact, es256, hs256, rs256
from tests.cases import each_case
from tests.live import LiveServer, free_port, live, make_settings
from tests.server.console.test_openid_responses import ImitatedProvider
from tests.server.http_client import HttpResponse, fetch
from tests.server.oauth.document_host import DocumentHost
from tests.server.oauth.oauth_client import REDIRECT_URI, OAuthTestClient, post_form, user_of
from tests.server.oauth.signing_client import ClientKey, SigningClient

METADATA = "/.well-known/oauth-authorization-server"


class Enterprise(Struct, frozen=True):
    """A server that trusts a provider, and a client that the operator has added for it."""

    server: LiveServer
    issuer: str
    client_id: str
    secret: str

    def assertion(self, header: Mapping[str, Any] | None = None, signer: Issuer | None = None, **claims: Any) -> str:
        now, issuer = int(time.time()), signer or es256()
        payload = {
            "iss": self.issuer,
            "sub": "s-ada",
            "preferred_username": "ada",
            "aud": self.server.url,
            "client_id": self.client_id,
            "resource": self.server.mcp,
            "scope": f"{READ} {WRITE}",
            "jti": secrets.token_urlsafe(8),
            "iat": now,
            "exp": now + 300,
            **claims,
        }
        headers = {"typ": "oauth-id-jag+jwt", **(header or {})}
        return compact(issuer.header(**headers), issuer.payload(**payload), issuer.sign)

    async def exchange(self, assertion: str, **changes: str | None) -> HttpResponse:
        values = {"client_id": self.client_id, "client_secret": self.secret, "grant_type": JWT_BEARER, **changes}
        return await post_form(self.server, "/token", {**values, "assertion": assertion})

    async def errors(self, *responses: HttpResponse) -> list[str]:
        return [response.json().get("error", "") for response in responses]


@asynccontextmanager
async def enterprise(
    tmp_path: Path, settings_changes: Mapping[str, Any] = MappingProxyType({}), **options: Any
) -> AsyncIterator[Enterprise]:
    provider = ImitatedProvider(port := free_port())
    serving = uvicorn.Server(uvicorn.Config(provider.app(), port=port, log_config=None, lifespan="off"))
    task = asyncio.create_task(serving.serve())
    while not serving.started:
        await asyncio.sleep(0.01)
    access = {} if "allowed_emails" in options else {"allow_everyone": True}
    entry = OpenIdProvider(
        id="idp", issuer=provider.issuer, client_id="florilegium", **{"assertion_grants": True, **access, **options}
    )
    settings = make_settings(tmp_path, jwt_secret="", require_auth=True, openid_providers=(entry,), **settings_changes)
    try:
        async with live(settings) as server:
            clients = OAuthClients(server.runtime.registry.database, settings)
            document = {"client_name": "Assistant", "grant_types": [JWT_BEARER]}
            client, secret = await clients.add(document, is_confidential=True)
            yield Enterprise(server, provider.issuer, client.id, secret)
    finally:
        serving.should_exit = True
        await task


@pytest.fixture(scope="module")
async def shared_enterprise(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Enterprise]:
    async with enterprise(tmp_path_factory.mktemp("enterprise")) as shared:
        yield shared


@pytest.fixture
async def company(shared_enterprise: Enterprise) -> AsyncIterator[Enterprise]:
    yield shared_enterprise
    await shared_enterprise.server.forget_users()


async def test_assertion_opens_the_library_of_its_subject_without_a_refresh_token(company: Enterprise) -> None:
    ada = await company.exchange(company.assertion())
    ben = await company.exchange(company.assertion(sub="s-ben", preferred_username="ben", scope=READ))
    metadata = (await fetch(company.server.url, "GET", METADATA)).json()

    assert (ada.status, ada.json()["token_type"], ada.header("cache-control")) == (200, "Bearer", "no-store")
    assert "refresh_token" not in ada.json()
    assert (ada.json()["scope"], ben.json()["scope"]) == (f"{READ} {WRITE}", READ)
    assert await user_of(company.server, ada.json()["access_token"]) == "ada"
    assert await user_of(company.server, ben.json()["access_token"]) == "ben"
    assert JWT_BEARER in metadata["grant_types_supported"]
    assert metadata["authorization_grant_profiles_supported"] == ["urn:ietf:params:oauth:grant-profile:id-jag"]


@each_case(
    ("header", "claims"),
    [
        ({"typ": "JWT"}, {}),
        ({"typ": "at+jwt"}, {}),
        ({"typ": ABSENT}, {}),
        ({"crit": ["b64"]}, {}),
        ({}, {"aud": "https://other.example.com"}),
        ({}, {"aud": "florilegium"}),
        ({}, {"aud": []}),
        ({}, {"aud": ABSENT}),
        ({}, {"client_id": "c_other"}),
        ({}, {"client_id": ABSENT}),
        ({}, {"exp": 1}),
        ({}, {"exp": ABSENT}),
        ({}, {"exp": 4_000_000_000}),
        ({}, {"iat": 4_000_000_000}),
        ({}, {"iat": ABSENT}),
        ({}, {"nbf": 4_000_000_000}),
        ({}, {"jti": ABSENT}),
        ({}, {"jti": 7}),
        ({}, {"sub": ABSENT}),
        ({}, {"sub": ""}),
        ({}, {"iss": "https://other.example.com"}),
        ({}, {"iss": ABSENT}),
        ({}, {"iss": ["x"]}),
        ({}, {"scope": 7}),
        ({}, {"resource": [7]}),
        ({}, {"cnf": {"jkt": "x"}}),
        ({}, {"authorization_details": []}),
        ({}, {"tenant": "t1"}),
    ],
)
async def test_wrong_assertion_is_refused(company: Enterprise, header: dict[str, Any], claims: dict[str, Any]) -> None:
    response = await company.exchange(company.assertion(header, **claims))

    assert (response.status, response.json()["error"]) == (400, "invalid_grant")
    assert await company.server.runtime.registry.list_users() == []


async def test_assertion_that_the_provider_did_not_sign_is_refused(company: Enterprise) -> None:
    signed = company.assertion()
    head, payload, signature = signed.split(".")
    unsigned = b64(b'{"alg":"none","typ":"oauth-id-jag+jwt"}')
    forged = [
        f"{unsigned}.{payload}.{signature}",
        f"{unsigned}.{payload}.",
        f"{head}.{payload}.{b64(b'x' * 64)}",
        company.assertion(signer=hs256(company.secret.encode())),
        company.assertion(signer=rs256("someone else")),
        company.assertion(signer=es256("someone else")),
        "not a token",
    ]
    errors = await company.errors(*[await company.exchange(one) for one in forged])

    assert set(errors) == {"invalid_grant"}
    assert (await company.exchange(signed)).status == 200


async def test_assertion_is_accepted_once_in_all_processes(company: Enterprise) -> None:
    assertion, fixed = company.assertion(), company.assertion(jti="same")
    first, again = await company.exchange(assertion), await company.exchange(assertion)
    at_once = await asyncio.gather(*(company.exchange(fixed) for _ in range(5)))

    assert (first.status, again.json()["error_description"]) == (200, "assertion: already used")
    assert sorted(response.status for response in at_once) == [200, 400, 400, 400, 400]
    assert await user_of(company.server, first.json()["access_token"]) == "ada"


async def test_only_a_client_that_proves_its_identity_can_use_an_assertion(company: Enterprise) -> None:
    server = company.server
    public = await OAuthTestClient.register(server, grant_types=["authorization_code", JWT_BEARER])
    stolen = await company.exchange(
        company.assertion(client_id=public.client_id), client_id=public.client_id, client_secret=None
    )
    other = await OAuthClients(server.runtime.registry.database, server.runtime.settings).add(
        {"client_name": "Other", "redirect_uris": ["https://app.example.com/"]}, is_confidential=True
    )
    unregistered = await company.exchange(
        company.assertion(client_id=other[0].id), client_id=other[0].id, client_secret=other[1]
    )
    wrong = await company.exchange(company.assertion(), client_secret="flos_" + "x" * 43)
    missing = await company.exchange(company.assertion(), client_secret=None)
    without = await post_form(
        server, "/token", {"grant_type": JWT_BEARER, "client_id": company.client_id, "client_secret": company.secret}
    )

    errors = await company.errors(stolen, unregistered, wrong, missing, without)
    assert errors == ["invalid_client", "unauthorized_client", "invalid_client", "invalid_client", "invalid_request"]
    assert await server.runtime.registry.list_users() == []


async def test_assertion_decides_scope_and_resource_and_the_request_can_narrow_them(company: Enterprise) -> None:
    mcp = company.server.mcp
    granted = await company.exchange(company.assertion(scope=f"openid {READ} {WRITE} {ADMIN}"))
    narrowed = await company.exchange(company.assertion(), scope=READ)
    widened = await company.exchange(company.assertion(scope=READ), scope=WRITE)
    nothing = await company.exchange(company.assertion(scope="openid"))
    administrator = await company.exchange(company.assertion(scope=ADMIN))
    default = await company.exchange(company.assertion(scope=ABSENT, resource=ABSENT))
    profile = await company.exchange(company.assertion(resource=[f"{mcp}/research"]))
    same = await company.exchange(company.assertion(), resource=mcp)
    elsewhere = await company.exchange(company.assertion(resource="https://other.example.com/mcp"))
    both = await company.exchange(company.assertion(resource=[mcp, "https://other.example.com/mcp"]))
    different = await company.exchange(company.assertion(), resource=f"{mcp}/research")

    scopes = [response.json()["scope"] for response in (granted, narrowed, default, profile, same)]
    assert scopes == [f"{READ} {WRITE}", READ, *[f"{READ} {WRITE}"] * 3]
    assert await company.errors(widened, different) == ["invalid_scope", "invalid_target"]
    assert await company.errors(nothing, administrator, elsewhere, both) == ["invalid_grant"] * 4


async def test_person_who_may_not_sign_in_gets_no_token(tmp_path: Path) -> None:
    async with enterprise(tmp_path, allowed_emails=("ada@example.com",)) as company:
        ada: dict[str, Any] = {"email": "ada@example.com", "email_verified": True}
        unknown = await company.exchange(company.assertion())
        unverified = await company.exchange(company.assertion(email="ada@example.com"))
        other = await company.exchange(company.assertion(sub="s-ben", email="ben@example.com", email_verified=True))
        nobody = await company.server.runtime.registry.list_users()
        token = (await company.exchange(company.assertion(**ada))).json()["access_token"]
        [user] = await company.server.runtime.registry.list_users()
        await company.server.runtime.registry.disable_user(user.id)
        disabled = await company.exchange(company.assertion(**ada))
        ended = await user_of(company.server, token)

    assert await company.errors(unknown, unverified, other, disabled) == ["invalid_grant"] * 4
    assert nobody == []
    assert ended == "401"


async def test_provider_is_trusted_only_if_the_operator_says_so(tmp_path: Path) -> None:
    async with enterprise(tmp_path, assertion_grants=False) as company:
        response = await company.exchange(company.assertion())
        metadata = (await fetch(company.server.url, "GET", METADATA)).json()

    assert response.json()["error"] == "unsupported_grant_type"
    assert JWT_BEARER not in metadata["grant_types_supported"]
    assert "authorization_grant_profiles_supported" not in metadata


async def test_assertions_of_a_person_are_one_connection_that_the_person_can_end(company: Enterprise) -> None:
    grants = company.server.runtime.oauth_grants
    tokens = [(await company.exchange(company.assertion())).json()["access_token"] for _ in range(3)]
    [ada] = await company.server.runtime.registry.list_users()
    [connection] = await grants.list(ada.id)
    await grants.revoke(ada.id, connection.id)
    ended = {await user_of(company.server, token) for token in tokens}
    later = await company.exchange(company.assertion())

    assert (connection.client_name, connection.scopes) == ("Assistant", frozenset((READ, WRITE)))
    assert ended == {"401"}
    assert later.status == 200
    assert connection.id not in [one.id for one in await grants.list(ada.id)]


async def test_client_with_a_metadata_document_proves_its_identity_with_its_key(
    tmp_path: Path, host: DocumentHost
) -> None:
    key, hosts = ClientKey(), {"oauth_client_metadata_hosts": (f"127.0.0.1:{host.port}",)}
    document = {"client_name": "Hosted", "redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": PRIVATE_KEY}
    url = host.serve("/client.json", {**document, "jwks": {"keys": [key.jwk]}})
    async with enterprise(tmp_path, hosts) as company:
        client = SigningClient(company.server, url, key)
        values = {"grant_type": JWT_BEARER, "client_secret": None}
        unnamed = await client.token_request(**values, assertion=company.assertion())
        fetched = list(host.requests)
        unproven = await company.exchange(company.assertion(client_id=url), client_id=url, client_secret=None)
        forged = await client.token_request(
            **values, assertion=company.assertion(client_id=url), client_assertion=ClientKey().sign(client.claims())
        )
        nobody = await company.server.runtime.registry.list_users()
        tokens = [await client.token_request(**values, assertion=company.assertion(client_id=url)) for _ in range(2)]
        users = [await user_of(company.server, one.json()["access_token"]) for one in tokens]

    assert await company.errors(unnamed, unproven, forged) == ["invalid_grant", "invalid_request", "invalid_client"]
    # A stranger cannot make this server fetch a document: the provider has to name the client.
    assert (fetched, nobody) == ([], [])
    assert users == ["ada", "ada"]
