"""Pages ask people to sign in again before they change who has access."""

import httpx2

from tests.server.console.console_fixture import PASSWORD, Console, TestBrowser, read_form, text_of
from tests.server.console.software_authenticator import SoftwareAuthenticator
from tests.server.console.test_passkeys import options, register
from tests.server.oauth.oauth_client import OAuthTestClient
from tests.server.oauth.test_device import poll, start


async def make_older(site: Console) -> None:
    statement = "UPDATE browser_sessions SET created_at = created_at - 3600"
    await site.server.runtime.registry.database.write(lambda db: db.execute(statement).close())


async def create_key(browser: TestBrowser) -> tuple[int, str]:
    response = await browser.submit("/connect", {"name": "laptop"}, "/connect/keys")
    return response.status_code, response.text


async def test_page_asks_to_sign_in_again_and_leads_back(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")
        assert (await create_key(ada))[0] == 201
        await make_older(site)
        status, page = await create_key(ada)
        assert status == 403
        again = "/sign-in?again=yes&amp;next=/connect"
        assert f'href="{again}"' in page
        assert "Sign in again before you change who has access" in text_of(page)

        values = {"name": "ada", "password": PASSWORD}
        signed_in = await ada.submit(again.replace("&amp;", "&"), values, "/sign-in")
        assert signed_in.headers["Location"] == "/connect"
        assert (await create_key(ada))[0] == 201


async def test_signing_in_again_with_a_passkey_works(site: Console) -> None:
    device = SoftwareAuthenticator(site.origin)
    async with site.browser() as ada:
        await ada.sign_in("ada")
        await register(ada, device)
        await make_older(site)
        values, token = await options(ada, "/sign-in?again=yes", "/sign-in/passkey/options")
        data = {"csrf_token": token, "credential": device.get(values), "next": "/account"}
        response = await ada.client.post("/sign-in/passkey", data=data)
        assert response.headers["Location"] == "/account"
        assert (await create_key(ada))[0] == 201


async def test_administration_is_not_allowed_to_an_application_in_an_old_session(site: Console) -> None:
    client = await OAuthTestClient.register(site.server)
    url = client.authorization_url(scope="knowledge:read admin")
    async with site.browser() as ada:
        await ada.sign_in("ada")
        await make_older(site)
        refused = await ada.submit(url, {"decision": "allow", "scope_admin": "on"}, "/authorize")
        allowed = await ada.submit(url, {"decision": "allow"}, "/authorize")
        connections = await site.server.runtime.oauth_grants.list((await site.server.user("ada")).id)

    assert refused.headers["Location"].startswith("/sign-in?again=yes&next=/authorize%3F")
    assert "code=" in allowed.headers["Location"]
    assert [one.scopes for one in connections] == [frozenset(("knowledge:read",))]


async def test_administration_is_not_allowed_to_a_device_in_an_old_session(site: Console) -> None:
    client, codes = await start(site.server, "knowledge:read admin")
    page = codes["verification_uri_complete"]

    async def allow(browser: TestBrowser) -> httpx2.Response:
        consent = await browser.submit(page, {}, "/device")
        values, target = read_form(consent.text, "/device")
        return await browser.client.post(target, data=values | {"decision": "allow", "scope_admin": "on"})

    async with site.browser() as ada:
        await ada.sign_in("ada")
        await make_older(site)
        refused = await allow(ada)
        pending = await poll(client, codes["device_code"])
        again = refused.headers["Location"]
        signed_in = await ada.submit(again, {"name": "ada", "password": PASSWORD}, "/sign-in")
        allowed = await allow(ada)
        await site.server.runtime.registry.database.write(
            lambda db: db.execute("UPDATE oauth_device_codes SET polled_at = 0").close()
        )
        tokens = (await poll(client, codes["device_code"])).json()

    assert again == f"/sign-in?again=yes&next=/device%3Fuser_code%3D{codes['user_code']}"
    assert pending.json()["error"] == "authorization_pending"
    assert signed_in.headers["Location"] == f"/device?user_code={codes['user_code']}"
    assert "now has access" in text_of(allowed.text)
    assert set(tokens["scope"].split()) == {"knowledge:read", "admin"}
