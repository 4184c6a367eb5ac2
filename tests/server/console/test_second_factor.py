"""With `password_requires_passkey`, a password alone gives access to nothing but the page for the passkey."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from auth.accounts.passkeys import remove_all_passkeys
from tests.server.console.console_fixture import PASSWORD, Console, TestBrowser, console, text_of
from tests.server.console.software_authenticator import SoftwareAuthenticator
from tests.server.console.test_openid_responses import imitated, use_provider
from tests.server.console.test_passkeys import options, register, token_of
from tests.server.console.test_passkeys import sign_in as use_passkey
from tests.server.oauth.oauth_client import OAuthTestClient

PAGE = "/sign-in/second-factor"
HTML = {"Accept": "text/html"}
PAGES = (
    *("/account", "/library", "/history", "/threads", "/new", "/import", "/connect", "/admin", "/admin/users"),
    *("/items/notes/1", "/account/delete", "/device"),
)
OPERATIONS = ("/api/v1/account", "/api/v1/keys", "/api/v1/library", "/api/v1/export", "/api/v1/users")
FORMS = ("/account/password", "/account/sessions", "/account/passkeys/options", "/connect/keys", "/account/notices")


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Console]:
    async with console(tmp_path, password_requires_passkey=True) as site:
        await site.add_account("ada", "admin")
        await site.add_account("ben")
        yield site


async def add_first(browser: TestBrowser, device: SoftwareAuthenticator, **more: str) -> httpx2.Response:
    values, token = await options(browser, PAGE, f"{PAGE}/options")
    data = {"csrf_token": token, "name": "phone", "credential": device.create(values), **more}
    return await browser.client.post(PAGE, data=data)


async def reachable(browser: TestBrowser) -> list[str]:
    """Returns what a browser can use."""
    found = []
    for path in PAGES:
        response = await browser.get(path, headers=HTML)
        location = response.headers.get("Location", "")
        if response.status_code != 303 or not location.startswith("/sign-in?"):
            found.append(path)
    found += [path for path in OPERATIONS if (await browser.get(path)).status_code != 401]
    token = await token_of(browser, PAGE)
    for path in FORMS:
        response = await browser.client.post(path, data={"csrf_token": token})
        if not response.headers.get("Location", "").startswith("/sign-in?"):
            found.append(path)
    return found


async def test_password_alone_reaches_only_the_page_for_the_passkey(strict: Console) -> None:
    async with strict.browser() as ada:
        response = await ada.sign_in("ada", next="/library")
        assert response.headers["Location"] == f"{PAGE}?next=/library"
        assert "One more step" in text_of((await ada.get(PAGE)).text)
        assert await reachable(ada) == []
        consent = (await OAuthTestClient.register(strict.server)).authorization_url()
        assert (await ada.get(consent)).headers["Location"].startswith("/sign-in?next=/authorize")
        again = await ada.get("/sign-in?next=/account")
        assert again.headers["Location"] == f"{PAGE}?next=/account"
        assert "ada" not in text_of((await ada.get("/", headers=HTML)).text)


async def test_first_passkey_is_added_and_from_then_on_needed(strict: Console) -> None:
    device, thief = SoftwareAuthenticator(strict.origin), SoftwareAuthenticator(strict.origin)
    async with strict.browser() as ada, strict.browser() as other:
        await ada.sign_in("ada")
        await other.sign_in("ada")
        values, _ = await options(other, PAGE, f"{PAGE}/options")  # before there is a passkey
        added = await add_first(ada, device, next="/library")
        assert added.headers["Location"] == "/library"
        assert (await ada.get("/account")).status_code == 200

        assert "Use your passkey" in (await other.get(PAGE)).text
        token = await token_of(other, PAGE)
        refused = [
            await other.client.post(f"{PAGE}/options", data={"csrf_token": token}),
            await other.client.post(PAGE, data={"csrf_token": token, "credential": thief.create(values)}),
        ]
        assert [response.status_code for response in refused] == [409, 409]
        assert await reachable(other) == []
        used = await use_passkey_on(other, device, next="/account")
        assert used.headers["Location"] == "/account"
        assert (await other.get("/account")).status_code == 200


async def use_passkey_on(browser: TestBrowser, device: SoftwareAuthenticator, **more: str) -> httpx2.Response:
    values, token = await options(browser, PAGE, "/sign-in/passkey/options")
    data = {"csrf_token": token, "credential": device.get(values), **more}
    return await browser.client.post("/sign-in/passkey", data=data)


async def test_passkey_of_someone_else_is_not_the_second_factor(strict: Console) -> None:
    devices = {name: SoftwareAuthenticator(strict.origin) for name in ("ada", "ben")}
    for name, device in devices.items():
        async with strict.browser() as browser:
            await browser.sign_in(name)
            await add_first(browser, device)
    async with strict.browser() as thief:
        await thief.sign_in("ada")
        response = await use_passkey_on(thief, devices["ben"])
        assert response.status_code == 403
        assert await reachable(thief) == []


async def test_passkey_without_a_password_is_enough(strict: Console) -> None:
    device = SoftwareAuthenticator(strict.origin)
    async with strict.browser() as ada, strict.browser() as other:
        await ada.sign_in("ada")
        await add_first(ada, device)
        await use_passkey(other, device)
        assert (await other.get("/account")).status_code == 200


async def test_last_passkey_cannot_be_removed(strict: Console) -> None:
    first, second = SoftwareAuthenticator(strict.origin), SoftwareAuthenticator(strict.origin)
    async with strict.browser() as ada:
        await ada.sign_in("ada")
        await add_first(ada, first)
        refused = await ada.submit("/account", {}, "/account/passkeys/remove")
        await register(ada, second)
        removed = await ada.submit("/account", {}, "/account/passkeys/remove")

    assert refused.status_code == 409
    assert "add another one before you remove the last" in text_of(refused.text)
    assert removed.headers["Location"] == "/account?done=passkey-removed"


async def test_links_lead_to_the_passkey_too_and_a_lost_one_is_replaced(strict: Console) -> None:
    lost, device = SoftwareAuthenticator(strict.origin), SoftwareAuthenticator(strict.origin)
    invitation = await strict.links.create_invitation("writer", "carl")
    async with strict.browser() as carl:
        response = await carl.open_link(invitation.path, "carl")
        assert response.headers["Location"].startswith(PAGE)
        assert await reachable(carl) == []
        await add_first(carl, lost)
    user = await strict.server.user("carl")
    reset = await strict.links.create_reset(user)
    # What `florilegium user reset-password carl --remove-passkeys` does.
    assert await remove_all_passkeys(strict.server.runtime.registry.database, user.id) == 1
    async with strict.browser() as carl:
        await carl.open_link(reset.path, "carl", PASSWORD + "!")
        assert await reachable(carl) == []
        await add_first(carl, device)
        assert (await carl.get("/account")).status_code == 200


async def test_changing_the_password_does_not_sign_out(strict: Console) -> None:
    device = SoftwareAuthenticator(strict.origin)
    async with strict.browser() as ada:
        await ada.sign_in("ada")
        await add_first(ada, device)
        values = {"password": PASSWORD, "new_password": PASSWORD + "!", "repeated": PASSWORD + "!"}
        await ada.submit("/account", values, "/account/password")
        assert (await ada.get("/account")).status_code == 200


async def test_identity_provider_decides_about_its_own_second_factor(tmp_path: Path) -> None:
    async with imitated(tmp_path, password_requires_passkey=True) as (provider, site):
        await site.add_account("ben")
        async with site.browser() as ada, site.browser() as ben:
            await use_provider(provider, ada)
            await ben.sign_in("ben")
            assert (await ada.get("/account")).status_code == 200
            assert "ada" in text_of((await ada.get("/account")).text)
            assert (await ada.get(PAGE)).headers["Location"] != PAGE
            assert await reachable(ben) == []
