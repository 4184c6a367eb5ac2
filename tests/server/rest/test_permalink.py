"""Permalinks: the page of an item, for its owner."""

import base64
import re
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from auth.context import SCOPES
from server.console.charts import link_graph
from server.console.item_page import PassageMarks, page_values, sections_of
from server.console.pages import render_page
from server.console.search_page import SearchForm
from server.version import is_web_address
from sources.drafts import MessageDraft
from sources.items import GetResponse, ResultItem
from sources.records import Segment
from tests.cases import each_case
from tests.server.rest.markup import Markup
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import SOURCES, LibraryUser

HOSTILE = "<script>alert(1)</script>\"'&amp;<img src=x onerror=y>"
# Of the forms of a page: a token for each browser, and the address that the person comes back to.
_TOKEN = re.compile(r'name="(?:csrf_token|next)" value="[^"]*"')
# Those of the frame of a page, and those that Markdown can make.
ELEMENTS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main", "footer", "dialog"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "span", "article", "time", "a", "code", "mark", "strong", "kbd"),
    *(
        "section",
        "details",
        "summary",
        "form",
        "label",
        "input",
        "button",
        "output",
        "svg",
        "path",
        "text",
        "rect",
        "circle",
        "line",
        "select",
        "option",
        "template",
        "dl",
        "dt",
        "dd",
    ),
    *("br", "hr", "ul", "ol", "li", "blockquote", "pre", "em", "s", "table", "thead", "tbody", "tr", "th", "td"),
}


@each_case("source", SOURCES)
async def test_an_item_of_any_source_has_a_page(api: RestClient, ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, f"One of the {source}", "a galleon under sail")

    response = await api.get(f"/items/{source}/{identity}")

    page = response.body.decode()
    assert (response.status, response.header("content-type")) == (200, "text/html; charset=utf-8")
    assert f"<h1>One of the {source}</h1>" in page
    assert "a galleon under sail" in page
    assert f"{source}://{identity}" in page


