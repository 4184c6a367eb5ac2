"""The second stage of searches in chats: what a message is changes its score, in the same way on every engine."""

from typing import Any

import pytest
from msgspec.structs import replace

from sources.drafts import ConversationDraft, MessageDraft
from sources.search.message_boost import MESSAGE_WEIGHTS, MessageBoost, MessageWeights
from sources.storage.contract import Library
from tests.cases import each_case
from tests.sources.storage.library_fixture import make_search

pytestmark = pytest.mark.postgres

LONG = (
    "with the whole family, and the children were so tired afterwards that they slept until noon, which never happens."
)


async def add(library: Library, *messages: tuple[str, str], role: str = "user") -> None:
    """Adds each message as a conversation of its own, so that none is the context of another."""
    for sender, text in messages:
        draft = MessageDraft(role="assistant" if sender == "assistant" else role, sender=sender, content=text)
        await library.chats.create(ConversationDraft(), [draft])


async def found(library: Library, query: str, **options: Any) -> list[str]:
    page = await library.chats.search(replace(make_search(query), **options))
    return [hit.text for hit in page.hits]


async def test_message_that_says_something_comes_before_a_reaction(ada: Library, ben: Library) -> None:
    told = f"We went camping {LONG}"
    await add(ada, ("Ana", "Camping!"), ("Ana", told))
    assert (await found(ada, "how was the camping trip"))[0] == told
    assert (await found(ada, "how was the camping trip", boosts_messages=False))[0] == "Camping!"
    assert await found(ben, "how was the camping trip") == []


async def test_answer_comes_before_a_question(ada: Library) -> None:
    asked, answered = (
        "Did the painting of the harbour sell at the fair?",
        "The painting of the harbour was not for sale.",
    )
    await add(ada, ("Ana", asked), ("Ben", answered))
    assert await found(ada, "was the painting of the harbour sold at the fair", boosts_messages=False) == [
        asked,
        answered,
    ]
    assert (await found(ada, "was the painting of the harbour sold"))[0] == answered


async def test_message_that_names_a_time_answers_when(ada: Library) -> None:
    timeless, timed = "I adopted the dog, a spaniel.", "I adopted the dog last Friday."
    await add(ada, ("Ana", timed), ("Ana", timeless))
    assert (await found(ada, "when was the dog adopted"))[0] == timed
    await add(ada, ("assistant", "The dog was adopted on Friday, of course, as dogs are."))
    assert (await found(ada, "wann dog adopted"))[0] == timed


async def test_words_of_the_user_are_preferred_if_the_question_is_about_the_user(ada: Library) -> None:
    own, answer = "The flour comes from the mill at Auerbach.", "Flour comes from a mill, often."
    await add(ada, ("user", own), ("assistant", answer))
    assert (await found(ada, "flour from a mill"))[0] == answer
    assert (await found(ada, "where is my flour from, which mill"))[0] == own


async def test_pages_are_parts_of_one_order(ada: Library) -> None:
    texts = [("Ana", f"tea {'and milk ' * (number % 7)}number {number}") for number in range(90)]
    await add(ada, *texts)
    at_once = await found(ada, "tea milk", limit=90)
    in_pages = [text for start in range(0, 90, 7) for text in await found(ada, "tea milk", limit=7, offset=start)]
    assert in_pages == at_once
    assert len(set(at_once)) == 90


class FakeMessage:
    part_id: str | None = "1"

    def __init__(self, text: str, sender: str = "Ana", role: str = "user") -> None:
        self.hit_text, self.speaker, self.role = text, sender, role
        self.boosts: Any = {}


def features(query: str, message: FakeMessage) -> dict[str, float]:
    return MessageBoost(query, lambda sender: 1.3 if sender == "Ben" else 1.0).features(message)


@pytest.mark.sqlite
@each_case(
    ("query", "message", "expected"),
    [
        ("the dogs", FakeMessage("x" * 160), {}),
        ("dogs", FakeMessage("x?"), {}),
        ("the dogs", FakeMessage("x" * 40), {"brief": 0.75}),
        ("dogs?", FakeMessage("犬" * 40), {"brief": 0.25}),
        ("the dogs", FakeMessage("x" * 200 + "?"), {"asks": 1.0}),
        ("the dogs", FakeMessage("x" * 200, "Ben"), {"named": 1.0}),
        ("when dogs", FakeMessage("x" * 200 + " yesterday"), {"tells_when": 1.0}),
        ("когда", FakeMessage("x" * 200 + " вчера"), {"tells_when": 1.0}),
        ("when dogs", FakeMessage("x" * 500 + " yesterday"), {}),
        ("my dogs", FakeMessage("short?", "user"), {"own_words": 1.0}),
        ("我的狗", FakeMessage("short?", "", "user"), {"own_words": 1.0}),
        ("dogs", FakeMessage("short?", "user"), {}),
        ("my dogs when", FakeMessage("yesterday?", "assistant", "assistant"), {}),
        ("my dogs", FakeMessage("x" * 200 + "?", "Guide", "assistant"), {"asks": 1.0}),
    ],
)
def test_features(query: str, message: FakeMessage, expected: dict[str, float]) -> None:
    assert features(query, message) == expected


@pytest.mark.sqlite
def test_factors_multiply_the_odds_and_are_kept_for_the_explanation() -> None:
    boost = MessageBoost("when", lambda _: 1.3, MessageWeights(named=0.7, brief=0.0))
    message = FakeMessage("x" * 200)
    [score] = boost.apply_to([0.5], [message])
    assert message.boosts == {"named": pytest.approx(2.0138, abs=1e-4)}
    assert score == pytest.approx(2.0138 / 3.0138, abs=1e-4)
    assert boost.apply_to([0.0, 1.0], [message, message]) == pytest.approx([0.0, 1.0])
    assert MESSAGE_WEIGHTS.brief < 0 < MESSAGE_WEIGHTS.named
