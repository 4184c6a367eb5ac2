"""Answers without a model: the best passages of the caller's own library, in the shape of OpenAI's chat completions."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import msgspec

from config.text import replace_unstorable
from server.compat.agentkit.chat.completion_stream import Completion
from server.compat.agentkit.chat.passages import EXTRACTIVE, Gathered
from server.compat.agentkit.chat.turns import Turn
from server.compat.agentkit.chat.wording import citations, extract

_CHARS_PER_TOKEN = 4


def extractive_completion(gathered: Gathered, question: str) -> Completion:
    answer = replace_unstorable(extract(gathered.passages))
    return Completion(
        turn=Turn(role="assistant", content=answer),
        model=EXTRACTIVE,
        finish_reason="stop",
        usage=_usage(question, answer),
    )


def completion_body(completion: Completion, gathered: Gathered, created: int) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": completion.turn.content, "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    told = {"choices": [choice], "usage": completion.usage, "citations": citations(gathered.passages)}
    return msgspec.json.encode(_envelope(_new_id(), "chat.completion", created) | told)


def completion_events(completion: Completion, gathered: Gathered, created: int) -> bytes:
    """The same as a stream of events; it is there at once, so it is sent at once."""
    head = _envelope(_new_id(), "chat.completion.chunk", created)
    return b"".join(_events(head, completion, gathered))


def _events(head: dict[str, Any], completion: Completion, gathered: Gathered) -> Iterator[bytes]:
    yield _event(head | {"choices": [_delta({"role": "assistant", "content": ""})]})
    yield _event(head | {"choices": [_delta({"content": completion.turn.content})]})
    last = {"choices": [_delta({}, "stop")], "citations": citations(gathered.passages)}
    yield _event(head | last)
    yield b"data: [DONE]\n\n"


def _delta(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _envelope(identity: str, kind: str, created: int) -> dict[str, Any]:
    return {"id": identity, "object": kind, "created": created, "model": EXTRACTIVE}


def _new_id() -> str:
    return f"chatcmpl-{uuid4().hex}"


def _usage(question: str, answer: str) -> dict[str, int]:
    """Estimates: there is no tokenizer where there is no model."""
    asked, answered = len(question) // _CHARS_PER_TOKEN + 1, len(answer) // _CHARS_PER_TOKEN + 1
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}
