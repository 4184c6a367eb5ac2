"""Answers a question: finds passages, chooses or writes sentences that cite them, and keeps both as a conversation.

A language model writes the answer, if the operator or the user chose one (`model`). Otherwise, or if the model fails,
it is extractive: the sentences of the best passages that answer the question, word
for word (`sources.search.answers`).
"""

import re
from asyncio import CancelledError
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from uuid import uuid4

from loguru import logger
from msgspec import Meta, Struct, structs

from auth.context import WRITE, RequestContext
from config.errors import FlorilegiumError, NotFound
from config.numbers import replace_unstorable
from config.times import format_time
from server.asking.evidence import ASK_NAMESPACE, Evidence, extract_answer, find_evidence
from server.asking.model import ModelFailed, ModelStream, Usage, build_messages, find_endpoint, usage_of
from server.compat.agentkit.chat.passages import EXTRACTIVE
from server.console.markdown import without_markup
from server.services import Services
from server.tools.research import Permalinks
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Message
from sources.text.chunking import Sentence, sentences, title_from_text

# -- sentences and citations -------------------------------------------------------------------------------------------
# Answers as sentences that cite numbered passages, and as text.

# `[1]`, `[1, 2]`, `[1-3]`, and the brackets and carets of some models. Numbers have few digits: `[2024]` is a year.
_NUMBERS = r"\^?\d{1,3}(?:[\s,;–-]{1,3}\^?\d{1,3}){0,20}"
_CITATION = re.compile(rf"[ \t]?[\[【]({_NUMBERS})[\]】]")
# What a model writes can be anything, so that no pattern may need more than linear time.
_CITATION_AFTER_END = re.compile(
    rf"(?<![.!?…。！？])([.!?…。！？]++[\"'”’»)]*+)[ \t]*+((?:[ \t]?[\[【]{_NUMBERS}[\]】])+)(\s|$)"
)
_PARTIAL_CITATION = re.compile(r"[\[【][\d\s,;^–-]{0,60}\Z")
_SPACE_BEFORE_MARK = re.compile(r"(?<! ) ++([.!?…,;:])")
_RANGE_MAX = 20
_SENTENCE_MAX_CHARS = 2_000
_LAST_CITATION = re.compile(r"(.*) \[(\d+)\]", re.DOTALL)


class AnswerSentence(Struct, frozen=True, kw_only=True):
    """A sentence of the answer, or several that are quoted together. `citations` are the numbers of the passages that
    say so."""

    text: str
    citations: tuple[int, ...] = ()
    starts_paragraph: bool = False


class Citation(Struct, frozen=True, kw_only=True):
    """A passage. `url` opens its item at the passage."""

    number: int
    uri: str
    source: str
    title: str
    url: str
    text: str


def answer_text(answer: Sequence[AnswerSentence], citations: Sequence[Citation]) -> str:
    """Returns an answer as plain text, with a line for each passage that it cites."""
    text = ""
    for sentence in answer:
        marks = "".join(f"[{number}]" for number in sentence.citations)
        separator = "" if not text else "\n\n" if sentence.starts_paragraph else " "
        text += f"{separator}{sentence.text}{' ' if marks else ''}{marks}"
    lines = [f"[{one.number}] {' '.join(one.title.split())} ({one.uri})" for one in citations]
    return "\n\n".join([text, *(["\n".join(lines)] if lines else [])])


def stored_sentences(content: str, model: str | None, numbers: Collection[int]) -> tuple[AnswerSentence, ...]:
    """Reads what `answer_text` wrote back into sentences."""
    text = content.rpartition("\n\n")[0] if numbers else content
    if model != EXTRACTIVE:
        parser = CitedTextParser(numbers)
        return (*parser.feed(text), *parser.end())
    quoted = []
    for paragraph in filter(None, text.split("\n\n")):
        # Quotations may contain numbers in brackets of their own.
        match = _LAST_CITATION.fullmatch(paragraph)
        cited = (int(match[2]),) if match is not None and int(match[2]) in numbers else ()
        shown = match[1] if match is not None and cited else paragraph
        quoted.append(AnswerSentence(text=shown, citations=cited, starts_paragraph=True))
    return tuple(quoted)


