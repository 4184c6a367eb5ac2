"""The library page, and the forms that create, change, tag, delete and restore items."""

import re
from urllib.parse import urlencode

from auth.context import Role
from tests.server.console.signed_in import HTML, csrf_token, page_text, session_cookie
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import SOURCES, LibraryUser


class Browser:
    """A browser in which a user is signed in."""

    def __init__(self, api: RestClient, cookie: str) -> None:
        self._api = api
        self._cookie = cookie

    async def get(self, path: str) -> HttpResponse:
        return await self._api.get(path, None, accept=HTML, cookie=self._cookie)

    async def text(self, path: str) -> str:
        response = await self.get(path)
        assert response.status == 200, response.body.decode()
        return response.body.decode()

    async def send(self, path: str, token: str | None = None, **fields: str) -> HttpResponse:
        """Sends a form, with the token of the page /new unless one is given."""
        values = {"csrf_token": csrf_token(await self.text("/new")) if token is None else token, **fields}
        headers = {
            "accept": HTML,
            "cookie": self._cookie,
            "content-type": "application/x-www-form-urlencoded",
            "origin": self._api.server.runtime.settings.base_url,
        }
        return await self._api.request("POST", path, None, headers, urlencode(values).encode())


async def sign_in(api: RestClient, name: str, role: Role = "writer") -> Browser:
    user = await api.server.user(name)
    await api.server.runtime.registry.set_role(user.id, role)
    return Browser(api, await session_cookie(api, name))


def listed_titles(page: str) -> list[str]:
    return re.findall(r'<td class="title"><a href="[^"]+">(.*?)</a>', page)


