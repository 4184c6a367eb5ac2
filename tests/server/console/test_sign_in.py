"""Signing in with a name and a password, and what strangers can try."""

import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from auth.audit import AuditFilter
from auth.authenticator import operator_principal
from auth.context import build_context
from server.operations import users
from tests.cases import each_case
from tests.server.console.console_fixture import FAST_HASHES, OTHER_PASSWORD, PASSWORD, Console, console, text_of

SIGN_INS = ("sign_in", "sign_in.failed", "sign_out")
FORMS = ("/sign-in", "/sign-out", "/account/password", "/account/sessions")


async def test_two_people_sign_in(site: Console) -> None:
    async with site.browser() as first, site.browser() as second:
        response = await first.sign_in("ada")
        await second.sign_in("BEN ")

        assert (response.status_code, response.headers["Location"]) == (303, "/")
        home = await first.client.get("/", headers={"Accept": "text/html"})
        assert "Three steps to the first answer" in home.text
        assert "ada" in text_of((await first.get("/account")).text)
        assert "ben" in text_of((await second.get("/account")).text)


async def test_sign_in_leads_to_the_page_that_was_asked_for(site: Console) -> None:
    async with site.browser() as browser:
        location = (await browser.get("/account?x=1")).headers["Location"]
        assert f"to Florilegium on {urlsplit(site.origin).netloc}" in text_of((await browser.get(location)).text)
        response = await browser.submit(location, {"name": "ada", "password": PASSWORD})

    assert response.headers["Location"] == "/account?x=1"


