"""What is kept of conversations that clients send again and again, each turn with all that came before."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.compat.agentkit.chat.completion_parser import Completion
from server.compat.agentkit.chat.recorder import CompletedTurn, TurnRecorder
from server.compat.agentkit.chat.turns import ChatTurn, TurnLimits, parse_turns
from sources.records import ListPage, Message
from sources.storage.contract import Chats
from tests.sources.storage.desk import Clock, Desk, open_sqlite

RETRY_S = 300.0
LIMITS = TurnLimits(10_000, 10_000)
Said = tuple[str, str]


def user(text: str) -> Said:
    return "user", text


def model(text: str) -> Said:
    return "assistant", text


class Client:
    """A program that chats through the recorder; it knows nothing of what is stored."""

    def __init__(self, chats: Chats, clock: Clock, **named: Any) -> None:
        self.chats = chats
        self.clock = clock
        self.named = named
        self.recorder = TurnRecorder(RETRY_S, 1000, lambda: datetime.fromtimestamp(clock.now_s, UTC))

    async def say(self, sent: Sequence[Said], answer: str, cut: str | None = None, **more: Any) -> str:
        """Sends these messages and is answered so."""
        messages = [{"role": role, "content": content} for role, content in sent]
        completion = Completion(turn=ChatTurn(role="assistant", content=answer), model="m", is_complete=cut is None)
        at = datetime.fromtimestamp(self.clock.now_s, UTC).isoformat()
        given = {"conversation_name": None, **self.named, **more}
        talk = CompletedTurn(
            turns=parse_turns(messages, LIMITS), completion=completion, requested_at=at, cut_by=cut, **given
        )
        return await self.recorder.record(self.chats, talk)

    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    async def kept(self) -> list[list[Said]]:
        """Every conversation, the oldest first."""
        listed = (await self.chats.list(100, 0)).rows
        by_age = sorted(listed, key=lambda one: one.created_at)
        return [[(m.role, m.content) for m in (await self.chats.messages(one.id, 1000, 0)).rows] for one in by_age]


class Crowd:
    """Chats that let nobody go on before everybody has read what is there."""

    def __init__(self, chats: Chats, gate: asyncio.Barrier) -> None:
        self._chats = chats
        self._gate = gate
        self._has_read = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chats, name)

    async def messages(self, conversation_id: str, limit: int, offset: int) -> ListPage[Message]:
        page = await self._chats.messages(conversation_id, limit, offset)
        if not self._has_read:
            self._has_read = True
            await self._gate.wait()
        return page


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_sqlite(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with desk.library("ada") as library:
        yield Client(library.chats, desk.clock)
    async with desk.library("ben") as other:
        assert (await other.chats.list(10, 0)).total == 0


# -- a conversation that grows ----------------------------------------------------------------------------------------


async def test_a_growing_conversation_is_kept_once(client: Client) -> None:
    first = await client.say([user("hi")], "hello")
    second = await client.say([user("hi"), model("hello"), user("more")], "here")

    assert first == second
    assert await client.kept() == [[user("hi"), model("hello"), user("more"), model("here")]]


async def test_a_client_that_trims_answers_is_known_again(client: Client) -> None:
    await client.say([user("hi")], "hello \n")
    await client.say([user("hi"), model("hello"), user("more")], "here")

    assert [len(one) for one in await client.kept()] == [4]


async def test_instructions_that_change_with_every_turn_make_no_other_conversation(client: Client) -> None:
    await client.say([("system", "It is 10:00."), user("hi")], "hello")
    await client.say([("system", "It is 10:01."), user("hi"), model("hello"), user("more")], "here")

    assert await client.kept() == [
        [("system", "It is 10:00."), user("hi"), model("hello"), user("more"), model("here")]
    ]


async def test_a_retry_with_other_instructions_is_the_same_turn(client: Client) -> None:
    await client.say([("system", "It is 10:00."), user("hi")], "hello")
    await client.say([("system", "It is 10:01."), user("hi")], "hello")

    assert await client.kept() == [[("system", "It is 10:00."), user("hi"), model("hello")]]


async def test_a_client_that_forgets_the_beginning_goes_on_in_its_named_conversation(client: Client) -> None:
    client.named = {"conversation_name": "mine"}
    await client.say([user("1")], "a")
    await client.say([user("1"), model("a"), user("2")], "b")
    await client.say([model("a"), user("2"), model("b"), user("3")], "c")

    assert await client.kept() == [[user("1"), model("a"), user("2"), model("b"), user("3"), model("c")]]


async def test_a_client_that_sends_only_what_is_new_is_kept_whole_under_its_name(client: Client) -> None:
    client.named = {"conversation_name": "mine"}
    for text in ("first", "next", "next", "next"):
        client.wait(RETRY_S)
        await client.say([user(text)], f"after {text}")

    assert [len(one) for one in await client.kept()] == [8]


async def test_a_conversation_can_be_named_by_its_id(client: Client) -> None:
    identity = await client.say([user("hi")], "hello")

    await client.say([user("something else")], "sure", conversation_name=identity)

    assert await client.kept() == [[user("hi"), model("hello"), user("something else"), model("sure")]]


async def test_tool_calls_and_their_results_are_turns(client: Client) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    turns = parse_turns(
        [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ],
        LIMITS,
    )
    at = "2026-11-15T08:00:00Z"

    def talk(count: int, said: ChatTurn) -> CompletedTurn:
        return CompletedTurn(
            conversation_name=None, turns=turns[:count], completion=Completion(turn=said), requested_at=at
        )

    await client.recorder.record(client.chats, talk(1, turns[1]))
    await client.recorder.record(client.chats, talk(3, ChatTurn(role="assistant", content="done")))

    [conversation] = (await client.chats.list(10, 0)).rows
    messages = (await client.chats.messages(conversation.id, 10, 0)).rows
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].metadata["tool_calls"] == [call]


# -- the same turn again ----------------------------------------------------------------------------------------------


async def test_a_retry_is_the_same_turn_with_the_answer_that_came_last(client: Client) -> None:
    await client.say([user("hi")], "hello")
    await client.say([user("hi")], "good day")

    assert await client.kept() == [[user("hi"), model("good day")]]


async def test_an_answer_that_was_cut_is_replaced_by_one_that_was_not_whenever_it_comes(client: Client) -> None:
    await client.say([user("hi")], "hel", cut="client")
    client.wait(100 * RETRY_S)
    await client.say([user("hi")], "hello")

    [conversation] = (await client.chats.list(10, 0)).rows
    [_, answer] = (await client.chats.messages(conversation.id, 10, 0)).rows
    assert answer.content == "hello"
    assert "cut" not in answer.metadata


async def test_an_answer_that_was_cut_replaces_none_that_is_whole(client: Client) -> None:
    await client.say([user("hi")], "hello")
    await client.say([user("hi")], "he", cut="client")

    assert await client.kept() == [[user("hi"), model("hello")]]


async def test_the_same_words_later_begin_another_conversation(client: Client) -> None:
    await client.say([user("news?")], "monday")
    client.wait(RETRY_S + 5)
    await client.say([user("news?")], "tuesday")

    assert await client.kept() == [[user("news?"), model("monday")], [user("news?"), model("tuesday")]]


async def test_two_conversations_that_begin_alike_go_on_side_by_side(client: Client) -> None:
    await client.say([user("hi")], "one")
    client.wait(RETRY_S + 5)
    await client.say([user("hi")], "two")
    await client.say([user("hi"), model("one"), user("of one")], "1")
    await client.say([user("hi"), model("two"), user("of two")], "2")

    assert await client.kept() == [
        [user("hi"), model("one"), user("of one"), model("1")],
        [user("hi"), model("two"), user("of two"), model("2")],
    ]


async def test_the_same_key_is_the_same_turn_however_late(client: Client) -> None:
    await client.say([user("news?")], "monday", idempotency_key="k")
    client.wait(RETRY_S + 5)
    await client.say([user("news?")], "again", idempotency_key="k")

    assert await client.kept() == [[user("news?"), model("again")]]


async def test_another_key_is_another_turn_however_soon(client: Client) -> None:
    client.named = {"conversation_name": "mine"}
    await client.say([user("next")], "one", idempotency_key="1")
    await client.say([user("next")], "two", idempotency_key="2")

    assert await client.kept() == [[user("next"), model("one"), user("next"), model("two")]]


async def test_turns_that_come_at_once_are_kept_once_each(client: Client) -> None:
    await client.say([user("hi")], "hello")
    sent = [user("hi"), model("hello")]
    crowd = [Client(cast("Chats", Crowd(client.chats, gate)), client.clock) for gate in [asyncio.Barrier(3)] * 3]

    await asyncio.gather(*(one.say([*sent, user("more")], "here") for one in crowd))

    assert await client.kept() == [[user("hi"), model("hello"), user("more"), model("here")]]


async def test_first_turns_that_come_at_once_make_one_conversation(client: Client) -> None:
    await asyncio.gather(*(client.say([user("hi")], "hello") for _ in range(3)))

    assert await client.kept() == [[user("hi"), model("hello")]]


# -- another way ------------------------------------------------------------------------------------------------------


async def test_a_question_that_was_asked_otherwise_follows_where_it_was_asked(client: Client) -> None:
    begun = [user("hi"), model("hello"), user("well"), model("yes")]
    await client.say(begun[:1], "hello")
    await client.say(begun[:3], "yes")
    await client.say([*begun, user("this")], "A")
    await client.say([*begun, user("that")], "B")
    await client.say([*begun, user("that"), model("B"), user("more")], "C")

    [kept] = await client.kept()
    assert kept == [*begun, user("this"), model("A"), user("that"), model("B"), user("more"), model("C")]
    [conversation] = (await client.chats.list(10, 0)).rows
    messages = (await client.chats.messages(conversation.id, 10, 0)).rows
    assert messages[6].parent_id == messages[3].id


async def test_a_deleted_conversation_is_begun_again(client: Client) -> None:
    identity = await client.say([user("hi")], "hello")
    await client.chats.delete(identity)

    await client.say([user("hi"), model("hello"), user("more")], "here")

    assert await client.kept() == [[user("hi"), model("hello"), user("more"), model("here")]]


async def test_what_one_user_says_is_not_known_to_another(desk: Desk) -> None:
    async with desk.library("ada") as hers, desk.library("ben") as his:
        ada, ben = Client(hers.chats, desk.clock), Client(his.chats, desk.clock)
        first = await ada.say([user("hi")], "to ada")
        second = await ben.say([user("hi"), model("to ada"), user("more")], "to ben", conversation_name=first)

        assert first != second
        assert await ada.kept() == [[user("hi"), model("to ada")]]
        assert await ben.kept() == [[user("hi"), model("to ada"), user("more"), model("to ben")]]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()), min_size=1, max_size=6))
def test_whatever_is_said_and_repeated_is_kept_in_order_and_once(script: list[tuple[str, str, bool]]) -> None:
    """A client with few words that sends some turns twice."""

    async def play(root: Path) -> None:
        async with open_sqlite(root) as desk, desk.library("ada") as library:
            client = Client(library.chats, desk.clock)
            history: list[Said] = []
            for asked, answered, is_repeated in script:
                for _ in range(2 if is_repeated else 1):
                    await client.say([*history, user(asked)], answered)
                history += [user(asked), model(answered)]
            assert await client.kept() == [history]

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
