"""Sources that fail, hang or answer nonsense: the others' hits arrive, and the answer says what happened."""

import asyncio
import math
from typing import Any

import pytest
from msgspec.structs import replace

from config.errors import DiskFull, InvalidParams, SourceTimeout, StorageError, Unavailable
from sources.items import ResultItem, SearchResponse
from sources.source import Match, Matches, as_matches
from tests.aggregator.shelves import (
    BareLibrary,
    FailingShelf,
    GarbageShelf,
    HangingLibrary,
    HangingShelf,
    Shelf,
    StubbornShelf,
    hit,
    open_libraries,
    uris,
)

NAMES = ("notes", "media", "chats", "characters", "prompts")


def sound(*names: str) -> list[Shelf]:
    return [Shelf(name, [hit(name, number) for number in range(3)]) for name in names]


ERRORS = {
    "storage": (StorageError("the file is damaged"), "error", "the file is damaged"),
    "disk": (DiskFull(), "error", "the disk is full; nothing was written"),
    "engine deadline": (SourceTimeout("notes", 20), "timeout", "notes did not respond within 20 ms"),
    "capacity": (Unavailable("too many reads"), "error", "too many reads"),
    "refusal": (InvalidParams("query: too odd"), "error", "query: too odd"),
    "bug": (ZeroDivisionError("secret: /home/ada/x.db"), "error", "failed unexpectedly"),
    "cancelled itself": (asyncio.CancelledError(), "error", "failed unexpectedly"),
}


@pytest.mark.parametrize("broken", NAMES)
@pytest.mark.parametrize("kind", list(ERRORS))
async def test_a_failing_source_costs_its_own_hits_and_is_told(broken: str, kind: str) -> None:
    error, status, sentence = ERRORS[kind]
    others = [name for name in NAMES if name != broken]
    libraries = open_libraries(*sound(*others), FailingShelf(broken, error))

    answer = await libraries.make_search()

    assert len(answer.results) == 12
    report = answer.sources[broken]
    assert (report.status, report.error) == (status, sentence)
    assert {answer.sources[name].status for name in others} == {"ok"}


@pytest.mark.parametrize("late", NAMES)
async def test_a_hanging_source_is_left_out_at_the_deadline_and_let_go(late: str) -> None:
    hanging = HangingShelf(late)
    others = [name for name in NAMES if name != late]
    libraries = open_libraries(*sound(*others), hanging)

    answer = await libraries.make_search(deadline_ms=20)

    assert len(answer.results) == 12
    assert (answer.sources[late].status, answer.sources[late].error) == ("timeout", "did not respond within 20 ms")
    assert hanging.was_let_go


async def test_a_source_that_does_not_even_stop_holds_nobody_up() -> None:
    stubborn = StubbornShelf("media")
    answer = await asyncio.wait_for(open_libraries(*sound("notes"), stubborn).make_search(deadline_ms=20), 5)
    stubborn.end.set()

    assert len(answer.results) == 3
    assert answer.sources["media"].status == "timeout"


async def test_a_call_that_is_cancelled_lets_go_of_every_source() -> None:
    shelves = [HangingShelf(name) for name in NAMES]
    call = asyncio.create_task(open_libraries(*shelves).make_search())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)

    assert [shelf.was_let_go for shelf in shelves] == [True] * 5


EMPTY = SearchResponse(results=(), has_more=False, next_offset=None, total_estimated=0)
NONE = as_matches(EMPTY)


def told(*items: Any) -> Matches:
    """An answer with these hits, whatever they are."""
    return as_matches(replace(EMPTY, results=items))


def matched(**changes: Any) -> Matches:
    """An answer with one match that was changed, though what it shows is sound."""
    [match] = told(hit("media", 1)).found
    return replace(NONE, found=(replace(match, **changes),))


def unshowable(match: Match, topic: object) -> ResultItem:
    raise ZeroDivisionError


GARBAGE: dict[str, Any] = {
    "nothing": None,
    "a list": [1, 2],
    "text for hits": replace(NONE, found="abc"),
    "no match": replace(NONE, found=(7,)),
    "results of another": told(hit("notes", 1)),
    "no number": told(hit("media", 1, math.nan)),
    "a score above one": told(hit("media", 1, 7.0)),
    "a score below zero": told(hit("media", 1, -0.1)),
    "text for a score": matched(score="best"),
    "a date that is none": matched(last_modified=5),
    "no uri": matched(uri=None),
    "text for a version": matched(version="new"),
    "content nobody can compare": matched(content=[]),
    "content that only seems comparable": matched(content=("text", [])),
    "a number for a title": told(replace(hit("media", 1), title=5)),
    "tags nobody can write": told(replace(hit("media", 1), tags=object())),
    "text for a cost": told(replace(hit("media", 1), cost_tokens="much")),
    "no item": matched(hit="an item"),
    "more than was asked for": told(*(hit("media", n) for n in range(101))),
    "text for a total": replace(NONE, total_estimated="many"),
    "text for an offset": replace(NONE, has_more=True, next_offset="7"),
}


