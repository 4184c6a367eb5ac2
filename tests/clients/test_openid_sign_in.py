"""Sign-in at real OpenID Connect providers: two people, allowed lists, and responses that reach the wrong place."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from msgspec import Struct

from config.openid import OpenIdProvider
from tests.cases import each_case
from tests.clients.openid_provider import CLIENT_ID, CLIENT_SECRET, openid_providers
from tests.live import HTTP_OPTIONS, free_port
from tests.server.console.console_fixture import Console, TestBrowser, console, text_of

# One worker runs all tests of this file, so that they share the providers.

PROVIDERS = ("one", "two")
ACCOUNTS = {
    "s-ada": {"preferred_username": "ada", "email": "ada@example.com", "email_verified": True, "groups": ["readers"]},
    "s-ben": {"preferred_username": "ben", "email": "ben@example.com", "email_verified": True, "groups": ["writers"]},
    "s-eve": {"preferred_username": "eve", "email": "eve@other.example", "email_verified": True, "groups": ["guests"]},
    "s-mal": {"preferred_username": "mal", "email": "mal@example.com", "email_verified": False, "groups": []},
}


class Sites(Struct, frozen=True):
    """A server with two providers, `one` and `two`, that have the same accounts."""

    console: Console
    issuers: dict[str, str]

    async def answer(self, browser: TestBrowser, provider: str, account: str, target: str = "/account") -> str:
        """Goes to the provider and signs in there. Returns the address to which it sends the browser back."""
        start = await browser.get(f"/sign-in/openid/{provider}", params={"next": target})
        assert start.status_code == 303, start.text
        location = start.headers["Location"]
        assert location.startswith(self.issuers[provider])
        async with httpx2.AsyncClient(**HTTP_OPTIONS) as client:
            while location.startswith(self.issuers[provider]):
                if "/interaction/" in location:
                    location += f"?account={account}"
                response = await client.get(location)
                assert response.status_code in (302, 303), response.text
                location = urljoin(location, response.headers["Location"])
        return location

    async def sign_in(
        self, browser: TestBrowser, provider: str, account: str, target: str = "/account"
    ) -> httpx2.Response:
        return await browser.get(await self.answer(browser, provider, account, target))


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, ...]]:
    """The ports of the server and of two running providers, which know the address of the server."""
    server, *providers = free_port(), free_port(), free_port()
    redirects = [f"http://127.0.0.1:{server}/sign-in/openid/{name}/callback" for name in PROVIDERS]
    with openid_providers(providers, ACCOUNTS, redirects):
        yield server, *providers


class OpenSites(Protocol):
    def __call__(self, *, password_sign_in: bool = True, **limits: Any) -> AbstractAsyncContextManager[Sites]: ...


@pytest.fixture
def open_sites(tmp_path: Path, ports: tuple[int, ...]) -> OpenSites:
    """Returns a function that starts a server. Its keywords are the lists of those who may sign in."""

    @asynccontextmanager
    async def open_(*, password_sign_in: bool = True, **limits: Any) -> AsyncIterator[Sites]:
        issuers = {name: f"http://127.0.0.1:{port}" for name, port in zip(PROVIDERS, ports[1:], strict=True)}
        providers = tuple(
            OpenIdProvider(
                id=name,
                name=f"Provider {name}",
                issuer=issuer,
                client_id=CLIENT_ID,
                client_secret=CLIENT_SECRET,
                scopes=("openid", "profile", "email", "groups"),
                **(limits or {"allowed_domains": ("example.com",)}),
            )
            for name, issuer in issuers.items()
        )
        settings = {"port": ports[0], "openid_providers": providers, "password_sign_in": password_sign_in}
        async with console(tmp_path, **settings) as site:
            yield Sites(site, issuers)

    return open_


async def test_two_people_sign_in_and_keep_their_users(open_sites: OpenSites) -> None:
    async with open_sites() as sites:
        async with sites.console.browser() as adas, sites.console.browser() as bens:
            response = await sites.sign_in(adas, "one", "s-ada", "/account?x=1")
            await sites.sign_in(bens, "one", "s-ben")
            assert response.headers["Location"] == "/account?x=1"
            assert "ada" in text_of((await adas.get("/account")).text)
            assert "ben" in text_of((await bens.get("/account")).text)
        first = await sites.console.rows("SELECT name, issuer, subject, role FROM users ORDER BY name")
        async with sites.console.browser() as browser:
            await sites.sign_in(browser, "one", "s-ada")

        issuer = sites.issuers["one"]
        assert first == [("ada", issuer, "s-ada", "writer"), ("ben", issuer, "s-ben", "writer")]
        assert await sites.console.rows("SELECT name, issuer, subject, role FROM users ORDER BY name") == first


async def test_same_subject_at_another_provider_is_another_user(open_sites: OpenSites) -> None:
    async with open_sites() as sites:
        async with sites.console.browser() as first, sites.console.browser() as second:
            await sites.sign_in(first, "one", "s-ada")
            await sites.sign_in(second, "two", "s-ada")
        users = await sites.console.rows("SELECT id, name FROM users ORDER BY created_at")

    assert len({user_id for user_id, _ in users}) == 2
    assert users[1][1].startswith("ada-")


async def test_name_of_a_local_account_is_not_taken_over(open_sites: OpenSites) -> None:
    async with open_sites() as sites:
        ada = await sites.console.add_account("ada")
        async with sites.console.browser() as browser:
            await sites.sign_in(browser, "one", "s-ada")
            page = text_of((await browser.get("/account")).text)
        users = await sites.console.rows("SELECT id, name FROM users WHERE name LIKE 'ada-%'")

    assert len(users) == 1
    assert users[0][0] != ada.id
    assert users[0][1] in page


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"allowed_domains": ("example.com",)}, {"s-ada", "s-ben"}),
        ({"allowed_emails": ("Eve@Other.example",)}, {"s-eve"}),
        ({"allowed_groups": ("writers", "readers")}, {"s-ada", "s-ben"}),
        ({"allowed_groups": ("writers",), "allowed_emails": ("eve@other.example",)}, {"s-ben", "s-eve"}),
        ({"allow_everyone": True}, set(ACCOUNTS)),
    ],
    ids=["domain", "email", "groups", "group or email", "everyone"],
)
async def test_only_allowed_people_sign_in(open_sites: OpenSites, limits: dict[str, Any], allowed: set[str]) -> None:
    async with open_sites(**limits) as sites:
        responses = {}
        for account in ACCOUNTS:
            async with sites.console.browser() as browser:
                responses[account] = await sites.sign_in(browser, "one", account)
        users = {subject for (subject,) in await sites.console.rows("SELECT subject FROM users")}

    assert {account for account, response in responses.items() if response.status_code == 303} == allowed
    assert users == allowed
    refused = [response for response in responses.values() if response.status_code != 303]
    assert all("is not allowed to use this server" in text_of(response.text) for response in refused)


async def test_refusal_at_the_provider_is_shown(open_sites: OpenSites) -> None:
    async with open_sites() as sites, sites.console.browser() as browser:
        response = await sites.sign_in(browser, "one", "")

    assert response.status_code == 403
    assert "Provider one did not sign you in (access_denied)" in text_of(response.text)


async def test_response_for_another_browser_is_refused(open_sites: OpenSites) -> None:
    """An attacker sends their own response to a victim, who would then use the attacker's account."""
    async with (
        open_sites() as sites,
        sites.console.browser() as attacker,
        sites.console.browser() as victim,
    ):
        location = await sites.answer(attacker, "one", "s-ben")
        await victim.get("/sign-in")
        response = await victim.get(location)

        assert response.status_code == 403
        assert "florilegium" not in victim.client.cookies
        assert (await victim.get("/account")).status_code == 303


