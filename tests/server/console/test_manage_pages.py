"""The pages that change many items: selections of the library list, tags, pins and undo, without scripts."""

import io
import re
import zipfile
from html import unescape

import msgspec
import pytest

from config.errors import NotFound
from server.operations.library import find_item
from sources.drafts import NoteDraft
from tests.server.console.test_library_page import Browser, listed_titles, sign_in
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser


async def follow(browser: Browser, response: HttpResponse) -> str:
    """Returns the page that a form leads to."""
    assert response.status == 303, response.body.decode()
    return await browser.text(response.header("location") or "")


def rows(page: str) -> dict[str, str]:
    """Returns the values of the boxes that select items, by title."""
    found = re.findall(r'name="item-\d+" value="([^"]+)" data-item aria-label="Select ([^"]*)"', page)
    return {unescape(title): unescape(value) for value, title in found}


def undo_fields(page: str) -> dict[str, str]:
    form = re.search(r'<form class="done" method="post" action="/changes/undo".*?</form>', page, re.DOTALL)
    assert form is not None
    return {name: unescape(value) for name, value in re.findall(r'name="(undo|back)" value="([^"]*)"', form[0])}


async def test_selected_items_are_deleted_and_restored_and_what_changed_in_another_tab_is_kept(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    notes = [await ada.add_note(f"Note {number}", "text", tags=["inbox"]) for number in range(3)]
    browser, other = await sign_in(api, "ada"), await sign_in(api, "ben")
    selected = {f"item-{number}": value for number, value in enumerate(rows(await browser.text("/library")).values())}
    await ada.call("notes_update", note_id=notes[1], content="changed in another tab")

    page = await follow(
        browser, await browser.send("/library/bulk", action="delete", back="/library?tag=inbox", **selected)
    )

    assert listed_titles(page) == ["Note 1"]
    assert "2 items are deleted." in page
    assert re.search("1 was skipped: note .* has changed since", page)
    assert (await other.send("/changes/undo", **undo_fields(page))).status == 404
    undone = await follow(browser, await browser.send("/changes/undo", **undo_fields(page)))
    assert sorted(listed_titles(undone)) == ["Note 0", "Note 1", "Note 2"]
    assert "2 items are as they were before." in undone
    assert (await browser.send("/changes/undo", **undo_fields(page))).status == 404


async def test_all_that_match_the_filters_are_tagged_across_pages_and_export_contains_only_them(
    api: RestClient, ada: LibraryUser
) -> None:
    async with ada.libraries.library(ada.context) as library:
        await library.notes.create_many([NoteDraft(title=f"Note {number}", tags=["inbox"]) for number in range(60)])
    await ada.add_note("Other", "stays")
    browser = await sign_in(api, "ada")
    page = await browser.text("/library?tag=inbox")
    assert "All 60 items that match" in page
    everything = {"all": "yes", "total": "60", "back": "/library?tag=inbox&offset=50"}

    tagged = await follow(browser, await browser.send("/library/bulk", action="tag", tag="done, sorted", **everything))
    exported = await browser.send("/library/bulk", action="export", **everything)
    stale = await browser.send("/library/bulk", action="delete", **{**everything, "total": "59"})

    assert ("60 items are changed." in tagged, stale.status) == (True, 409)
    assert len(listed_titles(await browser.text("/library?tag=sorted&offset=50"))) == 10
    assert (exported.status, exported.header("content-type")) == (200, "application/zip")
    with zipfile.ZipFile(io.BytesIO(exported.body)) as archive:
        lines = archive.read("florilegium/notes.jsonl").splitlines()
    assert {msgspec.json.decode(line)["title"] for line in lines} == {f"Note {number}" for number in range(60)}


async def test_conversations_are_moved_to_a_namespace(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "hello")
    browser = await sign_in(api, "ada")
    page = await browser.text("/library?source=chats")
    assert 'name="namespace"' in page
    assert 'name="namespace"' not in await browser.text("/library")

    [value] = rows(page).values()
    await browser.send("/library/bulk", action="move", namespace="work", **{"item-1": value})

    assert listed_titles(await browser.text("/library?namespace=work")) == ["Talk"]


async def test_tag_is_renamed_merged_after_a_question_and_deleted(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_note("Voyage", "x", tags=["Sea & <ships>"])
    await ada.add_prompt("Summary", "x", tags=["ocean"])
    await ben.add_note("Bay", "x", tags=["anchored"])
    browser = await sign_in(api, "ada")
    page = await browser.text("/tags")
    assert "Sea &amp; &lt;ships&gt;" in page
    assert "anchored" not in page
    assert "ocean" not in await browser.text("/tags?q=SEA")

    question = await browser.send("/tags/rename", tag="sea & <ships>", new_tag="Ocean")
    assert (question.status, "Make both tags one?" in question.body.decode()) == (409, True)
    merged = await browser.send("/tags/rename", tag="sea & <ships>", new_tag="ocean", merge="yes")
    page = await follow(browser, merged)
    assert "1 item is changed." in page
    assert sorted(listed_titles(await browser.text("/library?tag=ocean"))) == ["Summary", "Voyage"]
    restored = await follow(browser, await browser.send("/changes/undo", **undo_fields(page)))
    assert "Sea &amp; &lt;ships&gt;" in restored
    await follow(browser, await browser.send("/tags/delete", tag="ocean"))
    assert listed_titles(await browser.text("/library?tag=ocean")) == []
    assert (await browser.send("/tags/rename", tag="ocean", new_tag="x")).status == 404
    assert (await browser.send("/tags/rename", tag="sea & <ships>", new_tag=" ")).status == 400


async def test_pinned_items_are_shown_first_and_unpinned(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "x")
    await ada.add_prompt("Summary", "x")
    foreign = await ben.add_note("Bay", "x")
    browser = await sign_in(api, "ada")
    assert "pinned-title" not in await browser.text("/library")

    pinned = await browser.send("/pin", uri=f"notes://{note}", pinned="yes", back=f"/items/notes/{note}")
    await browser.send("/pin", uri=f"notes://{foreign}", pinned="yes")

    assert pinned.header("location") == f"/items/notes/{note}"
    assert "Unpin" in await browser.text(f"/items/notes/{note}")
    section = re.search(r'id="pinned-title".*?</section>', await browser.text("/library"), re.DOTALL)
    assert section is not None
    assert re.findall(r'<li><a href="[^"]+">(.*?)</a>', section[0]) == ["Voyage"]
    assert "pinned-title" not in await browser.text("/library?source=prompts")
    await browser.send("/pin", uri=f"notes://{note}", pinned="no")
    assert "pinned-title" not in await browser.text("/library")


async def test_address_to_go_back_to_is_never_that_of_another_site(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "x")
    browser = await sign_in(api, "ada")
    for back in (
        "https://evil.example/library",
        "//evil.example/library",
        "/sign-out",
        "javascript:alert(1)",
        "/\\evil",
    ):
        sent = await browser.send("/pin", uri=f"notes://{note}", pinned="yes", back=back)
        assert sent.header("location") == "/library"
    reader = await sign_in(api, "ben", "reader")
    for path in ("/pin", "/tags/rename", "/tags/delete", "/changes/undo", "/library/bulk"):
        assert (await reader.send(path, token="wrong", uri=f"notes://{note}")).status == 403


async def test_item_of_another_library_is_not_taken_for_the_own_one_of_the_same_number(
    api: RestClient, ada: LibraryUser
) -> None:
    media = await ada.add_media("Film", "x")
    runtime = api.server.runtime

    assert (await find_item(ada.context, runtime, f"media://{media}")).title == "Film"
    with pytest.raises(NotFound):
        await find_item(ada.context, runtime, f"media://{media}?library=h-team")
