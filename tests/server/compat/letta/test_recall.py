"""What `conversation_search` makes of dates, roles and limits, and how it writes messages down."""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.compat.letta.recall import (
    NOTHING_FOUND,
    SEPARATOR,
    LettaResult,
    Unreadable,
    as_letta,
    as_text,
    is_answer,
    read_end,
    read_limit,
    read_roles,
    read_start,
)
from sources.records import Message, MessageHit

TOOLS = {"conversation_search", "knowledge_search", "search", "msg_search"}
STORED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def said(content: str, title: str = "Python help", **more: Any) -> MessageHit:
    usual: dict[str, Any] = {
        "uuid": "41f0",
        "created_at": "2025-02-10T14:30:59.000Z",
        "last_modified": "2025-02-10T14:30:59.000Z",
        "version": 1,
        "client_id": "test",
        "content_hash": "",
        "conversation_id": "9b2e77aa-0000",
        "position": 0,
        "role": "user",
        "sender": "Ana",
    }
    return MessageHit(message=Message(**{**usual, "content": content, **more}), title=title)


# -- what is asked


@pytest.mark.parametrize(
    ("asked", "limit"),
    [(20, 20), (0, 1), (-3, 1), (500, 200), ("7", 7), ("many", 50), (None, 50), ([], 50), (2.9, 2), (float("inf"), 50)],
)
def test_a_limit_is_a_number_from_1_to_200_and_50_where_it_is_none(asked: Any, limit: int) -> None:
    assert read_limit(asked, 200) == limit


@pytest.mark.parametrize(
    ("asked", "roles"),
    [(None, ()), ((), ()), ("", ()), ("tool", ("tool",)), (("user", "assistant", "user"), ("user", "assistant"))],
)
def test_roles_are_a_list_or_one_name(asked: Any, roles: tuple[str, ...]) -> None:
    assert read_roles(asked) == roles


def test_wrong_roles_are_named_in_order_with_those_that_are_allowed() -> None:
    with pytest.raises(Unreadable) as refused:
        read_roles(("user", "system", "admin"))

    assert refused.value.message == "Invalid role(s): ['admin', 'system']. Allowed: user, assistant, tool."


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("2024-01-15", "2024-01-15T00:00:00.000Z", "2024-01-15T23:59:59.999Z"),
        ("2024-01-15T14:30:00", "2024-01-15T14:30:00.000Z", "2024-01-15T14:30:00.000Z"),
        ("2024-01-15T14:30Z", "2024-01-15T14:30:00.000Z", "2024-01-15T14:30:00.000Z"),
        ("2024-01-15T14:30:00+02:00", "2024-01-15T12:30:00.000Z", "2024-01-15T12:30:00.000Z"),
        ("2024-01-15T22:30:00-05:00", "2024-01-16T03:30:00.000Z", "2024-01-16T03:30:00.000Z"),
        ("", None, None),
        ("  ", None, None),
        (None, None, None),
    ],
)
def test_a_day_is_whole_and_a_time_without_offset_is_utc(asked: str | None, start: str, end: str) -> None:
    assert (read_start(asked), read_end(asked)) == (start, end)


@pytest.mark.parametrize(
    "text", ["yesterday", "2024-13-01", "2024-01-15T25:00", "0001-01-01T00:00:00+14:00", "01/02/24"]
)
def test_a_date_that_cannot_be_read_is_answered_with_the_form_of_one(text: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read_end(text)

    assert refused.value.message == (
        f"Invalid end_date format: {text}. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)"
    )


@given(day=st.dates(min_value=date(1, 1, 2)), text=st.text(max_size=30))
def test_every_day_is_read_and_every_text_is_read_or_refused(day: date, text: str) -> None:
    start, end = read_start(day.isoformat()), read_end(day.isoformat())

    assert start is not None
    assert end is not None
    assert STORED.fullmatch(start)
    assert start < end
    with suppress(Unreadable):
        moment = read_start(text)
        assert moment is None or STORED.fullmatch(moment)


@given(moment=st.datetimes(min_value=datetime(1000, 1, 1)), minutes=st.integers(-14 * 60, 14 * 60))  # noqa: DTZ001 - the offset is drawn beside it
def test_any_offset_names_the_moment_it_stands_for(moment: datetime, minutes: int) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000, year=min(moment.year, 9998))
    zoned = whole.replace(tzinfo=timezone(timedelta(minutes=minutes)))

    read = read_start(zoned.isoformat())

    assert read is not None
    assert datetime.fromisoformat(read) == zoned


