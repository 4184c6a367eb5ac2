"""What all pages share: the menu, the language and theme that a person chooses, and what the palette finds."""

import json
import re

from tests.cases import each_case
from tests.server.console.console_fixture import Console
from tests.server.console.signed_in import HTML, open_page, page_text
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

MENU = ["Search", "Library", "Chats", "Import", "Settings"]


def menu(page: str) -> list[str]:
    found = re.search(r'<nav id="menu-list".*?</nav>', page, re.DOTALL)
    assert found is not None
    return re.findall(r"<a [^>]*>([^<]*)</a>", found[0])


def current(page: str) -> list[str]:
    return re.findall(r'aria-current="(?:page|true)">([^<]*)</a>', page.partition("<main")[0])


SECTIONS = {
    "/": ["Search", "Search"],
    "/library": ["Library", "Items"],
    "/new": ["Library", "New"],
    "/history": ["Chats", "History"],
    "/threads": ["Chats", "Threads"],
    "/import": ["Import"],
    "/connect": ["Settings", "Connect"],
    "/account": ["Settings", "Account"],
}


@each_case("path", SECTIONS)
async def test_menu_has_five_entries_and_shows_where_the_page_is(api: RestClient, path: str) -> None:
    page = await page_text(api, path)

    assert menu(page) == MENU
    assert current(page) == SECTIONS[path]


async def test_choice_of_language_and_theme_is_kept_in_the_browser(site: Console) -> None:
    async with site.browser() as browser:
        await browser.sign_in("ada")
        answer = await browser.submit(
            "/library", {"language": "de", "theme": "dark", "next": "/library?source=notes"}, "/preferences"
        )
        page = (await browser.get("/library")).text

        assert (answer.status_code, answer.headers["Location"]) == (303, "/library?source=notes")
        assert "HttpOnly" in answer.headers["Set-Cookie"]
        assert '<html lang="de" dir="ltr" data-theme="dark">' in page
        assert '<option value="de" lang="de" selected>' in page

        await browser.submit("/library", {"language": "", "theme": ""}, "/preferences")

        assert '<html lang="en" dir="ltr">' in (await browser.get("/library")).text


async def test_language_can_be_chosen_before_signing_in(site: Console) -> None:
    async with site.browser() as browser:
        await browser.submit("/sign-in", {"language": "ja"}, "/preferences")

        assert '<html lang="ja"' in (await browser.get("/sign-in")).text


async def test_unknown_choices_and_addresses_of_others_are_ignored(site: Console) -> None:
    async with site.browser() as browser:
        answer = await browser.submit(
            "/sign-in", {"language": "../de", "theme": "<b>", "next": "//evil.example"}, "/preferences"
        )

        assert answer.headers["Location"] == "/"
        assert "Set-Cookie" not in answer.headers


async def test_preferences_are_not_changed_by_other_sites(site: Console) -> None:
    async with site.browser() as browser:
        await browser.get("/sign-in")
        missing = await browser.client.post("/preferences", data={"theme": "dark"})
        foreign = await browser.submit(
            "/sign-in", {"theme": "dark"}, "/preferences", headers={"Origin": "https://evil.example"}
        )

        assert (missing.status_code, foreign.status_code) == (403, 403)


async def test_palette_finds_own_items_by_the_beginning_of_a_word_and_own_tags(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_note("Voyage", "The galleon left.", tags=["sea"])
    await ben.add_note("Secret", "A galleon of Ben.", tags=["harbour"])

    found = await open_page(api, "/palette?q=galle")
    tags = json.loads((await open_page(api, "/palette")).body)["tags"]

    (item,) = json.loads(found.body)["items"]
    assert (item["text"], item["kind"]) == ("Voyage", "Note")
    assert item["address"].startswith("/items/notes/")
    assert found.header("cache-control") == "private, no-store"
    assert tags == [{"text": "sea", "address": "/?tag=sea"}]


async def test_palette_is_for_people_who_are_signed_in(api: RestClient) -> None:
    assert (await api.get("/palette?q=x", None, accept=HTML)).status == 303
    assert (await api.get("/palette?q=x", None)).status == 401
