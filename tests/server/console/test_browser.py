"""The guard of web pages: cookies, forms of other sites, and redirects to other sites."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from auth.accounts.service import Accounts
from auth.audit import Audit, AuditFile
from auth.browser_sessions import BrowserSessions, Notices
from auth.registry import Registry
from config.paths import DataRoot
from config.settings import Settings
from server.console.browser import BrowserGuard, safe_path
from server.console.page_handler import PageHandler
from server.stores import control_location
from tests.cases import each_case
from tests.live import make_settings

BASE_URL = "https://kb.example.com"


class GuardedPages(Struct, frozen=True):
    """An application with the pages that a test needs, and a browser."""

    settings: Settings
    registry: Registry
    sessions: BrowserSessions
    audit: Audit

    def browser(self, base_url: str = BASE_URL) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(self.app())
        return httpx2.AsyncClient(transport=transport, base_url=base_url, headers={"Origin": base_url})

    def app(self) -> Starlette:
        database = self.registry.database
        accounts, notices = Accounts(self.settings, database), Notices(database, self.settings)
        guard = BrowserGuard(self.settings, self.sessions, self.audit, accounts, notices)

        async def page(request: Request) -> Response:
            response = await guard.render(request, "message.html", title="Form", sentences=[])
            response.headers["X-Token"] = await guard._form_token(request) or ""
            return response

        async def send(request: Request) -> Response:
            values = await guard.check_form(request)
            return JSONResponse(dict(values))

        async def sign_in(request: Request) -> Response:
            values = await guard.check_form(request)
            user = await self.registry.ensure_user("", values["name"])
            return await guard.sign_in(request, user, "/private", method="test")

        async def private(request: Request) -> Response:
            return Response((await guard.require_session(request)).user.name)

        async def sign_out(request: Request) -> Response:
            await guard.check_form(request)
            return await guard.sign_out(request)

        def handler(**functions: Any) -> PageHandler:
            return PageHandler(self.settings, guard, **functions)

        return Starlette(
            routes=[
                Route("/form", handler(get=page, post=send)),
                Route("/start", handler(post=sign_in)),
                Route("/private", handler(get=private, post=private)),
                Route("/end", handler(post=sign_out)),
            ]
        )


def make_pages(registry: Registry, tmp_path: Path, **changes: Any) -> GuardedPages:
    settings = make_settings(tmp_path, **{"public_url": BASE_URL, **changes})
    audit = Audit(AuditFile(tmp_path / "audit.db"), settings)
    return GuardedPages(settings, registry, BrowserSessions(registry.database, settings), audit)


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    location = control_location(make_settings(tmp_path), DataRoot(tmp_path))
    async with Registry.open(location) as registry:
        yield registry


@pytest.fixture
def pages(registry: Registry, tmp_path: Path) -> GuardedPages:
    return make_pages(registry, tmp_path)


async def open_form(browser: httpx2.AsyncClient) -> str:
    """Opens the form twice, because the first response sets the cookie, and returns the token that it carries."""
    await browser.get("/form")
    return (await browser.get("/form")).headers["X-Token"]


async def sign_in(browser: httpx2.AsyncClient, name: str) -> httpx2.Response:
    return await browser.post("/start", data={"name": name, "csrf_token": await open_form(browser)})


async def test_session_belongs_to_one_browser(pages: GuardedPages) -> None:
    async with pages.browser() as first, pages.browser() as second, pages.browser() as third:
        await sign_in(first, "ada")
        await sign_in(second, "ben")

        assert (await first.get("/private")).text == "ada"
        assert (await second.get("/private")).text == "ben"
        assert (await third.get("/private")).status_code == 303


async def test_session_cookie_is_for_this_host_only_and_hidden_from_scripts(pages: GuardedPages) -> None:
    async with pages.browser() as browser:
        response = await sign_in(browser, "ada")

    cookie = next(c for c in response.headers.get_list("set-cookie") if c.startswith("__Host-florilegium="))
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/", "secure"} <= attributes
    assert not any(attribute.startswith("domain") for attribute in attributes)


async def test_cookies_without_tls_have_no_prefix(registry: Registry, tmp_path: Path) -> None:
    pages = make_pages(registry, tmp_path, public_url="")
    async with pages.browser(pages.settings.base_url) as browser:
        response = await sign_in(browser, "ada")

        assert response.headers.get_list("set-cookie")[0].startswith("florilegium=")
        assert (await browser.get("/private")).text == "ada"


async def test_sign_in_ignores_a_planted_session(pages: GuardedPages) -> None:
    async with pages.browser() as attacker, pages.browser() as victim:
        await sign_in(attacker, "mallory")
        planted = attacker.cookies["__Host-florilegium"]
        victim.cookies.set("__Host-florilegium", planted, "kb.example.com")
        await sign_in(victim, "ada")

        assert victim.cookies["__Host-florilegium"] != planted
        assert (await victim.get("/private")).text == "ada"
        assert (await attacker.get("/private")).status_code == 303


async def test_unknown_secret_of_a_session_is_not_adopted(pages: GuardedPages) -> None:
    async with pages.browser() as victim:
        victim.cookies.set("__Host-florilegium", "fixed", "kb.example.com")
        await sign_in(victim, "ada")
        victim.cookies.clear()
        victim.cookies.set("__Host-florilegium", "fixed", "kb.example.com")

        assert (await victim.get("/private")).status_code == 303


async def test_signing_out_ends_the_session_on_the_server(pages: GuardedPages) -> None:
    async with pages.browser() as browser:
        await sign_in(browser, "ada")
        secret = browser.cookies["__Host-florilegium"]
        response = await browser.post("/end", data={"csrf_token": await open_form(browser)})

        assert response.status_code == 303
        assert "__Host-florilegium" not in browser.cookies
        assert await pages.sessions.find(secret) is None


async def test_form_with_its_token_is_accepted(pages: GuardedPages) -> None:
    async with pages.browser() as browser:
        token = await open_form(browser)
        response = await browser.post("/form", data={"a": "ä", "csrf_token": token})

    assert response.json() == {"a": "ä", "csrf_token": token}


@each_case("token", ["", "0" * 64, "ä"])
async def test_form_with_another_token_is_rejected(pages: GuardedPages, token: str) -> None:
    async with pages.browser() as browser:
        await open_form(browser)
        response = await browser.post("/form", data={"csrf_token": token})

    assert response.status_code == 403
    assert "no longer valid" in response.text


async def test_form_without_cookies_is_rejected(pages: GuardedPages) -> None:
    async with pages.browser() as browser, pages.browser() as other:
        token = await open_form(browser)

        assert (await other.post("/form", data={"csrf_token": token})).status_code == 403


async def test_token_of_another_user_is_rejected(pages: GuardedPages) -> None:
    async with pages.browser() as first, pages.browser() as second:
        await sign_in(first, "ada")
        await sign_in(second, "ben")
        token = await open_form(second)

        assert (await first.post("/form", data={"csrf_token": token})).status_code == 403


async def test_token_from_before_sign_in_is_rejected_afterwards(pages: GuardedPages) -> None:
    async with pages.browser() as browser:
        token = await open_form(browser)
        await sign_in(browser, "ada")

        assert (await browser.post("/form", data={"csrf_token": token})).status_code == 403


@each_case(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://kb.example.com"},
        {"Origin": "https://kb.example.com:8443"},
        {"Origin": "https://kb.example.com.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    ],
)
async def test_form_of_another_site_is_rejected(pages: GuardedPages, headers: dict[str, str]) -> None:
    async with pages.browser() as browser:
        token = await open_form(browser)
        response = await browser.post("/form", data={"csrf_token": token}, headers=headers)

    assert response.status_code == 403


async def test_origins_allowed_for_scripts_cannot_send_forms(registry: Registry, tmp_path: Path) -> None:
    pages = make_pages(registry, tmp_path, allowed_origins=("https://app.example.com",))
    async with pages.browser() as browser:
        token = await open_form(browser)
        response = await browser.post(
            "/form", data={"csrf_token": token}, headers={"Origin": "https://app.example.com"}
        )

    assert response.status_code == 403


async def test_other_ports_of_this_machine_cannot_send_forms(registry: Registry, tmp_path: Path) -> None:
    pages = make_pages(registry, tmp_path, public_url="")
    async with pages.browser(pages.settings.base_url) as browser:
        token = await open_form(browser)
        response = await browser.post("/form", data={"csrf_token": token}, headers={"Origin": "http://127.0.0.1:9"})

    assert response.status_code == 403


@each_case(
    ("body", "content_type", "status"),
    [
        (b"csrf_token=x&a=" + b"a" * 70_000, "application/x-www-form-urlencoded", 413),
        (b'{"csrf_token": "x"}', "application/json", 415),
        (b"csrf_token=x", "text/plain", 415),
        (b"csrf_token=x&csrf_token=y", "application/x-www-form-urlencoded", 400),
        (b"csrf_token=%ff", "application/x-www-form-urlencoded", 400),
    ],
)
async def test_bad_body_of_a_form_is_rejected(pages: GuardedPages, body: bytes, content_type: str, status: int) -> None:
    async with pages.browser() as browser:
        await open_form(browser)
        response = await browser.post("/form", content=body, headers={"Content-Type": content_type})

    assert response.status_code == status


async def test_page_cannot_be_framed(pages: GuardedPages) -> None:
    async with pages.browser() as browser:
        response = await browser.get("/form")

    assert response.headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]


async def test_sign_in_page_leads_back_to_the_page(pages: GuardedPages) -> None:
    async with pages.browser() as browser:
        response = await browser.get("/private?a=1&b=https://x.example/")

        assert response.headers["Location"] == "/sign-in?next=/private%3Fa%3D1%26b%3Dhttps%3A//x.example/"
        assert (await browser.post("/private")).headers["Location"] == "/sign-in?next=/account"


OTHER_SITES = (
    "https://evil.example",
    "http://evil.example/",
    "//evil.example",
    "///evil.example",
    "////evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "\\/evil.example",
    "/\\/evil.example",
    "/\t/evil.example",
    "\t//evil.example",
    "/\n/evil.example",
    "/\r\n/evil.example",
    "/\r\nLocation: https://evil.example",
    " //evil.example",
    "/ /evil.example",
    "/.//evil.example",
    "/..//evil.example",
    "/a/..//evil.example",
    "/a//../..//evil.example",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "https:evil.example",
    "https:/evil.example",
    "http:///evil.example",
    "evil.example",
    "@evil.example",
    "?next=//evil.example",
    "#//evil.example",
    "",
    "/\x00/evil.example",
    "/\x7f",
    "/\u2028/evil.example",
    "/／evil.example",
    "／／evil.example",
    "/é",
    "/a\\..\\..\\evil.example",
    "/sign-in?next=//evil.example",
    "/sign-in",
    "/sign-in/",
)


@each_case("value", OTHER_SITES)
def test_address_of_another_site_is_replaced(value: str) -> None:
    assert safe_path(value) == "/"


@each_case(
    "value",
    ["/", "/account", "/items/notes/a%2Fb", "/oauth/authorize?redirect_uri=https://a.example/b&scope=x%20y", "/a?b#c"],
)
def test_path_on_this_server_is_kept(value: str) -> None:
    assert safe_path(value) == value