async def test_item_text_is_escaped(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note(HOSTILE, HOSTILE, tags=["<b>bold</b>"])
    chat = await ada.add_chat(HOSTILE, HOSTILE)

    for path in (f"/items/notes/{note}", f"/items/chats/{chat}"):
        response = await api.get(path)
        page = response.body.decode()
        assert "alert(1)" in Markup(page).text
        assert Markup(page).tags.isdisjoint({"img", "b"})
        assert not re.search(r"<script(?! type=\"module\" src=\"/static/)", page)
        assert (response.header("content-security-policy") or "").startswith("default-src 'none'; style-src 'self';")


async def test_a_page_cannot_be_framed_or_cached_and_sends_no_referrer_to_others(
    api: RestClient, ada: LibraryUser
) -> None:
    response = await api.get(f"/items/notes/{await ada.add_note('Voyage', 'a galleon')}")

    assert "frame-ancestors 'none'" in (response.header("content-security-policy") or "")
    assert response.header("cache-control") == "private, no-store"
    assert response.header("referrer-policy") == "same-origin"
    assert response.header("vary") == "Accept"


async def test_a_client_that_accepts_json_gets_the_response_of_read_item(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail")

    from_permalink = await api.get(f"/items/notes/{note}?mode=full", accept="application/json")
    from_api = await api.get(f"/api/v1/items/notes/{note}?mode=full")

    assert from_permalink.body == from_api.body


@each_case("accept", ["text/html,application/xhtml+xml,*/*;q=0.8", "*/*", "text/html, application/json"])
async def test_a_browser_gets_the_page(api: RestClient, ada: LibraryUser, accept: str) -> None:
    response = await api.get(f"/items/notes/{await ada.add_note('Voyage', 'a galleon')}", accept=accept)

    assert response.header("content-type") == "text/html; charset=utf-8"


async def test_links_of_the_search_tool_open_only_for_their_user(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_note("Voyage", "a galleon under sail")
    await ada.add_chat("Talk", "first words", "the galleon sails", "last words")
    base = api.server.runtime.settings.base_url
    urls = [hit["url"] for hit in (await ada.call("search", query="galleon"))["results"]]
    links = [url.removeprefix(base).partition("#")[0] for url in urls]

    statuses = {user: [(await api.get(link, user)).status for link in links] for user in ("ada", "ben")}

    assert len(links) >= 2
    assert statuses == {"ada": [200] * len(links), "ben": [404] * len(links)}


@each_case("source", SOURCES)
async def test_link_of_a_hit_opens_at_the_marked_passage(
    api: RestClient, ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    before, after = ("".join(f"Sentence {n} {way} it. " for n in range(300)) for way in ("before", "after"))
    if source == "chats":
        await ada.add_chat("Voyage", *before.split(". "), "The galleon left.", *after.split(". "))
    else:
        await ada.add_item(source, "Voyage", f"{before}The galleon left. {after}")
    await ben.add_item(source, "Voyage", "The galleon stayed.")
    base = api.server.runtime.settings.base_url
    (hit, *_) = (await ada.call("search", query="galleon left"))["results"]
    address, fragment = hit["url"].removeprefix(base).split("#")

    page = (await api.get(address)).body.decode()

    (passage,) = re.findall(rf'<mark id="{fragment}">(.*?)</mark>', page, re.DOTALL)
    assert "The galleon left." in passage
    assert len(passage) < 2_000
    assert page.index("before it") < page.index("<mark") < page.rindex("after it")
    assert "before it" not in (await api.get(address, "ben")).body.decode()


async def test_link_to_a_passage_that_no_longer_exists_opens_the_item(api: RestClient, ada: LibraryUser) -> None:
    media = await ada.add_media("Voyage", "The galleon left.")

    page = await api.get(f"/items/media/{media}?chunk_index=5")

    assert (page.status, "The galleon left." in page.body.decode()) == (200, True)
    assert "<mark" not in page.body.decode()


async def test_link_into_a_long_message_marks_the_sentences_there(api: RestClient, ada: LibraryUser) -> None:
    text = "".join(f"Sentence {n} comes before it. " for n in range(90))
    await ada.add_chat("Voyage", "Tell me more.", f"{text}The galleon left. {text}")
    (hit, *_) = (await ada.call("search", query="galleon left"))["results"]
    address = hit["url"].removeprefix(api.server.runtime.settings.base_url).partition("#")[0]

    page = (await api.get(address)).body.decode()

    (passage,) = re.findall(r'<mark id="passage">(.*?)</mark>', page, re.DOTALL)
    assert "The galleon left." in passage
    assert len(passage) < 300


async def test_link_of_a_recording_marks_what_was_said_at_that_time(api: RestClient, ada: LibraryUser) -> None:
    segments = [Segment(text=f"Line {n} is said.", start_ms=n * 20_000, end_ms=(n + 1) * 20_000) for n in range(90)]
    await ada.add_media("Lecture", segments=segments)
    (hit, *_) = (await ada.call("search", query='"line 47"'))["results"]

    page = (
        await api.get(hit["url"].removeprefix(api.server.runtime.settings.base_url).partition("#")[0])
    ).body.decode()

    (passage,) = re.findall(r'<mark id="passage">(.*?)</mark>', page, re.DOTALL)
    assert "Line 47 is said." in passage
    assert "Line 45" not in passage


async def test_passage_in_a_field_of_a_character_is_marked(api: RestClient, ada: LibraryUser) -> None:
    character = await ada.add_character("Merlin", "A wizard. " * 40, scenario=f"{'Fog. ' * 50}A <galleon> left.")
    (hit, *_) = (await ada.call("search", query="galleon"))["results"]
    path = hit["url"].removeprefix(api.server.runtime.settings.base_url)
    assert path.startswith(f"/items/characters/{character}?field=scenario&at=")

    page = (await api.get(path.partition("#")[0])).body.decode()

    assert re.search(r'<mark id="passage">[^<]*A &lt;galleon&gt; left.</mark>', page)


async def test_page_of_a_whole_item_has_no_mark(api: RestClient, ada: LibraryUser) -> None:
    note, chat = await ada.add_note("Voyage", "a galleon"), await ada.add_chat("Talk", "a galleon")

    pages = [(await api.get(path)).body.decode() for path in (f"/items/notes/{note}", f"/items/chats/{chat}")]

    assert not any("<mark" in page for page in pages)


async def test_messages_of_a_conversation_can_be_linked_by_id(api: RestClient, ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", "first words", "the galleon sails")
    options = {"mode": "full", "attachments": True}
    (first, second) = (await ada.read("chats", chat, retrieval=options))["attachments"]

    page = (await api.get(f"/items/chats/{chat}")).body.decode()

    assert f'<article id="{first["message_id"]}" class="message user">' in page
    assert f'<article id="{second["message_id"]}" class="message assistant">' in page
    assert "<p>the galleon sails</p>" in page


async def test_a_link_to_a_message_opens_the_conversation_at_that_message(api: RestClient, ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", *(f"turn number {n}" for n in range(200)))
    message = (await ada.read("chats", chat, loc={"message_index": 150}))["meta"]["message_id"]

    by_query = (await api.get(f"/items/chats/{chat}?message={message}")).body.decode()
    by_path = (await api.get(f"/items/chats/{chat}/{message}")).body.decode()

    assert f'<article id="{message}"' in by_query
    assert "turn number 150" in by_query
    assert "turn number 10<" not in by_query
    assert "from the beginning" in by_query
    assert _TOKEN.sub("", by_path) == _TOKEN.sub("", by_query)


async def test_a_page_marks_messages_of_an_alternate_branch(api: RestClient, ada: LibraryUser) -> None:
    turns = [
        MessageDraft(role="user", sender="Ana", content="Threads?"),
        MessageDraft(role="assistant", sender="Guide", content="Use a xylophone.", is_canonical=False),
    ]
    chat = await ada.add_chat("Asyncio", *turns)

    page = (await api.get(f"/items/chats/{chat}")).body.decode()

    first, second = re.findall(r'<article id="[^"]+" class="([^"]+)">(.*?)</article>', page, re.DOTALL)
    assert (first[0], second[0]) == ("message user", "message assistant alternate")
    assert "<strong>Guide</strong> <span>(alternate branch)</span>" in second[1]
    assert "<p>Use a xylophone.</p>" in second[1]


async def test_a_link_with_a_time_opens_the_recording_at_that_time(api: RestClient, ada: LibraryUser) -> None:
    segments = [
        Segment(text=f"sentence {n} " + "and more words " * 40, start_ms=n * 30_000, end_ms=(n + 1) * 30_000)
        for n in range(60)
    ]
    media = await ada.add_media("Lecture", segments=segments)

    page = (await api.get(f"/items/media/{media}?t=915")).body.decode()

    assert "sentence 30 " in page
    assert "sentence 1 " not in page
    assert re.search(
        r'<article id="t\d+" class="line">\n<p class="who"><a href="#t\d+" data-seconds="\d+">1[45]:\d\d', page
    )


async def test_a_long_item_can_be_read_to_its_end_page_by_page(api: RestClient, ada: LibraryUser) -> None:
    text = " ".join(f"word{n}" for n in range(30_000))
    link, content = f"/items/notes/{await ada.add_note('Long', text)}", ""
    while link:
        page = (await api.get(link)).body.decode()
        content += "\n" + re.search(r'<div class="text" id="text-1"><p>(.*?)</p>', page, re.DOTALL)[1]  # type: ignore[index]  # there is one
        next_link = re.search(r'<a href="([^"]+)" rel="next">', page)
        link = next_link[1].replace("&amp;", "&") if next_link else ""

    assert content.split() == text.split()


async def test_a_page_without_credential_explains_sign_in_and_offers_basic_auth(
    api: RestClient, ada: LibraryUser
) -> None:
    response = await api.get(f"/items/notes/{await ada.add_note('Voyage', 'a galleon')}", None)

    challenges = [value.partition(" ")[0] for name, value in response.headers if name == "www-authenticate"]
    assert (response.status, challenges) == (401, ["Bearer", "Basic"])
    assert "API key as the password" in response.body.decode()
    assert "galleon" not in response.body.decode()


async def test_an_api_key_is_accepted_as_password_for_pages_only(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail")
    _, key = await api.server.runtime.registry.create_key((await api.server.user("ada")).id, "k", SCOPES)
    basic = {"Authorization": "Basic " + base64.b64encode(f"anyone:{key}".encode()).decode()}

    page = await api.get(f"/items/notes/{note}", None, **basic)
    json = await api.get(f"/items/notes/{note}", None, accept="application/json", **basic)
    operation = await api.get(f"/api/v1/items/notes/{note}", None, **basic)

    assert [response.status for response in (page, json, operation)] == [200, 401, 401]


@each_case(
    ("path", "status", "heading"),
    [
        ("/items/notes/none", 404, "Not found"),
        ("/items/films/1", 400, "Invalid address"),
        ("/items/notes/1?t=soon", 400, "Invalid address"),
    ],
)
async def test_errors_are_shown_as_pages(api: RestClient, path: str, status: int, heading: str) -> None:
    response = await api.get(path)

    assert response.status == status
    assert f"<h1>{heading}</h1>" in response.body.decode()


@each_case(
    ("address", "is_link"),
    [
        ("https://example.com/a?b=c&d", True),
        ("HTTP://example.com", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("//[bad", False),
        ("notes", False),
    ],
)
def test_only_web_addresses_become_links(address: str, is_link: bool) -> None:
    assert is_web_address(address) is is_link


_any_text = st.text() | st.sampled_from([HOSTILE, "javascript:alert(1)", 'https://x/"onclick="y'])


@given(title=_any_text, content=_any_text, url=_any_text, tag=_any_text, sender=_any_text)
def test_no_text_of_an_item_becomes_markup(title: str, content: str, url: str, tag: str, sender: str) -> None:
    attachment = {"message_id": sender, "sender": sender, "start": 0, "end": len(content), "created_at": tag}
    meta = ResultItem(
        id=1,
        source="chats",
        title=title,
        uri="chats://1",
        score=1.0,
        created_at=tag,
        last_modified=None,
        version=1,
        tags=(tag,),
        url=url,
    )
    item = GetResponse(meta=meta, content=content, attachments=(attachment,), mode="full", anchor="page", tokens=1)

    values = page_values(item, sections_of(item, PassageMarks()))
    viewer = SimpleNamespace(can_write=True, is_person=True, is_admin=True, name=sender)
    frame: dict[str, Any] = {
        "viewer": viewer,
        "section": "item",
        "csrf_token": "",
        "done": "",
        "readings": [item],
        "links": (),
        "backlinks": (),
        "library": "",
        "graph": link_graph({"notes://a": (title, "/items/notes/a")}, {"notes://b": (tag, "/items/notes/b")}, []),
        "results": SearchForm(q=content, tag=tag),
        "result_number": 1,
        "page_path": "/",
        "record": None,
        "media": None,
        "pdf": None,
        "start_seconds": None,
        "is_timed": False,
        "notices": (),
    }
    page = Markup(bytes(render_page("item.html", **frame, **values).body).decode())

    assert page.tags <= ELEMENTS
    assert not any(name.startswith("on") or name in ("style", "srcdoc", "formaction") for name in page.attributes)
    assert [link for link in page.links if not link.startswith(("#", "/")) and not is_web_address(link)] == []
    assert [one for one in page.loads if not one.startswith("/static/")] == ["/manifest.webmanifest"]
