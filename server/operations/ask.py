"""Asks a question about a library, and gets an answer with citations."""

from collections.abc import AsyncIterator

import msgspec

from auth.context import RequestContext
from server.asking.service import Answer, AnswerEvent, AskRequest, answer_question, collect_answer
from server.operations.operation import EVENT_STREAM, NOT_FOUND, CommandBinding, StreamedFile, operation
from server.services import Services

# No MCP tool answers questions, which is what the assistant is for: a key that is restricted to a profile may not ask.
_TOOLS = ("ask",)


@operation(
    "POST /api/v1/ask",
    tools=_TOOLS,
    error_statuses=NOT_FOUND,
    commands=(CommandBinding(name="ask", arguments=("question",), text="{answer}"),),
)
async def ask(context: RequestContext, services: Services, request: AskRequest) -> Answer:
    """Ask a question

    Answers a question from the user's own library: sentences, each with the passages that it cites. The question and
    its answer are kept as a conversation in the namespace ask; pass its conversation_id with the next question.
    """
    return await collect_answer(answer_question(context, services, request))


@operation("POST /api/v1/ask/stream", tools=_TOOLS, error_statuses=NOT_FOUND, response=EVENT_STREAM)
async def stream_answer(context: RequestContext, services: Services, request: AskRequest) -> StreamedFile:
    """Ask a question, and read the answer as it is made

    The same as ask, as server-sent events: `FoundCitations`, an `AnswerSentence` for every sentence, and `AnswerEnd`.
    """
    return StreamedFile(_events(answer_question(context, services, request)), EVENT_STREAM)


async def _events(events: AsyncIterator[AnswerEvent]) -> AsyncIterator[bytes]:
    async for event in events:
        yield b"event: %s\ndata: %s\n\n" % (type(event).__name__.encode(), msgspec.json.encode(event))