@pytest.mark.parametrize("kind", list(GARBAGE))
async def test_an_answer_that_makes_no_sense_is_a_failure_of_its_source(kind: str) -> None:
    answer = await open_libraries(*sound("notes"), GarbageShelf("media", GARBAGE[kind])).make_search()

    assert uris(answer) == ["notes://0", "notes://1", "notes://2"]
    assert (answer.sources["media"].status, answer.sources["media"].error) == ("error", "its answer could not be read")


async def test_a_source_that_cannot_show_its_hits_costs_them_alone() -> None:
    unable = replace(told(hit("media", 1), hit("media", 2)), show=unshowable)
    answer = await open_libraries(*sound("notes"), GarbageShelf("media", unable)).make_search()

    assert uris(answer) == ["notes://0", "notes://1", "notes://2"]
    assert (answer.sources["media"].status, answer.sources["media"].error) == ("error", "failed unexpectedly")
    assert (answer.has_more, answer.cut) == (False, False)


async def test_a_source_that_fails_between_pages_leaves_the_others_their_pages() -> None:
    notes = Shelf("notes", [hit("notes", number, 0.5) for number in range(8)])
    media = FailingShelf("media", StorageError("gone"), [hit("media", number, 0.9) for number in range(8)], after=1)
    libraries = open_libraries(notes, media, fanout_depth=4)

    answer = await libraries.make_search(limit=16)

    assert sorted(uris(answer)) == sorted([*(f"notes://{n}" for n in range(8)), *(f"media://{n}" for n in range(4))])
    assert (answer.sources["media"].status, answer.total_estimated) == ("error", None)


async def test_when_all_fail_the_answer_is_empty_and_says_why() -> None:
    answer = await open_libraries(*(FailingShelf(name, StorageError("gone")) for name in NAMES)).make_search()

    assert (answer.results, answer.has_more, answer.total_estimated) == ((), False, None)
    assert {report.error for report in answer.sources.values()} == {"gone"}


async def test_words_that_cannot_be_counted_do_not_keep_the_answer_from_being_explained() -> None:
    libraries = open_libraries(*sound("notes"), library=BareLibrary(StorageError("gone")))

    answer = await libraries.make_search(explain=True)

    assert answer.explain
    assert (len(answer.results), answer.explain.rows_with_term) == (3, None)


async def test_words_whose_counting_hangs_cost_the_explanation_their_numbers_and_nothing_else() -> None:
    answer = await open_libraries(*sound("notes"), library=HangingLibrary()).make_search(explain=True, deadline_ms=50)

    assert answer.explain
    assert (len(answer.results), answer.explain.rows_with_term) == (3, None)


# -- the breaker --------------------------------------------------------------------------------------------------


async def test_a_source_that_keeps_failing_is_passed_by_for_a_while_and_told() -> None:
    media = FailingShelf("media", StorageError("gone"))
    libraries = open_libraries(*sound("notes"), media, breaker_failures=2, breaker_pause_s=30)
    for _ in range(2):
        assert (await libraries.make_search(dedupe="off")).sources["media"].status == "error"

    libraries.clock.now = 1
    answer = await libraries.make_search(dedupe="off")

    assert answer.sources["media"].status == "skipped"
    assert answer.sources["media"].error == "passed by after repeated failures; asked again in 29 s"
    assert len(answer.results) == 3
    assert len(media.asked) == 2


async def test_after_the_pause_it_is_asked_again_and_one_more_failure_is_enough() -> None:
    media = FailingShelf("media", StorageError("gone"))
    libraries = open_libraries(media, breaker_failures=2, breaker_pause_s=30)
    for _ in range(2):
        await libraries.make_search()

    libraries.clock.now = 30
    assert (await libraries.make_search()).sources["media"].status == "error"
    assert (await libraries.make_search()).sources["media"].status == "skipped"


async def test_a_source_that_recovers_is_trusted_as_before() -> None:
    media = FailingShelf("media", StorageError("gone"))
    libraries = open_libraries(media, breaker_failures=2, breaker_pause_s=30)
    await libraries.make_search()
    media.error = None
    assert (await libraries.make_search()).sources["media"].status == "ok"

    media.error = StorageError("gone")
    await libraries.make_search()

    assert (await libraries.make_search()).sources["media"].status == "error"


async def test_one_users_failures_keep_no_source_from_another() -> None:
    media = FailingShelf("media", StorageError("gone"), [hit("media", 1)])
    libraries = open_libraries(media, breaker_failures=1, breaker_pause_s=30)
    await libraries.make_search(user="ada")
    media.error = None

    assert (await libraries.make_search(user="ada")).sources["media"].status == "skipped"
    assert uris(await libraries.make_search(user="ben")) == ["media://1"]


async def test_a_refused_query_does_not_count_as_a_failure() -> None:
    libraries = open_libraries(FailingShelf("media", InvalidParams("query: too odd")), breaker_failures=1)

    assert [(await libraries.make_search()).sources["media"].status for _ in range(3)] == ["error"] * 3
