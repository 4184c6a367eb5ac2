"""The page of questions: a question, its answer with citations, and the questions before it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, NotFound
from server.asking.cited_text import AnswerSentence, stored_sentences
from server.asking.evidence import ASK_NAMESPACE
from server.asking.service import QUESTION_MAX_CHARS, Answer, AskRequest
from server.compat.agentkit import conversations, schemas
from server.compat.agentkit.chat.passages import EXTRACTIVE
from server.console.browser import see_other
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import PageForm
from server.operations.ask import ask

ASK_PATH = "/ask"
# The newest turns of a conversation, and the earlier conversations next to it.
_MESSAGES_MAX = 40
_EARLIER_MAX = 20


class AskForm(PageForm, frozen=True, kw_only=True):
    path: ClassVar[str] = ASK_PATH
    field_max_chars: ClassVar[int] = QUESTION_MAX_CHARS

    q: str = ""
    conversation: str = ""


class AskPage(LibraryPage):
    async def show(self, request: Request) -> Response:
        form = AskForm.of(request)
        viewer = await self.admit(request, ask)
        turns: list[Mapping[str, Any]] = []
        error: FlorilegiumError | None = None
        try:
            if form.conversation:
                turns = await self._turns(viewer, form.conversation)
        except FlorilegiumError as problem:
            error, form = problem, AskForm(q=form.q)
        return await self._page(request, viewer, form, turns, error)

    async def ask(self, request: Request) -> Response:
        """Answers a question of the form. With a script, the page reads the answer from REST as it is made."""
        viewer, values = await self.admit_form(request, ask)
        question = values.get("question", "").strip()[:QUESTION_MAX_CHARS]
        form = AskForm(q=question, conversation=values.get("conversation", ""))
        if not question:
            return see_other(form.address())
        try:
            asked = AskRequest(question=question, conversation_id=form.conversation or None)
            answer: Answer = await self.run(viewer, ask, asked)
        except FlorilegiumError as error:
            return await self._page(request, viewer, form, [], error)
        if answer.conversation_id is not None:
            # Reloading the page does not ask again.
            return see_other(f"{AskForm(conversation=answer.conversation_id).address()}#latest")
        citations = [asdict(one) for one in answer.citations]
        turn = _turn(question, answer.sentences, citations, model=answer.model, notices=answer.notices)
        return await self._page(request, viewer, AskForm(), [turn], None)

    async def _turns(self, viewer: Viewer, conversation_id: str) -> list[Mapping[str, Any]]:
        """Returns the questions and answers of a conversation."""
        read = schemas.ReadConversationRequest(conversation_id=conversation_id, messages_limit=_MESSAGES_MAX)
        conversation: schemas.ConversationDetail = await self.run(viewer, conversations.read_conversation, read)
        if conversation.namespace != ASK_NAMESPACE:
            raise NotFound("conversation", conversation_id[:60])
        if conversation.message_count > _MESSAGES_MAX:
            newest = replace(read, messages_offset=conversation.message_count - _MESSAGES_MAX)
            conversation = await self.run(viewer, conversations.read_conversation, newest)
        turns: list[Mapping[str, Any]] = []
        question = ""
        for message in conversation.messages:
            if message.role == "user":
                question = message.content
                continue
            citations = [one for one in message.citations or () if isinstance(one.get("number"), int)]
            numbers = [one["number"] for one in citations]
            sentences = stored_sentences(message.content, message.model, numbers)
            turns.append(_turn(question, sentences, citations, model=message.model or ""))
        return turns

    async def _page(
        self,
        request: Request,
        viewer: Viewer,
        form: AskForm,
        turns: Sequence[Mapping[str, Any]],
        error: FlorilegiumError | None,
    ) -> Response:
        listing = schemas.ListConversationsRequest(limit=_EARLIER_MAX, namespace=ASK_NAMESPACE)
        earlier: schemas.ConversationList = await self.run(viewer, conversations.list_conversations, listing)
        return await self.render(
            request,
            viewer,
            "ask.html",
            status=200 if error is None else error.status,
            error="" if error is None else error.message,
            form=form,
            turns=turns,
            earlier=earlier.conversations,
            question_max_chars=QUESTION_MAX_CHARS,
            section="ask",
        )


def _turn(
    question: str,
    sentences: Sequence[AnswerSentence],
    citations: Sequence[Mapping[str, Any]],
    *,
    model: str,
    notices: Sequence[str] = (),
) -> Mapping[str, Any]:
    """Returns the values of a question and its answer."""
    # With the words to mark on the page of the item.
    addresses = {one["number"]: _with_words(str(one.get("url", "")), question) for one in citations}
    paragraphs: list[list[tuple[str, list[tuple[int, str]]]]] = []
    for sentence in sentences:
        if sentence.starts_paragraph or not paragraphs:
            paragraphs.append([])
        links = [(number, addresses[number]) for number in sentence.citations if number in addresses]
        paragraphs[-1].append((sentence.text, links))
    return {
        "question": question,
        "paragraphs": paragraphs,
        "citations": [{**one, "address": addresses[one["number"]]} for one in citations],
        "model": "" if model == EXTRACTIVE else model,
        "notices": notices,
    }


def _with_words(url: str, question: str) -> str:
    """Returns the address on this server, whatever was stored. Any program can write a conversation."""
    path, mark, fragment = f"/items/{url.partition('/items/')[2]}".partition("#")
    return f"{path}{'&' if '?' in path else '?'}{urlencode({'find': question})}{mark}{fragment}"
