"""The page of questions: a question, its answer with citations, and the questions before it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import urlencode

from msgspec import ValidationError, convert, structs
from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, InvalidParams, NotFound
from server.asking.evidence import ASK_NAMESPACE
from server.asking.model import Usage
from server.asking.service import QUESTION_MAX_CHARS, STOPPED, Answer, AnswerSentence, AskRequest, stored_sentences
from server.compat.agentkit import conversations, schemas
from server.compat.agentkit.chat.passages import EXTRACTIVE
from server.console.browser import see_other
from server.console.page_handler import LibraryPage, PersonalPage, Viewer
from server.console.pages import N_, PageForm, _, ngettext
from server.operations.ask import ModelChoice, ModelSettings, ask, get_ask_model, remove_ask_model, set_ask_model
from server.operations.operation import NoArguments

ASK_PATH = "/ask"
ASK_MODEL_PATH = "/ask/model"
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
        return await self._page(viewer, form, turns, error)

    async def ask(self, request: Request) -> Response:
        """Answers a question of the form. With a script, the page reads the answer from REST as it is made."""
        viewer, values = await self.admit_form(request, ask)
        question = values.get("question", "").strip()[:QUESTION_MAX_CHARS]
        form = AskForm(q=question, conversation=values.get("conversation", ""))
        if not question:
            return see_other(form.address())
        try:
            # A box that is not ticked is not sent, and neither is one that the page does not have.
            use_model = values.get("use_model") == "yes"
            asked = AskRequest(question=question, conversation_id=form.conversation or None, use_model=use_model)
            answer: Answer = await self.run(viewer, ask, asked)
        except FlorilegiumError as error:
            return await self._page(viewer, form, [], error)
        if answer.conversation_id is not None:
            # Reloading the page does not ask again.
            return see_other(f"{AskForm(conversation=answer.conversation_id).address()}#latest")
        citations = [structs.asdict(one) for one in answer.citations]
        turn = _turn(question, answer.sentences, citations, answer.model, answer.usage, answer.removed_citations)
        turn["notices"] = answer.notices
        return await self._page(viewer, AskForm(), [turn], None)

    async def _turns(self, viewer: Viewer, conversation_id: str) -> list[Mapping[str, Any]]:
        """Returns the questions and answers of a conversation."""
        read = schemas.ReadConversationRequest(conversation_id=conversation_id, messages_limit=_MESSAGES_MAX)
        conversation: schemas.ConversationDetail = await self.run(viewer, conversations.read_conversation, read)
        if conversation.namespace != ASK_NAMESPACE:
            raise NotFound("conversation", conversation_id[:60])
        if conversation.message_count > _MESSAGES_MAX:
            newest = structs.replace(read, messages_offset=conversation.message_count - _MESSAGES_MAX)
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
            usage, removed = None, 0
            with suppress(ValidationError):  # any program can write a conversation
                usage = convert(message.metadata.get("usage"), Usage | None)
                removed = convert(message.metadata.get("removed_citations", 0), int)
            turn = _turn(question, sentences, citations, message.model or EXTRACTIVE, usage, removed)
            if message.metadata.get(STOPPED) is True:
                turn["facts"].insert(0, _("Stopped"))
            turns.append(turn)
        return turns

    async def _page(
        self, viewer: Viewer, form: AskForm, turns: Sequence[Mapping[str, Any]], error: FlorilegiumError | None
    ) -> Response:
        model: ModelSettings | None = None
        with suppress(FlorilegiumError):  # a key for some sources may not see the account
            model = await self.run(viewer, get_ask_model, NoArguments())
        listing = schemas.ListConversationsRequest(limit=_EARLIER_MAX, namespace=ASK_NAMESPACE)
        earlier: schemas.ConversationList = await self.run(viewer, conversations.list_conversations, listing)
        return await self.render(
            viewer,
            "ask.html",
            status=200 if error is None else error.status,
            error="" if error is None else error.message,
            form=form,
            turns=turns,
            model=model,
            earlier=earlier.conversations,
            question_max_chars=QUESTION_MAX_CHARS,
            section="ask",
        )


def _turn(
    question: str,
    sentences: Sequence[AnswerSentence],
    citations: Sequence[Mapping[str, Any]],
    model: str,
    usage: Usage | None,
    removed_citations: int,
) -> dict[str, Any]:
    """Returns the values of a question and its answer."""
    # With the words to mark on the page of the item.
    addresses = {one["number"]: _with_words(str(one.get("url", "")), question) for one in citations}
    paragraphs: list[list[tuple[str, list[tuple[int, str]]]]] = []
    for sentence in sentences:
        if sentence.starts_paragraph or not paragraphs:
            paragraphs.append([])
        links = [(number, addresses[number]) for number in sentence.citations if number in addresses]
        paragraphs[-1].append((sentence.text, links))
    facts = [_("Quoted word for word") if model == EXTRACTIVE else model]
    if usage is not None:
        sent, written = f"{usage.prompt_tokens:,}", f"{usage.completion_tokens:,}"
        text = N_("about %(sent)s tokens sent, %(written)s written")
        if not usage.is_estimated:
            text = N_("%(sent)s tokens sent, %(written)s written")
        facts.append(_(text, sent=sent, written=written))
    if removed_citations:
        facts.append(
            ngettext("%(num)s invented citation removed", "%(num)s invented citations removed", removed_citations)
        )
    if uncited := sum(not one.citations for one in sentences):
        facts.append(ngettext("%(num)s sentence without a source", "%(num)s sentences without a source", uncited))
    return {
        "question": question,
        "paragraphs": paragraphs,
        "citations": [{**one, "address": addresses[one["number"]]} for one in citations],
        "facts": facts,
        "notices": (),
    }


def _with_words(url: str, question: str) -> str:
    """Returns the address on this server, whatever was stored. Any program can write a conversation."""
    path, mark, fragment = f"/items/{url.partition('/items/')[2]}".partition("#")
    return f"{path}{'&' if '?' in path else '?'}{urlencode({'find': question})}{mark}{fragment}"


class AskModelPage(PersonalPage):
    """The form for a language model of one's own."""

    done_sentences: ClassVar = {
        "saved": N_("The model is saved. Ask something to try it."),
        "removed": N_("The model and its key are deleted."),
    }

    async def show(self, request: Request) -> Response:
        return await self._page(await self.admit(request, get_ask_model))

    async def change(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, set_ask_model)
        if values.get("remove"):
            await self.run(viewer, remove_ask_model, NoArguments())
            return see_other(f"{ASK_MODEL_PATH}?done=removed")
        choice = ModelChoice(
            url=values.get("url", ""), model=values.get("model", ""), key=values.get("key", "").strip() or None
        )
        try:
            await self.run(viewer, set_ask_model, choice)
        except InvalidParams as error:
            return await self._page(viewer, error)
        return see_other(f"{ASK_MODEL_PATH}?done=saved")

    async def _page(self, viewer: Viewer, error: FlorilegiumError | None = None) -> Response:
        model: ModelSettings = await self.run(viewer, get_ask_model, NoArguments())
        shown = {"error": "" if error is None else error.message, "status": 200 if error is None else error.status}
        return await self.render(viewer, "ask-model.html", model=model, section="ask", **shown)
