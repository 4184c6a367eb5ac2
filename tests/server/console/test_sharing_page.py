"""The sharing page: groups, invitations by name and by link, roles, and what people share of their own libraries."""

import re
from html import unescape

from tests.server.console.console_fixture import Console, TestBrowser, text_of

NOTE = {"title": "Boiler", "content": "The boiler was serviced in May.", "tags": "house"}


async def add_note(browser: TestBrowser, **values: str) -> None:
    response = await browser.submit("/new?source=notes", {**NOTE, **values}, "/new")
    assert response.status_code in {200, 303}, text_of(response.text)


async def found(browser: TestBrowser, query: str = "boiler") -> str:
    return (await browser.get("/", params={"q": query}, headers={"Accept": "text/html"})).text


async def test_two_people_share_a_group_library_and_a_tag(site: Console) -> None:
    async with site.browser() as ada, site.browser() as ben:
        await ada.sign_in("ada")
        await ben.sign_in("ben")

        created = await ada.submit("/sharing", {"name": "Home"}, "/sharing/create", follow_redirects=True)
        assert "The group is created" in text_of(created.text)
        invited = await ada.submit(
            "/sharing?group=Home", {"person": "ben", "role": "writer"}, "/sharing/invite", follow_redirects=True
        )
        assert "The person is invited" in text_of(invited.text)
        assert "ada invites you to the group Home as a writer" in text_of((await ben.get("/sharing")).text)
        joined = await ben.submit("/sharing", {}, "/sharing/accept", follow_redirects=True)
        assert "You are a member of the group" in text_of(joined.text)
        assert '<option value="writer" selected>' in (await ada.get("/sharing?group=Home")).text

        await add_note(ada)
        assert "Nothing found" in await found(ben)
        shared = await ada.submit(
            "/sharing", {"by": "tag", "value": "house", "to": "ben"}, "/sharing/share", follow_redirects=True
        )
        assert "It is shared now" in text_of(shared.text)
        page = await found(ben)
        assert "serviced in May" in text_of(page)
        assert re.search(r'class="badge library">[^<]*house', page)
        address = re.search(r'href="(/items/notes/[^"]+library=[^"]+)"', page)
        assert address is not None
        assert "The boiler was serviced" in text_of((await ben.get(unescape(address[1]))).text)

        await ada.submit("/sharing", {}, "/sharing/end")
        assert "Nothing found" in await found(ben)
        assert (await ben.get(unescape(address[1]))).status_code == 404


async def test_page_of_a_shared_item_leads_to_no_item_of_the_viewer_with_the_same_number(site: Console) -> None:
    async with site.browser() as ada, site.browser() as ben:
        for browser, name in ((ada, "ada"), (ben, "ben")):
            await browser.sign_in(name)
            prompt = {"title": f"Boiler of {name}", "content": f"Describe the boiler of {name}."}
            await browser.submit("/new?source=prompts", prompt, "/new")
        await ada.submit("/sharing", {"by": "source", "value": "prompts", "to": "ben"}, "/sharing/share")
        address = re.search(r'href="(/items/prompts/1\?[^"]*library=[^"&]+)', await found(ben))
        assert address is not None
        handle = address[1].rpartition("library=")[2]

        page = (await ben.get(f"{unescape(address[1])}&mode=snippet")).text
        beginning = re.search(r'href="([^"]+)">Read from the beginning', page)
        assert beginning is not None
        assert "boiler of ada" in text_of((await ben.get(unescape(beginning[1]))).text)
        assert f"<code>prompt_1?library={handle}</code>" in page


async def test_form_that_fails_says_why_on_the_page_it_is_on(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")

        refused = await ada.submit("/sharing", {"name": "My home"}, "/sharing/create")
        assert refused.status_code == 400
        assert "got 'My home'" in text_of(refused.text)
        assert 'name="name" value="My home"' in refused.text
        await ada.submit("/sharing", {"name": "Alone"}, "/sharing/create")
        kept = await ada.submit("/sharing?group=Alone", {}, "/sharing/leave")
        assert kept.status_code == 409
        assert "the group needs a manager" in text_of(kept.text).lower()
        assert 'action="/sharing/delete"' in kept.text


async def test_link_asks_before_it_makes_someone_a_member_and_works_once(site: Console) -> None:
    await site.add_account("carl")
    async with site.browser() as ada, site.browser() as ben, site.browser() as carl:
        for browser, name in ((ada, "ada"), (ben, "ben"), (carl, "carl")):
            await browser.sign_in(name)
        await ada.submit("/sharing", {"name": "Home"}, "/sharing/create")
        invited = await ada.submit("/sharing?group=Home", {"role": "reader"}, "/sharing/invite")
        link = re.search(r"<code>https?://[^/]+(/join/[^<]+)</code>", invited.text)
        assert link is not None
        assert link[1] not in (await ada.get("/sharing?group=Home")).text

        asked = await ben.get(link[1])
        assert "ada invites you to the group Home as a reader" in text_of(asked.text)
        assert "Home" not in text_of((await ben.get("/sharing")).text)
        await ben.submit(link[1], {}, "/sharing/accept")
        assert "Home" in text_of((await ben.get("/sharing")).text)
        assert (await carl.get(link[1])).status_code == 404

        # A reader has no forms of a manager, and those of others are refused.
        page = (await ben.get("/sharing?group=Home")).text
        assert 'action="/sharing/invite"' not in page
        fields = dict(re.findall(r'name="(csrf_token)" value="([^"]+)"', page))
        refused = await ben.client.post("/sharing/remove", data={**fields, "name": "Home", "person": "ada"})
        assert "ada" in text_of((await ben.get("/sharing?group=Home")).text)
        assert refused.status_code in {400, 403, 404}
        await ben.submit("/sharing?group=Home", {}, "/sharing/leave")
        assert "Home" not in text_of((await ben.get("/sharing")).text)


async def test_unknown_person_is_named_in_the_error_and_the_form_keeps_its_values(site: Console) -> None:
    async with site.browser() as ada:
        await ada.sign_in("ada")
        response = await ada.submit("/sharing", {"by": "tag", "value": "house", "to": "nobody"}, "/sharing/share")

    assert "nobody" in text_of(response.text)
    assert response.status_code in {400, 404}