async def test_library_page_lists_items_by_source_and_tag(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon", tags=["sea"])
    await ada.add_prompt("Summary", "Summarise it.")
    await ada.add_media("Film", "a galleon", media_type="video", tags=["sea"])
    await ben.add_note("Harbour", "a galleon", tags=["anchored"])

    page = await page_text(api, "/library")

    assert sorted(listed_titles(page)) == ["Film", "Summary", "Voyage"]
    assert re.search(r'<a class="tag" href="/library\?tag=sea">sea <span class="count">2</span>', page)
    assert not re.search("Harbour|anchored", page)
    assert listed_titles(await page_text(api, "/library?source=prompts")) == ["Summary"]
    assert listed_titles(await page_text(api, "/library?tag=sea&source=notes")) == ["Voyage"]
    assert listed_titles(await page_text(api, "/library?type=video")) == ["Film"]
    assert listed_titles(await page_text(api, "/library?until=2000-01-01")) == []
    assert listed_titles(await page_text(api, "/library", "ben")) == ["Harbour"]


async def test_item_of_every_source_can_be_created_changed_deleted_and_restored(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    browser, other = await sign_in(api, "ada"), await sign_in(api, "ben")
    for source in SOURCES:
        created = await browser.send("/new", source=source, title="Voyage", content="a galleon", tags="sea, north")
        path = (created.header("location") or "").partition("?")[0]
        assert (created.status, path.startswith(f"/items/{source}/")) == (303, True), created.body
        address = path.removeprefix("/items")
        version = re.search(r'name="version" value="(\d+)"', await browser.text(f"/edit{address}"))
        assert version is not None

        saved = await browser.send(f"/edit{address}", title="Journey", version=version[1])
        assert (saved.status, "<h1>Journey</h1>" in await browser.text(path)) == (303, True)
        assert (await other.get(path)).status == 404
        assert (await other.send(f"/delete{address}")).status == 404

        deleted = await browser.send(f"/delete{address}")
        assert deleted.status == 303
        assert (await browser.get(path)).status == 404
        assert await ada.search("knowledge_search", "galleon", dedupe="off") == []

        page = await browser.text(deleted.header("location") or "")
        uris = re.search(r'name="uris" value="([^"]+)"', page)
        assert uris is not None
        assert (await other.send("/restore", uris=uris[1])).status == 404
        assert (await browser.send("/restore", uris=uris[1])).status == 303
        assert "galleon" in await browser.text(path)
        assert len(await ada.search("knowledge_search", "galleon", dedupe="off")) >= 1
        assert (await browser.send("/restore", uris=uris[1])).status == 404
        await browser.send(f"/delete{address}")


async def test_conflicting_edit_shows_both_texts_and_can_be_saved_again(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "first text")
    browser = await sign_in(api, "ada")
    await ada.call("notes_update", note_id=note, content="text of an <assistant>")

    conflict = await browser.send(f"/edit/notes/{note}", content="my text", version="1")
    page = conflict.body.decode()

    assert conflict.status == 409
    assert "<pre>text of an &lt;assistant&gt;</pre>" in page
    assert re.search(r"<textarea[^>]*>\s*my text</textarea>", page)
    assert 'name="version" value="2"' in page
    assert (await browser.send(f"/edit/notes/{note}", content="my text", version="2")).status == 303
    assert (await ada.read("notes", note))["content"] == "my text"


async def test_lists_of_a_character_and_a_prompt_are_changed_in_the_form(api: RestClient, ada: LibraryUser) -> None:
    browser = await sign_in(api, "ada")
    greetings = {
        "alternate_greetings.0": "Ahoy",
        "alternate_greetings.1": " ",
        "alternate_greetings.2": "Hello,\r\nyou",
    }
    created = await browser.send("/new", source="characters", title="Ana", content="A pilot", **greetings)
    path = (created.header("location") or "").partition("?")[0].replace("/items/", "/edit/")
    page = await browser.text(path)
    assert re.findall(r'<textarea name="alternate_greetings.(\d)"[^>]*>\n([^<]*)<', page) == [
        *(("0", "Ahoy"), ("1", "Hello,\nyou"), ("2", "")),
    ]
    assert (await browser.send(path, content="Another pilot", version="1")).status == 303
    assert "Ahoy" in await browser.text(path)
    assert (await browser.send(path, version="2", **{"alternate_greetings.0": ""})).status == 303
    assert "Ahoy" not in await browser.text(path)

    prompt = f"/edit/prompts/{await ada.add_prompt('Summary', 'Summarise {{text}}.')}"
    arguments = {"arguments.0.name": "text", "arguments.0.description": "What?", "arguments.0.required": "yes"}
    assert (await browser.send(prompt, version="1", **arguments, **{"arguments.1.name": ""})).status == 303
    fields = (await api.get(f"/api/v1/items/fields?uri={prompt[6:].replace('/', '://')}")).json()["fields"]
    assert fields["arguments"] == [{"name": "text", "description": "What?", "required": True}]


async def test_message_can_be_changed_and_deleted(api: RestClient, ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", "first words", "second words")
    browser = await sign_in(api, "ada")
    (first, second) = re.findall(r'href="(/edit/chats/[^"]+/[^"]+)"', await browser.text(f"/items/chats/{chat}"))

    assert (await browser.send(first, content="changed words", role="assistant", version="1")).status == 303
    assert '<option value="assistant" selected>assistant</option>' in await browser.text(first)
    assert (await browser.send(second.replace("/edit/", "/delete/"))).status == 303

    page = await browser.text(f"/items/chats/{chat}")
    assert "changed words" in page
    assert "second words" not in page


async def test_selected_items_are_tagged_and_deleted_together(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    notes = [f"notes://{await ada.add_note(f'Note {n}', 'a galleon')}" for n in range(3)]
    foreign = f"notes://{await ben.add_note('Harbour', 'a galleon')}"
    browser = await sign_in(api, "ada")
    chosen = {"item-1": notes[0], "item-2": notes[1]}

    await browser.send("/library/bulk", action="tag", tag="sea", **chosen)
    assert sorted(listed_titles(await browser.text("/library?tag=sea"))) == ["Note 0", "Note 1"]
    await browser.send("/library/bulk", action="untag", tag="SEA", **{"item-1": notes[0]})
    assert listed_titles(await browser.text("/library?tag=sea")) == ["Note 1"]
    deleted = await browser.send("/library/bulk", action="delete", **chosen)
    assert "2 items are deleted." in await browser.text(deleted.header("location") or "")
    assert listed_titles(await browser.text("/library")) == ["Note 2"]
    skipped = await browser.send("/library/bulk", action="delete", **{"item-1": foreign})
    assert re.search(r"0 items are deleted\.\s+1 was skipped", await browser.text(skipped.header("location") or ""))
    assert listed_titles(await page_text(api, "/library", "ben")) == ["Harbour"]


async def test_forms_need_the_token_of_the_session_and_the_right_to_write(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "a galleon")
    writer = await sign_in(api, "ada")
    reader = await sign_in(api, "ben", "reader")
    paths = ("/new", f"/edit/notes/{note}", f"/tag/notes/{note}", f"/delete/notes/{note}", "/restore", "/library/bulk")

    assert {(await writer.send(path, token="wrong", add="sea", title="X")).status for path in paths} == {403}
    assert (await reader.get("/new")).status == 403
    assert 'href="/new"' not in await reader.text("/library")
    assert (await ada.read("notes", note))["meta"]["version"] == 1


async def test_what_an_assistant_gets_is_shown_with_its_cost(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "The galleon left. " * 400)

    page = await page_text(api, f"/items/notes/{note}?assistant=true")

    modes = re.findall(r"<summary><code>(\w+)</code> · ([\d,]+) tokens", page)
    assert [mode for mode, _ in modes] == ["snippet", "chunk", "chunk_with_siblings", "full"]
    assert int(modes[0][1].replace(",", "")) < int(modes[3][1].replace(",", ""))


async def test_prompt_says_how_to_use_it_over_mcp(api: RestClient, ada: LibraryUser) -> None:
    prompt = await ada.add_prompt("Summary", "Summarise it.")

    page = await page_text(api, f"/items/prompts/{prompt}")

    assert f"<code>prompt_{prompt}</code>" in page
    assert page.count(">Summary<") == 1


async def test_timeline_leads_to_the_items_of_each_month_and_day(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_note("One", "a galleon", tags=["sea", "<b>north</b>"], created_at="2025-01-05T12:00:00Z")
    await ada.add_note("Two", "a galleon", tags=["sea"], created_at="2025-01-05T13:00:00Z")
    await ada.add_media("Film", "a galleon", created_at="2025-03-05T12:00:00Z")
    await ben.add_note("Harbour", "a galleon", created_at="2025-02-05T12:00:00Z")

    page = await page_text(api, "/library/timeline")

    columns = re.findall(r'<a href="([^"]*)" aria-label="([^"]*)"><title>', page)
    assert columns == [
        ("/library?created=2025-01", "Jan 2025: 2 Notes"),
        ("/library?created=2025-03", "Mar 2025: 1 Media"),
    ]
    days = re.findall(r'<a href="([^"]*)" tabindex="-1"><title>(.*?)</title>', page)
    assert days == [
        ("/library?created=2025-01-05", "2025-01-05: 2"),
        ("/library?created=2025-03-05", "2025-03-05: 1"),
    ]
    # The tables have the same values.
    assert '<a href="/library?created=2025-01">Jan 2025</a>' in page
    assert '<a href="/library?created=2025-03-05">2025-03-05</a></th><td class="number">1</td>' in page
    assert '<a class="size-3" href="/library?tag=sea">sea <span class="count">2</span></a>' in page
    assert "<b>north" not in page
    assert "2025-02" not in page
    january = await page_text(api, "/library?created=2025-01")
    assert all((f">{title}</a>" in january) == (title in ("One", "Two")) for title in ("One", "Two", "Film"))
    assert 'aria-label="Remove: created 2025-01"' in january


async def test_long_timeline_is_shown_by_year_and_days_of_the_chosen_one(api: RestClient, ada: LibraryUser) -> None:
    for year in (2019, 2023, 2025):
        await ada.add_note(f"Of {year}", "a galleon", created_at=f"{year}-06-05T12:00:00Z")

    page = await page_text(api, "/library/timeline?year=2019")

    assert [address for address, _ in re.findall(r'<a href="([^"]*)" aria-label="([^"]*)"><title>', page)] == [
        f"/library?created={year}" for year in (2019, 2023, 2025)
    ]
    assert re.findall(r"<title>(\d{4}-\d\d-\d\d): 1</title>", page) == ["2019-06-05"]
    assert '<a class="chip active" href="/library/timeline?year=2019" aria-current="page">2019</a>' in page


async def test_timeline_of_an_empty_library_says_so(api: RestClient, ada: LibraryUser) -> None:
    for year in ("", "?year=x", "?year=0"):
        assert "What you add to your library appears here." in await page_text(api, f"/library/timeline{year}")


async def test_preview_of_the_editor_shows_markdown_safely_and_saves_nothing(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "first text")
    browser = await sign_in(api, "ada")
    entered = "# Plan\n\n**bold** <script>alert(1)</script> ![x](https://evil.example/x.png)"

    for path in ("/new", f"/edit/notes/{note}"):
        page = await browser.send(path, action="preview", source="notes", title="New", content=entered, version="1")
        text = page.body.decode()
        section = re.search(r'<section id="preview".*?</section>', text, re.DOTALL)
        assert (page.status, section is not None) == (200, True)
        assert section is not None
        assert "<h1>Plan</h1>" in section[0]
        assert "<strong>bold</strong>" in section[0]
        assert "<script" not in section[0]
        assert "<img" not in section[0]
        assert re.search(r'name="title" value="New"', text)
        assert "**bold** &lt;script&gt;" in text
    assert 'name="version" value="1"' in text
    assert (await ada.read("notes", note))["content"] == "first text"
    assert listed_titles(await browser.text("/library")) == ["Voyage"]