@each_case("target", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"])
async def test_sign_in_never_leads_to_another_site(site: Console, target: str) -> None:
    async with site.browser() as browser:
        assert (await browser.sign_in("ada", next=target)).headers["Location"] == "/"
        assert (await browser.get("/sign-in", params={"next": target})).headers["Location"] == "/"


async def test_page_of_sign_in_does_not_repeat_a_target_on_another_site(site: Console) -> None:
    async with site.browser() as browser:
        page = await browser.get("/sign-in", params={"next": '//evil.example"><script>'})

    assert "evil.example" not in page.text


async def test_failures_look_the_same_for_every_reason(site: Console) -> None:
    registry = site.server.runtime.registry
    await registry.add_user("without-password")
    carl = await site.add_account("carl")
    await registry.disable_user(carl.id)
    pages = []
    for name, password in (
        ("ben", OTHER_PASSWORD),
        ("nobody", PASSWORD),
        ("without-password", PASSWORD),
        ("carl", PASSWORD),
        ("ben", PASSWORD * 100),
        ("ben", ""),
    ):
        async with site.browser() as browser:
            response = await browser.sign_in(name, password)
        page = response.text.replace(f'value="{name}"', "")
        pages.append((response.status_code, text_of(page), "__Host" in str(response.headers)))

    assert len(set(pages)) == 1
    assert pages[0][0] == 403
    assert "The name or the password is wrong." in pages[0][1]


async def test_passwords_of_compatible_characters_are_the_same(site: Console) -> None:
    await site.add_account("eve", password="ﬁve café lanterns")
    async with site.browser() as browser:
        response = await browser.sign_in("eve", "five cafe\u0301 lanterns")

    assert response.status_code == 303


async def test_spaces_and_emoji_of_a_password_count(site: Console) -> None:
    await site.add_account("eve", password=" 🌿🌿 herbs ")
    async with site.browser() as browser:
        assert (await browser.sign_in("eve", "🌿🌿 herbs")).status_code == 403
        assert (await browser.sign_in("eve", " 🌿🌿 herbs ")).status_code == 303


async def test_hash_is_renewed_when_its_parameters_change(tmp_path: Path) -> None:
    async with console(tmp_path) as site:
        await site.add_account("ada")
        before = await site.rows("SELECT hash FROM passwords")
    async with console(tmp_path, **{**FAST_HASHES, "password_hash_passes": 2}) as site:
        async with site.browser() as browser:
            await browser.sign_in("ada", OTHER_PASSWORD)
            assert await site.rows("SELECT hash FROM passwords") == before
            await browser.sign_in("ada")
        after = await site.rows("SELECT hash FROM passwords")
        async with site.browser() as browser:
            assert (await browser.sign_in("ada")).status_code == 303

    assert "t=1" in before[0][0]
    assert "t=2" in after[0][0]


async def test_no_secret_is_stored(site: Console) -> None:
    async with site.browser() as browser:
        await browser.sign_in("ada")
        cookies = [cookie.value for cookie in browser.client.cookies.jar]
    tables = ("passwords", "browser_sessions", "known_browsers", "account_links")
    stored = "".join([repr(await site.rows(f"SELECT * FROM {table}")) for table in tables])

    assert len(cookies) == 2
    assert not any(str(value) in stored for value in (*cookies, PASSWORD))


@each_case("path", FORMS)
async def test_form_without_a_token_changes_nothing(site: Console, path: str) -> None:
    values = {"name": "ada", "password": PASSWORD, "new_password": OTHER_PASSWORD, "repeated": OTHER_PASSWORD}
    async with site.browser() as browser:
        await browser.sign_in("ada")
        before = await site.rows("SELECT p.hash, s.hash FROM passwords p, browser_sessions s")
        for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            response = await browser.client.post(path, data=values, headers=headers)
            assert response.status_code == 403
            assert "set-cookie" not in response.headers

        assert await site.rows("SELECT p.hash, s.hash FROM passwords p, browser_sessions s") == before
        assert (await browser.get("/account")).status_code == 200


@each_case("path", [*FORMS[1:]])
async def test_nothing_changes_by_opening_an_address(site: Console, path: str) -> None:
    async with site.browser() as browser:
        await browser.sign_in("ada")

        assert (await browser.get(path)).status_code == 405
        assert (await browser.get("/account")).status_code == 200


@each_case("path", ["/sign-in", "/account", "/setup/x", "/sign-out"])
async def test_pages_cannot_be_framed_cached_or_scripted(site: Console, path: str) -> None:
    async with site.browser() as browser:
        if path == "/account":
            await browser.sign_in("ada")
        headers = (await browser.get(path)).headers

    assert headers["X-Frame-Options"] == "DENY"
    assert "no-store" in headers["Cache-Control"]
    policy = headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


async def test_page_in_a_frame_of_another_site_is_refused(site: Console) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    async with site.browser() as browser:
        del browser.client.headers["Origin"]

        assert (await browser.get("/sign-in", headers=headers)).status_code == 403
        assert (await browser.get("/sign-in", headers=headers | {"Sec-Fetch-Dest": "document"})).status_code == 200


async def test_secret_of_a_session_changes_at_sign_in(site: Console) -> None:
    async with site.browser() as browser:
        secrets: list[str] = []
        for name in ("ada", "ada", "ben"):
            if secrets:
                browser.client.cookies.delete("florilegium")
            await browser.sign_in(name)
            secrets.append(browser.client.cookies["florilegium"])

    assert len(set(secrets)) == 3


async def test_single_user_server_has_an_account_without_sign_in(tmp_path: Path) -> None:
    async with console(tmp_path, jwt_secret="") as site, site.browser() as browser:
        page = await browser.get("/account")

        assert (await browser.get("/sign-in")).status_code == 404
        assert (await browser.client.post("/account/password")).status_code == 404
        assert "without sign-in" in text_of(page.text)
        assert 'href="/api/v1/export"' in page.text
        assert (await browser.submit("/account/delete", {"name": "wrong"}, "/account/delete")).status_code == 400
        assert (await browser.get("/admin")).status_code == 200


async def test_passwords_can_be_turned_off(tmp_path: Path) -> None:
    async with console(tmp_path) as site:
        await site.add_account("ada")
    async with console(tmp_path, password_sign_in=False) as site, site.browser() as browser:
        page, link = await browser.get("/sign-in"), await site.links.create_invitation("admin")

        assert 'name="password"' not in page.text
        assert (await browser.get(link.path)).status_code == 404


async def test_guessing_one_password_is_limited(tmp_path: Path) -> None:
    limits = {"rate_sign_in_account_burst": 5, "rate_sign_in_account_per_minute": 0.001}
    async with console(tmp_path, **limits) as site:
        await site.add_account("ada")
        await site.add_account("ben")
        async with site.browser() as browser:
            statuses = [(await browser.sign_in("ada", f"a guess {n}")).status_code for n in range(8)]
            correct = await browser.sign_in("ada")
            other = await browser.sign_in("ben")

    assert statuses == [403] * 5 + [429] * 3
    assert correct.status_code == 429
    assert int(correct.headers["Retry-After"]) > 0
    assert "Too many failed attempts" in correct.text
    assert other.status_code == 303


async def test_guesses_at_the_same_time_are_limited_too(tmp_path: Path) -> None:
    limits = {"rate_sign_in_account_burst": 5, "rate_sign_in_account_per_minute": 0.001}
    async with console(tmp_path, **limits) as site:
        await site.add_account("ada")
        async with site.browser() as browser:
            guesses = [browser.sign_in("ada", f"a guess {n}") for n in range(20)]
            statuses = [response.status_code for response in await asyncio.gather(*guesses)]

    assert statuses.count(429) == 15


async def test_names_that_do_not_exist_are_limited_alike(tmp_path: Path) -> None:
    limits = {"rate_sign_in_account_burst": 3, "rate_sign_in_account_per_minute": 0.001}
    async with console(tmp_path, **limits) as site:
        await site.add_account("ada")
        async with site.browser() as browser:
            statuses = [
                [(await browser.sign_in(name, "a wrong guess")).status_code for _ in range(5)]
                for name in ("ada", "nobody")
            ]

    assert statuses[0] == statuses[1] == [403] * 3 + [429] * 2


async def test_spraying_one_password_over_many_names_is_limited(tmp_path: Path) -> None:
    limits = {"rate_sign_in_address_burst": 10, "rate_sign_in_address_per_minute": 0.001}
    async with console(tmp_path, **limits) as site:
        for number in range(20):
            await site.add_account(f"user{number}", password="spring lantern 7" if number == 15 else PASSWORD)
        async with site.browser() as browser:
            statuses = [(await browser.sign_in(f"user{n}", "spring lantern 7")).status_code for n in range(20)]

    assert statuses == [403] * 10 + [429] * 10


async def test_stranger_cannot_lock_people_out(tmp_path: Path) -> None:
    """The browser that the owner has used before has attempts of its own; the browsers of others have not."""
    limits = {"rate_sign_in_account_burst": 3, "rate_sign_in_account_per_minute": 0.001}
    async with console(tmp_path, **limits) as site:
        await site.add_account("ada")
        await site.add_account("ben")
        async with site.browser() as own, site.browser() as strange, site.browser() as bens:
            await bens.sign_in("ben")
            await own.sign_in("ada")
            await own.submit("/account", {}, "/sign-out")
            attempts = [await strange.sign_in("ada", "a wrong guess") for _ in range(6)]

            assert attempts[-1].status_code == 429
            assert (await bens.submit("/account", {}, "/sign-out")).status_code == 303
            assert (await bens.sign_in("ada", "a wrong guess")).status_code == 429
            assert (await own.sign_in("ada", "my typing mistake")).status_code == 403
            assert (await own.sign_in("ada")).status_code == 303


async def test_browser_of_the_owner_has_limited_attempts_too(tmp_path: Path) -> None:
    limits = {"rate_sign_in_account_burst": 3, "rate_sign_in_account_per_minute": 0.001}
    async with console(tmp_path, **limits) as site:
        await site.add_account("ada")
        async with site.browser() as own:
            await own.sign_in("ada")
            await own.submit("/account", {}, "/sign-out")
            statuses = [(await own.sign_in("ada", "a wrong guess")).status_code for _ in range(5)]

    assert statuses == [403] * 3 + [429] * 2


async def test_correct_sign_ins_are_not_limited(tmp_path: Path) -> None:
    limits = {"rate_sign_in_account_burst": 2, "rate_sign_in_address_burst": 2}
    async with console(tmp_path, **limits) as site:
        await site.add_account("ada")
        for _ in range(6):
            async with site.browser() as browser:
                assert (await browser.sign_in("ada")).status_code == 303


@pytest.mark.parametrize("name", ["ada", "nobody"])
async def test_flood_of_sign_ins_is_refused_not_queued(tmp_path: Path, name: str) -> None:
    """Names that do not exist fill the queue as well, which shows that they are hashed like others."""
    async with console(
        tmp_path,
        password_hash_memory_kib=32_768,
        password_hash_jobs_max=1,
        password_hash_queue_max=2,
        rate_sign_in_address_burst=1000,
        rate_sign_in_account_burst=1000,
    ) as site:
        await site.add_account("ada")
        await site.add_account("ben")
        async with site.browser() as browser:
            attempts = [browser.sign_in(name, f"a wrong guess {n}") for n in range(12)]
            statuses = {response.status_code for response in await asyncio.gather(*attempts)}

        assert statuses == {403, 503}
        async with site.browser() as browser:
            assert (await browser.sign_in("ben")).status_code == 303


async def test_sign_ins_are_in_the_audit_log(tmp_path: Path) -> None:
    async with console(tmp_path) as site, site.browser() as adas, site.browser() as bens:
        ada, ben = await site.add_account("ada"), await site.add_account("ben")
        await bens.sign_in("ben", OTHER_PASSWORD)
        await bens.sign_in("my password by mistake", OTHER_PASSWORD)
        await adas.sign_in("ada")
        await adas.submit("/account", {}, "/sign-out")
        events = await site.server.runtime.audit.select(AuditFilter(actions=SIGN_INS), 10)

    assert [(event.action, event.user_id, event.detail) for event in reversed(events)] == [
        ("sign_in.failed", ben.id, "password"),
        ("sign_in.failed", "", "password"),
        ("sign_in", ada.id, "password"),
        ("sign_out", ada.id, ""),
    ]
    assert {(event.client, event.address) for event in events} == {("browser", "127.0.0.1")}
    assert "my password by mistake" not in repr(events)


async def test_demo_account_signs_in_until_it_expires(site: Console) -> None:
    runtime = site.server.runtime
    context = build_context(operator_principal(), runtime.data_root, "request", is_agent=False)
    request = users.DemoAccountRequest(name="rita", expires_at=time.time() + 3600)
    account = await users.add_demo_account.handler(context, runtime, request)
    user = await runtime.registry.user_by_name("rita")
    assert user is not None
    async with site.browser() as browser:
        await browser.sign_in("rita", account.password)
        before = await browser.get("/account")
        await runtime.registry.expire_user(user.id, time.time() - 1)
        after = await browser.get("/account")
        again = await browser.sign_in("rita", account.password)

    assert (before.status_code, "rita" in text_of(before.text)) == (200, True)
    assert (after.status_code, after.headers["Location"].partition("?")[0]) == (303, "/sign-in")
    assert (again.status_code, "the name or the password is wrong" in text_of(again.text).lower()) == (403, True)
