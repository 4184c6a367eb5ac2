"""The API reference in a browser: contents, requests as the person who is signed in, and reading without a script."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.browser.driver import BrowserDriver
from tests.browser.payloads import PAYLOADS
from tests.browser.test_admin import Site
from tests.browser.test_console import PHONE
from tests.live import NO_RATE_LIMITS, live, make_settings
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with live(make_settings(tmp_path_factory.mktemp("reference"), **NO_RATE_LIMITS)) as server:
        for name, text in (("ada", " ".join(PAYLOADS)), ("ben", "A foreign galleon.")):
            await (await rest_client_of(server).library_user(name)).add_note(f"Galleon of {name}", text)
        yield Site(server)


async def test_operations_are_found_and_tried_as_the_person_who_is_signed_in(
    browser: BrowserDriver, site: Site
) -> None:
    """The item contains hostile texts: the driver fails the test if one of them runs in the answer."""
    seen = await site.run(browser, "reference", "ada")

    assert len(seen["listed"]) == 1
    assert seen["findings"] == []
    assert seen["found"]["status"] == "200 OK"
    assert [hit["title"] for hit in json.loads(seen["found"]["body"])["results"]] == ["Galleon of ada"]
    assert "content-type: application/json" in seen["found"]["headers"]
    assert seen["found"]["command"].startswith(f"curl -X POST '{site.server.url}/api/v1/search' -H ")
    assert seen["refused"]["status"] == "400 Bad Request"
    assert json.loads(seen["items"]["body"])["total"] == 1
    assert "<script>" in json.loads(seen["item"]["body"])["content"]
    assert seen["created"]["status"] == "201 Created"
    [key] = await site.server.runtime.registry.list_keys()
    assert (key.name, key.user.name) == ("made here", "ada")


async def test_reference_is_readable_without_a_script_and_without_sign_in(browser: BrowserDriver, site: Site) -> None:
    plain = await site.run(browser, "readable", "ada", javaScriptEnabled=False)
    anonymous = await asyncio.to_thread(browser.run, "admin.mjs", "readable", url=site.server.url)

    assert plain["operations"] == plain["links"] == anonymous["operations"] > 80
    assert plain["buttons"] == anonymous["buttons"] == 0
    assert "Sign in to try the operations here." in anonymous["note"]


@pytest.mark.parametrize("options", [{}, {"colorScheme": "dark", **PHONE}])
async def test_reference_passes_the_audit_and_fits_the_screen(
    browser: BrowserDriver, site: Site, options: dict[str, Any]
) -> None:
    seen = await site.run(browser, "referenceLook", "ada", **options)

    assert seen == {"overflow": 0, "findings": []}
