"""Notices of new keys, passkeys, applications and browsers, on the pages of their owner."""

import re

import pytest

from auth.audit import AuditFilter
from auth.context import READ
from auth.oauth.grants import GrantRequest, TokenResource
from tests.server.console.console_fixture import Console, TestBrowser, text_of
from tests.server.console.software_authenticator import SoftwareAuthenticator
from tests.server.console.test_passkeys import register

PAGES = ("/", "/library", "/connect", "/account")


async def notices(browser: TestBrowser, page: str = "/account") -> list[str]:
    text = (await browser.get(page, headers={"Accept": "text/html"})).text
    found = re.search(r'<section class="warning notices".*?</section>', text, re.DOTALL)
    return re.findall(r"<li>(.*?)</li>", found[0]) if found else []


async def create_key(site: Console, user: str, name: str) -> str:
    registry = site.server.runtime.registry
    key, _ = await registry.create_key((await site.server.user(user)).id, name, [READ])
    return key.id


async def test_owner_is_told_about_a_new_key_until_it_is_dismissed_or_revoked(site: Console) -> None:
    async with site.browser() as ada, site.browser() as ben:
        await ada.sign_in("ada")
        await ben.sign_in("ben")
        assert await notices(ada) == []
        key = await create_key(site, "ada", "<b>laptop")
        shown = [await notices(ada, page) for page in PAGES]
        assert shown == [shown[0]] * len(PAGES)
        assert "A new API key “&lt;b&gt;laptop” was created on" in shown[0][0]
        assert 'If this was not you, <a href="/connect#keys">revoke it</a>' in shown[0][0]
        assert await notices(ben) == []

        await create_key(site, "ada", "phone")
        assert len(await notices(ada)) == 2
        await site.server.runtime.registry.revoke_key(key)
        assert [("phone" in notice) for notice in await notices(ada)] == [True]

        response = await ada.submit("/library?source=notes", {}, "/account/notices")
        assert response.headers["Location"] == "/library?source=notes"
        assert await notices(ada) == []
        await create_key(site, "ada", "tablet")
        assert len(await notices(ada)) == 1


async def test_dismissing_hides_only_what_was_shown(site: Console) -> None:
    async with site.browser() as ada, site.browser() as ben:
        await ada.sign_in("ada")
        await ben.sign_in("ben")
        await create_key(site, "ada", "first")
        page = await ada.get("/account")
        await create_key(site, "ada", "second")
        fields = dict(re.findall(r'name="(csrf_token|until)" value="([^"]*)"', page.text))
        for other in ("csrf_token", "until"):
            bad = await ada.client.post("/account/notices", data={**fields, other: "x"})
            assert bad.status_code == (403 if other == "csrf_token" else 400)
        assert (await ben.client.post("/account/notices", data=fields)).status_code == 403
        assert len(await notices(ada)) == 2
        await ada.client.post("/account/notices", data=fields)
        assert ["second" in notice for notice in await notices(ada)] == [True]
        # A time in the future would hide what is still to come.
        await ada.client.post("/account/notices", data={**fields, "until": "9e12"})
        await create_key(site, "ada", "third")
        assert ["third" in notice for notice in await notices(ada)] == [True]


async def test_owner_is_told_about_passkeys_and_applications(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")
        await register(ada, SoftwareAuthenticator(site.origin), "My phone")
        runtime = site.server.runtime
        request = GrantRequest(
            user=await site.server.user("ada"),
            client_id="c_1",
            client_name="Reader",
            redirect_uri="http://127.0.0.1/callback",
            scopes=frozenset((READ,)),
            resource=TokenResource(runtime.settings.resource_url, None),
        )
        await runtime.oauth_grants.approve(request, "challenge")
        passkey, application = await notices(ada)

    assert "A new passkey “My phone” was added" in passkey
    assert "The application “Reader” was connected" in application


async def test_other_browsers_are_told_about_a_new_one(site: Console) -> None:
    agent = "Mozilla/5.0 (Windows NT 10.0) Firefox/140.0"
    async with site.browser() as first, site.browser(**{"User-Agent": agent}) as second:
        await first.sign_in("ada")
        await second.sign_in("ada")
        [notice] = await notices(first)
        assert "Firefox on Windows signed in from 127.0.0.1, for the first time, on" in text_of(notice)
        assert await notices(second) == []
        await first.submit("/account", {}, "/account/notices")
        await second.submit("/account", {}, "/sign-out")
        await second.sign_in("ada")
        assert await notices(first) == [], "the browser is known by now"
        user = await site.server.user("ada")
        events = await site.server.runtime.audit.select(AuditFilter(user_id=user.id, actions=("sign_in",)), 10)

    assert [event.detail for event in reversed(events)] == ["password", "password, new browser", "password"]


@pytest.mark.parametrize("page", ["/", "/library"])
async def test_programs_see_no_notices(site: Console, page: str) -> None:
    registry = site.server.runtime.registry
    _, secret = await registry.create_key((await site.server.user("ada")).id, "program", [READ])
    async with site.browser() as browser:
        response = await browser.get(page, auth=("ada", secret), headers={"Accept": "text/html"})

    assert response.status_code == 200
    assert "notices" not in response.text
