"""Passkeys in a browser, with its virtual authenticator. Passkeys need a domain, so the server is at `localhost`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from auth.audit import AuditFilter
from auth.browser_sessions import session_cookie_name
from tests.browser.driver import BrowserDriver
from tests.live import NO_RATE_LIMITS, LiveServer, free_port, live, make_settings

pytestmark = pytest.mark.slow("walks through pages in a browser")


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    port = free_port()
    settings = make_settings(
        tmp_path_factory.mktemp("passkeys"), port=port, public_url=f"http://localhost:{port}", **NO_RATE_LIMITS
    )
    async with live(settings) as running:
        yield running


async def run(browser: BrowserDriver, server: LiveServer, step: str, who: str | None, **values: Any) -> Any:
    settings, cookie = server.runtime.settings, None
    if who is not None:
        secret = await server.runtime.browser_sessions.create(await server.user(who))
        cookie = {"name": session_cookie_name(settings), "value": secret}
    url = settings.base_url
    return await asyncio.to_thread(browser.run, "passkeys.mjs", step, url=url, cookie=cookie, values=values)


@pytest.mark.parametrize("who", ["ada", "ben"])
async def test_passkey_is_added_used_and_removed(browser: BrowserDriver, server: LiveServer, who: str) -> None:
    seen = await run(browser, server, "lifecycle", who, device="My phone")
    user = await server.user(who)
    events = await server.runtime.audit.select(AuditFilter(user_id=user.id), 20)

    assert (seen["credentials"], seen["added"], seen["name"]) == (1, "My phone", who)
    assert "used" in seen["used"]
    assert seen["refused"] == "The passkey was not accepted; try again."
    assert seen["findings"] == []
    actions = [(event.action, event.detail) for event in reversed(events) if event.action != "sign_out"]
    assert actions == [("passkey.add", ""), ("sign_in", "passkey"), ("passkey.remove", "")]


async def test_device_without_a_passkey_stays_outside(browser: BrowserDriver, server: LiveServer) -> None:
    seen = await run(browser, server, "withoutPasskey", None)

    assert seen["message"] == "Nothing was chosen on the device. Try again."
    assert seen["address"].endswith("/sign-in")
