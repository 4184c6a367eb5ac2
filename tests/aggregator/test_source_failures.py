"""Sources that fail, hang or return invalid results lose their hits; the others are delivered."""

import asyncio
import gc
import math
from typing import Any

import pytest
from msgspec.structs import replace

from config.errors import (
    DatabaseUnavailable,
    DiskFull,
    FlorilegiumError,
    InvalidParams,
    Overloaded,
    SearchFailed,
    SourceTimeout,
    StorageError,
    Unavailable,
)
from sources.items import SearchResponse
from sources.source import SourceHits, hits_from_response
from tests.aggregator.aggregator_fixture import (
    FailingSource,
    FakeLibrary,
    FakeSource,
    HangingLibrary,
    HangingSource,
    InvalidSource,
    QueueingSource,
    UncancellableSource,
    UnrenderableSource,
    build_aggregator,
    result_item,
    uris,
)
from tests.cases import each_case

NAMES = ("notes", "media", "chats", "characters", "prompts")
WAIT_S = 60


def working(*names: str) -> list[FakeSource]:
    return [FakeSource(name, [result_item(name, number) for number in range(3)]) for name in names]


ERRORS = {
    "storage": (StorageError("the file is damaged"), "error", "the file is damaged"),
    "disk full": (DiskFull(), "error", DiskFull().message),
    "engine deadline": (SourceTimeout("notes", 20), "timeout", SourceTimeout("notes", 20).message),
    "server down": (DatabaseUnavailable(), "error", DatabaseUnavailable().message),
    "limit": (Unavailable("too many reads"), "error", "too many reads"),
    "overload": (Overloaded("too many calls"), "skipped", "too many calls"),
    "invalid query": (InvalidParams("query: too odd"), "error", "query: too odd"),
    "bug": (ZeroDivisionError("secret: /home/ada/x.db"), "error", "failed unexpectedly"),
    "cancelled itself": (asyncio.CancelledError(), "error", "failed unexpectedly"),
}


@each_case("failing", NAMES)
@each_case("kind", list(ERRORS))
async def test_failing_source_loses_only_its_own_hits_and_is_reported(failing: str, kind: str) -> None:
    error, status, message = ERRORS[kind]
    others = [name for name in NAMES if name != failing]
    fixture = build_aggregator(*working(*others), FailingSource(failing, error))

    response = await fixture.search(limit=20)

    assert len(response.results) == 12
    report = response.sources[failing]
    assert (report.status, report.error) == (status, message)
    assert {response.sources[name].status for name in others} == {"ok"}


@pytest.mark.parametrize("late", NAMES)
async def test_hanging_source_is_left_out_at_the_deadline_and_cancelled(late: str) -> None:
    hanging = HangingSource(late)
    others = [name for name in NAMES if name != late]

    response = await build_aggregator(*working(*others), hanging).search(limit=20, deadline_ms=20)

    assert len(response.results) == 12
    report = response.sources[late]
    assert (report.status, report.error) == ("timeout", "did not respond within 20 ms")
    assert hanging.was_cancelled.is_set()


async def test_source_that_ignores_cancellation_does_not_delay_the_response() -> None:
    uncancellable = UncancellableSource("media")
    fixture = build_aggregator(*working("notes"), uncancellable)

    response = await asyncio.wait_for(fixture.search(deadline_ms=20), WAIT_S)
    uncancellable.end.set()

    assert len(response.results) == 3
    assert response.sources["media"].status == "timeout"


async def test_cancelled_search_cancels_every_source() -> None:
    sources = [HangingSource(name) for name in NAMES]
    call = asyncio.create_task(build_aggregator(*sources).search())
    async with asyncio.timeout(WAIT_S):
        for source in sources:
            await source.started.wait()

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    async with asyncio.timeout(WAIT_S):
        for source in sources:
            await source.was_cancelled.wait()


async def test_cancelled_search_leaves_no_exception_of_a_source_behind(caplog: pytest.LogCaptureFixture) -> None:
    hanging = HangingSource("media")
    failing = FailingSource("notes", SourceTimeout("notes", 2000))
    call = asyncio.create_task(build_aggregator(failing, hanging).search())
    async with asyncio.timeout(WAIT_S):
        await hanging.started.wait()
    await asyncio.sleep(0)  # the other source fails

    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    # What refers to the tasks of the sources.
    del call, failing, hanging
    gc.collect()

    assert "never retrieved" not in caplog.text


EMPTY_RESPONSE = SearchResponse(results=(), has_more=False, next_offset=None, total_estimated=0)
NO_HITS = hits_from_response(EMPTY_RESPONSE)


def page_of(*items: Any) -> SourceHits:
    return hits_from_response(replace(EMPTY_RESPONSE, results=items))


def page_with_hit(**changes: Any) -> SourceHits:
    """A page with one hit that has the given changes; its item is valid."""
    [hit] = page_of(result_item("media", 1)).hits
    return replace(NO_HITS, hits=(replace(hit, **changes),))


