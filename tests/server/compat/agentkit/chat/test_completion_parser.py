"""Parsing of OpenAI's chat messages and completions."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from server.compat.agentkit.chat.turns import (
    CompletionStreamParser,
    TurnLimits,
    message_fingerprint,
    parse_completion,
    parse_turns,
)
from sources.records import Message
from tests.cases import each_case

LIMITS = TurnLimits(content_max_chars=1_000, metadata_max_bytes=1_000)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("choices", "message", "delta", "content", "index", "tool_calls")), inner)
    ),
    max_leaves=12,
)


def stream(*events: Any, end: bytes = b"\n\n") -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(event) + end for event in events) + b"data: [DONE]" + end


def delta(index: int = 0, **delta: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": index, "delta": delta}]}


def parse(body: bytes, cuts: Sequence[int] = (), max_bytes: int = 100_000) -> CompletionStreamParser:
    parser = CompletionStreamParser(LIMITS, max_bytes)
    positions = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    for start, stop in pairwise(positions):
        parser.feed(body[start:stop])
    return parser


@given(st.lists(st.integers(0, 10_000)), st.sampled_from((b"\n\n", b"\r\n\r\n", b"\r\r")))
def test_stream_parses_the_same_for_any_chunking(cuts: list[int], end: bytes) -> None:
    body = b": hello" + end + stream(delta(content="Sød"), delta(content="ium"), delta(1, content="no"), end=end)

    parser = parse(body, cuts)
    completion = parser.completion()

    assert (completion.turn.content, completion.model, completion.choice_count) == ("Sødium", "m-1", 2)
    assert parser.is_done
    assert completion.is_complete


def test_tool_call_fragments_are_joined() -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}}
    parts = [{"index": 0, "function": {"arguments": text}} for text in ('{"at":', ' "x"}')]

    turn = parse(stream(*(delta(tool_calls=[part]) for part in (first, *parts)))).completion().turn

    assert turn.tool_calls == (
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}},
    )


def test_end_marker_without_line_end_is_recognized() -> None:
    assert parse(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]').completion().is_complete


def test_interrupted_stream_is_incomplete() -> None:
    completion = parse(stream(delta(content="Sod"))[: -len("data: [DONE]\n\n")]).completion()

    assert (completion.turn.content, completion.is_complete) == ("Sod", False)


@each_case("chunk_bytes", [1, 5, 100])
def test_too_long_stream_is_truncated_and_marked(chunk_bytes: int) -> None:
    body = stream(*(delta(content="word ") for _ in range(50)))

    parser = parse(body, list(range(0, len(body), chunk_bytes)), max_bytes=1_000)

    completion = parser.completion()
    assert completion.turn.content.startswith("word word ")
    assert len(completion.turn.content) < 100
    assert completion.metadata["is_shortened"] is True
    assert completion.is_complete


@given(JSON, st.lists(st.integers(0, 200), max_size=3))
def test_any_json_is_parsed_without_an_exception(value: Any, cuts: list[int]) -> None:
    parse_completion(msgspec.json.encode(value), LIMITS)
    parse(stream(value), cuts).completion()
    parse_turns(value, LIMITS)


@each_case("body", [b"", b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b"\xff"])
def test_body_without_a_message_is_no_completion(body: bytes) -> None:
    assert parse_completion(body, LIMITS) is None


def test_text_parts_are_joined_and_other_parts_become_attachments() -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]

    [turn] = parse_turns([{"role": "user", "content": parts}], LIMITS)

    assert turn.content == "Look:"
    assert turn.attachments == (
        {"type": "image_url", "media_type": "image/png", "chars": 9_022},
        {"type": "image_url", "url": "https://example.com/a.png"},
    )


def test_unstorable_values_are_truncated_or_replaced() -> None:
    calls = [{"id": "c1", "function": {"name": "write", "arguments": "x" * 5_000}}]

    long, nul, calling = parse_turns(
        [
            {"role": "user", "content": "x" * 1_001},
            {"role": "developer", "content": "a\0b"},
            {"role": "assistant", "tool_calls": calls},
        ],
        LIMITS,
    )

    assert (len(long.content), long.metadata) == (1_000, {"is_shortened": True})
    assert (nul.role, nul.content) == ("system", "a\ufffdb")
    assert calling.tool_calls == ({"id": "c1", "function": {"name": "write"}},)


@given(st.sampled_from(("user", "assistant", "tool")), st.text(min_size=1, max_size=20), st.text(max_size=5))
def test_stored_message_has_the_fingerprint_of_its_turn(role: str, content: str, call: str) -> None:
    sent = {"role": role, "content": content, "tool_call_id": call, "tool_calls": [{"id": call}]}
    [turn] = parse_turns([sent], LIMITS)
    stored = Message(
        uuid="1",
        created_at="",
        last_modified="",
        version=1,
        client_id="",
        content_hash="",
        conversation_id="c",
        position=0,
        role=turn.role,
        sender=turn.role,
        content=turn.content,
        metadata=msgspec.json.decode(msgspec.json.encode(turn.metadata)),
    )

    assert message_fingerprint(stored) == turn.fingerprint
