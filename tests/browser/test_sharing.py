"""Two people share in a browser: a group, an invitation, a tag, and the end of it."""

import os
from urllib.parse import urlencode

import pytest

from auth.context import READ, ShareRule
from auth.oauth.clients import OAuthClients
from auth.sharing import Sharing
from tests.browser.driver import BrowserDriver
from tests.browser.test_admin import Site
from tests.live import NO_RATE_LIMITS, live, make_settings
from tests.server.console.console_fixture import FAST_HASHES
from tests.server.console.console_fixture import Console as AccountSite
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")
VALUES = {"group": "Team", "person": "ben", "tag": "house", "query": "boiler"}


async def test_two_people_share_a_tag_and_a_group(
    browser: BrowserDriver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = make_settings(tmp_path_factory.mktemp("sharing"), **NO_RATE_LIMITS, **FAST_HASHES)
    # A folder for pictures, to look at.
    pictures = os.environ.get("SHARING_PICTURES", "")
    async with live(settings) as server:
        for name in ("ada", "ben"):
            await AccountSite(server).add_account(name)
        ada = await rest_client_of(server).library_user("ada")
        await ada.add_note("Boiler", "The boiler was serviced in May.", tags=("house",))
        await ada.add_note("Diary", "The boiler is none of your business.")
        site = Site(server)

        async def run(step: str, who: str) -> dict[str, object]:
            picture = f"{pictures}/{who}" if pictures else ""
            seen: dict[str, object] = await site.run(
                browser, step, who, "sharing.mjs", values={**VALUES, "picture": picture}
            )
            return seen

        assert (await run("invite", "ada"))["findings"] == []
        seen = await run("join", "ben")
        assert seen["findings"] == []
        assert seen["badges"] == ["ada/house"]
        assert "The boiler was serviced in May." in str(seen["item"])
        await run("stop", "ada")
        assert (await run("search", "ben")) == {"hits": 0}


async def test_the_longest_names_make_no_page_wider_than_the_window(
    browser: BrowserDriver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name, group, text = "w" * 128, "g" * 128, "t" * 255
    async with live(make_settings(tmp_path_factory.mktemp("names"), **NO_RATE_LIMITS, **FAST_HASHES)) as server:
        for person in (name, "ben"):
            await AccountSite(server).add_account(person)
        registry = server.runtime.registry
        user, ben = [await server.user(person) for person in (name, "ben")]
        sharing = Sharing(registry.database)
        await sharing.create_group(user.id, group)
        await sharing.invite(user.id, group, "reader", "ben")
        await sharing.create_share(user.id, ShareRule("tag", text), group)
        await sharing.create_share(ben.id, ShareRule("tag", text), name)
        await registry.create_key(user.id, text, [READ])
        client, _ = await OAuthClients(registry.database, server.runtime.settings).register(
            {"redirect_uris": ["https://client.example/callback"], "client_name": text}
        )
        asked = {"client_id": client.id, "response_type": "code", "code_challenge_method": "S256"}
        consent = f"/authorize?{urlencode({**asked, 'code_challenge': 'c' * 43})}"
        paths = ["/", "/sharing", f"/sharing?group={group}", "/account", consent]
        for width in (390, 1280):
            wider = await Site(server).run(
                browser,
                "widths",
                name,
                "sharing.mjs",
                values={"paths": paths},
                viewport={"width": width, "height": 800},
            )
            assert wider == dict.fromkeys(paths, 0)