INVALID_RESULTS: dict[str, Any] = {
    "None": None,
    "a list": [1, 2],
    "hits is a str": replace(NO_HITS, hits="abc"),
    "hit is an int": replace(NO_HITS, hits=(7,)),
    "items of another source": page_of(result_item("notes", 1)),
    "source does not match the URI": page_with_hit(source="notes"),
    "rank is a str": page_with_hit(rank="first"),
    "score is NaN": page_of(result_item("media", 1, math.nan)),
    "score above 1": page_of(result_item("media", 1, 7.0)),
    "score below 0": page_of(result_item("media", 1, -0.1)),
    "score is a str": page_with_hit(score="best"),
    "last_modified is an int": page_with_hit(last_modified=5),
    "uri is None": page_with_hit(uri=None),
    "version is a str": page_with_hit(version="new"),
    "content key is a list": page_with_hit(content_key=[]),
    "content key is an unhashable tuple": page_with_hit(content_key=("text", [])),
    "title is an int": page_of(replace(result_item("media", 1), title=5)),
    "tags cannot be encoded": page_of(replace(result_item("media", 1), tags=object())),
    "cost_tokens is a str": page_of(replace(result_item("media", 1), cost_tokens="much")),
    "rendered item is a str": page_with_hit(payload="an item"),
    "more hits than requested": page_of(*(result_item("media", n) for n in range(101))),
    "total_estimated is a str": replace(NO_HITS, total_estimated="many"),
    "next_offset is a str": replace(NO_HITS, has_more=True, next_offset="7"),
}


@each_case("kind", list(INVALID_RESULTS))
async def test_invalid_result_counts_as_a_failure_of_its_source(kind: str) -> None:
    fixture = build_aggregator(*working("notes"), InvalidSource("media", INVALID_RESULTS[kind]))

    response = await fixture.search()

    assert uris(response) == ["notes://0", "notes://1", "notes://2"]
    report = response.sources["media"]
    assert (report.status, report.error) == ("error", "returned an invalid result")


async def test_source_that_cannot_render_its_hits_loses_only_them() -> None:
    media = UnrenderableSource("media", [result_item("media", 1), result_item("media", 2)])

    response = await build_aggregator(*working("notes"), media).search()

    assert uris(response) == ["notes://0", "notes://1", "notes://2"]
    assert (response.sources["media"].status, response.sources["media"].error) == ("error", "failed unexpectedly")
    assert (response.has_more, response.cut) == (False, False)


async def test_source_that_fails_on_its_second_page_keeps_the_hits_of_its_first() -> None:
    notes = FakeSource("notes", [result_item("notes", number, 0.5) for number in range(8)])
    media_items = [result_item("media", number, 0.9) for number in range(8)]
    media = FailingSource("media", StorageError("gone"), media_items, after=1)

    response = await build_aggregator(notes, media, fanout_depth=4).search(limit=16)

    assert sorted(uris(response)) == sorted([*(f"notes://{n}" for n in range(8)), *(f"media://{n}" for n in range(4))])
    assert (response.sources["media"].status, response.total_estimated) == ("error", None)


async def test_if_all_sources_fail_the_search_fails_and_says_why() -> None:
    fixture = build_aggregator(*(FailingSource(name, StorageError(f"{name} is gone")) for name in NAMES))

    with pytest.raises(SearchFailed, match="no source could be searched: notes: notes is gone; media:") as raised:
        await fixture.search()

    assert raised.value.reports == {name: f"{name} is gone" for name in NAMES}
    assert (raised.value.status, raised.value.retry_after_s) == (503, 1.0)
    assert fixture.aggregator.outcomes == {"failed": 1}


async def test_if_all_sources_are_skipped_the_search_fails_until_one_may_be_tried() -> None:
    fixture = build_aggregator(
        *(FailingSource(name, StorageError("gone")) for name in NAMES), breaker_failures=1, breaker_pause_s=30
    )
    with pytest.raises(SearchFailed):
        await fixture.search()

    fixture.clock.now = 10
    with pytest.raises(SearchFailed, match="skipped after repeated failures; retry in 20 s") as raised:
        await fixture.search()

    assert raised.value.retry_after_s == 20


async def test_if_the_named_source_fails_the_search_fails() -> None:
    fixture = build_aggregator(*working("notes"), FailingSource("media", StorageError("gone")))

    with pytest.raises(SearchFailed, match="media: gone"):
        await fixture.search(sources=("media",))


async def test_if_all_sources_reject_the_query_that_is_the_callers_error() -> None:
    fixture = build_aggregator(*(FailingSource(name, InvalidParams("query: too odd")) for name in NAMES))

    with pytest.raises(InvalidParams, match="query: too odd"):
        await fixture.search()