# -- what is no answer


@pytest.mark.parametrize(
    "tool",
    [
        "conversation_search",
        "mcp__florilegium__knowledge_search",
        "florilegium:search",
        "mcp__florilegium__read",
        "knowledge.search",
        "kb.msg_search",
    ],
)
def test_what_our_own_tools_answered_is_no_answer(tool: str) -> None:
    assert not is_answer(said("asyncio", role="tool", tool=tool).message, TOOLS)


@pytest.mark.parametrize("tool", ["search", "mcp__web__search", "python", None, "search.web"])
def test_what_the_tools_of_others_answered_is(tool: str | None) -> None:
    assert is_answer(said("asyncio", role="tool", tool=tool).message, TOOLS)


def test_what_a_model_said_with_the_help_of_our_tools_is_an_answer() -> None:
    assert is_answer(said("asyncio", role="assistant", tool="knowledge_search").message, TOOLS)


def test_a_branch_that_was_left_is_no_answer() -> None:
    assert not is_answer(said("asyncio", is_canonical=False).message, TOOLS)


# -- as text


def test_a_message_is_a_block_with_its_minute_role_and_title() -> None:
    text = as_text([said("How do I run two coroutines?\n")], 2000, None)

    assert text == "[2025-02-10 14:30] user (conv: Python help)\nHow do I run two coroutines?"


def test_blocks_stand_apart_by_a_rule() -> None:
    assert as_text([said("one"), said("two")], 2000, None).count("\n\n---\n\n") == 1


def test_nothing_found_is_one_sentence() -> None:
    assert as_text([], 2000, None) == "No matching messages."


@pytest.mark.parametrize("title", ["", "  "])
def test_a_conversation_without_a_title_is_named_by_the_beginning_of_its_id(title: str) -> None:
    assert "(conv: 9b2e77aa)" in as_text([said("one", title)], 2000, None)


def test_a_message_without_time_or_role_says_so() -> None:
    assert as_text([said("one", created_at="", role="")], 2000, None).startswith("[(no time)] unknown (conv: ")


@pytest.mark.parametrize(("length", "shown"), [(2000, "x" * 2000), (2001, "x" * 2000 + "...")])
def test_a_long_message_is_cut(length: int, shown: str) -> None:
    assert as_text([said("x" * length)], 2000, None).partition("\n")[2] == shown


@pytest.mark.parametrize("hits", [[], [said("one")]])
def test_a_list_that_is_not_all_there_is_says_so_in_a_last_block(hits: list[MessageHit]) -> None:
    blocks = as_text(hits, 2000, "older messages were not looked at").split(SEPARATOR)

    assert blocks[-1] == "(older messages were not looked at)"
    assert blocks[0] == NOTHING_FOUND or hits


# -- as JSON


@pytest.mark.parametrize(
    ("passed", "ago"),
    [
        (timedelta(seconds=20), "0m ago"),
        (timedelta(minutes=59), "59m ago"),
        (timedelta(hours=23, minutes=59), "23h ago"),
        (timedelta(days=2), "2d ago"),
        (-timedelta(days=2), "0m ago"),
    ],
)
def test_letta_is_told_time_role_and_content(passed: timedelta, ago: str) -> None:
    now = datetime(2025, 2, 10, 14, 30, 59, tzinfo=UTC) + passed

    answer = as_letta([said("How?")], 2000, None, now)

    assert answer.message == "Showing 1 results:"
    assert answer.results == (
        LettaResult(timestamp="2025-02-10T14:30:59+00:00", time_ago=ago, role="user", content="How?"),
    )


def test_letta_is_told_that_nothing_was_found() -> None:
    answer = as_letta([], 2000, None, datetime.now(UTC))

    assert (answer.message, answer.results) == ("No results found.", ())


def test_letta_is_told_of_a_message_without_time() -> None:
    [result] = as_letta([said("How?", created_at="")], 2000, None, datetime.now(UTC)).results

    assert (result.timestamp, result.time_ago) == (None, None)
