"""A search of all sources on PostgreSQL: what it finds, and how many statements it needs."""

import asyncio
from typing import Any

import pytest

from aggregator.contract import KnowledgeSearch
from aggregator.search import Aggregator
from config.settings import Settings
from sessions.state import InProcessSessionStates, SessionStateLimits
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.query import parse
from sources.registry import SOURCES
from sources.storage import job_queue
from sources.storage.contract import Library, Search
from sources.storage.job_queue import CallGroup, JobGroup, job_group
from sources.storage.postgres.connection import LibraryConnection
from tests.sources.storage.library_fixture import LibraryFixture
from tests.sources.storage.postgres.conftest import OpenEngine

_LIMITS = SessionStateLimits(ttl_s=100, seen_max=1_000, queries_max=5, total_max=1_000, user_max=1_000)


def _aggregator(libraries: LibraryFixture) -> Aggregator:
    settings = Settings()
    sources = [create(settings.of_source(name)) for name, create in SOURCES.items()]
    return Aggregator(libraries.engine, sources, InProcessSessionStates(_LIMITS, libraries.clock), settings)


async def _fill(library: Library, owner: str) -> None:
    title = f"Lisbon of {owner}"
    await library.notes.create(NoteDraft(title=title, content="Trams in Lisbon"))
    await library.media.create(MediaDraft(title=title, content="A film about Lisbon"))
    await library.chats.create(ConversationDraft(title=title), [MessageDraft(role="user", content="Is Lisbon far?")])
    await library.characters.create(CharacterDraft(name=title, description="A guide in Lisbon"))
    await library.prompts.create(PromptDraft(name=title, user_prompt="Plan a day in Lisbon"))


async def _search(
    aggregator: Aggregator, libraries: LibraryFixture, owner: str, query: str = "Lisbon"
) -> list[tuple[str, str | None]]:
    context = libraries.context(owner, is_agent=True)
    response = await aggregator.search(context, KnowledgeSearch(query=query, dedupe="off"))
    assert {report.status for report in response.sources.values()} == {"ok"}
    return sorted((item.source, item.title) for item in response.results)


async def test_concurrent_searches_find_the_items_of_their_user(open_engine: OpenEngine) -> None:
    async with open_engine(options={"connections": 5}) as (_, libraries):
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                await _fill(library, owner)
        aggregator = _aggregator(libraries)
        owners = ("ada", "ben") * 5
        for owner, hits in zip(
            owners, await asyncio.gather(*(_search(aggregator, libraries, one) for one in owners)), strict=True
        ):
            assert [source for source, _ in hits] == ["characters", "chats", "media", "notes", "prompts"]
            assert {title for _, title in hits} == {f"Lisbon of {owner}"}


@pytest.mark.parametrize(
    ("earlier", "query", "expected_statements"),
    [
        # The beginning, and the counts, entries and rows of all sources; and the ends of this search and of the one
        # before, which come after their answers.
        ("Lisbon", "trams film", 4),
        # And the words of the library, the counts of those that are near, the text that has the spelling of one, the
        # evidence for it, and again the counts, entries and rows.
        ("Lisbon", "tramz film", 9),
        # The words of the library are in memory, and the evidence is counted together with the words of the query.
        ("tramz film", "lizbon film trams", 8),
    ],
)
async def test_a_search_runs_few_statements(
    open_engine: OpenEngine,
    earlier: str,
    query: str,
    expected_statements: int,
    monkeypatch: pytest.MonkeyPatch,
    statements_run: list[LibraryConnection],
) -> None:
    # On a busy machine too, no source runs alone.
    monkeypatch.setattr(job_queue, "_HELD_UP_MAX_S", 60.0)
    monkeypatch.setattr(job_queue, "_HELD_UP_SHARE", 60.0)
    async with open_engine() as (_, libraries):
        async with libraries.library("ada") as library:
            await _fill(library, "ada")
            await library.notes.create(NoteDraft(title="Evening", content="A film about trams"))
        aggregator = _aggregator(libraries)
        await _search(aggregator, libraries, "ada", earlier)
        before = len(statements_run)
        assert await _search(aggregator, libraries, "ada", query)
        assert len(statements_run) - before <= expected_statements


async def test_what_another_server_wrote_since_the_last_search_is_found(open_engine: OpenEngine) -> None:
    """A search keeps the words and the size of the library for the next one, unless something was written."""
    async with open_engine() as (_, here), open_engine() as (_, there):
        async with here.library("ada") as library:
            await _fill(library, "ada")
        aggregator = _aggregator(here)
        for _ in range(2):
            assert await _search(aggregator, here, "ada", "zeppelin") == []
            assert ("notes", "Lisbon of ada") in await _search(aggregator, here, "ada", "zeppelin trams film")

        async with there.library("ada") as library:
            note = await library.notes.create(NoteDraft(title="Airship", content="The zeppelin of 1937"))
            await library.characters.create(CharacterDraft(name="Captain", description="She flies a zeppelin"))
        found = [("characters", "Captain"), ("notes", "Airship")]
        assert await _search(aggregator, here, "ada", "zeppelin") == found

        async with there.library("ada") as library:
            await library.notes.delete(note.uuid)
        assert await _search(aggregator, here, "ada", "zeppelin") == found[:1]


async def test_what_is_read_ahead_is_what_each_source_finds_alone(open_engine: OpenEngine) -> None:
    queries = ("lisbon", "trams film", "tramz film", '"in lisbon"', "lisbon NOT film", "about* -trams", "xyzzyx")

    async def find(library: Library, source: str, query: str, call: CallGroup | None = None) -> list[tuple[Any, float]]:
        search = Search(query=parse(query), limit=20, offset=0, deadline_ms=30_000)
        with job_group(JobGroup(call=call)):
            page = await library.collection(source).search(search)
        return [(match.id, match.score) for match in page.matches]

    async with open_engine() as (_, libraries), libraries.library("ada") as library:
        await _fill(library, "ada")
        await library.notes.create(NoteDraft(title="Film", content="A film of trams, again in Lisbon"))
        for query in queries:
            call = CallGroup(60.0)
            together = await asyncio.gather(*(find(library, source, query, call) for source in SOURCES))
            assert together == [await find(library, source, query) for source in SOURCES]
