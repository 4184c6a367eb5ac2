"""Search results as text and in Letta's JSON."""

from datetime import UTC, datetime, timedelta

from server.compat.letta.tools import NO_MATCHES, SEPARATOR, LettaRelevance, LettaResult, letta_response, render_text
from sources.records import MessageHit
from tests.cases import each_case
from tests.server.compat.letta.message_hits import message_hit

# Text


def test_message_is_a_block_with_time_role_and_title() -> None:
    text = render_text([message_hit("How do I run two coroutines?\n")], 2000, None)

    assert text == "[2025-02-10 14:30] user (conv: Python help)\nHow do I run two coroutines?"


def test_blocks_are_separated_by_a_rule() -> None:
    assert render_text([message_hit("one"), message_hit("two")], 2000, None).count("\n\n---\n\n") == 1


def test_no_hits_render_as_one_sentence() -> None:
    assert render_text([], 2000, None) == "No matching messages."


@each_case("title", ["", "  "])
def test_conversation_without_title_is_named_by_the_start_of_its_id(title: str) -> None:
    assert "(conv: 9b2e77aa)" in render_text([message_hit("one", title)], 2000, None)


def test_missing_time_or_role_is_marked() -> None:
    assert render_text([message_hit("one", created_at="", role="")], 2000, None).startswith(
        "[(no time)] unknown (conv: "
    )


@each_case(("length", "expected"), [(2000, "x" * 2000), (2001, "x" * 2000 + "...")])
def test_long_message_is_truncated(length: int, expected: str) -> None:
    assert render_text([message_hit("x" * length)], 2000, None).partition("\n")[2] == expected


@each_case("hits", [[], [message_hit("one")]])
def test_note_is_the_last_block(hits: list[MessageHit]) -> None:
    blocks = render_text(hits, 2000, "older messages were not searched").split(SEPARATOR)

    assert blocks[-1] == "(older messages were not searched)"
    assert blocks[0] == NO_MATCHES or hits


# JSON


@each_case(
    ("age", "time_ago"),
    [
        (timedelta(seconds=12), "12s ago"),
        (timedelta(seconds=59, milliseconds=999), "59s ago"),
        (timedelta(seconds=60), "1m ago"),
        (timedelta(minutes=59), "59m ago"),
        (timedelta(hours=23, minutes=59), "23h ago"),
        (timedelta(days=2), "2d ago"),
        (-timedelta(days=2), "0s ago"),
    ],
)
def test_letta_result_has_time_role_and_content(age: timedelta, time_ago: str) -> None:
    now = datetime(2025, 2, 10, 14, 30, 59, tzinfo=UTC) + age

    response = letta_response([message_hit("How?")], "how", 2000, None, now)

    assert response.message == "Showing 1 results:"
    assert response.results == (
        LettaResult(
            timestamp="2025-02-10T14:30:59+00:00",
            time_ago=time_ago,
            role="user",
            relevance=LettaRelevance(rrf_score=1.0, fts_rank=1, search_mode="fts"),
            content="How?",
        ),
    )


def test_letta_response_without_hits_says_so() -> None:
    response = letta_response([], "how", 2000, None, datetime.now(UTC))

    assert (response.message, response.results) == ("No results found.", ())


def test_letta_result_without_time_has_null_times() -> None:
    [result] = letta_response([message_hit("How?", created_at="")], None, 2000, None, datetime.now(UTC)).results

    assert (result.timestamp, result.time_ago) == (None, None)
