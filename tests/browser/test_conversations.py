"""The history and the threads in a browser: reading, filtering, searching, changing and live updates.

Ada has conversations and threads, Ben has one of each, and Dora has more conversations than a page of REST.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from msgspec.structs import replace

from sources.drafts import ConversationDraft, MessageDraft, ThreadDraft
from sources.storage.tables.validation import TITLE_MAX_CHARS
from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.browser.payloads import PAYLOADS
from tests.server.rest.rest_client import rest_client_of
from tests.sources.source_fixture import LibraryUser

pytestmark = pytest.mark.slow("walks through pages in a browser")
EVENTS = {"conversation_events_interval_ms": 100, "conversation_events_max_s": 60}


class ConversationConsole(ConsoleServer, frozen=True):
    """A server with the conversations of three people. `paths` are the ids of two of Ada's."""

    paths: dict[str, str]


async def add_talk(user: LibraryUser, title: str, time: str, *messages: MessageDraft, **fields: Any) -> str:
    """Adds a conversation that was changed last at this time."""
    dated = [replace(message, created_at=time) for message in messages]
    return await user.add_chat(title, *dated, created_at=time, **fields)


async def add_talks(ada: LibraryUser) -> dict[str, str]:
    now = datetime.now(UTC)
    messages = (
        MessageDraft(role="user", sender="Ana", content="When do we leave?"),
        MessageDraft(role="assistant", content="Leave at *eight*.", model="claude-x", tool="calendar"),
        MessageDraft(role="user", sender="Ana", content="My code is K7Q2.", metadata={"human_only": True}),
    )
    voyage = await add_talk(ada, "Voyage", now.isoformat(), *messages, namespace="work")
    for title, days, text in (("Errands", 1, "Buy bread."), ("Garden", 5, "Plant tulips.")):
        await add_talk(ada, title, (now - timedelta(days=days)).isoformat(), MessageDraft(content=text))
    await add_talk(ada, "Old plans", "2019-07-04T10:00:00Z", MessageDraft(content="Sell the boat."))
    return {"talk": voyage}


async def add_threads(ada: LibraryUser) -> dict[str, str]:
    posts = [
        MessageDraft(role="assistant", sender="Cursor", content=f"Signals, part {number}.") for number in range(30)
    ]
    posts[20] = MessageDraft(sender="Ana", content="Signals are my idea.", metadata={"visibility": "human_only"})
    thread = await ada.add_chat("State management", *posts, namespace="bus")
    await ada.add_chat("Release", "Which signals do we send?", "None yet.", namespace="bus")
    return {"thread": thread}


async def add_many(dora: LibraryUser, count: int) -> None:
    drafts = [ConversationDraft(title=f"Talk {number}", uuid=f"talk-{number}") for number in range(count)]
    async with dora.libraries.library(dora.context) as library:
        await library.chats.upsert_many([ThreadDraft(draft) for draft in drafts])


@pytest.fixture(scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConversationConsole]:
    async with open_console(tmp_path_factory.mktemp("history"), **EVENTS) as site:
        ada, ben, dora = [await rest_client_of(site.server).library_user(name) for name in ("ada", "ben", "dora")]
        paths = {**await add_talks(ada), **await add_threads(ada)}
        await ben.add_chat("Harbour", "A quiet day.")
        await ben.add_chat("Tides", "Ben's signals.", namespace="bus")
        await add_many(dora, 230)
        yield ConversationConsole(site.server, paths)


# History


