"""Questions and their extractive answers, over REST, the command line and the page without a script."""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from bench.answers import QUESTIONS, AnswerQuestion, normalise
from server.cli.local_library import fill_demo
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS
from tests.server.console.signed_in import HTML, csrf_token, open_page, page_text, session_cookie
from tests.server.rest.rest_client import JSON, RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser


async def ask(api: RestClient, question: str, user: str = "ada", status: int = 200, **more: Any) -> dict[str, Any]:
    body = msgspec.json.encode({"question": question, **more})
    response = await api.request("POST", "/api/v1/ask", user, JSON, body)
    assert response.status == status, response.body
    return dict(response.json())


async def test_answer_is_the_sentence_that_says_so_with_its_citation(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Boiler", "# Heating\n\nThe boiler hums. It was serviced on 4 May 2025. Tea is at five.")
    await ada.add_note("Garden", "The roses were pruned in March.")

    answer = await ask(api, "When was the boiler serviced?")

    [first, *_] = answer["sentences"]
    assert "serviced on 4 May 2025" in first["text"]
    cited = answer["citations"][first["citations"][0] - 1]
    assert (cited["uri"], cited["title"]) == (f"notes://{note}", "Boiler")
    assert cited["url"].startswith(f"{api.server.runtime.settings.base_url}/items/notes/{note}")
    assert "[1]" in answer["answer"]
    assert f"[1] Boiler (notes://{note})" in answer["answer"]
    assert answer["model"] == "extractive"


async def test_citation_opens_the_item_at_the_passage(api: RestClient, ada: LibraryUser) -> None:
    filler = "Nothing of interest happened on that day, and nobody wrote anything down. " * 80
    await ada.add_note("Diary", f"{filler}\n\nThe zeppelin landed behind the church.\n\n{filler}")

    [cited, *_] = (await ask(api, "Where did the zeppelin land?"))["citations"]
    page = await page_text(api, "/items/" + cited["url"].partition("/items/")[2].partition("#")[0])

    marked = re.search(r'<mark id="passage">(.*?)</mark>', page, re.DOTALL)
    assert marked is not None
    assert "zeppelin" in page[marked.start() : marked.start() + 4_000]


async def test_nobody_gets_answers_from_the_library_of_another_user(api: RestClient, ben: LibraryUser) -> None:
    await ben.add_note("Safe", "The code of the safe is 4711.")

    answer = await ask(api, "What is the code of the safe?", "ada")

    assert (answer["sentences"], answer["citations"]) == ([], [])
    assert answer["notices"] == ["Nothing in your library answers this question."]


async def test_conversation_is_kept_and_its_messages_are_no_evidence(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Boiler", "The boiler was serviced on 4 May 2025.")
    question = "When was the boiler serviced?"

    first = await ask(api, question)
    second = await ask(api, question, conversation_id=first["conversation_id"])

    assert second["conversation_id"] == first["conversation_id"]
    assert {one["source"] for one in (*first["citations"], *second["citations"])} == {"notes"}
    async with ada.libraries.library(ada.context) as library:
        conversation = await library.chats.get(first["conversation_id"])
        messages = (await library.chats.messages(conversation.id, 10, 0)).rows
    assert (conversation.namespace, conversation.title) == ("ask", question)
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    assert messages[1].citations[0]["uri"] == first["citations"][0]["uri"]


async def test_next_question_is_understood_by_the_one_before(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Boiler", "The boiler was serviced on 4 May 2025. Hanna Weber serviced it.")
    for number in range(12):
        await ada.add_note(f"Car {number}", "Otto did it, and who else did it nobody knows.")
    first = await ask(api, "When was the boiler serviced?")

    second = await ask(api, "And who did it?", conversation_id=first["conversation_id"])

    assert any("Hanna Weber" in one["text"] for one in second["sentences"])


async def test_earlier_conversations_do_not_hide_what_else_is_found(api: RestClient, ada: LibraryUser) -> None:
    """More of them than a page of results has."""
    async with ada.libraries.library(ada.context) as library:
        await library.chats.create_namespace("ask")
    for _ in range(30):
        await ada.add_chat("When was the boiler serviced?", "When was the boiler serviced?", namespace="ask")
    await ada.add_chat("Plumber", "I serviced the boiler on the fourth of May, as you asked me to do some time ago.")

    answer = await ask(api, "When was the boiler serviced?")

    assert {one["title"] for one in answer["citations"]} == {"Plumber"}


async def test_other_conversation_cannot_be_continued(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    own = await ada.add_chat("Voyage", "a galleon")
    await ben.add_note("Boiler", "The boiler was serviced on 4 May 2025.")
    foreign = (await ask(api, "When was the boiler serviced?", "ben"))["conversation_id"]

    for conversation_id in (own, foreign, "unknown"):
        await ask(api, "And now?", status=404, conversation_id=conversation_id)


async def test_credential_that_can_only_read_gets_an_answer_that_is_not_kept(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Boiler", "The boiler was serviced on 4 May 2025.")
    runtime = api.server.runtime
    _, key = await runtime.registry.create_key(ada.context.user_id, "reader", ("knowledge:read",))
    headers = {**JSON, "Authorization": f"Bearer {key}"}

    body = msgspec.json.encode({"question": "When was the boiler serviced?"})
    answer = (await api.request("POST", "/api/v1/ask", None, headers, body)).json()

    assert "4 May" in answer["sentences"][0]["text"]
    assert answer["conversation_id"] is None
    async with ada.libraries.library(ada.context) as library:
        assert (await library.chats.list(10, 0)).total == 0


async def test_answer_that_quotes_a_human_only_message_is_hidden_from_agents(api: RestClient, ada: LibraryUser) -> None:
    secret = MessageDraft(role="user", content="The safe opens with 4711.", metadata={"human_only": True})
    await ada.add_chat("Safe", secret)

    answer = await ask(api, "What does the safe open with?")

    assert "4711" in answer["answer"]
    found = await ada.call("knowledge_search", query="safe opens 4711", dedupe="off")
    assert "4711" not in str(found)
    read = await ada.call("chats_get", conversation_id=answer["conversation_id"], retrieval={"mode": "full"})
    assert "4711" not in read["content"]


@each_case("question", ["", "x" * 2_001])
async def test_question_without_or_with_too_many_characters_is_refused(api: RestClient, question: str) -> None:
    answer = await ask(api, question, status=400)
    assert "question" in answer["error"]["message"]


async def test_stream_has_the_citations_the_sentences_and_the_end(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Boiler", "The boiler was serviced on 4 May 2025.")

    body = msgspec.json.encode({"question": "When was the boiler serviced?"})
    response = await api.request("POST", "/api/v1/ask/stream", "ada", JSON, body)

    assert (response.header("content-type") or "").startswith("text/event-stream")
    names = re.findall(r"^event: (\w+)$", response.body.decode(), re.MULTILINE)
    assert names == ["FoundCitations", "AnswerSentence", "AnswerEnd"]


# -- the page ----------------------------------------------------------------------------------------------------------


async def post_question(api: RestClient, question: str, user: str = "ada", conversation: str = "") -> str:
    """Sends the form of the page, and returns the address that it leads to."""
    cookie = await session_cookie(api, user)
    token = csrf_token((await api.get("/ask", None, accept=HTML, cookie=cookie)).body.decode())
    fields = {"csrf_token": token, "question": question, "conversation": conversation, "use_model": "yes"}
    body = urlencode(fields).encode()
    headers = {"content_type": "application/x-www-form-urlencoded", "accept": HTML, "cookie": cookie}
    headers["origin"] = api.server.runtime.settings.base_url
    response = await api.request("POST", "/ask", None, headers, body)
    assert response.status == 303, response.body.decode()
    return response.header("location") or ""


async def test_page_shows_the_answer_without_a_script_and_escapes_it(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("<b>Boiler</b>", "The <script>boiler</script> was serviced on 4 May 2025, says [7].")

    location = await post_question(api, "When was the <i>boiler</i> serviced?")
    page = await page_text(api, location.partition("#")[0])

    assert "The &lt;script&gt;boiler&lt;/script&gt; was serviced on 4 May 2025, says [7]." in page
    assert "<h2>When was the &lt;i&gt;boiler&lt;/i&gt; serviced?</h2>" in page
    assert re.search(r'<a class="cite" href="/items/notes/[^"]+find=When[^"]*">\[1\]</a>', page)
    assert not re.search(r"<(b|i)>", page)


async def test_page_does_not_show_the_conversation_of_another_user(api: RestClient, ben: LibraryUser) -> None:
    await ben.add_note("Boiler", "The boiler was serviced on 4 May 2025.")
    location = await post_question(api, "When was the boiler serviced?", "ben")

    response = await open_page(api, location.partition("#")[0], "ada")

    assert response.status == 404
    assert "boiler" not in response.body.decode().partition("<main")[2].lower().replace("your question", "")


async def test_citation_that_another_program_stored_leads_to_no_other_server(api: RestClient, ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        await library.chats.create_namespace("ask")
    citation = {"number": 1, "uri": "x", "source": "notes", "title": "Trap", "url": "javascript:alert(1)"}
    trap = MessageDraft(role="assistant", content="Click. [1]\n\n[1] Trap (x)", citations=[citation])
    conversation = await ada.add_chat("Trap", "Where?", trap, namespace="ask")

    page = await page_text(api, f"/ask?conversation={conversation}")

    assert set(re.findall(r'class="cite" href="([^?"]*)', page)) == {"/items/"}
    assert "javascript:" not in page


# -- quality -----------------------------------------------------------------------------------------------------------

# Of the questions about the demo library, chosen by their position before anything was tuned: the first ten decided
# what was tried, and the second ten were kept to check it.
_CHOSEN = 3
_HELD_OUT = 7
_STEP = 9


@pytest.mark.slow("embeds the demo library")
async def test_ask_cites_a_passage_with_the_answer_for_eight_of_ten_questions(tmp_path: Path) -> None:
    questions = msgspec.convert(tomllib.loads(QUESTIONS.read_text())["question"], list[AnswerQuestion])
    async with open_rest_client(tmp_path, semantic_model="auto", semantic_timeout_ms=60_000, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        await fill_demo(ada.libraries, ada.context)
        await ada.libraries.embed(ada.context.user_id)
        answered = {}
        for first in (_CHOSEN, _HELD_OUT):
            cited = [(one, (await ask(api, one.ask))["citations"]) for one in questions[first::_STEP]]
            answered[first] = sum(
                any(one.is_answered_by(normalise(citation["text"])) for citation in citations)
                for one, citations in cited
            )
    assert answered[_CHOSEN] >= 8
    # With the smaller model of semantic search, the better one is not installed everywhere.
    assert answered[_HELD_OUT] >= 6


@pytest.mark.slow("asks 55 questions")
async def test_by_words_alone_ask_cites_the_answer_of_nine_of_ten_questions_that_share_words_with_it(
    tmp_path: Path,
) -> None:
    questions = msgspec.convert(tomllib.loads(QUESTIONS.read_text())["question"], list[AnswerQuestion])
    kept = [one for index, one in enumerate(questions) if index % _STEP not in (_CHOSEN, _HELD_OUT)]
    asked = [one for one in kept if not one.own_words]
    async with open_rest_client(tmp_path, semantic_model="off", **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        await fill_demo(ada.libraries, ada.context)
        cited = [(one, (await ask(api, one.ask))["citations"]) for one in asked]
    answered = [one for one, citations in cited if any(one.is_answered_by(normalise(c["text"])) for c in citations)]
    assert len(answered) >= 0.9 * len(asked)
