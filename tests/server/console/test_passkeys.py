"""Passkeys: adding one, signing in with it, and what forged, copied and replayed responses get."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from auth.accounts.passkeys import Passkeys
from auth.accounts.service import SignInFailed
from tests.cases import each_case
from tests.server.console.console_fixture import Console, TestBrowser, console, read_form, text_of
from tests.server.console.software_authenticator import SoftwareAuthenticator, b64, unb64

ORIGIN = "https://kb.example.com"


@pytest.fixture
def origin(site: Console) -> str:
    return site.origin


async def token_of(browser: TestBrowser, page: str) -> str:
    return read_form((await browser.get(page)).text)[0]["csrf_token"]


async def options(browser: TestBrowser, page: str, path: str) -> tuple[dict[str, Any], str]:
    token = await token_of(browser, page)
    response = await browser.client.post(path, data={"csrf_token": token})
    assert response.status_code == 200, response.text
    return response.json(), token


async def register(browser: TestBrowser, device: SoftwareAuthenticator, name: str = "phone") -> httpx2.Response:
    values, token = await options(browser, "/account", "/account/passkeys/options")
    credential = device.create(values)
    return await browser.client.post(
        "/account/passkeys", data={"csrf_token": token, "name": name, "credential": credential}
    )


async def sign_in(
    browser: TestBrowser, device: SoftwareAuthenticator, change: Callable[[str], str] = lambda text: text, **more: str
) -> httpx2.Response:
    values, token = await options(browser, "/sign-in", "/sign-in/passkey/options")
    credential = change(device.get(values))
    return await browser.client.post("/sign-in/passkey", data={"csrf_token": token, "credential": credential, **more})


async def test_two_people_sign_in_with_passkeys(site: Console, origin: str) -> None:
    devices = {name: SoftwareAuthenticator(origin) for name in ("ada", "ben")}
    for name, device in devices.items():
        async with site.browser() as browser:
            await browser.sign_in(name)
            response = await register(browser, device)
            assert response.headers["Location"] == "/account?done=passkey"
            assert "phone added" in text_of((await browser.get("/account")).text)
    for name, device in devices.items():
        async with site.browser() as browser:
            response = await sign_in(browser, device, next="/account?x=1")
            assert response.headers["Location"] == "/account?x=1"
            page = text_of((await browser.get("/account")).text)
            assert name in page
            assert {"ada": "ben", "ben": "ada"}[name] not in page


async def test_passkey_can_be_used_again_and_again(site: Console, origin: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as browser:
        await browser.sign_in("ada")
        await register(browser, device)
    for _ in range(3):
        async with site.browser() as browser:
            assert (await sign_in(browser, device)).status_code == 303


async def test_removed_passkey_ends(site: Console, origin: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as adas, site.browser() as bens, site.browser() as other:
        await adas.sign_in("ada")
        await bens.sign_in("ben")
        await register(adas, device)
        token = await token_of(bens, "/account")
        passkey = device.credential_id.hex()
        await bens.client.post("/account/passkeys/remove", data={"csrf_token": token, "passkey": passkey})
        assert (await sign_in(other, device)).status_code == 303
        await other.submit("/account", {}, "/account/passkeys/remove")

        async with site.browser() as third:
            assert (await sign_in(third, device)).status_code == 403
        assert "phone" not in text_of((await adas.get("/account")).text)


class SlowVerification(Passkeys):
    """Executes a statement while a response is verified, which takes a thread a while."""

    statement = ""

    async def _verify(self, credential: str, challenge: bytes, origin: str, **stored: Any) -> Any:
        verified = await super()._verify(credential, challenge, origin, **stored)
        await self._database.write(lambda db: db.execute(self.statement))
        return verified


@each_case("statement", ["DELETE FROM passkeys", "UPDATE passkeys SET sign_count = 7"])
async def test_passkey_that_is_removed_or_used_meanwhile_is_refused(site: Console, origin: str, statement: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as browser:
        await browser.sign_in("ada")
        await register(browser, device)
    runtime = site.server.runtime
    passkeys = SlowVerification(runtime.settings, runtime.registry.database, runtime.stores.used_tokens)
    passkeys.statement = statement
    values = json.loads(await passkeys.sign_in_options("secret of the browser"))

    with pytest.raises(SignInFailed):
        await passkeys.sign_in("secret of the browser", origin, device.get(values))


async def test_passkey_of_a_disabled_user_is_refused(site: Console, origin: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as browser, site.browser() as other:
        await browser.sign_in("ben")
        await register(browser, device)
        await site.server.runtime.registry.disable_user((await site.server.user("ben")).id)

        assert (await sign_in(other, device)).status_code == 403


def _other_key(device: SoftwareAuthenticator) -> None:
    device.private_key = ec.generate_private_key(ec.SECP256R1())


def _other_origin(device: SoftwareAuthenticator) -> None:
    device.origin = "https://evil.example"


def _other_domain(device: SoftwareAuthenticator) -> None:
    device.rp_id = "evil.example"


def _not_verified(device: SoftwareAuthenticator) -> None:
    device.flags = 0x01


def _nobody_present(device: SoftwareAuthenticator) -> None:
    device.flags = 0x04


def _copied(device: SoftwareAuthenticator) -> None:
    device.sign_count = 0


def _of_someone_else(device: SoftwareAuthenticator) -> None:
    device.user_handle = b"u_someone-else"


def _unknown(device: SoftwareAuthenticator) -> None:
    device.credential_id = b"unknown"


@each_case(
    "change",
    [_other_key, _other_origin, _other_domain, _not_verified, _nobody_present, _copied, _of_someone_else, _unknown],
)
async def test_forged_or_copied_passkey_is_refused(
    site: Console, origin: str, change: Callable[[SoftwareAuthenticator], None]
) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as browser:
        await browser.sign_in("ada")
        await register(browser, device)
    async with site.browser() as browser:
        assert (await sign_in(browser, device)).status_code == 303
    change(device)
    async with site.browser() as browser:
        response = await sign_in(browser, device)

        assert response.status_code == 403
        assert "The passkey was not accepted" in response.text
        assert (await browser.get("/account")).status_code == 303


async def test_response_cannot_be_replayed(site: Console, origin: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as browser:
        await browser.sign_in("ada")
        await register(browser, device)
    async with site.browser() as browser, site.browser() as attacker:
        values, token = await options(browser, "/sign-in", "/sign-in/passkey/options")
        form_cookie = browser.client.cookies["florilegium-form"]
        data = {"csrf_token": token, "credential": device.get(values)}
        stolen = {"csrf_token": await token_of(attacker, "/sign-in"), "credential": data["credential"]}

        assert (await attacker.client.post("/sign-in/passkey", data=stolen)).status_code == 403
        assert (await browser.client.post("/sign-in/passkey", data=data)).status_code == 303
        attacker.client.cookies.clear()
        attacker.client.cookies.set("florilegium-form", form_cookie, "127.0.0.1")
        assert (await attacker.client.post("/sign-in/passkey", data=data)).status_code == 403


async def test_challenge_of_one_purpose_is_not_accepted_for_the_other(site: Console, origin: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as adas, site.browser() as other:
        await adas.sign_in("ada")
        await register(adas, device)
        values, _ = await options(adas, "/account", "/account/passkeys/options")
        token = await token_of(other, "/sign-in")
        credential = device.get({"challenge": values["challenge"], "rpId": values["rp"]["id"]})

        response = await other.client.post("/sign-in/passkey", data={"csrf_token": token, "credential": credential})
        assert response.status_code == 403


async def test_response_made_for_another_user_adds_nothing(site: Console, origin: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as adas, site.browser() as bens:
        await adas.sign_in("ada")
        await bens.sign_in("ben")
        values, _ = await options(adas, "/account", "/account/passkeys/options")
        token = await token_of(bens, "/account")
        data = {"csrf_token": token, "credential": device.create(values), "name": "x"}

        assert (await bens.client.post("/account/passkeys", data=data)).status_code == 400
        assert await site.rows("SELECT * FROM passkeys") == []


async def test_same_passkey_cannot_be_added_twice(site: Console, origin: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as adas, site.browser() as bens:
        await adas.sign_in("ada")
        await bens.sign_in("ben")
        await register(adas, device)

        assert (await register(bens, device)).status_code == 409
        values, _ = await options(adas, "/account", "/account/passkeys/options")
        assert [unb64(entry["id"]) for entry in values["excludeCredentials"]] == [device.credential_id]


@each_case(
    "credential",
    [
        "",
        "{}",
        "[]",
        "null",
        "\x00",
        "[" * 20_000,
        '{"rawId": "x", "response": {"clientDataJSON": "!!"}}',
        '{"rawId": "x", "response": {"clientDataJSON": "e30"}}',
        json.dumps({"rawId": 7, "response": {"clientDataJSON": b64(b'{"challenge": "x"}')}}),
        json.dumps({"rawId": "eA", "id": "eA", "response": {"clientDataJSON": b64(b'{"challenge": "x"}')}}),
    ],
)
async def test_malformed_response_is_refused(site: Console, credential: str) -> None:
    async with site.browser() as browser:
        token = await token_of(browser, "/sign-in")
        data = {"csrf_token": token, "credential": credential}
        assert (await browser.client.post("/sign-in/passkey", data=data)).status_code == 403
    async with site.browser() as browser:
        await browser.sign_in("ada")
        data["csrf_token"] = await token_of(browser, "/account")
        assert (await browser.client.post("/account/passkeys", data=data)).status_code == 400


@each_case("field", ["attestationObject", "clientDataJSON", "signature", "authenticatorData"])
async def test_damaged_response_is_refused(site: Console, origin: str, field: str) -> None:
    device = SoftwareAuthenticator(origin)

    def damage(text: str) -> str:
        credential = json.loads(text)
        if field in credential["response"]:
            content = unb64(credential["response"][field])
            credential["response"][field] = b64(content[: len(content) // 2])
        return json.dumps(credential)

    async with site.browser() as browser, site.browser() as other:
        await browser.sign_in("ada")
        values, token = await options(browser, "/account", "/account/passkeys/options")
        data = {"csrf_token": token, "name": "x", "credential": damage(device.create(values))}
        if field in ("attestationObject", "clientDataJSON"):
            assert (await browser.client.post("/account/passkeys", data=data)).status_code == 400
        await register(browser, device)
        if field != "attestationObject":
            assert (await sign_in(other, device, damage)).status_code == 403


async def test_account_page_says_where_passkeys_work(site: Console) -> None:
    hint = "Passkeys can be added and used only at localhost"
    async with site.browser() as browser:
        await browser.sign_in("ada")
        cookies = {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.client.cookies.jar)}
        port = urlsplit(site.origin).port
        shown = {
            host: hint in text_of((await browser.get("/account", headers={**cookies, "Host": f"{host}:{port}"})).text)
            for host in ("127.0.0.1", "localhost")
        }
    assert shown == {"127.0.0.1": True, "localhost": False}


async def test_adding_a_passkey_needs_a_recent_sign_in(site: Console) -> None:
    database = site.server.runtime.registry.database
    async with site.browser() as browser:
        await browser.sign_in("ada")
        await database.write(lambda db: db.execute("UPDATE browser_sessions SET created_at = created_at - 3600"))
        page = await browser.get("/account")
        token = read_form(page.text)[0]["csrf_token"]
        for path in ("/account/passkeys/options", "/account/passkeys"):
            assert (await browser.client.post(path, data={"csrf_token": token})).status_code == 403

    assert "To add or remove a passkey, sign in again ." in text_of(page.text)


@each_case(
    "path",
    [
        "/sign-in/passkey",
        "/sign-in/passkey/options",
        "/account/passkeys",
        "/account/passkeys/options",
        "/account/passkeys/remove",
    ],
)
async def test_forms_of_other_sites_are_refused(site: Console, origin: str, path: str) -> None:
    device = SoftwareAuthenticator(origin)
    async with site.browser() as browser:
        await browser.sign_in("ada")
        await register(browser, device)
        before = await site.rows("SELECT * FROM passkeys")
        data = {"passkey": device.credential_id.hex(), "credential": "{}"}
        assert (await browser.client.post(path, data=data)).status_code == 403
        data["csrf_token"] = await token_of(browser, "/account")
        headers = {"Origin": "https://evil.example"}
        assert (await browser.client.post(path, data=data, headers=headers)).status_code == 403

        assert await site.rows("SELECT * FROM passkeys") == before


async def test_number_of_passkeys_is_limited(tmp_path: Path) -> None:
    async with console(tmp_path, passkey_max_per_user=2) as site:
        await site.add_account("ada")
        async with site.browser() as browser:
            await browser.sign_in("ada")
            statuses = [(await register(browser, SoftwareAuthenticator(site.origin))).status_code for _ in range(3)]

    assert statuses == [303, 303, 409]


async def test_passkeys_can_be_turned_off(tmp_path: Path) -> None:
    async with console(tmp_path, passkey_sign_in=False) as site, site.browser() as browser:
        page = await browser.get("/sign-in")

        assert "passkey" not in page.text
        assert (await browser.client.post("/sign-in/passkey", data={})).status_code == 404


async def test_passkeys_are_bound_to_the_public_host(tmp_path: Path) -> None:
    async with console(tmp_path, public_url=ORIGIN) as site:
        await site.add_account("ada")
        device = SoftwareAuthenticator(ORIGIN)
        headers = {"Host": "kb.example.com", "Origin": ORIGIN}
        async with site.browser(**headers) as browser:
            page = await browser.get("/sign-in")
            token = read_form(page.text)[0]["csrf_token"]
            cookie = "; ".join(f"{c.name}={c.value}" for c in browser.client.cookies.jar)
            response = await browser.client.post(
                "/sign-in/passkey/options", data={"csrf_token": token}, headers={"Cookie": cookie}
            )

    assert 'data-domain="kb.example.com"' in page.text
    assert device.get(response.json())
    assert response.json()["rpId"] == "kb.example.com"
    assert response.json()["userVerification"] == "required"
