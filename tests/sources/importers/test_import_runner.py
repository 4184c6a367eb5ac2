"""The intake: batches into a library, what became of everything, and imports that come again or were cut short."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.errors import InvalidParams, SourceTimeout, TooLarge
from config.settings import Settings
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft, UpsertResult
from sources.importers.engine.discovery import find
from sources.importers.engine.import_runner import (
    IgnoredFiles,
    ImportProblem,
    ImportProgress,
    ImportSummary,
    OutcomeCounts,
    limits_of,
    run_import,
)
from sources.importers.engine.imported_items import ImportEvent, ReadPosition
from sources.importers.engine.importer import DiscoveredFile, Importer, ImportLimits, ProgressCallback
from sources.storage.contract import Library, Notes
from tests.sources.importers.lines import HEADER, LINES, Line, write_lines
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite, total_items

SMALL = Settings(import_batch_items=3)


def notes(*numbers: int, text: str = "kettle") -> list[Line]:
    return [Line(note=NoteDraft(uuid=f"n{number}", title=f"Note {number}", content=text)) for number in numbers]


def chat(number: int, messages: int) -> Line:
    drafts = tuple(MessageDraft(uuid=f"m{number}-{place}", content=f"kettle {place}") for place in range(messages))
    return Line(chat=ConversationDraft(uuid=f"c{number}", title=f"Chat {number}"), messages=drafts)


async def take(
    libraries: LibraryFixture, *paths: Path, owner: str = "ada", settings: Settings = SMALL
) -> ImportSummary:
    founds = list(find(paths, limits_of(settings), [LINES]))
    async with libraries.library(owner) as library:
        return await run_import(library, founds, settings, ImportProgress())


async def test_everything_is_taken_once_and_the_next_time_nothing_changes(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(*range(10)), chat(1, 8), Line(skip="empty"), Line(skip="empty"))
    again = write_lines(tmp_path / "b.lines", *notes(*range(9)), *notes(9, text="teapot"), chat(1, 9))
    async with open_sqlite(tmp_path / "data") as libraries:
        first = await take(libraries, file)
        second = await take(libraries, again)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            found = await ada.notes.search(make_search("teapot"))
            stored = (await ada.chats.messages("c1", 20, 0)).rows
            assert await total_items(ben) == 0

    assert first.kinds == {
        "notes": OutcomeCounts(new=10),
        "chats": OutcomeCounts(new=1),
        "messages": OutcomeCounts(new=8),
    }
    assert (first.files, first.skipped, first.broken, first.unread) == (1, {"empty": 2}, 0, 0)
    assert second.kinds["notes"] == OutcomeCounts(updated=1, unchanged=9)
    assert second.kinds["messages"] == OutcomeCounts(new=1, unchanged=8)
    assert [hit.id for hit in found.hits] == ["n9"]
    assert [(one.position, one.content) for one in stored] == [(place, f"kettle {place}") for place in range(9)]


async def test_what_is_broken_is_told_with_its_place_and_the_rest_comes(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1), *notes(2, text="x" * 2_000), *notes(3))
    with file.open("ab") as lines:
        lines.write(b'{"note": 7}\n')
    settings = Settings(item_max_chars=1_000)
    async with open_sqlite(tmp_path / "data", item_max_chars=1_000) as libraries:
        summary = await take(libraries, file, settings=settings)
    assert summary.kinds == {"notes": OutcomeCounts(new=2, refused=1)}
    assert summary.broken == 2
    assert [(one.file, one.place) for one in summary.problems] == [
        ("a.lines", "line 4"),
        ("a.lines", "notes: 'Note 2' (n2)"),
    ]
    assert "expected at most 1000 characters, got 2000" in summary.problems[1].problem


async def test_a_file_that_fails_half_way_keeps_what_came_and_the_next_file_is_read(tmp_path: Path) -> None:
    half = write_lines(tmp_path / "a.lines", *notes(*range(5)), Line(end="it ends here"), *notes(6))
    whole = write_lines(tmp_path / "b.lines", *notes(10))
    async with open_sqlite(tmp_path / "data") as libraries:
        summary = await take(libraries, half, tmp_path / "absent.lines", whole)
    assert summary.kinds == {"notes": OutcomeCounts(new=6)}
    assert (summary.files, summary.unread) == (2, 2)
    assert [(one.file, one.problem) for one in summary.problems] == [
        ("a.lines", "it ends here"),
        ("absent.lines", "file 'absent.lines' not found"),
    ]


async def test_a_file_that_grew_is_read_from_where_it_ended(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2))
    async with open_sqlite(tmp_path / "data") as libraries:
        await take(libraries, file)
        write_lines(file, *notes(1, 2, 3))
        grown = await take(libraries, file)
        other = await take(libraries, file, owner="ben")
    assert grown.kinds == {"notes": OutcomeCounts(new=1)}
    assert other.kinds == {"notes": OutcomeCounts(new=3)}


async def test_a_rehearsal_reads_everything_and_writes_nothing(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2), chat(1, 3))
    meter = ImportProgress()
    summary = await run_import(None, list(find([file], limits_of(SMALL), [LINES])), SMALL, meter)
    assert summary.kinds == {
        "notes": OutcomeCounts(new=2),
        "chats": OutcomeCounts(new=1),
        "messages": OutcomeCounts(new=3),
    }
    assert (meter.items, meter.bytes_read, meter.bytes_total) == (6, file.stat().st_size, file.stat().st_size)


async def test_an_import_that_is_cancelled_leaves_whole_batches_and_the_next_completes_it(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(*range(50)))
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read(
        path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        for place, arrival in enumerate(LINES.read(path, limits, progress, mark)):
            if place == 20:
                loop.call_soon_threadsafe(reached.set)
            yield arrival

    slow = Importer(name="lines", title="", recognizes=LINES.recognizes, read=read)
    async with open_sqlite(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        found = DiscoveredFile(file, "a.lines", slow, 1)
        importing = asyncio.create_task(run_import(ada, [found], SMALL, ImportProgress()))
        await reached.wait()
        importing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await importing
        cut = (await ada.notes.list(0, 0)).total
        rest = await take(libraries, file)
        assert (await ada.notes.list(0, 0)).total == 50
    assert 0 < cut < 50
    assert cut % 3 == 0
    # It went on at the last mark that was reached, and knew what stands behind it.
    assert rest.kinds["notes"].new == 50 - cut
    assert rest.kinds["notes"].unchanged < cut


async def test_problems_beyond_the_limit_are_counted_and_not_told(tmp_path: Path) -> None:
    file = tmp_path / "a.lines"
    file.write_bytes(HEADER + b"\n" + b"no line\n" * 20)
    async with open_sqlite(tmp_path / "data") as libraries:
        summary = await take(libraries, file, settings=Settings(import_problems_max=5))
    assert (summary.broken, len(summary.problems)) == (20, 5)


def test_a_folder_is_searched_for_what_somebody_reads_and_links_lead_nowhere_else(tmp_path: Path) -> None:
    folder, outside = tmp_path / "in", tmp_path / "out"
    for place in (folder / "sub", folder / ".hidden", outside):
        place.mkdir(parents=True)
        write_lines(place / "a.lines", *notes(1))
    (folder / "other.lines").write_bytes(b"something else")
    (folder / "picture.png").write_bytes(HEADER)
    (folder / "link.lines").symlink_to(outside / "a.lines")
    (folder / "near.lines").symlink_to(folder / "sub" / "a.lines")
    (folder / "circle").symlink_to(folder)
    found = list(find([folder], limits_of(SMALL), [LINES]))
    assert [one.name for one in found if isinstance(one, DiscoveredFile)] == ["in/near.lines", "in/sub/a.lines"]
    assert found[2:] == [IgnoredFiles("files of another format than lines (.lines, .png)", 2)]


def test_the_surest_importer_reads_and_a_named_one_is_not_asked(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1))
    unsure = Importer(name="unsure", title="", recognizes=lambda _: 0.5, read=LINES.read)
    for offered in ([unsure, LINES], [LINES, unsure]):
        [found] = find([file], limits_of(SMALL), offered)
        assert isinstance(found, DiscoveredFile)
        assert found.importer.name == "lines"
    [asked] = find([file], limits_of(SMALL), [LINES, unsure], "unsure")
    assert isinstance(asked, DiscoveredFile)
    assert asked.importer.name == "unsure"
    with pytest.raises(InvalidParams, match="format: got 'pdf', expected one of lines, unsure"):
        list(find([file], limits_of(SMALL), [LINES, unsure], "pdf"))


def test_a_file_that_nobody_knows_or_that_is_too_large_is_told(tmp_path: Path) -> None:
    unknown, large = tmp_path / "a.bin", tmp_path / "b.lines"
    unknown.write_bytes(b"\0")
    large.write_bytes(HEADER + b"x" * 2_000)
    limits = limits_of(Settings(import_max_bytes=1_024))
    problems = list(find([unknown, large], limits, [LINES]))
    assert [one.file for one in problems if isinstance(one, ImportProblem)] == ["a.bin", "b.lines"]
    assert isinstance(problems[1], ImportProblem)
    assert problems[1].problem == TooLarge("b.lines", 1_024).message


@pytest.mark.parametrize("limit", [{"batch_max_items": 10}, {"import_batch_chars": 1_024}])
async def test_a_long_conversation_is_written_in_parts_and_counted_once(tmp_path: Path, limit: dict[str, Any]) -> None:
    file = write_lines(tmp_path / "a.lines", chat(1, 100), chat(2, 0))
    async with open_sqlite(tmp_path / "data", **limit) as libraries:
        summary = await take(libraries, file, settings=Settings(**limit))
        async with libraries.library("ada") as ada:
            stored = (await ada.chats.messages("c1", 200, 0)).rows
    assert summary.kinds == {"chats": OutcomeCounts(new=2), "messages": OutcomeCounts(new=100)}
    assert [one.position for one in stored] == list(range(100))


class SlowNotes:
    """Takes a few drafts within its deadline, and no more."""

    def __init__(self, notes: Notes, drafts_max: int) -> None:
        self._notes = notes
        self._drafts_max = drafts_max

    async def upsert_many(self, drafts: Sequence[NoteDraft]) -> Sequence[UpsertResult]:
        if len(drafts) > self._drafts_max:
            raise SourceTimeout("notes", 10)
        return await self._notes.upsert_many(drafts)


class SlowLibrary:
    def __init__(self, library: Library, drafts_max: int) -> None:
        self._library = library
        self.notes = SlowNotes(library.notes, drafts_max)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


async def test_a_library_that_is_slow_is_given_less_at_a_time(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(*range(20)))
    founds = list(find([file], limits_of(Settings()), [LINES]))
    async with open_sqlite(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        slow: Any = SlowLibrary(ada, 3)
        summary = await run_import(slow, founds, Settings(), ImportProgress())
        stuck: Any = SlowLibrary(ada, 0)
        with pytest.raises(SourceTimeout):
            await run_import(
                stuck,
                [replace(found, has_place=False) for found in founds if isinstance(found, DiscoveredFile)],
                Settings(),
                ImportProgress(),
            )
        assert (await ada.notes.list(0, 0)).total == 20
    assert summary.kinds == {"notes": OutcomeCounts(new=20)}
