"""The page of the message bus: threads, their messages, and the search over `/api/search`."""

import re
from html import unescape

from server.console.conversation_pages import snippet_parts
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.console.signed_in import open_page, page_text
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser


def topics(page: str) -> list[str]:
    return re.findall(r'class="row".*?class="row-title">(.*?)</span>', page, re.DOTALL)


def found(page: str) -> list[str]:
    """Returns the texts of the results, marks included."""
    return [unescape(text) for text in re.findall(r'<span class="snippet">(.*?)</span>', page, re.DOTALL)]


async def test_threads_are_listed_and_read_by_their_owner(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    thread = await ada.add_chat("State", "We use signals.", "Agreed.", namespace="bus")
    await ada.add_chat("Not a thread", "Hello.")
    await ada.add_chat("Finished", "Done.", namespace="bus", is_archived=True)
    foreign = await ben.add_chat("Harbour", "Quiet signals.", namespace="bus")

    page = await page_text(api, f"/threads/{thread}")

    assert topics(page) == ["State"]
    assert re.search(r'class="seq">#1</span>.*?We use signals\..*?class="seq">#2</span>', page, re.DOTALL)
    assert topics(await page_text(api, "/threads?archived=1")) == ["Finished"]
    assert topics(await page_text(api, "/threads", "ben")) == ["Harbour"]
    refused = await open_page(api, f"/threads/{foreign}")
    assert (refused.status, "Quiet" in refused.body.decode()) == (404, False)


async def test_search_covers_one_thread_or_all_conversations(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    thread = await ada.add_chat("State", "We use signals.", "Signals <b>again</b>.", "No.", namespace="bus")
    await ada.add_chat("Elsewhere", "Smoke signals.")
    await ben.add_chat("Harbour", "Quiet signals.", namespace="bus")

    everywhere = await page_text(api, "/threads?q=signals")
    here = await page_text(api, f"/threads/{thread}?q=signals&scope=thread")

    assert len(found(everywhere)) == 3
    assert sorted(found(here)) == ["<mark>Signals</mark> <b>again</b>.", "We use <mark>signals</mark>."]
    assert "&lt;b&gt;again&lt;/b&gt;" in here
    assert "<b>again" not in here
    assert "3 messages" in everywhere
    assert "Harbour" not in everywhere


async def test_results_lead_to_messages_and_to_each_other(api: RestClient, ada: LibraryUser) -> None:
    texts = [f"filler {number}" for number in range(700)]
    texts[600] = "the needle"
    texts[2] = "another needle"
    thread = await ada.add_chat("Haystack", *texts, namespace="bus")

    page = await page_text(api, f"/threads/{thread}?q=needle&scope=thread")
    first, second = (unescape(link) for link in re.findall(r'class="found"><a href="([^"]+)"', page))
    following = re.search(r'id="next" href="([^"]+)"', page)
    assert following is not None
    assert unescape(following[1]) == first

    path, _, fragment = second.partition("#")
    shown = await page_text(api, path)

    assert "2 of 2" in shown
    assert re.search(rf'<article id="{fragment}" class="message[^"]* current"', shown)
    assert "needle" in shown
    wrapped = re.search(r'id="next" href="([^"]+)"', shown)
    assert wrapped is not None
    assert unescape(wrapped[1]) == first
    assert re.search(rf'id="close" href="/threads/{thread}"', shown)


async def test_human_only_messages_are_found_and_labelled(api: RestClient, ada: LibraryUser) -> None:
    secret = MessageDraft(sender="Ana", content="the needle", metadata={"audience": "human"})
    thread = await ada.add_chat("Haystack", secret, namespace="bus")

    page = await page_text(api, f"/threads/{thread}?q=needle&scope=all")

    assert found(page) == ["the <mark>needle</mark>"]
    assert page.count(">human-only</span>") == 2


@each_case("query", ["NOT", '"', "a AND", "*", "x" * 1500])
async def test_any_query_gets_a_page(api: RestClient, ada: LibraryUser, query: str) -> None:
    await ada.add_chat("Haystack", "the needle", namespace="bus")

    response = await open_page(api, f"/threads?q={query}&scope=nowhere&at=absent")

    assert response.status == 200


def test_snippet_is_split_at_its_marks() -> None:
    snippet = "…a &lt;b&gt; <mark>c &amp; d</mark> &lt;mark&gt;"

    assert snippet_parts(snippet) == [("…a <b> ", False), ("c & d", True), (" <mark>", False)]
