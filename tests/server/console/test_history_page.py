"""The history page: its list, the conversation next to it, and the forms that change conversations."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import quote
from zoneinfo import ZoneInfo

from server.console.conversation_pages import date_group
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.console.signed_in import page_text
from tests.server.console.test_library_page import sign_in
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

NOW = datetime(2026, 11, 16, 1, 30, tzinfo=UTC)


def titles(page: str) -> list[str]:
    found = re.findall(r'class="row-title">(?:<span class="pin".*?</span>)?(.*?)</span>', page)
    return [unescape(title).strip() for title in found]


async def test_history_lists_the_conversations_of_its_reader(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    talk = await ada.add_chat("Voyage", "When?", "At eight.", namespace="work")
    await ada.add_chat("", "Buy bread.")
    await ben.add_chat("Harbour", "A quiet day.")

    page = await page_text(api, "/history")

    assert titles(page) == ["Untitled conversation", "Voyage"]
    assert re.search(r"just now</time> <span>2 msgs</span> <span class=\"badge\">work</span>", page)
    assert f'href="/history/{talk}"' in page
    assert 'aria-current="page"' not in page.partition('id="list"')[2]
    assert titles(await page_text(api, "/history", "ben")) == ["Harbour"]
    assert titles(await page_text(api, "/history?namespace=work")) == ["Voyage"]
    assert titles(await page_text(api, "/history?q=voyAGE")) == ["Voyage"]
    assert titles(await page_text(api, f"/history?q={talk[:20]}")) == ["Voyage"]


async def test_conversation_is_shown_with_model_tool_and_human_only_label(api: RestClient, ada: LibraryUser) -> None:
    answer = MessageDraft(role="assistant", content="At **eight**.", model="claude-x", tool="calendar")
    secret = MessageDraft(content="K7Q2", metadata={"human_only": True})
    talk = await ada.add_chat("Voyage", "When?", answer, secret)

    page = await page_text(api, f"/history/{talk}")
    item = await page_text(api, f"/items/chats/{talk}")

    for text in (page, item):
        assert "<strong>eight</strong>" in text
        assert '<span class="model">claude-x</span>' in text
        assert "calendar</span>" in text
        assert text.count(">human-only</span>") == 1
        assert "K7Q2" in text
    assert re.search(rf'href="/history/{talk}" aria-current="page"', page)


async def test_foreign_and_missing_conversations_are_not_found(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    foreign = await ben.add_chat("Harbour", "A quiet day.")
    browser = await sign_in(api, "ada")

    responses = [await browser.get(f"/history/{name}") for name in (foreign, "absent", quote('"><img>'))]

    assert [response.status for response in responses] == [404] * 3
    assert all("<img>" not in response.body.decode() for response in responses)
    assert "quiet" not in responses[0].body.decode()
    for action in ("pin", "archive", "delete", "restore", "rename"):
        assert (await browser.send(f"/history/{foreign}", action=action, title="Mine")).status == 404
    assert titles(await page_text(api, "/history", "ben")) == ["Harbour"]


async def test_forms_change_a_conversation_and_keep_the_list(api: RestClient, ada: LibraryUser) -> None:
    talk = await ada.add_chat("Voyage", "When?", namespace="work")
    await ada.add_chat("Other", "What?", namespace="work")
    browser = await sign_in(api, "ada")
    address = f"/history/{talk}?namespace=work"

    async def send(action: str, current: str = "", **fields: str) -> str:
        response = await browser.send(address, action=action, current=current, **fields)
        assert response.status == 303, response.body
        return response.header("location") or ""

    renamed = await send("rename", talk, title="Journey")
    assert renamed == f"/history/{talk}?namespace=work&done=rename&of={talk}"
    assert titles(await browser.text("/history")) == ["Journey", "Other"]
    await send("pin")
    pinned = await browser.text("/history")
    assert re.search(r'id="group-pinned".*?Journey.*?id="group-today".*?Other', pinned, re.DOTALL)
    await send("unpin")
    assert "group-pinned" not in await browser.text("/history")
    archived = await send("archive", talk)
    assert archived == f"/history?namespace=work&done=archive&of={talk}"
    assert titles(await browser.text("/history")) == ["Other"]
    assert titles(await browser.text("/history?archived=1")) == ["Journey"]
    assert 'value="unarchive"' in await browser.text(archived)
    await send("unarchive")
    deleted = await send("delete", talk)
    assert titles(await browser.text("/history")) == ["Other"]
    assert 'value="restore"' in await browser.text(deleted)
    assert await send("restore") == f"/history/{talk}?namespace=work&done=restore&of={talk}"
    assert titles(await browser.text("/history")) == ["Journey", "Other"]


async def test_forms_of_the_history_need_a_token_a_known_action_and_the_right_to_write(
    api: RestClient, ada: LibraryUser
) -> None:
    talk = await ada.add_chat("Voyage", "When?")
    browser, reader = await sign_in(api, "ada"), await sign_in(api, "ben", "reader")

    assert (await browser.send(f"/history/{talk}", token="wrong", action="delete")).status == 403
    assert (await browser.send(f"/history/{talk}", action="burn")).status == 400
    assert (await browser.send(f"/history/{talk}", action="rename", title="x" * 5000)).status == 400
    assert 'class="more"' not in await reader.text("/history")
    assert titles(await browser.text("/history")) == ["Voyage"]


async def test_deletion_is_confirmed_without_a_script(api: RestClient, ada: LibraryUser) -> None:
    talk = await ada.add_chat("Voyage", "When?")

    page = await page_text(api, f"/history/{talk}")
    question = await page_text(api, f"/history/{talk}?confirm=delete")

    assert f'href="/history/{talk}?confirm=delete"' in page
    assert "Delete “Voyage” with all its messages?" not in page
    assert "Delete “Voyage” with all its messages?" in question


async def test_long_conversation_is_shown_in_parts(api: RestClient, ada: LibraryUser) -> None:
    talk = await ada.add_chat("Voyage", *[f"message {number}." for number in range(700)])

    first = await page_text(api, f"/history/{talk}")
    last = await page_text(api, f"/history/{talk}?start=600")

    assert first.count('class="message') == 300
    assert f'href="/history/{talk}?start=300">Later messages</a>' in first
    assert f'href="/history/{talk}?start=400">Latest messages</a>' in first
    assert last.count('class="message') == 100
    assert f'href="/history/{talk}?start=300">Earlier messages</a>' in last


@each_case(
    ("days", "heading"),
    [
        *((-1, "Today"), (0, "Today"), (1, "Yesterday"), (2, "Previous 7 days"), (7, "Previous 7 days")),
        *((8, "Previous 30 days"), (30, "Previous 30 days"), (31, "October"), (340, "December 2025")),
    ],
)
def test_conversations_are_grouped_by_date(days: int, heading: str) -> None:
    assert date_group(NOW - timedelta(days=days), NOW) == heading


def test_days_are_those_of_the_time_zone_of_the_reader() -> None:
    new_york, tokyo = NOW.astimezone(ZoneInfo("America/New_York")), NOW.astimezone(ZoneInfo("Asia/Tokyo"))
    two_hours_ago = NOW - timedelta(hours=2)

    assert date_group(two_hours_ago, NOW) == "Yesterday"
    assert date_group(two_hours_ago, new_york) == date_group(two_hours_ago, tokyo) == "Today"
