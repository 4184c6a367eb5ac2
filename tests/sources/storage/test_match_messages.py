"""Exact search over messages: FTS5 expressions, order, snippets and invalid input."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sources.drafts import ConversationDraft, MessageDraft
from sources.records import ExactHits
from sources.storage.contract import ExactSearch, Library
from tests.cases import each_case
from tests.sources.storage.library_fixture import OpenLibraries
from tests.tiers import examples

pytestmark = pytest.mark.postgres


async def match_messages(library: Library, expression: str, limit: int = 50, **filters: Any) -> ExactHits:
    search = ExactSearch(expression=expression, limit=limit, deadline_ms=10_000, **filters)
    return await library.chats.match_messages(search)


async def contents(library: Library, expression: str, **filters: Any) -> list[str]:
    return [hit.message.content for hit in (await match_messages(library, expression, **filters)).hits]


async def create_conversation(library: Library, *texts: str, **fields: Any) -> str:
    drafts = [MessageDraft(content=text, **fields) for text in texts]
    return (await library.chats.create(ConversationDraft(title="Foxes"), drafts)).id


@each_case(
    ("expression", "expected"),
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
async def test_expression_is_evaluated(ada: Library, ben: Library, expression: str, expected: set[str]) -> None:
    await create_conversation(ada, "The quick brown fox", "brown bread", "a broken cup", "Café at ten", sender="Ana")
    page = await match_messages(ada, expression)
    assert {hit.message.content for hit in page.hits} == expected
    assert (page.read_as, page.is_complete, page.is_ranked) == (None, True, True)
    assert await contents(ben, expression) == []


@each_case(
    ("expression", "expected"),
    [
        ("会议", {"明天下午在会议室讨论部署计划。", "会议取消了"}),
        ("会议室", {"明天下午在会议室讨论部署计划。"}),
        ("部署 会议", {"明天下午在会议室讨论部署计划。"}),
        ('"讨论部署"', {"明天下午在会议室讨论部署计划。"}),
        ("议会", set()),
        ("会议 NOT 部署", {"会议取消了"}),
        ("取消*", {"会议取消了"}),
        ("content:计划 OR 取消", {"明天下午在会议室讨论部署计划。", "会议取消了"}),
        ("NEAR(会议 部署, 3)", {"明天下午在会议室讨论部署计划。"}),
        ("NEAR(会议 计划, 3)", set()),
        ("京都", {"東京都の天気 v2モデル"}),
        ("モデル v2", {"東京都の天気 v2モデル"}),
        ("회의", {"오늘의회의를시작합니다"}),
        ("ประชุม", {"การประชุมวันนี้"}),
    ],
)
async def test_word_of_a_script_without_spaces_is_found_in_running_text(
    ada: Library, ben: Library, expression: str, expected: set[str]
) -> None:
    texts = (
        "明天下午在会议室讨论部署计划。",
        "会议取消了",
        "東京都の天気 v2モデル",
        "오늘의회의를시작합니다",
        "การประชุมวันนี้",
    )
    await create_conversation(ada, *texts)

    page = await match_messages(ada, expression)

    assert {hit.message.content for hit in page.hits} == expected
    assert page.read_as is None
    assert await contents(ben, expression) == []


async def test_edited_message_without_spaces_is_found_by_its_new_text_only(ada: Library) -> None:
    conversation = await create_conversation(ada, "明天下午在会议室")
    [message] = (await ada.chats.messages(conversation, 1, 0)).rows
    assert len(await contents(ada, "会议")) == 1

    await ada.chats.update_message(message.id, MessageDraft(content="午餐取消了"))

    assert await contents(ada, "会议") == []
    assert await contents(ada, "午餐") == ["午餐取消了"]


@pytest.mark.parametrize("expression", ["的" * 400, '"' + "a " * 400 + '"', "(" + "的" * 400])
async def test_phrase_that_repeats_a_word_is_searched_as_words(ada: Library, expression: str) -> None:
    """FTS5 takes seconds for each of these, in a step that no deadline interrupts."""
    await create_conversation(ada, "的" * 200_000 + "a " * 200_000)

    page = await match_messages(ada, expression)

    assert (len(page.hits), page.read_as) == (1, '"a"' if "a" in expression else '"的"')


@pytest.fixture
async def fox_trot(ada: Library) -> None:
    await create_conversation(ada, "a fox-trot at 10:30", "C++ it is")


@pytest.mark.usefixtures("fox_trot")
@each_case(
    ("expression", "read_as", "expected"),
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
async def test_invalid_expression_is_searched_as_words_and_reported(
    ada: Library, ben: Library, expression: str, read_as: str, expected: list[str]
) -> None:
    page = await match_messages(ada, expression)
    assert ([hit.message.content for hit in page.hits], page.read_as) == (expected, read_as)
    assert (await match_messages(ben, expression)).hits == ()


@settings(max_examples=examples(75), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    expression=st.one_of(
        st.text(max_size=20),
        st.lists(
            st.sampled_from(["fox", "AND", "OR", "NOT", "NEAR(", ")", "(", '"', "*", "content:", "{", "^", "-", "+"]),
            max_size=8,
        ).map(" ".join),
    )
)
async def test_no_expression_raises_an_error(ada: Library, expression: str) -> None:
    if not (await ada.chats.list(1, 0)).total:
        await create_conversation(ada, "fox")
    assert (await match_messages(ada, expression)).is_complete


async def test_best_matches_come_first_up_to_the_limit(ada: Library) -> None:
    await create_conversation(ada, "tea " + "and much else " * 20, "tea tea tea", "tea and cake")
    page = await match_messages(ada, "tea")
    assert [hit.message.content[:9] for hit in page.hits] == ["tea tea t", "tea and c", "tea and m"]
    assert [hit.rank for hit in page.hits] == sorted(hit.rank for hit in page.hits)
    assert await contents(ada, "tea", limit=1) == ["tea tea tea"]


async def test_newest_matches_of_common_words_are_returned_unranked(open_libraries: OpenLibraries) -> None:
    async with open_libraries(search_ranked_rows_max=100) as libraries, libraries.library("ada") as ada:
        await create_conversation(ada, "tea tea tea", *(f"tea and {n}" for n in range(1_001)))
        page = await match_messages(ada, "tea", limit=2)
        assert ([hit.message.content for hit in page.hits], page.is_ranked) == (
            ["tea and 1000", "tea and 999"],
            False,
        )
        assert (await match_messages(ada, "tea AND 7")).is_ranked


async def test_search_can_be_restricted_to_a_conversation(ada: Library, ben: Library) -> None:
    first = await create_conversation(ada, "tea one")
    second = await create_conversation(ada, "tea two")
    await ada.chats.append(first, [MessageDraft(content="tea three")])
    assert sorted(await contents(ada, "tea", conversation_id=first)) == ["tea one", "tea three"]
    assert await contents(ada, "tea", conversation_id=second) == ["tea two"]
    assert await contents(ada, "tea", conversation_id="absent") == []
    assert await contents(ada, "tea", conversation_id="\ud800") == []
    assert await contents(ben, "tea", conversation_id=first) == []


async def test_snippet_has_twenty_words_with_the_matches_marked(ada: Library) -> None:
    words = [f"w{n}" for n in range(60)]
    await create_conversation(ada, " ".join([*words[:30], "brown", *words[30:]]))
    [hit] = (await match_messages(ada, "brown")).hits
    assert "<mark>brown</mark>" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet.split()) == 20


async def test_markup_in_a_snippet_is_escaped(ada: Library) -> None:
    content = "<script>alert('brown')</script> <mark>brown</mark> & \ue000\ue001 \"brown\""
    await create_conversation(ada, content)
    [hit] = (await match_messages(ada, "brown OR mark")).hits
    plain = hit.snippet.replace("<mark>", "").replace("</mark>", "")
    assert "<" not in plain
    assert hit.snippet.count("<mark>") == hit.snippet.count("</mark>") == 5
    assert "&lt;script&gt;alert(&#x27;<mark>brown</mark>&#x27;)" in hit.snippet
    assert "\ue000\ue001" in hit.snippet


async def test_hit_contains_the_title_and_whether_the_message_is_human_only(ada: Library) -> None:
    for metadata in ({}, {"visibility": "Human_Only"}, {"audience": " HUMAN"}, {"visibility": 1}, {"audience": "all"}):
        await create_conversation(ada, f"tea {metadata}", metadata=metadata)
    hits = (await match_messages(ada, "tea")).hits
    assert {hit.title for hit in hits} == {"Foxes"}
    is_human_only = {hit.message.number: hit.message.is_human_only for hit in hits}
    assert is_human_only == {1: False, 2: True, 3: True, 4: False, 5: False}


async def test_changes_are_visible_immediately(ada: Library) -> None:
    assert await contents(ada, "tea") == []
    conversation = await create_conversation(ada, "green tea", "black tea")
    first, second = (await ada.chats.messages(conversation, 2, 0)).rows
    await ada.chats.update_message(first.id, MessageDraft(content="coffee"))
    assert (await contents(ada, "tea"), await contents(ada, "coffee")) == (["black tea"], ["coffee"])
    await ada.chats.delete_message(second.id)
    assert await contents(ada, "tea") == []
    await ada.chats.delete(conversation)
    assert await contents(ada, "coffee") == []


@each_case(
    "expression",
    [
        " OR ".join(["a"] * 240),
        " OR ".join(f"a{n}*" for n in range(150)),
        "a " * 490,
        " OR ".join(["(a AND a)"] * 60),
        " + ".join(['"a"'] * 150),
        "NEAR(" + "a " * 480 + ", 9)",
    ],
)
async def test_expression_of_hundreds_of_phrases_is_searched_as_words(
    ada: Library, ben: Library, expression: str
) -> None:
    """FTS5 takes quadratic time for each of these, in steps that no deadline interrupts."""
    await create_conversation(ada, "a " * 20_000 + " ".join(f"a{n}" for n in range(40)))

    page = await match_messages(ada, expression)

    assert page.read_as is not None
    assert page.read_as.count(" AND ") < 32
    assert (await match_messages(ben, expression)).hits == ()


async def test_snippet_of_a_long_message_of_matches_is_found_quickly(ada: Library) -> None:
    """FTS5's own snippet needs minutes for this message."""
    await create_conversation(ada, "tea " * 500_000 + "with milk")
    [hit] = (await match_messages(ada, "tea AND milk")).hits
    assert hit.snippet.startswith("<mark>tea</mark> <mark>tea</mark>")