async def test_code_of_another_sign_in_is_refused(open_sites: OpenSites) -> None:
    """The code is bound to the browser that started the sign-in, by PKCE and the nonce."""
    async with open_sites() as sites, sites.console.browser() as adas, sites.console.browser() as bens:
        stolen = parse_qs(urlsplit(await sites.answer(adas, "one", "s-ada")).query)
        own = parse_qs(urlsplit(await sites.answer(bens, "one", "s-ben")).query)
        parameters = {"code": stolen["code"][0], "state": own["state"][0], "iss": own["iss"][0]}
        response = await bens.get("/sign-in/openid/one/callback", params=parameters)

    assert response.status_code == 403
    assert "was not accepted" in text_of(response.text)


@each_case("change", ["provider", "iss", "no iss"])
async def test_response_of_another_provider_is_refused(open_sites: OpenSites, change: str) -> None:
    async with open_sites() as sites, sites.console.browser() as browser:
        query = {name: values[0] for name, values in parse_qs(urlsplit(await _answer(sites, browser)).query).items()}
        path = "/sign-in/openid/two/callback" if change == "provider" else "/sign-in/openid/one/callback"
        if change == "iss":
            query["iss"] = sites.issuers["two"]
        if change == "no iss":
            del query["iss"]
        response = await browser.get(path, params=query)
        users = await sites.console.rows("SELECT * FROM users")

    assert response.status_code == 403
    assert users == []