async def test_sidebar_groups_rows_opens_conversations_and_collapses(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    seen = await console.run(browser, "history.mjs", "sidebar")

    assert seen["groups"][-1] == "July 2019"
    assert seen["groups"][:3] == ["Today", "Yesterday", "Previous 7 days"]
    assert all(text in seen["first"] for text in ("just now", "3 msgs", "work"))
    assert seen["current"] == ["Voyage"]
    assert all(text in seen["reader"] for text in ("claude-x", "calendar", "human-only", "My code is K7Q2."))
    assert seen["findings"] == []


async def test_sidebar_is_filtered_by_title_id_and_namespace(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    seen = await console.run(browser, "history.mjs", "filter", values={"id": console.paths["talk"]})

    assert (seen["byTitle"], seen["byId"], seen["sent"]) == (["Voyage"], ["Voyage"], 1)
    assert "No match" in seen["empty"]
    assert seen["byNamespace"] == seen["reloaded"] == ["Voyage"]


async def test_new_conversations_and_messages_appear_without_a_reload(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    seen = await console.run(browser, "history.mjs", "live")

    assert (seen["idle"], seen["kept"]) == (0, True)
    assert "2 msgs" in seen["facts"]


async def test_conversation_is_renamed_pinned_archived_deleted_and_restored(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    seen = await console.run(browser, "history.mjs", "manage")

    assert seen["archived"] == ["Chores"]
    assert "Chores" in seen["question"]
    assert seen["findings"] == []


async def test_conversation_is_downloaded_in_three_formats(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    talk = console.paths["talk"]

    files = await console.run(browser, "history.mjs", "downloads", values={"id": talk})

    assert set(files) == {f"conversation-{talk}.{name}" for name in ("json", "txt", "md")}
    assert msgspec.json.decode(files[f"conversation-{talk}.json"])["title"] == "Voyage"
    assert files[f"conversation-{talk}.md"].startswith("# Voyage")


async def test_sidebar_shows_more_than_a_page_of_rest(browser: BrowserDriver, console: ConversationConsole) -> None:
    seen = await console.run(browser, "history.mjs", "paging", "dora")

    assert seen == {"counts": [100, 200, 230], "distinct": 230}


async def test_loading_and_failures_are_shown(browser: BrowserDriver, console: ConversationConsole) -> None:
    seen = await console.run(browser, "history.mjs", "failures")

    assert "cannot be reached" in seen["message"]
    assert "cannot be shown" in seen["absent"]


async def test_history_works_with_the_keyboard_alone(browser: BrowserDriver, console: ConversationConsole) -> None:
    seen = await console.run(browser, "history.mjs", "keyboard")

    assert seen["opened"] == seen["listed"]
    assert seen["focused"] == "Rename…"


async def test_history_works_without_javascript(browser: BrowserDriver, console: ConversationConsole) -> None:
    seen = await console.run(browser, "history.mjs", "plain", javaScriptEnabled=False)

    assert [title.strip("★ ") for title in seen["titles"]] == ["Garden in spring"]


async def test_phone_shows_the_list_or_the_conversation(browser: BrowserDriver, console: ConversationConsole) -> None:
    options: dict[str, Any] = PHONE

    await console.run(browser, "history.mjs", "phone", **options)


async def test_people_see_only_their_own_conversations_and_threads(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    assert sorted(await console.run(browser, "history.mjs", "listed", "ben")) == ["Harbour", "Tides"]
    seen = await console.run(browser, "threads.mjs", "listed", "ben")
    assert seen == {"threads": ["Tides"], "found": 1}


# Threads


async def test_messages_are_searched_in_one_thread_and_in_all(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    seen = await console.run(browser, "threads.mjs", "search", values=console.paths)

    assert sorted(seen["threads"]) == ["Release", "State management"]
    assert (seen["all"], seen["here"]) == (31, 30)
    assert seen["counts"] == ["31 messages", "2 of 31"]
    assert seen["marked"].lower() == "signals"
    assert any(topic in seen["first"] for topic in ("State management", "Release"))
    assert "#" in seen["first"]
    assert seen["findings"] == []


async def test_human_only_messages_of_a_thread_are_shown_and_labelled(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    seen = await console.run(browser, "threads.mjs", "read", values=console.paths)

    [labelled] = seen["labelled"]
    assert "Signals are my idea." in labelled
    assert seen["first"].startswith("#")


async def test_posted_message_appears_in_the_open_thread(browser: BrowserDriver, console: ConversationConsole) -> None:
    await console.run(browser, "threads.mjs", "live", values=console.paths)


async def test_message_search_works_without_javascript(browser: BrowserDriver, console: ConversationConsole) -> None:
    seen = await console.run(browser, "threads.mjs", "plain", values=console.paths, javaScriptEnabled=False)

    assert (seen["here"], seen["count"]) == ("30 messages", "1 of 30")
    assert "ignals" in seen["current"]


# Both


@pytest.mark.parametrize(
    "options", [{"colorScheme": "light"}, {"colorScheme": "dark"}, {"colorScheme": "dark", **PHONE}]
)
async def test_pages_of_conversations_pass_the_audit_and_fit_the_screen(
    browser: BrowserDriver, console: ConversationConsole, options: dict[str, Any]
) -> None:
    talk, thread = console.paths["talk"], console.paths["thread"]
    paths = [
        *("/history", f"/history/{talk}", f"/history/{talk}?confirm=delete", "/history?q=absent", "/threads"),
        *(f"/threads/{thread}", f"/threads/{thread}?q=signals&scope=all", "/threads?q=absent", f"/items/chats/{talk}"),
    ]

    findings = await console.run(browser, "search.mjs", "look", values=paths, **options)

    assert findings == {path: [] for path in paths}


async def test_nothing_hostile_runs_on_the_pages_of_conversations(
    browser: BrowserDriver, console: ConversationConsole
) -> None:
    mallory = await rest_client_of(console.server).library_user("mallory")
    limit = TITLE_MAX_CHARS
    talks = []
    for number, payload in enumerate(PAYLOADS):
        text = payload[:limit]
        draft = MessageDraft(role="user", sender=text, content=payload, model=text, tool=text)
        namespace = "bus" if number % 2 else text
        talks.append(ThreadDraft(ConversationDraft(title=text, namespace=namespace, uuid=f"x-{number}"), (draft,)))
    drafts = [MessageDraft(sender=text[:limit], content=f"{text} needle") for text in PAYLOADS]
    thread = await mallory.add_chat(PAYLOADS[20][:limit], *drafts, namespace="bus")
    async with mallory.libraries.library(mallory.context) as library:
        await library.chats.upsert_many(talks)
    script, image = quote('"><script>xss=1</script>'), quote('"><img src=x>')
    paths = [
        *("/history", "/history?shown=300", f"/history/{thread}", "/history/x-0"),
        *(f"/history?q={script}&namespace={image}", f"/history?done=delete&of={image}", f"/items/chats/{thread}"),
        *("/threads", f"/threads/{thread}", "/threads?q=needle", f"/threads/{thread}?q=needle&scope=thread"),
        f"/threads?q={script}&scope={image}&at={image}",
    ]

    await console.run(browser, "item.mjs", "hostile", "mallory", values=paths)
