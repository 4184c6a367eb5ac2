"""Managing a library in a browser: selections, tags, the editor's preview, duplicates and recordings, on a desktop and
a phone, light and dark. With FLORILEGIUM_PICTURES, the walks write pictures of the pages to that folder."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.server.rest.rest_client import rest_client_of
from tests.sources.source_fixture import LibraryUser

pytestmark = pytest.mark.slow("walks through pages in a browser")

SCREENS: dict[str, dict[str, Any]] = {
    "desktop": {"colorScheme": "light"},
    "dark": {"colorScheme": "dark"},
    "phone": {"colorScheme": "light", **PHONE},
}
screens = pytest.mark.parametrize("screen", SCREENS)


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[ConsoleServer]:
    async with open_console(tmp_path) as server:
        yield server


async def user(console: ConsoleServer, name: str = "ada") -> LibraryUser:
    return await rest_client_of(console.server).library_user(name)


async def walk(browser: BrowserDriver, console: ConsoleServer, step: str, screen: str, **values: Any) -> Any:
    pictures = os.environ.get("FLORILEGIUM_PICTURES")
    if pictures:
        values["pictures"] = str(Path(pictures) / screen)
    return await console.run(browser, "manage.mjs", step, values=values, **SCREENS[screen])


async def fill(ada: LibraryUser) -> None:
    for number in range(55):
        await ada.add_note(f"Day {number} of the voyage", f"Wind from {number} degrees.", tags=["inbox", "log"])
    await ada.add_prompt("Summary", "Summarise it.", tags=["Work"])


@screens
async def test_items_are_selected_changed_and_brought_back(
    browser: BrowserDriver, console: ConsoleServer, screen: str
) -> None:
    await fill(await user(console))

    seen = await walk(browser, console, "selection", screen)

    assert seen.pop("findings") == []
    assert "55 items are deleted." in seen.pop("deleted")
    assert "55 items are as they were before." in seen.pop("undone")
    assert seen == {"selected": "50 selected", "fits": True, "pinned": 1, "file": "florilegium-export.zip"}


@screens
async def test_tags_are_merged_after_a_question(browser: BrowserDriver, console: ConsoleServer, screen: str) -> None:
    await fill(await user(console))

    seen = await walk(browser, console, "tags", screen)

    assert seen["findings"] == []
    assert "55 items are changed." in seen["merged"]
    assert (set(seen["left"]), seen["fits"]) == ({"inbox", "log", "Work"}, True)


@screens
async def test_editor_shows_a_safe_preview_next_to_the_text_or_instead_of_it(
    browser: BrowserDriver, console: ConsoleServer, screen: str
) -> None:
    ada = await user(console)
    note = await ada.add_note("Plan", "Pack the *boat*.")

    seen = await walk(browser, console, "editor", screen, path=f"/edit/notes/{note}")

    assert (seen["findings"], seen["fits"], seen["isBeside"]) == ([], True, screen != "phone")
    assert "<strong>rope</strong>" in seen["html"]
    assert "<img" not in seen["html"]


@screens
async def test_duplicates_are_shown_side_by_side_and_merged(
    browser: BrowserDriver, console: ConsoleServer, screen: str
) -> None:
    ada = await user(console)
    text = "The galleon left the harbour at dawn while the fog stayed over the old quay. " * 3
    await ada.add_note("Voyage", f"{text}The crew counted the barrels and the rope twice before noon.", tags=["sea"])
    await ada.add_note("Voyage (copy)", f"{text}The crew counted the barrels and the rope thrice before noon.")
    for number in range(2):
        await ada.add_media(f"Film {number}", "A galleon in a film.", media_type="video")

    seen = await walk(browser, console, "duplicates", screen)

    assert seen.pop("findings") == []
    assert [heading.partition(" ")[0] for heading in seen.pop("headings")] == ["2", "2"]
    assert seen == {"different": ["thrice "], "fits": True, "left": 1, "back": 2}
