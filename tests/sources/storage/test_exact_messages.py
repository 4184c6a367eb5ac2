"""Messages by the words in them as they stand: the language, the order, the snippets, and what is no expression."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sources.drafts import ConversationDraft, MessageDraft
from sources.records import ExactHits
from sources.storage.contract import ExactSearch, Library
from tests.sources.storage.library_fixture import OpenLibraries


async def matched(library: Library, expression: str, limit: int = 50, **narrowing: Any) -> ExactHits:
    search = ExactSearch(expression=expression, limit=limit, deadline_ms=10_000, **narrowing)
    return await library.chats.match_messages(search)


async def found(library: Library, expression: str, **narrowing: Any) -> list[str]:
    return [hit.message.content for hit in (await matched(library, expression, **narrowing)).hits]


async def say(library: Library, *texts: str, **more: Any) -> str:
    drafts = [MessageDraft(content=text, **more) for text in texts]
    return (await library.chats.create(ConversationDraft(title="Foxes"), drafts)).id


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("brown", {"The quick brown fox", "brown bread"}),
        ("BROWN fox", {"The quick brown fox"}),
        ('"brown fox"', {"The quick brown fox"}),
        ('"fox brown"', set()),
        ("bro*", {"The quick brown fox", "brown bread", "a broken cup"}),
        ("fox OR bread", {"The quick brown fox", "brown bread"}),
        ("brown NOT fox", {"brown bread"}),
        ("(fox OR bread) AND quick", {"The quick brown fox"}),
        ("NEAR(quick fox, 1)", {"The quick brown fox"}),
        ("NEAR(the fox, 1)", set()),
        ("content:bread", {"brown bread"}),
        ("cafe", {"Café at ten"}),
        ("breads", set()),
        ("ana", set()),
    ],
)
async def test_an_expression_is_obeyed(ada: Library, ben: Library, expression: str, wanted: set[str]) -> None:
    await say(ada, "The quick brown fox", "brown bread", "a broken cup", "Café at ten", sender="Ana")
    answer = await matched(ada, expression)
    assert {hit.message.content for hit in answer.hits} == wanted
    assert (answer.read_as, answer.is_complete, answer.is_ranked) == (None, True, True)
    assert await found(ben, expression) == []


@pytest.mark.parametrize(
    ("expression", "read_as", "wanted"),
    [
        ("fox-trot", '"fox-trot"', ["a fox-trot at 10:30"]),
        ("10:30", '"10:30"', ["a fox-trot at 10:30"]),
        ('"fox', '"fox"', ["a fox-trot at 10:30"]),
        ("(fox", '"(fox"', ["a fox-trot at 10:30"]),
        ("fox OR", '"fox"', ["a fox-trot at 10:30"]),
        ("what's fox?", '"what\'s" AND "fox?"', []),
        ("C++", '"C++"', ["C++ it is"]),
        ("author:alice", '"author:alice"', []),
        ("*", "searched for nothing; the expression contains no words", []),
        ("AND", "searched for nothing; the expression contains no words", []),
        (" ", "searched for nothing; the expression contains no words", []),
        ("*reads", '"*reads"', []),
        ("fox\0 \ud800", '"fox"', ["a fox-trot at 10:30"]),
        ("(" * 5_000 + "fox", f'"{"(" * 5_000}fox"', ["a fox-trot at 10:30"]),
    ],
)
async def test_what_is_no_expression_is_read_as_words_and_told(
    ada: Library, ben: Library, expression: str, read_as: str, wanted: list[str]
) -> None:
    await say(ada, "a fox-trot at 10:30", "C++ it is")
    answer = await matched(ada, expression)
    assert ([hit.message.content for hit in answer.hits], answer.read_as) == (wanted, read_as)
    assert (await matched(ben, expression)).hits == ()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    expression=st.one_of(
        st.text(max_size=20),
        st.lists(
            st.sampled_from(["fox", "AND", "OR", "NOT", "NEAR(", ")", "(", '"', "*", "content:", "{", "^", "-", "+"]),
            max_size=8,
        ).map(" ".join),
    )
)
async def test_nothing_that_is_typed_raises(ada: Library, expression: str) -> None:
    if not (await ada.chats.list(1, 0)).total:
        await say(ada, "fox")
    assert (await matched(ada, expression)).is_complete


async def test_the_best_come_first_and_no_more_than_wanted(ada: Library) -> None:
    await say(ada, "tea " + "and much else " * 20, "tea tea tea", "tea and cake")
    answer = await matched(ada, "tea")
    assert [hit.message.content[:9] for hit in answer.hits] == ["tea tea t", "tea and c", "tea and m"]
    assert [hit.rank for hit in answer.hits] == sorted(hit.rank for hit in answer.hits)
    assert await found(ada, "tea", limit=1) == ["tea tea tea"]


async def test_of_words_that_are_everywhere_the_newest_come(open_libraries: OpenLibraries) -> None:
    async with open_libraries(search_ranked_rows_max=100) as libraries, libraries.library("ada") as ada:
        await say(ada, "tea tea tea", *(f"tea and {n}" for n in range(1_001)))
        answer = await matched(ada, "tea", limit=2)
        assert ([hit.message.content for hit in answer.hits], answer.is_ranked) == (
            ["tea and 1000", "tea and 999"],
            False,
        )
        assert (await matched(ada, "tea AND 7")).is_ranked


async def test_one_conversation_can_be_searched_alone(ada: Library, ben: Library) -> None:
    first = await say(ada, "tea one")
    second = await say(ada, "tea two")
    await ada.chats.append(first, [MessageDraft(content="tea three")])
    assert sorted(await found(ada, "tea", conversation_id=first)) == ["tea one", "tea three"]
    assert await found(ada, "tea", conversation_id=second) == ["tea two"]
    assert await found(ada, "tea", conversation_id="absent") == []
    assert await found(ada, "tea", conversation_id="\ud800") == []
    assert await found(ben, "tea", conversation_id=first) == []


async def test_a_snippet_is_twenty_words_with_marks_around_those_that_match(ada: Library) -> None:
    words = [f"w{n}" for n in range(60)]
    await say(ada, " ".join([*words[:30], "brown", *words[30:]]))
    [hit] = (await matched(ada, "brown")).hits
    assert "<mark>brown</mark>" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet.split()) == 20


async def test_a_snippet_of_markup_is_text(ada: Library) -> None:
    hostile = "<script>alert('brown')</script> <mark>brown</mark> & \ue000\ue001 \"brown\""
    await say(ada, hostile)
    [hit] = (await matched(ada, "brown OR mark")).hits
    plain = hit.snippet.replace("<mark>", "").replace("</mark>", "")
    assert "<" not in plain
    assert hit.snippet.count("<mark>") == hit.snippet.count("</mark>") == 5
    assert "&lt;script&gt;alert(&#x27;<mark>brown</mark>&#x27;)" in hit.snippet
    assert "\ue000\ue001" in hit.snippet


async def test_a_hit_tells_its_conversation_and_whether_it_is_for_humans_alone(ada: Library) -> None:
    for metadata in ({}, {"visibility": "Human_Only"}, {"audience": " HUMAN"}, {"visibility": 1}, {"audience": "all"}):
        await say(ada, f"tea {metadata}", metadata=metadata)
    hits = (await matched(ada, "tea")).hits
    assert {hit.title for hit in hits} == {"Foxes"}
    told = {hit.message.number: hit.message.is_human_only for hit in hits}
    assert told == {1: False, 2: True, 3: True, 4: False, 5: False}


async def test_changes_are_seen_at_once(ada: Library) -> None:
    assert await found(ada, "tea") == []
    conversation = await say(ada, "green tea", "black tea")
    first, second = (await ada.chats.messages(conversation, 2, 0)).rows
    await ada.chats.update_message(first.id, MessageDraft(content="coffee"))
    assert (await found(ada, "tea"), await found(ada, "coffee")) == (["black tea"], ["coffee"])
    await ada.chats.delete_message(second.id)
    assert await found(ada, "tea") == []
    await ada.chats.delete(conversation)
    assert await found(ada, "coffee") == []