async def test_no_hits_in_working_sources_is_no_failure() -> None:
    fixture = build_aggregator(FakeSource("notes"), FailingSource("media", StorageError("gone")))

    response = await fixture.search()

    assert response.results == ()
    assert fixture.aggregator.outcomes == {"partial": 1}


async def test_explanation_omits_word_counts_if_they_cannot_be_read() -> None:
    fixture = build_aggregator(*working("notes"), library=FakeLibrary(StorageError("gone")))

    response = await fixture.search(explain=True)

    assert response.explain
    assert (len(response.results), response.explain.rows_with_term) == (3, None)


async def test_explanation_omits_word_counts_if_counting_hangs() -> None:
    response = await build_aggregator(*working("notes"), library=HangingLibrary()).search(explain=True, deadline_ms=50)

    assert response.explain
    assert (len(response.results), response.explain.rows_with_term) == (3, None)


# -- circuit breaker -----------------------------------------------------------------------------------------------


async def test_source_is_skipped_for_a_while_after_repeated_failures() -> None:
    media = FailingSource("media", StorageError("gone"))
    fixture = build_aggregator(*working("notes"), media, breaker_failures=2, breaker_pause_s=30)
    for _ in range(2):
        assert (await fixture.search(dedupe="off")).sources["media"].status == "error"

    fixture.clock.now = 1
    response = await fixture.search(dedupe="off")

    assert response.sources["media"].status == "skipped"
    assert response.sources["media"].error == "skipped after repeated failures; retry in 29 s"
    assert len(response.results) == 3
    assert len(media.requests) == 2


async def test_one_more_failure_after_the_pause_starts_the_next_pause() -> None:
    media = FailingSource("media", StorageError("gone"))
    fixture = build_aggregator(*working("notes"), media, breaker_failures=2, breaker_pause_s=30)
    for _ in range(2):
        await fixture.search()

    fixture.clock.now = 30
    assert (await fixture.search()).sources["media"].status == "error"
    assert (await fixture.search()).sources["media"].status == "skipped"
    assert fixture.aggregator.open_circuits == {"media": 1}


async def test_success_resets_the_failure_count() -> None:
    media = FailingSource("media", StorageError("gone"))
    fixture = build_aggregator(*working("notes"), media, breaker_failures=2, breaker_pause_s=30)
    await fixture.search()
    media.error = None
    assert (await fixture.search()).sources["media"].status == "ok"

    media.error = StorageError("gone")
    await fixture.search()

    assert (await fixture.search()).sources["media"].status == "error"


async def test_failures_of_one_user_do_not_skip_the_source_for_another() -> None:
    media = FailingSource("media", StorageError("gone"), [result_item("media", 1)])
    fixture = build_aggregator(FakeSource("notes"), media, breaker_failures=1, breaker_pause_s=30)
    await fixture.search(user="ada")
    media.error = None

    assert (await fixture.search(user="ada")).sources["media"].status == "skipped"
    assert uris(await fixture.search(user="ben")) == ["media://1"]


@pytest.mark.parametrize(
    "error", [InvalidParams("query: too odd"), Overloaded("too many calls"), DatabaseUnavailable()]
)
async def test_what_is_not_the_fault_of_a_source_does_not_count_as_its_failure(error: FlorilegiumError) -> None:
    media = FailingSource("media", error)
    fixture = build_aggregator(*working("notes"), media, breaker_failures=1)

    for _ in range(3):
        await fixture.search()

    assert len(media.requests) == 3
    assert fixture.aggregator.open_circuits == {}


async def test_time_in_the_job_queue_does_not_count_against_the_deadline_of_a_source() -> None:
    media = QueueingSource("media", [result_item("media", 1)])
    fixture = build_aggregator(*working("notes"), media, breaker_failures=1)
    search = asyncio.create_task(fixture.search(deadline_ms=20))
    await asyncio.wait_for(media.waiting.wait(), WAIT_S)
    await asyncio.sleep(0.1)

    media.turn.set()

    assert (await asyncio.wait_for(search, WAIT_S)).sources["media"].status == "ok"
    assert fixture.aggregator.open_circuits == {}


async def test_source_that_hangs_after_it_waited_is_late() -> None:
    media = QueueingSource("media", hangs=True)
    fixture = build_aggregator(*working("notes"), media, breaker_failures=1, fanout_deadline_ms=20)
    search = asyncio.create_task(fixture.search())
    await asyncio.wait_for(media.waiting.wait(), WAIT_S)

    media.turn.set()

    assert (await asyncio.wait_for(search, WAIT_S)).sources["media"].status == "timeout"
    assert fixture.aggregator.open_circuits == {"media": 1}


async def test_source_that_exceeds_the_callers_own_short_deadline_has_not_failed() -> None:
    fixture = build_aggregator(*working("notes"), HangingSource("media"), breaker_failures=1)

    for _ in range(2):
        assert (await fixture.search(deadline_ms=20)).sources["media"].status == "timeout"

    assert fixture.aggregator.open_circuits == {}
