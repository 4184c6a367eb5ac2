"""The page of the search tools in the reference host of MCP Apps, with the official client."""

import os
from typing import Any
from urllib.parse import urlsplit

import pytest

from server.tools.research import Permalinks
from sources.items import Loc
from sources.records import Segment
from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.cases import each_case
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")
PICTURES = os.environ.get("PNG_FOLDER", "")
HOSTILE = "Boiler <script>alert(1)</script><img src=x onerror=alert(1)> \u202etxt.exe"
SHOWN = "Boiler <script>alert(1)</script><img src=x onerror=alert(1)> txt.exe"
META = {
    "ui": {"resourceUri": "ui://florilegium/results.html"},
    "openai/outputTemplate": "ui://florilegium/results.html",
}


async def fill(console: ConsoleServer) -> tuple[str, dict[str, Any]]:
    """Returns the URI of a note, and the values that every step needs."""
    ada = await rest_client_of(console.server).library_user("ada")
    text = "The house is cold. " * 400 + "The boiler was serviced on 4 May 2025, <b>says</b> Hanna."
    note = await ada.add_note(HOSTILE, text, tags=["<i>heating</i>"])
    await ada.add_chat("Plumber", "Is the boiler serviced?", "Yes, the boiler was serviced.")
    segments = [
        Segment(text="The boiler hums.", start_ms=0, end_ms=65_000),
        Segment(text="It was serviced.", start_ms=65_000, end_ms=70_000),
    ]
    await ada.add_media("Film of the boiler", segments=segments, media_type="video")
    credential = await console.server.bearer("ada")
    return f"notes://{note}", {"authorization": credential["Authorization"]}


async def test_client_that_negotiates_the_extension_is_told_about_the_page(
    browser: BrowserDriver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with open_console(tmp_path_factory.mktemp("data")) as console:
        _, values = await fill(console)
        seen = await console.run(browser, "app.mjs", "metadata", None, values=values)

    assert {name: meta for name, meta in seen["withApps"].items() if meta} == {
        "knowledge_search": META,
        "knowledge_get": META,
    }
    assert not any(seen["withoutApps"].values())


@each_case(
    "name, theme, options",
    [("app-desktop-light", "light", {}), ("app-desktop-dark", "dark", {}), ("app-phone-dark", "dark", PHONE)],
)
async def test_results_are_filtered_read_and_opened_at_their_place(
    browser: BrowserDriver,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    theme: str,
    options: dict[str, Any],
) -> None:
    async with open_console(tmp_path_factory.mktemp("data")) as console:
        uri, values = await fill(console)
        values |= {"query": "boiler serviced", "title": "Boiler <script>", "name": name, "theme": theme}
        values["folder"] = PICTURES
        seen = await console.run(browser, "app.mjs", "results", None, values=values, **options)
        base_url = console.server.runtime.settings.base_url

    assert SHOWN in seen["titles"]
    assert "<b>says</b> Hanna" in seen["text"]
    assert "<i>heating</i>" in seen["text"]
    # Its own script, and nothing of the texts.
    assert (seen["elements"], seen["findings"]) == (1, [])
    assert seen["chips"] == ["All", "notes", "media", "chats", "Newest first"]
    assert set(seen["filtered"]) == {"notes"}
    assert "4 May 2025" in seen["read"]
    assert seen["place"] == [True, True]  # scrolled to the words that were found
    assert seen["links"][0].startswith(Permalinks(base_url).of(uri, Loc(approx_offset=1))[: -len("1#passage")])
    assert urlsplit(seen["links"][0]).fragment == "passage"
    assert (seen["scheme"], seen["mimeType"]) == (theme, "text/html;profile=mcp-app")
    assert seen["meta"]["ui"]["csp"] == {"connectDomains": [], "resourceDomains": []}
    assert max(seen["sizes"]) > 100
    # Neither the proxy around it, nor the host, nor storage.
    assert seen["reach"] == ["rejected"] * 3


async def test_item_that_a_model_read_is_shown(
    browser: BrowserDriver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with open_console(tmp_path_factory.mktemp("data")) as console:
        uri, values = await fill(console)
        seen = await console.run(browser, "app.mjs", "item", None, values=values | {"uri": uri})

    assert (seen["title"], seen["back"]) == (SHOWN, False)
    assert "The house is cold." in seen["text"]
