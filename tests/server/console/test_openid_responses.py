"""What a provider that misbehaves, or someone who imitates it, can send. The provider runs in the test, over HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from auth.audit import AuditFilter
from auth.sharing import Sharing
from config.openid import OpenIdProvider
from tests.auth.issuers import ABSENT, b64, compact, es256, hmac_signer, jwks, rs256
from tests.cases import each_case
from tests.live import free_port
from tests.server.console.console_fixture import Console, TestBrowser, console, text_of

SECRET = "the secret of the client"
Change = Callable[["ImitatedProvider"], None]


class ImitatedProvider:
    """A provider whose documents, tokens and responses a test can change."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.document: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
        }
        self.header: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {"sub": "s-ada", "preferred_username": "ada"}
        self.token_response: Response | None = None
        self.discovery_response: Response | None = None
        self.signer = es256()
        self.nonce = ""
        self.sends_token_as: Callable[[str], str] = lambda token: token
        self.delay_s = 0.0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovery),
                Route("/jwks", self._jwks),
                Route("/token", self._token, methods=["POST"]),
                Route("/userinfo", self._userinfo),
            ]
        )

    async def _discovery(self, request: Request) -> Response:
        await asyncio.sleep(self.delay_s)
        return self.discovery_response or JSONResponse(self.document)

    async def _jwks(self, request: Request) -> Response:
        return Response(jwks(es256(), rs256()))

    async def _token(self, request: Request) -> Response:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "florilegium",
            "sub": "s-ada",
            "nonce": self.nonce,
            "iat": now,
            "exp": now + 300,
            **self.claims,
        }
        token = compact(
            self.signer.header(**{"typ": "JWT", **self.header}), self.signer.payload(**_reset(claims)), self.signer.sign
        )
        return self.token_response or JSONResponse(
            {"id_token": self.sends_token_as(token), "access_token": "a", "token_type": "Bearer"}
        )

    async def _userinfo(self, request: Request) -> Response:
        return JSONResponse(self.userinfo)


def _reset(claims: dict[str, Any]) -> dict[str, Any]:
    """Removes the claims of access tokens that the issuer adds."""
    return {"client_id": ABSENT, "scope": ABSENT, **claims}