@each_case(
    ("expression", "content", "snippet"),
    [
        ("brown", "a brown fox", "a <mark>brown</mark> fox"),
        ('"quick brown" OR fox', "the quick brown fox", "the <mark>quick brown</mark> <mark>fox</mark>"),
        ("quick + brown", "the quick brown fox", "the <mark>quick</mark> <mark>brown</mark> fox"),
        ("bro*", "a broken, Brown cup", "a <mark>broken</mark>, <mark>Brown</mark> cup"),
        ('"a bro" *', "a broken cup", "<mark>a broken</mark> cup"),
        ("NEAR(quick fox, 3)", "quick 3 foxes: fox", "<mark>quick</mark> 3 foxes: <mark>fox</mark>"),
        ("content : cafe", "content of a CAFÉ", "content of a <mark>CAFÉ</mark>"),
        ("cafe", "e\u0301 cafe\u0301.", "e\u0301 <mark>cafe\u0301</mark>."),
        ("tea NOT milk", "tea & co", "<mark>tea</mark> &amp; co"),
        ("会议", "在会议室开会", "在<mark>会议</mark>室开会"),
        ("会议 v2", "v2会议", "<mark>v2</mark><mark>会议</mark>"),
    ],
)
async def test_snippet_marks_what_the_expression_matches(
    ada: Library, expression: str, content: str, snippet: str
) -> None:
    conversation = await create_conversation(ada, content)
    [hit] = (await match_messages(ada, expression, conversation_id=conversation)).hits
    assert hit.snippet == snippet


async def test_snippet_shows_a_match_deep_in_a_long_message(ada: Library) -> None:
    await create_conversation(ada, "lorem ipsum dolor " * 20_000 + "The Galleon sailed. " + "sit amet " * 20_000)
    [hit] = (await match_messages(ada, "galleon")).hits
    assert "<mark>Galleon</mark> sailed." in hit.snippet
    assert len(hit.snippet.split()) == 20
