"""The files that pages load: their types, addresses and size."""

import gzip

from server.console import pages
from server.console.pages import LANGUAGES
from tests.cases import each_case
from tests.server.console.signed_in import page_text
from tests.server.rest.markup import Markup
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

TYPES = {
    "console.css": "text/css; charset=utf-8",
    "favicon.svg": "image/svg+xml",
    "page.js": "text/javascript; charset=utf-8",
}
# What a browser loads for all pages in one language, the icons of the app excepted.
BUDGET_BYTES = 120 * 1024


@each_case("name", TYPES)
async def test_file_has_its_type_and_is_kept_for_good(api: RestClient, name: str) -> None:
    response = await api.get(pages.asset_url(name), None)

    assert (response.status, response.header("content-type")) == (200, TYPES[name])
    assert response.header("cache-control") == "public, max-age=31536000, immutable"


async def test_file_of_another_version_is_not_found(api: RestClient) -> None:
    for path in ("/static/0123456789abcdef/console.css", pages.asset_url("page.js").replace("page.js", "none.js")):
        assert (await api.get(path, None)).status == 404


async def test_files_are_not_served_for_an_unknown_host(api: RestClient) -> None:
    assert (await api.get(pages.asset_url("page.js"), None, host="evil.example")).status == 403


async def test_browsers_find_an_icon_at_its_usual_path(api: RestClient) -> None:
    assert (await api.get("/favicon.ico", None)).header("content-type") == "image/svg+xml"


async def test_page_loads_only_files_of_this_server(api: RestClient, ada: LibraryUser) -> None:
    page = Markup(await page_text(api, f"/items/notes/{await ada.add_note('Voyage', 'a galleon')}"))

    assert page.loads
    assert [path for path in page.loads if not path.startswith("/static/")] == ["/manifest.webmanifest"]
    assert {(await api.get(path, None)).status for path in page.loads} == {200}


@each_case("code", LANGUAGES)
def test_all_scripts_and_styles_together_stay_within_the_budget(code: str) -> None:
    files = pages.asset_files()
    loaded = {name for name in files if name.endswith((".js", ".css"))}
    loaded -= {f"{other}.js" for other in LANGUAGES if other != code}

    assert sum(len(gzip.compress(files[name])) for name in loaded) <= BUDGET_BYTES
