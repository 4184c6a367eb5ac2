"""The frame of all pages in a browser: menu, palette, theme and language."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")


@pytest.fixture(scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    async with open_console(tmp_path_factory.mktemp("frame")) as console:
        ada = await rest_client_of(console.server).library_user("ada")
        await ada.add_note("Voyage", "The galleon left.", tags=["sea", "log"])
        await ada.add_note("Harbour", "A galley at anchor.", tags=["sea"])
        ben = await rest_client_of(console.server).library_user("ben")
        await ben.add_note("Secret", "A galleon of Ben.", tags=["seaside"])
        yield console


@pytest.mark.parametrize("options", [{}, PHONE, {**PHONE, "javaScriptEnabled": False}])
async def test_menu_leads_to_every_page_on_a_desktop_and_a_phone(
    browser: BrowserDriver, console: ConsoleServer, options: dict[str, Any]
) -> None:
    is_plain = options.get("javaScriptEnabled") is False  # the audit is a script
    seen = await console.run(browser, "frame.mjs", "menu", values={"isPlain": is_plain}, **options)

    assert seen["findings"] == []
    assert seen["links"] == ["Search", "Library", "Chats", "Import", "Settings"]
    assert seen["tabs"]["Chats"] == ["History", "Threads"]
    assert seen["tabs"]["Settings"][:2] == ["Connect", "ada"]


async def test_theme_is_kept_and_part_of_every_page(browser: BrowserDriver, console: ConsoleServer) -> None:
    system, dark, light, again = await console.run(browser, "frame.mjs", "theme", colorScheme="light")

    assert system == light == again
    assert dark != light


@pytest.mark.parametrize("has_scripts", [True, False])
async def test_language_is_chosen_on_the_page_and_leads_back_to_it(
    browser: BrowserDriver, console: ConsoleServer, has_scripts: bool
) -> None:
    seen = await console.run(browser, "frame.mjs", "language", values="de", javaScriptEnabled=has_scripts)

    assert seen == {"path": "/library", "heading": "Bibliothek"}


async def test_palette_finds_items_tags_pages_and_commands_with_the_keyboard(
    browser: BrowserDriver, console: ConsoleServer
) -> None:
    seen = await console.run(browser, "frame.mjs", "palette")

    assert seen["findings"] == []
    assert seen["first"][0] == "Search"
    assert {"New note", "Import files", "Connect an assistant", "Dark theme"} <= set(seen["first"])
    assert "Voyage" in seen["items"]
    assert "Secret" not in seen["items"]
    assert seen["tag"] == ["Search", "Search: Ask", "sea"]
    assert "seaside" not in seen["tag"]
    assert seen["page"] == ["Chats: Threads"]
    assert seen["opened"] == "Voyage"