@asynccontextmanager
async def imitated(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[ImitatedProvider, Console]]:
    port = free_port()
    provider = ImitatedProvider(port)
    server = uvicorn.Server(uvicorn.Config(provider.app(), port=port, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    entry = OpenIdProvider(
        id="idp",
        issuer=provider.issuer,
        client_id="florilegium",
        client_secret=SECRET,
        allow_everyone=True,
        group_map=("staff=team writer",),
    )
    try:
        async with console(tmp_path, openid_providers=(entry,), **settings) as site:
            yield provider, site
    finally:
        server.should_exit = True
        await serving


async def sign_in(provider: ImitatedProvider, site: Console) -> httpx2.Response:
    async with site.browser() as browser:
        return await use_provider(provider, browser)


async def use_provider(provider: ImitatedProvider, browser: TestBrowser) -> httpx2.Response:
    start = await browser.get("/sign-in/openid/idp")
    if start.status_code != 303:
        return start
    query = parse_qs(urlsplit(start.headers["Location"]).query)
    provider.nonce = query["nonce"][0]
    parameters = {"code": "c", "state": query["state"][0]}
    return await browser.get("/sign-in/openid/idp/callback", params=parameters)


def claims(**changes: Any) -> Change:
    return lambda provider: provider.claims.update(changes)


def document(**changes: Any) -> Change:
    return lambda provider: provider.document.update(changes)


def _unsigned(provider: ImitatedProvider) -> None:
    provider.header = {"alg": "none"}
    provider.sends_token_as = lambda token: token.rpartition(".")[0] + "."


def _signed_with_the_client_secret(provider: ImitatedProvider) -> None:
    provider.header = {"alg": "HS256"}

    def sign_again(token: str) -> str:
        signing_input = token.rpartition(".")[0]
        return f"{signing_input}.{b64(hmac_signer(SECRET.encode())(signing_input.encode()))}"

    provider.sends_token_as = sign_again


def _other_key(provider: ImitatedProvider) -> None:
    provider.signer = es256("unpublished")


def _access_token(provider: ImitatedProvider) -> None:
    provider.header = {"typ": "at+jwt"}


def _respond(response: Response) -> Change:
    def change(provider: ImitatedProvider) -> None:
        provider.token_response = response

    return change


async def test_groups_of_the_provider_are_memberships_until_a_sign_in_without_them(tmp_path: Path) -> None:
    async with imitated(tmp_path) as (provider, site):
        registry = site.server.runtime.registry
        sharing, manager = Sharing(registry.database), await registry.add_user("manager")
        await sharing.create_group(manager.id, "team")
        roles = []
        for groups in (["staff"], {"staff": {"1": "x"}}, ["others"], ABSENT):
            provider.claims["groups"] = groups
            assert (await sign_in(provider, site)).status_code == 303
            members = await sharing.list_members(manager.id, "team")
            roles.append({one.name: one.role for one in members if one.name != "manager"})
        events = await site.server.runtime.audit.select(AuditFilter(actions=("group.join", "group.remove")), 10)

    assert roles == [{"ada": "writer"}, {"ada": "writer"}, {}, {}]
    assert [(one.action, one.client) for one in events] == [
        ("group.remove", provider.issuer),
        ("group.join", provider.issuer),
    ]


REFUSED: dict[str, Change] = {
    "another nonce": claims(nonce="another"),
    "no nonce": claims(nonce=ABSENT),
    "nonce of another type": claims(nonce=["x"]),
    "another audience": claims(aud="another-client"),
    "another audience in a list": claims(aud=["another-client"]),
    "no audience": claims(aud=ABSENT),
    "issued to another client": claims(azp="another-client"),
    "another issuer": claims(iss="https://evil.example"),
    "no issuer": claims(iss=ABSENT),
    "expired": claims(exp=1_700_000_000),
    "never expires": claims(exp=ABSENT),
    "not valid yet": claims(nbf=4_000_000_000),
    "issued in the future": claims(iat=4_000_000_000),
    "no subject": claims(sub=ABSENT),
    "empty subject": claims(sub=""),
    "subject of another type": claims(sub=7),
    "unsigned": _unsigned,
    "signed with the secret of the client": _signed_with_the_client_secret,
    "signed with a key that is not published": _other_key,
    "access token instead": _access_token,
    "userinfo of someone else": lambda provider: provider.userinfo.update(sub="s-ben"),
    "code refused": _respond(JSONResponse({"error": "invalid_grant"}, 400)),
}
UNAVAILABLE: dict[str, Change] = {
    "document of another issuer": document(issuer="https://evil.example"),
    "token endpoint without TLS": document(token_endpoint="http://192.0.2.1/token"),
    "keys without TLS": document(jwks_uri="http://192.0.2.1/jwks"),
    "endpoint that is a file": document(token_endpoint="file:///etc/passwd"),
    "endpoint with a user name": document(userinfo_endpoint="https://a@evil.example/"),
    "incomplete document": document(jwks_uri=None),
    "redirect of the token endpoint": _respond(RedirectResponse("http://127.0.0.1:1/")),
    "huge response": _respond(Response(b'{"id_token": "' + b"a" * 2_000_000 + b'"}')),
    "no JSON": _respond(Response(b"<html>")),
    "no ID token": _respond(JSONResponse({"access_token": "a"})),
    "server error": _respond(Response(b"secret of the inside", 500)),
}


async def test_correct_response_signs_in(tmp_path: Path) -> None:
    async with imitated(tmp_path) as (provider, site):
        for provider.signer, provider.header in ((es256(), {}), (rs256(), {}), (es256(), {"typ": ABSENT})):
            assert (await sign_in(provider, site)).status_code == 303
        provider.claims = {"aud": ["florilegium", "other"], "azp": "florilegium"}
        assert (await sign_in(provider, site)).status_code == 303

        assert await site.rows("SELECT name FROM users") == [("ada",)]


async def test_false_responses_are_refused(tmp_path: Path) -> None:
    async with imitated(tmp_path) as (provider, site):
        pristine = dict(vars(provider))
        statuses = {}
        for name, change in REFUSED.items():
            vars(provider).update(pristine, claims={}, header={}, userinfo=dict(pristine["userinfo"]))
            change(provider)
            response = await sign_in(provider, site)
            statuses[name] = response.status_code
            assert "set-cookie" not in response.headers, name

        assert statuses == dict.fromkeys(REFUSED, 403)
        assert await site.rows("SELECT name FROM users") == []


@pytest.mark.slow("waits for a time limit")
@each_case("name", UNAVAILABLE)
async def test_provider_that_cannot_be_used_is_reported_without_details(tmp_path: Path, name: str) -> None:
    async with imitated(tmp_path) as (provider, site):
        UNAVAILABLE[name](provider)
        response = await sign_in(provider, site)

        assert response.status_code == 503
        assert "idp cannot be used to sign in at the moment" in text_of(response.text).lower()
        assert "192.0.2.1" not in response.text
        assert "inside" not in response.text
        assert await site.rows("SELECT name FROM users") == []


async def test_slow_provider_is_given_up(tmp_path: Path) -> None:
    async with imitated(tmp_path, openid_timeout_s=0.2) as (provider, site):
        provider.delay_s = 1.0

        assert (await sign_in(provider, site)).status_code == 503


async def test_unknown_provider_is_not_found(tmp_path: Path) -> None:
    async with imitated(tmp_path) as (_, site), site.browser() as browser:
        assert (await browser.get("/sign-in/openid/other")).status_code == 404
        assert (await browser.get("/sign-in/openid/other/callback?code=1&state=2")).status_code == 404


async def test_error_of_a_forged_address_is_not_shown(tmp_path: Path) -> None:
    async with imitated(tmp_path) as (_, site), site.browser() as browser:
        start = await browser.get("/sign-in/openid/idp")
        state = parse_qs(urlsplit(start.headers["Location"]).query)["state"][0]
        parameters = {"error": "<b>call 555</b>", "error_description": "call 555", "state": state}
        response = await browser.get("/sign-in/openid/idp/callback", params=parameters)

    assert response.status_code == 403
    assert "555" not in response.text


async def test_only_provider_is_used_without_asking(tmp_path: Path) -> None:
    async with imitated(tmp_path, password_sign_in=False) as (provider, site), site.browser() as browser:
        first = await browser.get("/account")
        second = await browser.get(first.headers["Location"])
        third = await browser.get(second.headers["Location"])
        after_sign_out = await browser.get("/sign-in")

    assert second.headers["Location"] == "/sign-in/openid/idp?next=/account"
    assert third.headers["Location"].startswith(f"{provider.issuer}/authorize?")
    assert after_sign_out.status_code == 200
