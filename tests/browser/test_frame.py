"""The frame of all pages in a browser: menu, palette, theme and language, and the console as an app."""

import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from auth.browser_sessions import session_cookie_name
from server.console.edit_page import bookmarklet
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
    assert seen["tabs"]["Settings"][:2] == ["Connect", "Sharing"]


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


async def test_page_without_a_connection_says_so_and_shows_nothing_private(
    browser: BrowserDriver, console: ConsoleServer
) -> None:
    seen = await console.run(browser, "frame.mjs", "offline", serviceWorkers="allow")

    assert seen["kept"] == ["offline", "console.css", "favicon.svg"]
    assert "You are offline" in seen["text"]
    assert "Voyage" not in seen["text"]
    assert seen["styled"] != "none", "the style sheet is kept, too"
    assert seen["back"] == "Library"


PAGE = """<!doctype html><meta charset=utf-8><title>Tea &amp; <b>"harbours"</b></title><nav>Menu</nav>
<article><p>Steep for three minutes: 茶.</p><blockquote id=quote>Only the quote.</blockquote></article>
<footer>Imprint</footer>"""


@pytest.fixture(scope="module")
def other_site() -> Iterator[str]:
    """The address of a page of another site. `localhost` is another site than the 127.0.0.1 of the console."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/tea"
        server.shutdown()


@pytest.mark.parametrize(
    ("selects", "text"), [(False, "Steep for three minutes: 茶.\n\nOnly the quote."), (True, "Only the quote.")]
)
async def test_bookmarklet_saves_the_page_of_another_site_when_the_person_confirms(
    browser: BrowserDriver, console: ConsoleServer, other_site: str, selects: bool, text: str
) -> None:
    values = {"site": other_site, "selects": selects, "code": bookmarklet(console.server.url)}

    seen = await console.run(browser, "frame.mjs", "bookmarklet", "cleo", values=values)

    assert seen["title"] == 'Tea & <b>"harbours"</b>'
    assert seen["content"] == f"{text}\n\n<{other_site}>"
    assert seen["after"] == seen["before"] + 1
    assert seen["link"] == other_site


async def test_text_of_the_bookmarklet_stays_while_the_person_signs_in(
    browser: BrowserDriver, console: ConsoleServer, other_site: str
) -> None:
    secret = await console.server.runtime.browser_sessions.create(await console.server.user("dora"))
    cookie = {"name": session_cookie_name(console.server.runtime.settings), "value": secret, "url": console.server.url}
    values = {"site": other_site, "cookie": cookie, "code": bookmarklet(console.server.url)}

    seen = await console.run(browser, "frame.mjs", "bookmarklet", None, values=values)

    assert "Sign in in another tab" in seen["text"]
    assert "Steep for three minutes" in seen["content"]


@pytest.mark.parametrize("options", [{}, {**PHONE, "colorScheme": "dark"}])
async def test_pages_in_arabic_run_from_right_to_left_and_fit_the_screen(
    browser: BrowserDriver, console: ConsoleServer, options: dict[str, Any]
) -> None:
    paths = ["/", "/?q=galleon", "/library", "/history", "/import", "/connect", "/account"]

    findings = await console.run(browser, "frame.mjs", "rightToLeft", values={"paths": paths}, **options)

    assert findings == {path: [] for path in paths}
