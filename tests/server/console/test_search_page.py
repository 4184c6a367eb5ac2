"""The search page, without a script: what a plain GET of its address shows."""

import re
from pathlib import Path
from urllib.parse import quote

from sources.drafts import MessageDraft
from sources.records import Segment
from tests.server.console.signed_in import HTML, hit_titles, open_page, page_text
from tests.server.rest.markup import Markup
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser


async def test_people_find_only_their_own_items(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon under sail")
    await ben.add_note("Harbour", "a galleon at anchor")

    pages = {name: await page_text(api, "/?q=galleon", name) for name in ("ada", "ben")}

    assert {name: hit_titles(page) for name, page in pages.items()} == {"ada": ["Voyage"], "ben": ["Harbour"]}
    assert "Harbour" not in pages["ada"]


async def test_browser_without_session_is_sent_to_sign_in_and_back(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon under sail")

    response = await api.get("/?q=galleon", None, accept=HTML)

    assert (response.status, response.header("location")) == (303, "/sign-in?next=/%3Fq%3Dgalleon")


async def test_server_for_one_user_needs_no_sign_in(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, jwt_secret="") as api:
        response = await api.get("/", None, accept=HTML)

    page = response.body.decode()
    assert (response.status, "Your library is empty" in page) == (200, True)
    for address in ("/import", "/connect", "/new"):
        assert f'<a href="{address}">' in page
    assert "<code>florilegium demo</code>" in page


async def test_programs_get_the_addresses_of_the_server(api: RestClient) -> None:
    assert (await api.get("/", None)).json()["mcp"] == "/mcp"


async def test_matching_words_are_marked_and_the_text_is_escaped(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("<b>Voyage</b>", "a <script>galleon</script> under sail", tags=["<i>sea</i>"])

    page = await page_text(api, "/?q=galleon")

    assert "a &lt;script&gt;<mark>galleon</mark>&lt;/script&gt; under sail" in page
    assert hit_titles(page) == ["<b>Voyage</b>"]
    assert not re.search(r"<(b|i)>", page)


async def test_snippet_is_text_and_a_recording_names_the_minute(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Fleet", "## Ships\n\n- **The galleon** of [[Ana|the captain]]\n- a `sloop`")
    segments = [
        Segment(text=f"{'A galleon.' if n == 3 else 'Fog.'}", start_ms=n * 61_000, end_ms=n * 61_000 + 1)
        for n in range(5)
    ]
    await ada.add_media("Lecture", segments=segments)

    page = await page_text(api, "/?q=galleon")

    snippets = [re.sub(r"</?mark>", "", snippet) for snippet in re.findall(r'<p class="snippet">(.*?)</p>', page)]
    assert "Ships - The galleon of the captain - a sloop" in snippets
    assert "<span>at 03:03</span>" in page


async def test_hit_opens_at_the_passage_with_the_words_marked(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", f"{'Fog. ' * 400}The galleon left. {'Fog. ' * 400}")
    page = await page_text(api, "/?q=galleon")
    (link,) = re.findall(r'<h2><a href="([^"]+)"', page)

    item = await page_text(api, link.replace("&amp;", "&").partition("#")[0])

    assert link.endswith("#passage")
    short = await ada.add_note("Short", "The sloop left.")
    assert "This is a part of the item." not in await page_text(api, f"/items/notes/{short}?at=4")
    assert '<mark id="passage">galleon</mark>' in item


async def test_each_source_has_a_tab_with_its_number_of_hits(api: RestClient, ada: LibraryUser) -> None:
    for source in ("notes", "media", "characters"):
        await ada.add_item(source, f"One of the {source}", "a galleon under sail")
    await ada.add_note("Another", "a galleon")

    for address in ("/?q=galleon", "/?q=galleon&source=media"):
        tabs = re.findall(r'<li><a href="[^"]*"[^>]*>(\w+) <span class="count">(\d+)', await page_text(api, address))
        assert dict(tabs) == {"All": "4", "Notes": "2", "Media": "1", "Chats": "0", "Characters": "1", "Prompts": "0"}
    assert hit_titles(await page_text(api, "/?q=galleon&source=media")) == ["One of the media"]


FILTERS = {
    "tag=sea": ["Tagged"],
    "tag=Sea,north": [],
    "type=video": ["Film"],
    "sender=Ana": ["Talk"],
    "namespace=work": ["Talk"],
    "namespace=home": [],
    "since=2020-01-01": ["Film", "Tagged", "Talk"],
    "until=2019-12-31": ["Old"],
    "when=week": ["Film", "Tagged", "Talk"],
    "since=2019-05-05&until=2019-05-05": ["Old"],
    "since=someday": ["Film", "Old", "Tagged", "Talk"],
}


async def test_filters_narrow_the_results(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Tagged", "a galleon with a tag", tags=["Sea"])
    await ada.add_media("Film", "a galleon in a film", media_type="video")
    await ada.add_chat("Talk", MessageDraft(role="user", sender="Ana", content="one galleon"), namespace="work")
    await ada.add_note("Old", "an old galleon", created_at="2019-05-05T12:00:00Z")

    titles = {filters: sorted(hit_titles(await page_text(api, f"/?q=galleon&{filters}"))) for filters in FILTERS}

    assert titles == FILTERS


async def test_order_and_query_are_kept_in_the_form(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Old", "a galleon, a galleon", created_at="2019-05-05T12:00:00Z")
    await ada.add_note("New", "nothing but a galleon")

    page = await page_text(api, "/?q=galleon&sort=recent&tag=&when=year")

    assert '<option value="recent" selected>' in page
    assert '<option value="year" selected>' in page
    assert 'name="q" value="galleon"' in page


async def test_misspelling_is_explained(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon under sail")

    page = await page_text(api, "/?q=gallleon")

    assert hit_titles(page) == ["Voyage"]
    assert re.search(r"Read as: .*did you mean .*galleon", page)
    assert "<mark>galleon</mark>" in page


async def test_each_hit_says_why_it_was_found(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon under sail", tags=["sea"])

    page = await page_text(api, "/?q=galleon")

    assert re.search(r"<summary>Score \d\.\d\d</summary><ul><li>contains galleon</li>", page)
    assert '<a class="tag" href="/?q=galleon&amp;tag=sea">sea</a>' in page


async def test_results_can_be_read_page_by_page(api: RestClient, ada: LibraryUser) -> None:
    for number in range(25):
        await ada.add_note(f"Note {number}", "a galleon " * (number + 1))
    titles, address = [], "/?q=galleon"
    while address:
        page = await page_text(api, address)
        titles += hit_titles(page)
        more = re.search(r'<a href="([^"]+)" rel="next">', page)
        address = more[1].replace("&amp;", "&") if more else ""

    assert sorted(titles) == sorted(f"Note {number}" for number in range(25))


async def test_nothing_found_offers_a_search_without_filters(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon under sail")

    page = await page_text(api, "/?q=galleon&tag=mountains")

    assert "Nothing found" in page
    assert '<a href="/?q=galleon">search without filters</a>' in page


async def test_page_without_a_query_lists_what_was_changed_last(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_note("Voyage", "a galleon")
    await ada.add_prompt("Summary", "Summarise it.")
    await ben.add_note("Harbour", "a galleon")

    assert set(hit_titles(await page_text(api, "/"))) == {"Voyage", "Summary"}


async def test_similar_items_say_why_there_are_none(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail")

    page = await page_text(api, f"/?similar={quote(f'notes://{note}', safe='')}")

    assert "no embedding model is configured" in page
    assert f'Similar to <a href="/items/notes/{note}">Voyage</a>' in page


async def test_similar_items_of_another_user_are_not_found(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    note = await ben.add_note("Harbour", "a galleon")

    assert (await open_page(api, f"/?similar=notes://{note}")).status == 404


async def test_query_is_escaped(api: RestClient) -> None:
    for query in ("<img src=x onerror=alert(1)>", '"><script>alert(1)</script>', "javascript:alert(1)"):
        page = Markup(await page_text(api, f"/?q={quote(query)}&tag={quote(query)}&sender={quote(query)}"))

        assert query in page.values
        assert "img" not in page.tags
        assert not any(name.startswith("on") for name in page.attributes)
