"""Concepts that are everywhere are looked up for as long as a search may take, and no longer."""

from pathlib import Path

from config.settings import Settings
from server.compat.conversation_memory.chat_search import ChatSearch
from server.compat.conversation_memory.questions import Recall, read_recall
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Library
from tests.sources.storage.desk import open_sqlite

FOODS = ("bread", "butter", "cheese")


class Watch:
    """Goes on by so much whenever somebody looks."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


async def fill(library: Library) -> None:
    for food in FOODS:
        for _ in range(15):
            text = f"{food} {food} {food}, and {' and '.join(FOODS)}."
            await library.chats.create(ConversationDraft(title=food), [MessageDraft(content=text)])


def asking() -> Recall:
    return read_recall(
        query=list(FOODS), mode="text", limit=50, after=None, before=None, projects=(), types=(), concepts=(), files=()
    )


async def test_conversations_found_until_time_runs_out_are_given_and_the_rest_is_told(tmp_path: Path) -> None:
    settings = Settings(memory_scan_max=10, search_deadline_ms=1_000)
    async with open_sqlite(tmp_path) as desk, desk.library("a") as ada, desk.library("b") as ben:
        await fill(ada)
        slow = await ChatSearch(ada.chats, desk.context("a"), settings, asking(), Watch(0.25)).conversations()
        quick = await ChatSearch(ada.chats, desk.context("a"), settings, asking(), Watch(0.0)).conversations()
        other = await ChatSearch(ben.chats, desk.context("b"), settings, asking(), Watch(0.25)).conversations()

    # Looked at four times before the second is over, and twice for each conversation.
    assert (len(slow.rows), slow.total) == (1, None)
    assert (len(quick.rows), quick.total) == (5, None)
    assert "more matches than were looked through" in slow.notes[0]
    assert (other.rows, other.total) == ((), 0)
