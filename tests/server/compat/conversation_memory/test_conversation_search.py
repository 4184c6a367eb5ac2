"""Lookups of common concepts end at the search deadline."""

from pathlib import Path

from server.compat.conversation_memory.arguments import MemoryQuery, MemorySearch, parse_query
from server.compat.conversation_memory.tools import ConversationSearcher
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Library
from tests.build_settings import build_settings
from tests.sources.storage.library_fixture import open_library_fixture

FOODS = ("bread", "butter", "cheese")


class SteppingClock:
    """Advances by `step_s` with every reading."""

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


def make_query() -> MemoryQuery:
    return parse_query(MemorySearch(query=list(FOODS), mode="text", limit=50))


async def test_conversations_found_before_the_deadline_are_returned_with_a_note(tmp_path: Path) -> None:
    settings = build_settings(memory_scan_max=10, search_deadline_ms=1_000)
    async with (
        open_library_fixture(tmp_path) as libraries,
        libraries.library("a") as ada,
        libraries.library("b") as ben,
    ):
        await fill(ada)
        slow = await ConversationSearcher(
            ada.chats, libraries.context("a"), settings, make_query(), SteppingClock(0.25)
        ).search_conversations()
        quick = await ConversationSearcher(
            ada.chats, libraries.context("a"), settings, make_query(), SteppingClock(0.0)
        ).search_conversations()
        other = await ConversationSearcher(
            ben.chats, libraries.context("b"), settings, make_query(), SteppingClock(0.25)
        ).search_conversations()

    # The clock is read four times before the deadline, and twice for each conversation.
    assert (len(slow.rows), slow.total) == (1, None)
    assert (len(quick.rows), quick.total) == (5, None)
    assert "Not all matches were examined" in slow.notes[0]
    assert (other.rows, other.total) == ((), 0)
