"""The connect page in a browser: keys that work until they are revoked, set-up, the test, and what clients did."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from auth.context import READ
from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.browser.payloads import PAYLOADS
from tests.server.oauth.oauth_client import connect
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")
LIMITS = {"rate_oauth_per_minute": 0}


@pytest.fixture(scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    async with open_console(tmp_path_factory.mktemp("connect"), **LIMITS) as server:
        yield server


async def test_key_works_until_it_is_revoked_and_its_reads_are_listed(
    browser: BrowserDriver, console: ConsoleServer
) -> None:
    ada = await rest_client_of(console.server).library_user("ada")
    note = await ada.add_note("Voyage of the galleon", "The galleon left.")
    values = {"note": note, "title": "Voyage of the galleon"}

    seen = await console.run(browser, "connect.mjs", "keyLifecycle", "ada", values=values)
    (of_ben,) = await console.run(browser, "console.mjs", "texts", "ben", values=["/connect"])

    assert seen["statuses"] == [200, 200, 401]
    assert "Can search and read · characters, chats, notes, prompts" in seen["row"]
    assert "used just now" in seen["row"]
    assert [row.split("\t")[:2] for row in seen["calls"]] == [
        ["knowledge_search", "Laptop (browser-test)"],
        ["notes_get", "Laptop (browser-test)"],
    ]
    assert seen["findings"] == []
    assert "Voyage" not in of_ben
    assert "Laptop" not in of_ben


async def test_clients_are_set_up_with_the_keyboard_by_copying_or_with_one_click(
    browser: BrowserDriver, console: ConsoleServer
) -> None:
    seen = await console.run(browser, "connect.mjs", "setUp")

    server = {"url": console.server.mcp}
    assert seen["copied"] == {"mcpServers": {"florilegium": server}}
    assert seen["cursor"] == server
    assert (seen["vscode"]["name"], seen["vscode"]["url"]) == ("florilegium", console.server.mcp)
    assert seen["vscode"]["headers"] == {"Authorization": "Bearer ${input:florilegium-key}"}


async def test_connection_is_tested_hop_by_hop(browser: BrowserDriver, console: ConsoleServer) -> None:
    seen = await console.run(browser, "connect.mjs", "testConnection")

    assert [outcome for _, outcome in seen["hops"]] == ["ok"] * 10
    assert seen["hops"][-1][0] == "call"
    assert "The connection works." in seen["text"]
    assert (seen["address"], seen["findings"]) == ("/connect", [])


async def test_application_is_disconnected_by_its_owner(browser: BrowserDriver, console: ConsoleServer) -> None:
    await connect(console.server, "cleo", client_name="Desk App")
    await connect(console.server, "ben", client_name="App of Ben")

    seen = await console.run(browser, "connect.mjs", "disconnect", "cleo", values="Desk App")

    assert "Desk App" in seen["before"]
    assert "App of Ben" not in seen["before"]
    assert "No application has access." in seen["after"]


async def test_keys_and_the_test_work_without_javascript(browser: BrowserDriver, console: ConsoleServer) -> None:
    seen = await console.run(browser, "connect.mjs", "plain", "dora", javaScriptEnabled=False)

    assert seen["status"] == 200
    assert "The connection works." in seen["text"]


async def test_single_user_connects_without_signing_in(browser: BrowserDriver, tmp_path: Path) -> None:
    async with open_console(tmp_path, jwt_secret="") as console:
        seen = await console.run(browser, "connect.mjs", "testConnection", None)
        (text,) = await console.run(browser, "console.mjs", "texts", None, values=["/connect"])

    assert [name for name, _ in seen["hops"]] == ["address", "challenge", "initialize", "tools", "call"]
    assert "This server is yours alone" in text


@pytest.mark.parametrize(
    "options", [{"colorScheme": "light"}, {"colorScheme": "dark"}, {"colorScheme": "dark", **PHONE}]
)
async def test_connect_page_passes_the_audit_and_fits_the_screen(
    browser: BrowserDriver, console: ConsoleServer, options: dict[str, Any]
) -> None:
    await connect(console.server, "ada", client_name="Application")
    paths = ["/connect", "/connect?client=claude-desktop", "/connect?client=vscode&auth=key", "/connect?client=chatgpt"]

    findings = await console.run(browser, "search.mjs", "look", values=paths, **options)

    assert findings == {path: [] for path in paths}


async def test_hostile_names_of_keys_and_applications_run_nothing(
    browser: BrowserDriver, console: ConsoleServer
) -> None:
    registry, user = console.server.runtime.registry, await console.server.user("mallory")
    names = ["".join(c if c.isprintable() else " " for c in payload)[:100] for payload in PAYLOADS]
    for name in names:
        await registry.create_key(user.id, name, [READ])
    for name in names[::8]:
        await connect(console.server, "mallory", client_name=name)

    typed = names[:3]
    seen = await console.run(browser, "connect.mjs", "hostileKeys", "mallory", values=typed)
    await console.run(browser, "item.mjs", "hostile", "mallory", values=["/connect", "/connect?client=%3Cscript%3E"])

    assert len(seen["names"]) == len(names) + len(typed)
    assert (seen["names"][0], seen["xss"]) == (names[0], None)
