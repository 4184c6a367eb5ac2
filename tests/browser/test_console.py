"""The console in a browser: search, items and library, with a keyboard, on a phone, in the dark, and with hostile data.

All tests share one server and one browser, because starting them takes longer than the tests. Ada has the data and Ben
has next to none.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from auth.browser_sessions import session_cookie_name
from tests.browser.driver import BrowserDriver
from tests.browser.payloads import PAYLOADS
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.console.test_pdf_pages import add_followed
from tests.server.rest.rest_client import rest_client_of
from tests.sources.source_fixture import LibraryUser

pytestmark = pytest.mark.slow("walks through pages in a browser")
PICTURES = os.environ.get("PNG_FOLDER", "")
PHONE = {"viewport": {"width": 390, "height": 844}, "isMobile": True, "hasTouch": True}


class Console(Struct, frozen=True):
    """A server with the library of Ada, and the paths of some of her items."""

    server: LiveServer
    ada: LibraryUser
    paths: dict[str, str]

    async def run(self, browser: BrowserDriver, file: str, step: str, who: str = "ada", **options: Any) -> Any:
        """Runs a step as a person who is signed in."""
        user = await self.server.user(who)
        secret = await self.server.runtime.browser_sessions.create(user)
        cookie = {"name": session_cookie_name(self.server.runtime.settings), "value": secret}
        return await asyncio.to_thread(browser.run, file, step, url=self.server.url, cookie=cookie, **options)


@pytest.fixture(scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Console]:
    async with live(make_settings(tmp_path_factory.mktemp("console"), **NO_RATE_LIMITS)) as server:
        ada = await rest_client_of(server).library_user("ada")
        ben = await rest_client_of(server).library_user("ben")
        await ben.add_note("Harbour", "A galleon at anchor.")
        fog = "The fog stays. " * 300
        paths = {
            "note": f"/items/notes/{await ada.add_note('Voyage', f'{fog}The galleon left. {fog}', tags=['sea'])}",
            "film": f"/items/media/{await ada.add_media('Film', 'A galleon in a film.', media_type='video')}",
            "chat": f"/items/chats/{await ada.add_chat('Talk', 'Which galleon?', 'The old galleon.', 'That galleon!')}",
            "prompt": f"/items/prompts/{await ada.add_prompt('Summary', 'Summarise the *voyage*.')}",
        }
        for number in range(4):
            await ada.add_note(f"Log {number}", f"Day {number}: a frigate.", tags=["log"])
        yield Console(server, ada, paths)


async def test_search_works_with_the_keyboard_alone(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "search.mjs", "keyboard")

    assert set(seen["found"]) == {"Voyage", "Film", "Talk"}
    assert seen["afterBack"] == seen["found"]
    assert seen["findings"] == []


async def test_people_see_only_their_own_results(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "search.mjs", "plain", "ben")

    assert seen["titles"] == ["Harbour"]


async def test_tabs_and_filters_narrow_the_results_and_survive_a_reload(
    browser: BrowserDriver, console: Console
) -> None:
    seen = await console.run(browser, "search.mjs", "filters")

    assert set(seen.pop("removed")) == {"Voyage", "Film", "Talk"}
    assert seen == {"media": ["Film"], "tagged": ["Voyage"], "reloaded": ["Voyage"], "findings": []}


async def test_saved_search_is_opened_by_its_name(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "search.mjs", "saved")

    assert seen == {"opened": ["Voyage"], "left": 0, "findings": []}


async def test_timeline_leads_to_the_items(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "search.mjs", "timeline")

    assert seen["month"] >= seen["day"] >= 8
    assert (seen["tagged"], seen["findings"]) == (4, [])


async def test_late_answer_of_an_earlier_query_is_not_shown(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "search.mjs", "stale")

    assert set(seen["titles"]) == {"Voyage", "Film", "Talk"}
    assert seen["address"].endswith("?q=galleon")


async def test_search_works_without_javascript(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "search.mjs", "plain", javaScriptEnabled=False)

    assert set(seen["titles"]) == {"Voyage", "Film", "Talk"}


@pytest.mark.parametrize(
    "options", [{"colorScheme": "light"}, {"colorScheme": "dark"}, {"colorScheme": "dark", **PHONE}]
)
async def test_pages_pass_the_audit_and_fit_the_screen(
    browser: BrowserDriver, console: Console, options: dict[str, Any]
) -> None:
    pages = ["/", "/?q=galleon", "/library", "/library/timeline", "/new?source=characters", "/connect"]
    paths = [*pages, console.paths["chat"], f"{console.paths['prompt']}?assistant=true"]

    findings = await console.run(browser, "search.mjs", "look", values=paths, **options)

    assert findings == {path: [] for path in paths}


async def test_matches_in_a_conversation_are_counted_and_messages_copied(
    browser: BrowserDriver, console: Console
) -> None:
    seen = await console.run(browser, "item.mjs", "matches", values=console.paths["chat"])

    assert seen["texts"] == ["3 matches", "1 of 3", "2 of 3", "3 of 3", "2 of 3"]
    assert seen["copied"] == "Which galleon?"


async def test_citation_of_an_assistant_opens_at_the_passage(browser: BrowserDriver, console: Console) -> None:
    (hit, *_) = (await console.ada.call("search", query="voyage galleon left"))["results"]
    path = hit["url"].removeprefix(console.server.runtime.settings.base_url)

    assert "The galleon left." in await console.run(browser, "item.mjs", "passage", values=path)


@each_case("name, options", [("desktop", {}), ("phone", PHONE), ("dark", {"colorScheme": "dark"})])
async def test_pdf_in_a_followed_folder_opens_at_the_page_of_the_passage(
    browser: BrowserDriver, console: Console, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    pages = [f"Page {number} is about tides. " * 3 for number in (1, 2)]
    item = await add_followed(rest_client_of(console.server), console.ada, tmp_path / name, f"{name}.pdf", pages)
    values = {"path": f"/items/media/{item}?chunk_index=0&find=2", "folder": PICTURES, "name": name}
    seen = await console.run(browser, "item.mjs", "pdfPages", values=values, **options)

    assert seen == {"texts": [f"Page 2 of {name}.pdf", f"Page 1 of {name}.pdf"], "findings": []}


async def test_item_is_created_changed_tagged_deleted_and_restored(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "item.mjs", "lifecycle", "cleo")

    assert seen["findings"] == []
    assert "winter" in seen["text"]


async def test_several_items_are_tagged_at_once(browser: BrowserDriver, console: Console) -> None:
    seen = await console.run(browser, "item.mjs", "bulk")

    assert seen == {"selected": "3 selected", "findings": [], "tagged": 3}


async def test_hostile_texts_run_and_load_nothing(browser: BrowserDriver, console: Console) -> None:
    """All payloads are in every text field of every kind of item. The driver fails the test if a page runs a script,
    opens a dialog or requests anything from elsewhere."""
    assert len(PAYLOADS) >= 150
    mallory = await rest_client_of(console.server).library_user("mallory")
    text = "\n\n".join(PAYLOADS)
    tags = [payload[:60] for payload in PAYLOADS if "," not in payload][:30]
    titles = [" ".join(PAYLOADS[n::8])[:900] for n in range(8)]
    paths = [f"/items/notes/{await mallory.add_note(title, text, tags=tags)}" for title in titles[:2]]
    paths.append(f"/items/media/{await mallory.add_media(titles[2], text, url=PAYLOADS[0], author=titles[2])}")
    paths.append(f"/items/chats/{await mallory.add_chat(titles[3], *PAYLOADS, tags=tags)}")
    fields = {"personality": text, "scenario": text, "first_message": text, "creator_notes": text}
    paths.append(f"/items/characters/{await mallory.add_character(titles[4], text, tags=tags, **fields)}")
    paths.append(f"/items/prompts/{await mallory.add_prompt(titles[5], text, tags=tags, system_prompt=text)}")
    found = await rest_client_of(console.server).request("POST", "/api/v1/duplicates", "mallory")
    assert found.json()["found"] >= 1
    edits = [path.replace("/items/", "/edit/") for path in paths]
    pages = [
        "/library",
        "/tags",
        "/duplicates",
        "/",
        "/?q=alert&tag=",
        "/?q=script+onerror",
        "/?q=%22%3E%3Cscript%3Exss%3D1%3C%2Fscript%3E",
    ]
    marked = [f"{path}?find=alert+script+img&assistant=true" for path in paths]

    await console.run(browser, "item.mjs", "hostile", "mallory", values=[*pages, *paths, *marked, *edits])
