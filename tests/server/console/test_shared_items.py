"""Pages of search results and items of other libraries."""

import re

from auth.context import ShareRule
from auth.sharing import Sharing
from tests.server.rest.rest_client import RestClient

HTML = {"Accept": "text/html"}


async def test_results_of_other_libraries_have_a_badge_and_lead_to_their_items(own_api: RestClient) -> None:
    ben = await own_api.library_user("ben")
    text = "The galleon of Ben. " + "Rain and wind again. " * 20
    note = await ben.add_note("Voyage", text, tags=("work",))
    hidden = await ben.add_note("Diary", "A galleon at home.", tags=("home",))
    await (await own_api.library_user("ada")).add_note("Mine", "A galleon of my own.")
    sharing = Sharing(own_api.server.runtime.registry.database)
    share = await sharing.create_share(ben.context.user_id, ShareRule("tag", "work"), "ada")

    results = (await own_api.get("/?q=galleon", **HTML)).body.decode()
    [address] = re.findall(rf'href="(/items/notes/{note}[^"]*library={share.id}[^"]*)"', results)[:1]
    page = await own_api.get(address.replace("&amp;", "&").partition("#")[0], **HTML)

    assert "ben/work" in results
    assert "Diary" not in results
    tabs = dict(re.findall(r'<li><a href="[^"]*"[^>]*>(\w+) <span class="count">(\d+)</span>', results))
    assert tabs == {"All": "2", "Notes": "2"}
    assert page.status == 200
    assert "The galleon of Ben." in re.sub("<[^>]+>", "", page.body.decode())
    assert "ben/work" in page.body.decode()
    # Nothing on the page changes an item of someone else.
    assert f"/edit/notes/{note}" not in page.body.decode()
    for path in (f"/items/notes/{hidden}?library={share.id}", f"/items/notes/{note}"):
        assert (await own_api.get(path, **HTML)).status == 404
    await sharing.delete_share(None, share.id)
    assert (await own_api.get(f"/items/notes/{note}?library={share.id}", **HTML)).status == 404
