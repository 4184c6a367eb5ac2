"""Every page in a browser, once: it shows its content, and the driver fails the test if a page reports an error or
requests anything of another host. The other files of this folder use the pages; they are in the second tier."""

from pathlib import Path

from tests.browser.console_server import open_console
from tests.browser.driver import BrowserDriver
from tests.server.rest.rest_client import rest_client_of


async def test_every_page_is_shown_without_an_error_to_its_owner_only(browser: BrowserDriver, tmp_path: Path) -> None:
    async with open_console(tmp_path) as console:
        ada = await rest_client_of(console.server).library_user("ada")
        note = await ada.add_note("Voyage of the galleon", "The galleon left the harbour.")
        chat = await ada.add_chat("Galleon talk", "Where is the galleon?", "At anchor.")
        pages = {
            "/?q=galleon": "Voyage of the galleon",
            "/library": "Voyage of the galleon",
            "/tags": "No tags",
            "/duplicates": "Look for duplicates",
            "/ask": "Your question",
            "/ask/model": "Language model",
            f"/items/notes/{note}": "The galleon left the harbour.",
            f"/edit/notes/{note}": "Title",
            "/new": "Title",
            "/history": "Galleon talk",
            f"/history/{chat}": "At anchor.",
            "/threads": "Threads",
            "/import": "Import",
            "/connect": "Connect",
            "/account": "ada",
            "/account/delete": "ada",
            "/admin": "Users",
            "/admin/users": "ada",
            "/admin/users/ada": "ada",
            "/admin/audit": "Audit",
            "/docs": "/api/v1/search",
        }

        shown = await console.run(browser, "console.mjs", "texts", "ada", values=list(pages))
        others = await console.run(
            browser, "console.mjs", "texts", "ben", values=["/?q=galleon", "/library", "/history"]
        )
        [sign_in] = await console.run(browser, "console.mjs", "texts", None, values=["/sign-in"])

    texts = dict(zip(pages, shown, strict=True))
    missing = {page: texts[page][:300] for page, text in pages.items() if text.lower() not in texts[page].lower()}
    assert missing == {}
    assert "Voyage" not in "".join(others)
    assert "Galleon" not in "".join(others)
    assert "Password" in sign_in
