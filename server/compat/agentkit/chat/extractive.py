"""Answers without a model: the best passages of the caller's library, formatted as OpenAI chat completions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from config.text import replace_unstorable
from server.compat.agentkit.chat.completion_parser import Completion
from server.compat.agentkit.chat.passages import EXTRACTIVE, ChatPassage
from server.compat.agentkit.chat.turns import ChatTurn
from server.compat.agentkit.chat.wording import citations, extractive_answer

_CHARS_PER_TOKEN = 4


def extractive_completion(passages: Sequence[ChatPassage], question: str) -> Completion:
    answer = replace_unstorable(extractive_answer(passages))
    return Completion(
        turn=ChatTurn(role="assistant", content=answer),
        model=EXTRACTIVE,
        finish_reason="stop",
        usage=_usage(question, answer),
        is_human_only=any(passage.is_human_only for passage in passages),
    )


def completion_body(completion: Completion, passages: Sequence[ChatPassage], created: int) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": completion.turn.content, "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    result = {"choices": [choice], "usage": completion.usage, "citations": citations(passages)}
    return msgspec.json.encode(_envelope("chat.completion", created) | result)


def completion_events(completion: Completion, passages: Sequence[ChatPassage], created: int) -> bytes:
    """Returns all events of the stream at once, because there is no model to wait for."""
    return b"".join(_events(_envelope("chat.completion.chunk", created), completion, passages))


def _events(envelope: dict[str, Any], completion: Completion, passages: Sequence[ChatPassage]) -> Iterator[bytes]:
    yield _event(envelope | {"choices": [_choice({"role": "assistant", "content": ""})]})
    yield _event(envelope | {"choices": [_choice({"content": completion.turn.content})]})
    yield _event(envelope | {"choices": [_choice({}, "stop")], "citations": citations(passages)})
    yield b"data: [DONE]\n\n"


def _choice(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _envelope(kind: str, created: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": created, "model": EXTRACTIVE}


def _usage(question: str, answer: str) -> dict[str, int]:
    """Estimates the token counts: without a model there is no tokenizer."""
    prompt_tokens, completion_tokens = len(question) // _CHARS_PER_TOKEN + 1, len(answer) // _CHARS_PER_TOKEN + 1
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