class CitedTextParser:
    """Splits what a model writes into sentences with their citations, as it arrives.

    Citations of passages that were not found are removed and counted, and so are sentences that cite none."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers = frozenset(numbers)
        self._text = ""
        self._starts_paragraph = True
        self.removed_citations = 0
        self.uncited_sentences = 0

    async def read(self, fragments: AsyncIterator[str]) -> AsyncIterator[AnswerSentence]:
        async for fragment in fragments:
            for sentence in self.feed(fragment):
                yield sentence
        for sentence in self.end():
            yield sentence

    def feed(self, text: str) -> list[AnswerSentence]:
        """Returns the sentences that are complete: another one has begun after them."""
        # Citations that follow the end of a sentence belong to that sentence, so they are moved before its end.
        self._text = _CITATION_AFTER_END.sub(
            lambda match: f" {match[2].strip()}{match[1]}{match[3]}", self._text + text
        )
        # What may become a citation belongs to the sentence before it.
        partial = _PARTIAL_CITATION.search(self._text)
        end = partial.start() if partial is not None else len(self._text)
        *complete, last = [*sentences(self._text[:end])] or [Sentence(0, 0, is_heading=False)]
        start = last.start
        if end - start > _SENTENCE_MAX_CHARS:
            # A model can write without end.
            complete, start = [*complete, last], end
        found = [self._read(self._text[one.start : one.end]) for one in complete]
        self._text = self._text[start:]
        return [one for one in found if one is not None]

    def end(self) -> list[AnswerSentence]:
        """Returns the rest."""
        found = [self._read(self._text[one.start : one.end]) for one in sentences(self._text)]
        self._text = ""
        return [one for one in found if one is not None]

    def _read(self, part: str) -> AnswerSentence | None:
        cited: dict[int, None] = {}
        for match in _CITATION.finditer(part):
            for number in _cited_numbers(match[1]):
                if number in self._numbers:
                    cited[number] = None
                else:
                    self.removed_citations += 1
        text = without_markup(_SPACE_BEFORE_MARK.sub(r"\1", _CITATION.sub("", part)))
        starts_paragraph, self._starts_paragraph = self._starts_paragraph, part.rstrip(" ").endswith("\n")
        if not any(map(str.isalnum, text)):
            return None
        if not cited:
            self.uncited_sentences += 1
        return AnswerSentence(text=text, citations=tuple(cited), starts_paragraph=starts_paragraph)


def _cited_numbers(text: str) -> Iterator[int]:
    """Yields the numbers of `1`, `1, 2` and `1-3`. A long range is one number that was not found."""
    for part in re.split(r"[,;\s]+", text.strip(" ,;^")):
        first, _, last = part.replace("–", "-").partition("-")
        if first.isdecimal() and last.isdecimal() and 0 <= int(last) - int(first) <= _RANGE_MAX:
            yield from range(int(first), int(last) + 1)
        elif first.isdecimal():
            yield int(first)


# -- questions ---------------------------------------------------------------------------------------------------------

QUESTION_MAX_CHARS = 2_000
# Messages of a conversation that a further question is understood by.
_HISTORY_MAX_MESSAGES = 8
NOTHING_FOUND = "Nothing in your library answers this question."
NOT_KEPT = "The answer was not kept."
_VIA = {"via": "ask"}
# In the metadata of an answer that its reader stopped.
STOPPED = "stopped"


class AskRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    question: Annotated[str, Meta(min_length=1, max_length=QUESTION_MAX_CHARS, description="A question.")]
    conversation_id: Annotated[
        str | None, Meta(description="conversation_id of an earlier answer, which this question follows.")
    ] = None
    use_model: Annotated[
        bool, Meta(description="Let the language model answer, if there is one. Otherwise passages are quoted.")
    ] = True


class FoundCitations(Struct, frozen=True, kw_only=True):
    """The passages that the answer may cite. `conversation_id` is that of the conversation in which the answer will be
    kept, also if it is stopped after a sentence."""

    citations: tuple[Citation, ...]
    conversation_id: str | None = None


class AnswerEnd(Struct, frozen=True, kw_only=True):
    """`model` is `extractive` if no language model was used. `conversation_id` is missing if the answer was not kept.
    `notices` say what could not be done. `removed_citations` are those of passages that were not found, and
    `uncited_sentences` have no citation."""

    model: str
    conversation_id: str | None = None
    notices: tuple[str, ...] = ()
    usage: Usage | None = None
    removed_citations: int = 0
    uncited_sentences: int = 0


AnswerEvent = FoundCitations | AnswerSentence | AnswerEnd


class Answer(AnswerEnd, frozen=True, kw_only=True):
    """`answer` is the whole answer as text. `citations` are the passages that it cites."""

    answer: str
    sentences: tuple[AnswerSentence, ...]
    citations: tuple[Citation, ...]


async def answer_question(
    context: RequestContext, services: Services, request: AskRequest
) -> AsyncIterator[AnswerEvent]:
    """Yields the passages that may be cited, the sentences of the answer, and its end. Keeps the question and its
    answer if the caller may write. If the caller goes away before the end, the model is stopped, and what it has said
    is kept, marked as stopped."""
    requested_at = format_time(datetime.now(UTC))
    endpoint = await find_endpoint(context, services) if request.use_model else None
    # A model must not read messages that are hidden from agents, also of this conversation.
    reader = context if endpoint is None else structs.replace(context, is_agent=True)
    earlier = await _read_conversation(reader, services, request.conversation_id)
    previous = next((one.content for one in reversed(earlier) if one.role == "user"), "")
    found = await find_evidence(services, reader, request.question, previous)
    notices = [f"{name} could not be searched" for name in found.failed_sources]
    citations = cite(found.evidence, services.settings.base_url)
    sentences: list[AnswerSentence] = []
    end = AnswerEnd(model=EXTRACTIVE)
    hidden = {one.uri for one in found.evidence if one.is_human_only}
    # Known before anything is stored, so that a reader who stops the answer can continue the conversation.
    conversation_id = (request.conversation_id or str(uuid4())) if context.principal.has_scope(WRITE) else None
    keep = partial(_keep, context, services, request, conversation_id, requested_at, hidden, sentences)
    if endpoint is not None and found.evidence:
        yield FoundCitations(citations=citations, conversation_id=conversation_id)
        messages = build_messages(request.question, found.evidence, _history(earlier))
        stream = ModelStream(endpoint, services.settings, messages)
        parser = CitedTextParser(range(1, len(citations) + 1))

        def written() -> AnswerEnd:
            text = " ".join(one.text for one in sentences)
            name = (stream.completion.model if stream.completion is not None else None) or endpoint.model
            return AnswerEnd(
                model=name or "language model",
                usage=usage_of(stream.completion, messages, text),
                removed_citations=parser.removed_citations,
                uncited_sentences=parser.uncited_sentences,
            )

        try:
            async for sentence in parser.read(stream.fragments()):
                sentences.append(sentence)
                yield sentence
            if stream.is_cut:
                notices.append("The answer is incomplete: the model stopped in the middle, or wrote too much")
            elif not sentences:
                raise ModelFailed("sent an empty answer")
        except ModelFailed as error:
            notices.append(f"The language model {error}")
        except (GeneratorExit, CancelledError):
            if sentences:
                await services.run_in_background(keep(citations, written(), {STOPPED: True}))
            raise
        if sentences:
            end = written()
    if not sentences:
        # Without a model, or instead of one that failed.
        cited = await extract_answer(request.question, found)
        citations = cite([found.evidence[one.passage] for one in cited], services.settings.base_url)
        yield FoundCitations(citations=citations, conversation_id=conversation_id)
        for number, one in enumerate(cited, 1):
            sentences.append(AnswerSentence(text=without_markup(one.text), citations=(number,), starts_paragraph=True))
            yield sentences[-1]
        if not sentences:
            notices.append(NOTHING_FOUND)
    if conversation_id is not None and not await keep(citations, end):
        conversation_id = None
        notices.append(NOT_KEPT)
    yield structs.replace(end, conversation_id=conversation_id, notices=tuple(notices))


def _history(messages: Sequence[Message]) -> list[Mapping[str, str]]:
    """Returns earlier turns for the model, without citations: their numbers are those of other passages."""
    turns = []
    for message in messages:
        text = message.content
        if message.role == "assistant":
            numbers = [one["number"] for one in message.citations if isinstance(one.get("number"), int)]
            text = " ".join(one.text for one in stored_sentences(text, message.model, numbers))
        turns.append({"role": message.role, "content": text})
    return [one for one in turns if one["role"] in ("user", "assistant")]


async def collect_answer(events: AsyncIterator[AnswerEvent]) -> Answer:
    """Returns the whole answer."""
    citations: tuple[Citation, ...] = ()
    sentences: list[AnswerSentence] = []
    end: Mapping[str, Any] = {}
    async for event in events:
        match event:
            case FoundCitations():
                citations = event.citations
            case AnswerSentence():
                sentences.append(event)
            case AnswerEnd():
                end = structs.asdict(event)
    cited = _cited(sentences, citations)
    return Answer(answer=answer_text(sentences, cited), sentences=tuple(sentences), citations=cited, **end)


def cite(evidence: Sequence[Evidence], base_url: str) -> tuple[Citation, ...]:
    links = Permalinks(base_url)
    return tuple(
        Citation(
            number=number,
            uri=one.uri,
            source=one.source,
            title=one.title,
            url=links.of(one.uri, one.loc),
            text=one.text,
        )
        for number, one in enumerate(evidence, 1)
    )


# -- conversations -----------------------------------------------------------------------------------------------------


async def _read_conversation(
    context: RequestContext, services: Services, conversation_id: str | None
) -> Sequence[Message]:
    """Returns the last messages of a conversation with Ask."""
    if conversation_id is None:
        return ()
    async with services.libraries.library(context) as library:
        conversation = await library.chats.get(conversation_id)
        if conversation.namespace != ASK_NAMESPACE:
            raise NotFound("conversation", conversation_id[:60])
        skipped = max(0, conversation.message_count - _HISTORY_MAX_MESSAGES)
        return (await library.chats.messages(conversation_id, _HISTORY_MAX_MESSAGES, skipped)).rows


def _cited(sentences: Sequence[AnswerSentence], citations: Sequence[Citation]) -> tuple[Citation, ...]:
    numbers = {number for sentence in sentences for number in sentence.citations}
    return tuple(one for one in citations if one.number in numbers)


async def _keep(
    context: RequestContext,
    services: Services,
    request: AskRequest,
    conversation_id: str | None,
    requested_at: str,
    hidden: Collection[str],
    sentences: Sequence[AnswerSentence],
    citations: Sequence[Citation],
    end: AnswerEnd,
    more_metadata: Mapping[str, Any] = {},
) -> bool:
    """Stores a question and its answer. Returns False if they cannot be stored: an answer must reach its reader.
    `hidden` are the passages that agents may not read."""
    if conversation_id is None:  # the caller may not write
        return False
    cited = _cited(sentences, citations)
    metadata: dict[str, Any] = {**_VIA, **more_metadata}
    if any(one.uri in hidden for one in cited):
        metadata["human_only"] = True
    if end.usage is not None:
        metadata |= {"usage": structs.asdict(end.usage), "removed_citations": end.removed_citations}
    text = replace_unstorable(request.question)
    # Without the texts, which are in the library, and with addresses that outlive a change of the server's name.
    stored_citations = [
        {
            "number": one.number,
            "uri": one.uri,
            "source": one.source,
            "title": one.title,
            "url": f"/items/{one.url.partition('/items/')[2]}",
        }
        for one in cited
    ]
    drafts = (
        MessageDraft(role="user", content=text, metadata=_VIA, created_at=requested_at),
        MessageDraft(
            role="assistant",
            content=replace_unstorable(answer_text(sentences, cited)) or NOTHING_FOUND,
            model=end.model,
            citations=stored_citations,
            metadata=metadata,
        ),
    )
    try:
        async with services.libraries.library(context) as library:
            if request.conversation_id is not None:
                await library.chats.append(conversation_id, drafts)
            else:
                title = title_from_text(text)
                draft = ConversationDraft(
                    uuid=conversation_id, title=title, namespace=ASK_NAMESPACE, created_at=requested_at
                )
                await library.chats.create(draft, drafts)
    except FlorilegiumError as error:
        logger.warning("an answer was not kept: {}", type(error).__name__)
        return False
    return True
