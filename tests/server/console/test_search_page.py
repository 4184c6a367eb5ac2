"""The search page, without a script: what a plain GET of its address shows."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlencode

from sources.drafts import MessageDraft
from sources.records import Segment
from tests.server.console.signed_in import HTML, csrf_token, hit_titles, open_page, page_text, session_cookie
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


async def test_each_source_with_hits_has_a_tab_with_their_number(api: RestClient, ada: LibraryUser) -> None:
    for source in ("notes", "media", "characters"):
        await ada.add_item(source, f"One of the {source}", "a galleon under sail")
    await ada.add_note("Another", "a galleon")

    for address in ("/?q=galleon", "/?q=galleon&source=media"):
        tabs = re.findall(r'<li><a href="[^"]*"[^>]*>(\w+) <span class="count">(\d+)', await page_text(api, address))
        assert dict(tabs) == {"All": "4", "Notes": "2", "Media": "1", "Characters": "1"}
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

    assert '<input type="hidden" name="sort" value="recent" form="search">' in page
    assert active_chips(page) == {"Past year": "/?q=galleon&sort=recent", "Newest first": "/?q=galleon&when=year"}
    assert '<option value="year" selected>' in page
    assert 'name="q" value="galleon"' in page


def active_chips(page: str) -> dict[str, str]:
    """Returns the address that removes each active filter."""
    found = re.findall(r'<a class="chip active" href="([^"]*)"[^>]*>(.*?) <span aria-hidden', page)
    return {unescape(label): unescape(address) for address, label in found}


def chips(page: str) -> dict[str, tuple[str, str]]:
    """Returns the count and the address of each filter that is offered."""
    found = re.findall(
        r'<a class="chip" href="([^"]*)"><span class="[a-z-]+">(\w+)</span> (.*?) <span class="count">(\d+)',
        page,
    )
    return {f"{kind} {unescape(label)}": (count, unescape(address)) for address, kind, label, count in found}


async def add_fleet(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon", tags=["Sea"], created_at="2025-03-05T12:00:00Z")
    await ada.add_note("Log", "the other galleon", tags=["sea", "north"], created_at="2025-04-05T12:00:00Z")
    await ada.add_media("Film", "a galleon in a film", media_type="video", created_at="2024-05-05T12:00:00Z")
    message = MessageDraft(role="user", sender="Ana", content="one galleon", created_at="2025-04-06T12:00:00Z")
    await ada.add_chat("Talk", message, namespace="work", created_at="2025-04-06T12:00:00Z")


async def test_filters_are_offered_with_the_number_of_results_that_they_leave(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await add_fleet(ada)
    await ben.add_note("Harbour", "a galleon at anchor", tags=["port"])

    offered = chips(await page_text(api, "/?q=galleon"))

    assert {label.lower(): count for label, (count, _) in offered.items()} == {
        "date 2025": "3",
        "date 2024": "1",
        "tag sea": "2",
        "tag north": "1",
        "type video": "1",
        "sender ana": "1",
        "namespace work": "1",
    }
    for label, (count, address) in offered.items():
        assert (label, len(hit_titles(await page_text(api, address)))) == (label, int(count))


async def test_active_filters_can_be_removed_and_others_added(api: RestClient, ada: LibraryUser) -> None:
    await add_fleet(ada)

    page = await page_text(api, "/?q=galleon&tag=sea&since=2025-01-01&until=2025-12-31")

    assert active_chips(page) == {"sea": "/?q=galleon&since=2025-01-01&until=2025-12-31", "2025": "/?q=galleon&tag=sea"}
    offered = chips(page)
    assert {label: count for label, (count, _) in offered.items()} == {
        "Date Apr 2025": "1",
        "Date Mar 2025": "1",
        "Tag north": "1",
    }
    both = await page_text(api, offered["Tag north"][1])
    assert hit_titles(both) == ["Log"]
    assert active_chips(both).keys() == {"sea", "north", "2025"}
    month = await page_text(api, offered["Date Mar 2025"][1])
    assert (hit_titles(month), list(active_chips(month))) == (["Voyage"], ["sea", "Mar 2025"])
    assert chips(month) == {}


async def test_nothing_is_offered_that_cannot_apply(api: RestClient, ada: LibraryUser) -> None:
    empty = await page_text(api, "/")
    await ada.add_note("Voyage", "a galleon")
    without_query = await page_text(api, "/")
    one = await page_text(api, "/?q=galleon")

    assert 'class="chip' not in empty + without_query
    assert chips(one) == {}
    assert "Namespace" not in one


async def test_parts_of_the_page_are_served_alone(api: RestClient, ada: LibraryUser) -> None:
    await add_fleet(ada)

    results, filters = [await page_text(api, f"/?q=galleon&part={part}") for part in ("results", "filters")]
    whole = await page_text(api, "/?q=galleon")

    assert sorted(hit_titles(results)) == sorted(hit_titles(whole)) == ["Film", "Log", "Talk", "Voyage"]
    assert chips(filters) == chips(whole)
    assert (chips(results), hit_titles(filters)) == ({}, [])
    assert not any("<html" in part for part in (results, filters))


async def test_item_leads_back_to_its_place_among_the_results(api: RestClient, ada: LibraryUser) -> None:
    for number in range(25):
        await ada.add_note(f"Note {number}", "a galleon " * (number + 1), tags=["sea"])
    page = await page_text(api, "/?q=galleon&tag=sea&offset=20")
    hits = re.findall(r'<li class="hit" id="([^"]+)">\s*<h2><a href="([^"]+)">', page)

    item = await page_text(api, unescape(hits[1][1]).partition("#")[0])

    assert [number for number, _ in hits] == [f"hit-{number}" for number in range(21, 26)]
    assert '<a href="/?offset=20&amp;q=galleon&amp;tag=sea#hit-22">← Back to results</a>' in item
    assert 'name="q" value="galleon"' in item
    assert '<input type="hidden" name="tag" value="sea" form="search">' in item
    address = re.search(r'<a href="([^"]*)#hit-22">', item)
    assert address is not None
    assert hit_titles(await page_text(api, unescape(address[1]))) == hit_titles(page)


async def test_way_back_leads_nowhere_else(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "a galleon")

    page = await page_text(api, f"/items/notes/{note}?back={quote('https://evil.example/?q=x&next=//evil.example')}")

    assert not re.search(r'(href|action)="[^"]*evil', page)
    assert '<a href="/">← Back to results</a>' in page


async def test_searches_are_saved_opened_by_name_and_deleted(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await add_fleet(ada)
    cookie = await session_cookie(api, "ada")
    token = csrf_token(await page_text(api, "/?q=galleon&tag=sea", cookie=cookie))

    async def send(path: str, **values: str) -> str:
        body = urlencode({"csrf_token": token, **values}).encode()
        headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded", "Accept": HTML}
        response = await api.request("POST", path, None, {**headers, "Origin": "http://127.0.0.1"}, body)
        assert response.status == 303, response.body
        return response.header("location") or ""

    assert await send("/searches", name=" Ships &  sea ", search="q=galleon&tag=sea&offset=20") == (
        "/?q=galleon&tag=sea&done=saved"
    )
    assert '<a class="chip" href="/?q=galleon&amp;tag=sea">Ships &amp; sea</a>' in await page_text(api, "/")
    opened = await open_page(api, f"/?saved={quote('Ships & sea')}")
    assert (opened.status, opened.header("location")) == (303, "/?q=galleon&tag=sea")
    assert (await open_page(api, f"/?saved={quote('Ships & sea')}", "ben")).status == 404
    assert "Saved searches" not in await page_text(api, "/", "ben")
    assert await send("/searches/delete", name="Ships & sea") == "/?done=deleted"
    assert "Ships" not in await page_text(api, "/")


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
    assert '<a href="/?q=galleon">Search without filters</a>' in page


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
