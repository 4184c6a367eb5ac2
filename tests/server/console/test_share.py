"""Texts that other apps and sites send: they are shown to the person, and saved only when the person says so."""

import json
from html import unescape
from re import search
from typing import Any
from urllib.parse import unquote, urlencode

from config.settings import Settings
from server.console.edit_page import bookmarklet
from server.console.pages import asset_files
from tests.browser.payloads import PAYLOADS
from tests.server.console.console_fixture import Console, TestBrowser, read_form
from tests.server.console.signed_in import HTML
from tests.server.rest.markup import Markup
from tests.server.rest.rest_client import RestClient

SHARED = {"title": "Tea", "text": "Steep for three minutes.", "url": "https://example.com/tea"}
FOREIGN = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


def form_of(page: str, action: str) -> dict[str, str]:
    # The parser keeps the line break after `<textarea>`, which browsers drop.
    return {name: value.removeprefix("\n") for name, value in read_form(page, action)[0].items()}


async def review(browser: TestBrowser, **values: str) -> dict[str, str]:
    """Shares a text as another site does, and returns the fields of the form that the person sees."""
    shared = await browser.client.post("/share", data=values, headers=FOREIGN)
    page = await browser.client.post("/share/review", data=form_of(shared.text, "/share/review"))
    assert (shared.status_code, page.status_code) == (200, 200)
    return form_of(page.text, "/new")


async def notes(browser: TestBrowser) -> str:
    return (await browser.get("/library?source=notes")).text


async def test_shared_text_is_saved_only_when_the_form_is_sent(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")
        fields = await review(ada, **SHARED)

        assert (fields["title"], fields["content"]) == ("Tea", "Steep for three minutes.\n\n<https://example.com/tea>")
        assert "Tea" not in await notes(ada)

        created = await ada.client.post("/new", data=fields)

        assert created.status_code == 303
        assert "Tea" in await notes(ada)


async def test_address_of_a_share_opens_the_same_form(site: Console) -> None:
    async with site.browser() as ada:
        address = f"/share?{urlencode(SHARED)}"
        refused = await ada.get(address, headers={"Accept": HTML})
        await ada.sign_in("ada")
        fields = form_of((await ada.get(address)).text, "/new")

        # The sign-in page leads back to the address with the text.
        assert "%3Ftitle%3DTea" in refused.headers["Location"]
        assert fields["content"] == "Steep for three minutes.\n\n<https://example.com/tea>"


async def test_address_that_is_shared_as_a_text_becomes_a_link(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")

        assert (await review(ada, text="https://example.com/a"))["content"] == "<https://example.com/a>"
        assert (await review(ada, url="javascript:alert(1)"))["content"] == "javascript:alert(1)"


async def test_shared_page_reads_no_cookie_and_has_no_token(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")
        page = await ada.client.post("/share", data=SHARED, headers=FOREIGN)

        assert "csrf_token" not in page.text
        assert "ada" not in Markup(page.text).text
        assert "set-cookie" not in page.headers


async def test_form_of_another_site_opens_no_form_with_a_token_and_saves_nothing(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")
        reviewed = await ada.client.post("/share/review", data=SHARED, headers=FOREIGN)
        created = await ada.client.post("/new", data={"title": "Tea", "source": "notes"}, headers=FOREIGN)

        assert (reviewed.status_code, created.status_code) == (403, 403)
        assert "Tea" not in await notes(ada)


async def test_text_stays_on_the_page_of_someone_who_is_not_signed_in(site: Console) -> None:
    async with site.browser(Accept=HTML) as nobody:
        page = await nobody.client.post("/share/review", data=SHARED)

        assert page.status_code == 200
        assert form_of(page.text, "/share/review") == SHARED
        assert 'href="/sign-in"' in page.text


async def test_hostile_texts_are_only_text(site: Console) -> None:
    text = "\n".join(PAYLOADS)
    async with site.browser() as ada:
        await ada.sign_in("ada")
        values = {"title": text[:900], "text": text, "url": PAYLOADS[0]}
        shared = await ada.client.post("/share", data=values, headers=FOREIGN)
        plain = await ada.client.post("/share", data=SHARED, headers=FOREIGN)
        fields = await review(ada, **values)

        page, expected = Markup(shared.text), Markup(plain.text)
        assert (page.tags, page.attributes, page.links) == (expected.tags, expected.attributes, expected.links)
        assert fields["content"].startswith(text.strip())


async def test_text_that_is_too_long_or_of_another_kind_is_refused(site: Console) -> None:
    async with site.browser() as nobody:
        long = await nobody.client.post("/share", data={"text": "x" * 2_200_000}, headers=FOREIGN)
        other = await nobody.client.post("/share", content=b"{}", headers={**FOREIGN, "Content-Type": "text/plain"})
        host = await nobody.client.post("/share", data=SHARED, headers={**FOREIGN, "Host": "evil.example"})

        assert (long.status_code, other.status_code, host.status_code) == (413, 415, 403)


async def test_manifest_describes_an_app_that_texts_can_be_shared_to(api: RestClient) -> None:
    response = await api.get("/manifest.webmanifest", None)
    manifest: dict[str, Any] = json.loads(response.body)

    assert response.header("content-type") == "application/manifest+json"
    assert manifest["share_target"]["action"] == "/share"
    assert {icon["sizes"] for icon in manifest["icons"]} == {"192x192", "512x512"}
    for icon in manifest["icons"]:
        image = await api.get(icon["src"], None)
        assert (image.status, image.header("content-type")) == (200, "image/png")
        width = int.from_bytes(image.body[16:20])
        assert f"{width}x{width}" == icon["sizes"]


async def test_service_worker_keeps_only_files_without_private_data(api: RestClient) -> None:
    response = await api.get("/service-worker.js", None)
    found = search(r"const FILES = (\[.*?\]);", response.body.decode())

    assert found is not None
    assert response.header("cache-control") == "no-cache"
    for path in json.loads(found[1]):
        assert (await api.get(path, None, accept=HTML)).status == 200
    assert b"cache.put" not in asset_files()["service-worker.js"]


def test_bookmarklet_sends_to_the_server_it_comes_from() -> None:
    origin = Settings(public_url="https://notes.example.com").base_url

    code = unquote(bookmarklet(origin))

    assert code.startswith("javascript:(() => {")
    assert f'action: "{origin}/share"' in unescape(code)
