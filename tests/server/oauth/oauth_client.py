"""An OAuth client for tests, which sends exactly the parameters it is given."""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from auth.context import READ, WRITE
from tests.live import LiveServer
from tests.server.clients import ModernClient
from tests.server.http_client import HttpResponse, fetch
from tests.server.oauth.browser import Browser, open_browser

REDIRECT_URI = "https://app.example.com/callback"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


class OAuthTestClient:
    """A public client. `verifier` is the secret of its authorization requests."""

    def __init__(self, server: LiveServer, client_id: str, redirect_uri: str = REDIRECT_URI) -> None:
        self.server = server
        self.client_id = client_id
        self.redirect_uri = redirect_uri
        self.verifier = secrets.token_urlsafe(32)
        self.state = secrets.token_urlsafe(16)

    @classmethod
    async def register(cls, server: LiveServer, redirect_uri: str = REDIRECT_URI, **changes: Any) -> "OAuthTestClient":
        response = await register(server, **{"redirect_uris": [redirect_uri], **changes})
        assert response.status == 201, response.body
        return cls(server, response.json()["client_id"], redirect_uri)

    def authorization_url(self, **changes: str | None) -> str:
        """Returns an authorization request. `changes` replace its parameters, or remove them if None."""
        parameters = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": f"{READ} {WRITE}",
            "state": self.state,
            "resource": self.server.mcp,
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            **changes,
        }
        present = {name: value for name, value in parameters.items() if value is not None}
        return f"{self.server.url}/authorize?{urlencode(present)}"

    async def code(self, browser: Browser, **changes: str | None) -> str:
        """Returns an authorization code that the person in the browser allowed."""
        page = await browser.allow(self.authorization_url(**changes))
        assert "code" in page.answer, page.text or page.location
        return page.answer["code"]

    async def token_request(self, **values: str | None) -> HttpResponse:
        return await post_form(self.server, "/token", {"client_id": self.client_id, **values})

    async def redeem(self, code: str, **changes: str | None) -> HttpResponse:
        return await self.token_request(
            **{
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self.redirect_uri,
                "code_verifier": self.verifier,
                "resource": self.server.mcp,
                **changes,
            }
        )

    async def refresh(self, refresh_token: str, **changes: str | None) -> HttpResponse:
        return await self.token_request(**{"grant_type": "refresh_token", "refresh_token": refresh_token, **changes})

    async def connect(self, browser: Browser, **changes: str | None) -> dict[str, Any]:
        """Returns the tokens of a complete flow."""
        response = await self.redeem(await self.code(browser, **changes), resource=changes.get("resource"))
        assert response.status == 200, response.body
        tokens: dict[str, Any] = response.json()
        return tokens


async def connect(server: LiveServer, user: str, **changes: Any) -> tuple[OAuthTestClient, dict[str, Any]]:
    """Returns a new client and its tokens for a user."""
    client = await OAuthTestClient.register(server, **changes)
    async with open_browser(server, user) as browser:
        return client, await client.connect(browser)


async def register(server: LiveServer, **changes: Any) -> HttpResponse:
    document = {
        "client_name": "Test App",
        "redirect_uris": [REDIRECT_URI],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        **changes,
    }
    body = msgspec.json.encode({name: value for name, value in document.items() if value is not None})
    return await fetch(server.url, "POST", "/register", {"Content-Type": "application/json"}, body)


async def post_form(server: LiveServer, path: str, values: Mapping[str, str | None], **headers: str) -> HttpResponse:
    body = urlencode({name: value for name, value in values.items() if value is not None}).encode()
    return await fetch(server.url, "POST", path, {**FORM, **headers}, body)


async def call(server: LiveServer, access_token: str, tool: str = "server_info") -> HttpResponse:
    return await ModernClient(server, {"Authorization": f"Bearer {access_token}"}).call(tool)


async def user_of(server: LiveServer, access_token: str) -> str:
    """Returns the user whose library a token opens, or the status if it opens none."""
    response = await call(server, access_token)
    if response.status != 200:
        return str(response.status)
    user: str = response.json()["result"]["structuredContent"]["user"]
    return user
