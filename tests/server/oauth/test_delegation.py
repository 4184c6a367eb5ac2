"""Delegation: people sign in at an identity provider, and this server issues the tokens of MCP clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import uvicorn

from config.openid import OpenIdProvider
from tests.live import LiveServer, free_port, live, make_settings
from tests.server.console.test_openid_responses import SECRET, ImitatedProvider
from tests.server.http_client import fetch
from tests.server.oauth.browser import Page, open_browser
from tests.server.oauth.oauth_client import OAuthTestClient, user_of


@asynccontextmanager
async def delegating(tmp_path: Path) -> AsyncIterator[tuple[LiveServer, ImitatedProvider]]:
    """Yields a server that also accepts tokens of the provider, which would turn the authorization server off."""
    port = free_port()
    provider = ImitatedProvider(port)
    serving = uvicorn.Server(uvicorn.Config(provider.app(), port=port, log_config=None, lifespan="off"))
    task = asyncio.create_task(serving.serve())
    while not serving.started:
        await asyncio.sleep(0.01)
    entry = OpenIdProvider(
        id="idp", issuer=provider.issuer, client_id="florilegium", client_secret=SECRET, allow_everyone=True
    )
    settings = make_settings(
        tmp_path,
        jwt_secret="",
        jwt_jwks_url=f"{provider.issuer}/jwks",
        jwt_issuer=provider.issuer,
        openid_providers=(entry,),
        oauth_server="on",
        password_sign_in=False,
    )
    try:
        async with live(settings) as server:
            yield server, provider
    finally:
        serving.should_exit = True
        await task


async def allow(server: LiveServer, provider: ImitatedProvider, client: OAuthTestClient, subject: str) -> Page:
    """Opens an authorization request, signs in at the provider as `subject`, and allows the request."""
    provider.claims, provider.userinfo = {"sub": subject}, {"sub": subject, "preferred_username": subject}
    async with open_browser(server) as browser:
        sign_in = await browser.open(client.authorization_url())
        # With one provider and no passwords there is nothing to choose on the sign-in page, so it leads there at once.
        at_provider = sign_in if sign_in.location else await browser.open(sign_in.link("/sign-in/openid/"))
        query = parse_qs(urlsplit(at_provider.location).query)
        provider.nonce = query["nonce"][0]
        callback = f"{query['redirect_uri'][0]}?code=x&state={query['state'][0]}"
        consent = await browser.open(callback)
        return await browser.submit(consent, {"decision": "allow"})


async def test_people_of_a_provider_connect_clients_that_know_only_this_server(tmp_path: Path) -> None:
    async with delegating(tmp_path) as (server, provider):
        resource = (await fetch(server.url, "GET", "/.well-known/oauth-protected-resource/mcp")).json()
        client = await OAuthTestClient.register(server)
        users = []
        for subject in ("ada", "bob"):
            page = await allow(server, provider, client, subject)
            tokens = (await client.redeem(page.answer["code"])).json()
            users.append(await user_of(server, tokens["access_token"]))

    assert resource["authorization_servers"] == [server.url]
    assert users == ["ada", "bob"]
