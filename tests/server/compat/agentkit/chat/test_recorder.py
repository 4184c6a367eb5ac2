"""Recording of conversations whose clients send the whole history with every turn."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.compat.agentkit.chat.recorder import CompletedTurn, TurnRecorder
from server.compat.agentkit.chat.turns import ChatTurn, Completion, TurnLimits, parse_turns
from sources.records import ListPage, Message
from sources.storage.collections.chats import Chats
from tests.sources.storage.library_fixture import Clock, LibraryFixture, open_library_fixture
from tests.tiers import examples

RETRY_S = 300.0
LIMITS = TurnLimits(10_000, 10_000)
RoleAndContent = tuple[str, str]


def user(text: str) -> RoleAndContent:
    return "user", text


def assistant(text: str) -> RoleAndContent:
    return "assistant", text


class ChatSimulator:
    """A client that chats through the recorder, without access to what is stored."""

    def __init__(self, chats: Chats, clock: Clock, **fields: Any) -> None:
        self.chats = chats
        self.clock = clock
        self.fields = fields
        self.recorder = TurnRecorder(RETRY_S, 1000, lambda: datetime.fromtimestamp(clock.now_s, UTC))

    async def chat(self, sent: Sequence[RoleAndContent], answer: str, cut_by: str | None = None, **more: Any) -> str:
        """Records a turn in which these messages were sent and answered."""
        messages = [{"role": role, "content": content} for role, content in sent]
        completion = Completion(turn=ChatTurn(role="assistant", content=answer), model="m", is_complete=cut_by is None)
        requested_at = datetime.fromtimestamp(self.clock.now_s, UTC).isoformat()
        fields = {"conversation_name": None, **self.fields, **more}
        turn = CompletedTurn(
            turns=parse_turns(messages, LIMITS),
            completion=completion,
            requested_at=requested_at,
            cut_by=cut_by,
            **fields,
        )
        return await self.recorder.record(self.chats, turn)

    def advance(self, seconds: float) -> None:
        self.clock.now_s += seconds

    async def conversations(self) -> list[list[RoleAndContent]]:
        """Returns all conversations, oldest first."""
        rows = (await self.chats.list(100, 0)).rows
        oldest_first = sorted(rows, key=lambda row: row.created_at)
        return [
            [(m.role, m.content) for m in (await self.chats.messages(one.id, 1000, 0)).rows] for one in oldest_first
        ]


class SynchronizedChats:
    """Chats whose readers wait for each other after their first read of messages."""

    def __init__(self, chats: Chats, barrier: asyncio.Barrier) -> None:
        self._chats = chats
        self._barrier = barrier
        self._has_read = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chats, name)

    async def messages(self, conversation_id: str, limit: int, offset: int) -> ListPage[Message]:
        page = await self._chats.messages(conversation_id, limit, offset)
        if not self._has_read:
            self._has_read = True
            await self._barrier.wait()
        return page


@pytest.fixture
async def libraries(tmp_path: Path) -> AsyncIterator[LibraryFixture]:
    async with open_library_fixture(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
async def client(libraries: LibraryFixture) -> AsyncIterator[ChatSimulator]:
    async with libraries.library("ada") as library:
        yield ChatSimulator(library.chats, libraries.clock)
    async with libraries.library("ben") as other:
        assert (await other.chats.list(10, 0)).total == 0


# Growing conversations


async def test_growing_conversation_is_stored_once(client: ChatSimulator) -> None:
    first = await client.chat([user("hi")], "hello")
    second = await client.chat([user("hi"), assistant("hello"), user("more")], "here")

    assert first == second
    assert await client.conversations() == [[user("hi"), assistant("hello"), user("more"), assistant("here")]]


async def test_conversation_is_recognized_when_the_client_trims_answers(client: ChatSimulator) -> None:
    await client.chat([user("hi")], "hello \n")
    await client.chat([user("hi"), assistant("hello"), user("more")], "here")

    assert [len(one) for one in await client.conversations()] == [4]


async def test_changing_system_message_does_not_start_another_conversation(client: ChatSimulator) -> None:
    await client.chat([("system", "It is 10:00."), user("hi")], "hello")
    await client.chat([("system", "It is 10:01."), user("hi"), assistant("hello"), user("more")], "here")

    assert await client.conversations() == [
        [("system", "It is 10:00."), user("hi"), assistant("hello"), user("more"), assistant("here")]
    ]


async def test_retry_with_another_system_message_is_the_same_turn(client: ChatSimulator) -> None:
    await client.chat([("system", "It is 10:00."), user("hi")], "hello")
    await client.chat([("system", "It is 10:01."), user("hi")], "hello")

    assert await client.conversations() == [[("system", "It is 10:00."), user("hi"), assistant("hello")]]


async def test_named_conversation_continues_when_the_client_drops_its_beginning(client: ChatSimulator) -> None:
    client.fields = {"conversation_name": "mine"}
    await client.chat([user("1")], "a")
    await client.chat([user("1"), assistant("a"), user("2")], "b")
    await client.chat([assistant("a"), user("2"), assistant("b"), user("3")], "c")

    assert await client.conversations() == [
        [user("1"), assistant("a"), user("2"), assistant("b"), user("3"), assistant("c")]
    ]


async def test_named_conversation_is_stored_whole_when_the_client_sends_only_new_messages(
    client: ChatSimulator,
) -> None:
    client.fields = {"conversation_name": "mine"}
    for text in ("first", "next", "next", "next"):
        client.advance(RETRY_S)
        await client.chat([user(text)], f"after {text}")

    assert [len(one) for one in await client.conversations()] == [8]


async def test_conversation_can_be_named_by_its_id(client: ChatSimulator) -> None:
    conversation_id = await client.chat([user("hi")], "hello")

    await client.chat([user("something else")], "sure", conversation_name=conversation_id)

    assert await client.conversations() == [[user("hi"), assistant("hello"), user("something else"), assistant("sure")]]


async def test_tool_calls_and_results_are_stored_as_turns(client: ChatSimulator) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    turns = parse_turns(
        [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ],
        LIMITS,
    )
    requested_at = "2026-11-15T08:00:00Z"

    def completed(count: int, answer: ChatTurn) -> CompletedTurn:
        return CompletedTurn(
            conversation_name=None, turns=turns[:count], completion=Completion(turn=answer), requested_at=requested_at
        )

    await client.recorder.record(client.chats, completed(1, turns[1]))
    await client.recorder.record(client.chats, completed(3, ChatTurn(role="assistant", content="done")))

    [conversation] = (await client.chats.list(10, 0)).rows
    messages = (await client.chats.messages(conversation.id, 10, 0)).rows
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].metadata["tool_calls"] == [call]


# Retries


async def test_retry_replaces_the_answer_of_the_same_turn(client: ChatSimulator) -> None:
    await client.chat([user("hi")], "hello")
    await client.chat([user("hi")], "good day")

    assert await client.conversations() == [[user("hi"), assistant("good day")]]


async def test_interrupted_answer_is_replaced_by_a_complete_one_at_any_time(client: ChatSimulator) -> None:
    await client.chat([user("hi")], "hel", cut_by="client")
    client.advance(100 * RETRY_S)
    await client.chat([user("hi")], "hello")

    [conversation] = (await client.chats.list(10, 0)).rows
    [_, answer] = (await client.chats.messages(conversation.id, 10, 0)).rows
    assert answer.content == "hello"
    assert "cut" not in answer.metadata


async def test_interrupted_answer_does_not_replace_a_complete_one(client: ChatSimulator) -> None:
    await client.chat([user("hi")], "hello")
    await client.chat([user("hi")], "he", cut_by="client")

    assert await client.conversations() == [[user("hi"), assistant("hello")]]


async def test_same_first_message_later_starts_another_conversation(client: ChatSimulator) -> None:
    await client.chat([user("news?")], "monday")
    client.advance(RETRY_S + 5)
    await client.chat([user("news?")], "tuesday")

    assert await client.conversations() == [[user("news?"), assistant("monday")], [user("news?"), assistant("tuesday")]]


async def test_conversations_with_the_same_first_message_continue_separately(client: ChatSimulator) -> None:
    await client.chat([user("hi")], "one")
    client.advance(RETRY_S + 5)
    await client.chat([user("hi")], "two")
    await client.chat([user("hi"), assistant("one"), user("of one")], "1")
    await client.chat([user("hi"), assistant("two"), user("of two")], "2")

    assert await client.conversations() == [
        [user("hi"), assistant("one"), user("of one"), assistant("1")],
        [user("hi"), assistant("two"), user("of two"), assistant("2")],
    ]


async def test_same_idempotency_key_is_the_same_turn_at_any_time(client: ChatSimulator) -> None:
    await client.chat([user("news?")], "monday", idempotency_key="k")
    client.advance(RETRY_S + 5)
    await client.chat([user("news?")], "again", idempotency_key="k")

    assert await client.conversations() == [[user("news?"), assistant("again")]]


async def test_different_idempotency_key_is_another_turn(client: ChatSimulator) -> None:
    client.fields = {"conversation_name": "mine"}
    await client.chat([user("next")], "one", idempotency_key="1")
    await client.chat([user("next")], "two", idempotency_key="2")

    assert await client.conversations() == [[user("next"), assistant("one"), user("next"), assistant("two")]]


async def test_concurrent_retries_are_stored_once(client: ChatSimulator) -> None:
    await client.chat([user("hi")], "hello")
    sent = [user("hi"), assistant("hello")]
    clients = [
        ChatSimulator(cast("Chats", SynchronizedChats(client.chats, barrier)), client.clock)
        for barrier in [asyncio.Barrier(3)] * 3
    ]

    await asyncio.gather(*(one.chat([*sent, user("more")], "here") for one in clients))

    assert await client.conversations() == [[user("hi"), assistant("hello"), user("more"), assistant("here")]]


async def test_concurrent_first_turns_create_one_conversation(client: ChatSimulator) -> None:
    await asyncio.gather(*(client.chat([user("hi")], "hello") for _ in range(3)))

    assert await client.conversations() == [[user("hi"), assistant("hello")]]


# Branches


async def test_edited_message_branches_from_its_predecessor(client: ChatSimulator) -> None:
    first_turns = [user("hi"), assistant("hello"), user("well"), assistant("yes")]
    await client.chat(first_turns[:1], "hello")
    await client.chat(first_turns[:3], "yes")
    await client.chat([*first_turns, user("this")], "A")
    await client.chat([*first_turns, user("that")], "B")
    await client.chat([*first_turns, user("that"), assistant("B"), user("more")], "C")

    [stored] = await client.conversations()
    assert stored == [
        *first_turns,
        user("this"),
        assistant("A"),
        user("that"),
        assistant("B"),
        user("more"),
        assistant("C"),
    ]
    [conversation] = (await client.chats.list(10, 0)).rows
    messages = (await client.chats.messages(conversation.id, 10, 0)).rows
    assert messages[6].parent_id == messages[3].id


async def test_deleted_conversation_is_created_again(client: ChatSimulator) -> None:
    conversation_id = await client.chat([user("hi")], "hello")
    await client.chats.delete(conversation_id)

    await client.chat([user("hi"), assistant("hello"), user("more")], "here")

    assert await client.conversations() == [[user("hi"), assistant("hello"), user("more"), assistant("here")]]


async def test_conversations_of_two_users_are_separate(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as library_of_ada, libraries.library("ben") as library_of_ben:
        ada, ben = (
            ChatSimulator(library_of_ada.chats, libraries.clock),
            ChatSimulator(library_of_ben.chats, libraries.clock),
        )
        first = await ada.chat([user("hi")], "to ada")
        second = await ben.chat([user("hi"), assistant("to ada"), user("more")], "to ben", conversation_name=first)

        assert first != second
        assert await ada.conversations() == [[user("hi"), assistant("to ada")]]
        assert await ben.conversations() == [[user("hi"), assistant("to ada"), user("more"), assistant("to ben")]]


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()), min_size=1, max_size=6))
def test_any_sequence_with_retries_is_stored_once_in_order(script: list[tuple[str, str, bool]]) -> None:
    """A client with a small vocabulary that sends some turns twice."""

    async def run_script(root: Path) -> None:
        async with open_library_fixture(root) as libraries, libraries.library("ada") as library:
            client = ChatSimulator(library.chats, libraries.clock)
            history: list[RoleAndContent] = []
            for question, answer, is_repeated in script:
                for _ in range(2 if is_repeated else 1):
                    await client.chat([*history, user(question)], answer)
                history += [user(question), assistant(answer)]
            assert await client.conversations() == [history]

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run_script(Path(folder)))