async def _answer(sites: Sites, browser: TestBrowser) -> str:
    return await sites.answer(browser, "one", "s-ada")


@each_case("change", ["changed", "missing", "empty", "other payload"])
async def test_altered_state_is_refused(open_sites: OpenSites, change: str) -> None:
    async with open_sites() as sites, sites.console.browser() as browser:
        query = {name: values[0] for name, values in parse_qs(urlsplit(await _answer(sites, browser)).query).items()}
        payload, _, signature = query["state"].partition(".")
        states = {
            "changed": f"{payload}.{signature[:-2]}xx",
            "empty": "",
            "other payload": f"{payload[:-4]}AAAA.{signature}",
        }
        query["state"] = states.get(change, "")
        if change == "missing":
            del query["state"]
        response = await browser.get("/sign-in/openid/one/callback", params=query)

    assert response.status_code == 403
    assert "this browser did not start the sign-in" in text_of(response.text).lower()


async def test_response_cannot_be_used_twice(open_sites: OpenSites) -> None:
    async with open_sites() as sites, sites.console.browser() as browser:
        location = await sites.answer(browser, "one", "s-ada")
        first = await browser.get(location)
        second = await browser.get(location)

    assert (first.status_code, second.status_code) == (303, 403)


async def test_sign_in_leads_only_to_this_server(open_sites: OpenSites) -> None:
    async with open_sites() as sites, sites.console.browser() as browser:
        response = await sites.sign_in(browser, "one", "s-ada", "//evil.example")

    assert response.headers["Location"] == "/"


async def test_disabled_user_cannot_sign_in(open_sites: OpenSites) -> None:
    async with open_sites() as sites:
        registry = sites.console.server.runtime.registry
        async with sites.console.browser() as first, sites.console.browser() as second, sites.console.browser() as bens:
            await sites.sign_in(first, "one", "s-ada")
            ada = await registry.user_by_name("ada")
            assert ada is not None
            await registry.disable_user(ada.id)

            assert (await first.get("/account")).status_code == 303
            assert (await sites.sign_in(second, "one", "s-ada")).status_code == 403
            assert (await sites.sign_in(bens, "one", "s-ben")).status_code == 303


async def test_page_offers_the_providers(open_sites: OpenSites) -> None:
    async with open_sites(password_sign_in=False) as sites, sites.console.browser() as browser:
        page = await browser.get("/sign-in?next=/account%3Fx")

    assert "Sign in with Provider one" in page.text
    assert "/sign-in/openid/two?next=/account%3Fx" in page.text
    assert 'name="password"' not in page.text
