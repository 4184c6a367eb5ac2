"""The account page: own password and own sessions only."""

from pathlib import Path

import pytest

from server.operations.account import browser_name
from tests.cases import each_case
from tests.server.console.console_fixture import OTHER_PASSWORD, PASSWORD, Console, console, read_form, text_of


def changed(password: str = PASSWORD, new: str = OTHER_PASSWORD, repeated: str = "") -> dict[str, str]:
    return {"password": password, "new_password": new, "repeated": repeated or new}


async def test_changing_the_password_ends_other_sessions(site: Console) -> None:
    async with site.browser() as first, site.browser() as second, site.browser() as bens:
        await first.sign_in("ada")
        await second.sign_in("ada")
        await bens.sign_in("ben")
        response = await first.submit("/account", changed(), "/account/password")

        assert response.headers["Location"] == "/account?done=password"
        assert "Your password is changed" in (await first.get("/account?done=password")).text
        assert (await second.get("/account")).status_code == 303
        assert (await bens.get("/account")).status_code == 200
        assert (await second.sign_in("ada", PASSWORD)).status_code == 403
        assert (await second.sign_in("ada", OTHER_PASSWORD)).status_code == 303
        assert (await bens.get("/account")).status_code == 200


@each_case(
    ("values", "status", "sentence"),
    [
        (changed(password="not the password"), 403, "The current password is wrong."),
        (changed(repeated="something else"), 400, "The two new passwords differ."),
        (changed(new="short"), 400, "Expected 8 to 256 characters, got 5."),
        (changed(new="x" * 257), 400, "Expected 8 to 256 characters, got 257."),
        (changed(new="Password123"), 400, "one of the most common passwords"),
        (changed(new="ada-ada1"), 400, "little more than your name"),
        (changed(new="florilegium1"), 400, "little more than your name"),
        (changed(new="abababababab"), 400, "the same characters"),
    ],
)
async def test_bad_change_of_the_password_is_explained(
    site: Console, values: dict[str, str], status: int, sentence: str
) -> None:
    async with site.browser() as browser:
        await browser.sign_in("ada")
        response = await browser.submit("/account", values, "/account/password")

        assert response.status_code == status
        assert sentence in text_of(response.text)
        async with site.browser() as other:
            assert (await other.sign_in("ada")).status_code == 303


@pytest.mark.parametrize("password", ["x y z w v u", "ünïcödé wörds", "q1w2e3r4-lanterns", "🌿" * 3 + " herbs"])
async def test_passwords_of_any_characters_are_accepted(site: Console, password: str) -> None:
    async with site.browser() as browser:
        await browser.sign_in("ada")

        assert (await browser.submit("/account", changed(new=password), "/account/password")).status_code == 303


async def test_guessing_the_password_with_a_stolen_session_is_limited(tmp_path: Path) -> None:
    async with console(tmp_path) as site, site.browser() as browser, site.browser() as own:
        await site.add_account("ada")
        burst = site.settings.fixed.rate_sign_in_account_burst
        await browser.sign_in("ada")
        statuses = [
            (await browser.submit("/account", changed(password=f"guess {n}"), "/account/password")).status_code
            for n in range(burst + 2)
        ]

        assert statuses == [403] * burst + [429] * 2
        assert (await own.sign_in("ada")).status_code == 303


async def test_one_session_is_ended(site: Console) -> None:
    async with site.browser() as first, site.browser(**{"User-Agent": "Mozilla/5.0 (iPhone) Safari/605"}) as second:
        await first.sign_in("ada")
        await second.sign_in("ada")
        page = await first.get("/account")
        assert "Firefox on Linux this browser" in text_of(page.text)
        assert "Safari on iPhone" in text_of(page.text)
        await first.submit("/account", {}, "/account/sessions")

        values, _ = read_form(page.text, "/account/sessions")
        assert "session" in values
        assert (await second.get("/account")).status_code == 303
        assert (await first.get("/account")).status_code == 200


async def test_session_of_someone_else_is_not_ended(site: Console) -> None:
    async with site.browser() as adas, site.browser() as second, site.browser() as bens:
        await adas.sign_in("ada")
        await second.sign_in("ada")
        await bens.sign_in("ben")
        values, _ = read_form((await adas.get("/account")).text, "/account/sessions")
        token = read_form((await bens.get("/account")).text)[0]["csrf_token"]
        await bens.client.post("/account/sessions", data={"session": values["session"], "csrf_token": token})

        assert (await second.get("/account")).status_code == 200
        assert "Safari" not in (await bens.get("/account")).text


async def test_signing_out_everywhere(site: Console) -> None:
    async with site.browser() as first, site.browser() as second, site.browser() as bens:
        await first.sign_in("ada")
        await second.sign_in("ada")
        await bens.sign_in("ben")
        token = read_form((await first.get("/account")).text)[0]["csrf_token"]
        response = await first.client.post("/account/sessions", data={"csrf_token": token})

        assert response.headers["Location"] == "/sign-in"
        assert (await first.get("/account")).status_code == 303
        assert (await second.get("/account")).status_code == 303
        assert (await bens.get("/account")).status_code == 200


async def test_withdrawn_access_ends_sessions(site: Console) -> None:
    registry = site.server.runtime.registry
    async with site.browser() as adas, site.browser() as bens:
        await adas.sign_in("ada")
        await bens.sign_in("ben")
        ben = await registry.user_by_name("ben")
        assert ben is not None
        await registry.disable_user(ben.id)

        assert (await bens.get("/account")).status_code == 303
        assert (await adas.get("/account")).status_code == 200


async def test_name_of_a_browser_is_escaped(site: Console) -> None:
    async with site.browser(**{"User-Agent": "<script>alert(1)</script>"}) as browser:
        await browser.sign_in("ada")
        page = await browser.get("/account")

    assert "<script>" not in page.text
    assert "&lt;script&gt;" in page.text


@each_case(
    ("agent", "name"),
    [
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) Chrome/140.0 Safari/537.36",
            "Chrome on Mac",
        ),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0; Mac) CriOS/140.0 Safari/604.1", "Chrome on iPhone"),
        ("Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.5", "curl/8.5"),
        ("", "Unknown browser"),
    ],
)
def test_browser_is_named_for_people(agent: str, name: str) -> None:
    assert browser_name(agent) == name
