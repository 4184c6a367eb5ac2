"""The pages of the account and of administration in a browser. Ada is an administrator, Ben is not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Struct

from auth.browser_sessions import session_cookie_name
from auth.context import READ
from tests.browser.driver import BrowserDriver
from tests.browser.payloads import PAYLOADS
from tests.browser.test_console import PHONE
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.console.console_fixture import FAST_HASHES, OTHER_PASSWORD, PASSWORD
from tests.server.console.console_fixture import Console as AccountSite
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")
ADMIN_PAGES = ("/admin", "/admin/usage", "/admin/users", "/admin/users/ben", "/admin/audit", "/admin/audit?reads=1")
PAGES = ("/account", "/account/delete", "/about/privacy", "/about/documentation", *ADMIN_PAGES)
KEYS = 130


class Site(Struct, frozen=True):
    server: LiveServer

    async def run(self, browser: BrowserDriver, step: str, who: str, file: str = "admin.mjs", **options: Any) -> Any:
        user = await self.server.runtime.registry.user_by_name(who)
        assert user is not None
        secret = await self.server.runtime.browser_sessions.create(user)
        cookie = {"name": session_cookie_name(self.server.runtime.settings), "value": secret}
        return await asyncio.to_thread(browser.run, file, step, url=self.server.url, cookie=cookie, **options)


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    settings = make_settings(tmp_path_factory.mktemp("admin"), **NO_RATE_LIMITS, **FAST_HASHES)
    async with live(settings) as server:
        accounts = AccountSite(server)
        ada = await accounts.add_account("ada", "admin")
        for name in ("ben", "cleo"):
            await accounts.add_account(name)
            await (await rest_client_of(server).library_user(name)).add_note("Harbour", "A galleon at anchor.")
        for number in range(KEYS):
            server.runtime.audit.record("key.create", ada.id, client="browser", target=f"k_{number}")
        yield Site(server)


async def test_account_page_changes_the_password_and_exports_the_library(browser: BrowserDriver, site: Site) -> None:
    values = {"name": "ben", "password": PASSWORD, "changed": OTHER_PASSWORD}

    seen = await site.run(browser, "account", "ben", values=values)

    assert seen["usage"][1] == "Items\n1"
    assert seen["file"] == "florilegium-export.zip"
    assert seen["findings"] == []
    assert "Administration" not in seen["links"]


async def test_account_is_deleted_after_its_name_was_typed(browser: BrowserDriver, site: Site) -> None:
    seen = await site.run(browser, "deletion", "cleo", values="cleo")

    assert seen == {"refused": "Type cleo to confirm.", "items": "Items\n0", "findings": []}
    assert await site.server.runtime.registry.user_by_name("cleo") is None


async def test_administrator_invites_changes_and_deletes_a_user(browser: BrowserDriver, site: Site) -> None:
    values = {"name": "dora", "password": PASSWORD}

    seen = await site.run(browser, "users", "ada", values=values)

    assert seen["refused"] == "Max_items: expected a whole number, or nothing for the setting, got '12 apples'."
    assert seen["quota"] == "12"
    assert "/reset/" in seen["reset"]
    assert seen["findings"] == []
    assert "dora" not in seen["names"]


async def test_invitation_is_created_and_revoked_with_the_keyboard_alone(browser: BrowserDriver, site: Site) -> None:
    seen = await site.run(browser, "keyboard", "ada")

    assert seen["after"] == seen["before"] - 1


async def test_audit_log_is_filtered_and_paged(browser: BrowserDriver, site: Site) -> None:
    seen = await site.run(browser, "log", "ada")

    assert (seen["first"], seen["second"], seen["findings"]) == (100, KEYS - 100, [])
    assert "nobody-here" in seen["missing"]


@pytest.mark.parametrize(("who", "status", "links"), [("ada", 200, 2), ("ben", 403, 0)])
async def test_only_administrators_see_the_pages_of_administration(
    browser: BrowserDriver, site: Site, who: str, status: int, links: int
) -> None:
    seen = await site.run(browser, "statuses", who, values=ADMIN_PAGES)

    assert seen == {path: [status, links] for path in ADMIN_PAGES}


@pytest.mark.parametrize("options", [{}, {"colorScheme": "dark", **PHONE}])
async def test_pages_pass_the_audit_and_fit_the_screen(
    browser: BrowserDriver, site: Site, options: dict[str, Any]
) -> None:
    findings = await site.run(browser, "look", "ada", "search.mjs", values=PAGES, **options)

    assert findings == {path: [] for path in PAGES}


async def test_hostile_names_run_and_load_nothing(browser: BrowserDriver, site: Site) -> None:
    """The payloads are the names of keys and passkeys, the User-Agent of browsers, and every text of audit events."""
    runtime = site.server.runtime
    mallory = await runtime.registry.add_user("mallory", role="admin")
    for number, payload in enumerate(PAYLOADS):
        text = "".join(c for c in payload if c.isprintable())
        await runtime.browser_sessions.create(mallory, text[:50], text)
        runtime.audit.record(text, mallory.id, client=text, target=text, address=text, detail=text)
        if number < 20:
            key, _ = await runtime.registry.create_key(mallory.id, text, [READ])
            runtime.audit.record("key.create", mallory.id, client=key.id, target=key.id)
    names = ["/admin/users/%3Cscript%3Exss=1%3C%2Fscript%3E", "/admin/audit?user=%22%3E%3Cscript%3Exss=1%3C/script%3E"]
    pages = ["/account", "/admin", "/admin/users", "/admin/users/mallory", "/admin/audit", "/admin/audit?user=mallory"]

    await site.run(browser, "hostile", "mallory", "item.mjs", values=pages)
    await site.run(browser, "rejected", "mallory", values=names)
