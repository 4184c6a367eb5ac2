"""The import runner: batches, counts, repeated and interrupted imports."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.errors import InvalidParams, SourceTimeout, TooLarge
from config.settings import Settings
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft, UpsertResult
from sources.importers.engine.discovery import DiscoveredFile, IgnoredFiles, discover
from sources.importers.engine.events import ImportEvent, ReadPosition
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportLimits, ImportProgress, ProgressCallback, import_limits
from sources.importers.engine.summary import ImportProblem, ImportSummary, OutcomeCounts
from sources.storage.collections.items import Notes
from sources.storage.contract import Library
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.sources.importers.line_format import HEADER, LINES, Line, LineImporter, write_lines
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_library_fixture, total_items

SMALL = build_settings(import_batch_items=3)


def notes(*numbers: int, text: str = "kettle") -> list[Line]:
    return [Line(note=NoteDraft(uuid=f"n{number}", title=f"Note {number}", content=text)) for number in numbers]


def chat(number: int, messages: int) -> Line:
    drafts = tuple(MessageDraft(uuid=f"m{number}-{index}", content=f"kettle {index}") for index in range(messages))
    return Line(chat=ConversationDraft(uuid=f"c{number}", title=f"Chat {number}"), messages=drafts)


class SignallingImporter(LineImporter):
    """Sets `reached` when it has read a number of events."""

    def __init__(self, events: int) -> None:
        self.reached = asyncio.Event()
        self._events = events
        self._loop = asyncio.get_running_loop()

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        for number, event in enumerate(super().read(path, limits, progress, position)):
            if number == self._events:
                self._loop.call_soon_threadsafe(self.reached.set)
            yield event


class UnsureImporter(LineImporter):
    name = "unsure"

    def recognizes(self, probe: FileProbe) -> float:
        return 0.5


async def import_files(
    libraries: LibraryFixture, *paths: Path, owner: str = "ada", settings: Settings = SMALL
) -> ImportSummary:
    results = list(discover(paths, import_limits(settings), [LINES]))
    async with libraries.library(owner) as library:
        return await run_import(library, results, settings, ImportProgress())


async def test_second_import_changes_only_what_changed(tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "a.lines", *notes(*range(10)), chat(1, 8), Line(skip="empty message"), Line(skip="empty message")
    )
    newer = write_lines(tmp_path / "b.lines", *notes(*range(9)), *notes(9, text="teapot"), chat(1, 9))
    async with open_library_fixture(tmp_path / "data") as libraries:
        first = await import_files(libraries, file)
        second = await import_files(libraries, newer)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            hits = (await ada.notes.search(make_search("teapot"))).hits
            stored = (await ada.chats.messages("c1", 20, 0)).rows
            assert await total_items(ben) == 0

    assert first.kinds == {
        "notes": OutcomeCounts(new=10),
        "chats": OutcomeCounts(new=1),
        "messages": OutcomeCounts(new=8),
    }
    assert (first.files, first.skipped, first.failures) == (1, {"empty message": 2}, 0)
    assert second.kinds["notes"] == OutcomeCounts(updated=1, unchanged=9)
    assert second.kinds["messages"] == OutcomeCounts(new=1, unchanged=8)
    assert [hit.id for hit in hits] == ["n9"]
    assert [(message.position, message.content) for message in stored] == [(n, f"kettle {n}") for n in range(9)]


async def test_failed_items_are_reported_with_their_location_and_the_rest_is_imported(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1), *notes(2, text="x" * 2_000), *notes(3))
    with file.open("ab") as appended:
        appended.write(b'{"note": 7}\n')
    settings = Settings(item_max_chars=1_000)
    async with open_library_fixture(tmp_path / "data", item_max_chars=1_000) as libraries:
        summary = await import_files(libraries, file, settings=settings)
    assert summary.kinds == {"notes": OutcomeCounts(new=2, refused=1)}
    assert summary.failed_items == 2
    assert [(problem.file, problem.location) for problem in summary.problems] == [
        ("a.lines", "line 4"),
        ("a.lines", "notes: 'Note 2' (n2)"),
    ]
    assert "expected at most 1000 characters, got 2000" in summary.problems[1].problem


async def test_items_before_a_file_error_are_kept_and_the_next_file_is_read(tmp_path: Path) -> None:
    half = write_lines(tmp_path / "a.lines", *notes(*range(5)), Line(error="file is damaged"), *notes(6))
    whole = write_lines(tmp_path / "b.lines", *notes(10))
    async with open_library_fixture(tmp_path / "data") as libraries:
        summary = await import_files(libraries, half, tmp_path / "absent.lines", whole)
    assert summary.kinds == {"notes": OutcomeCounts(new=6)}
    assert (summary.files, summary.failed_files) == (2, 2)
    assert [(problem.file, problem.problem) for problem in summary.problems] == [
        ("a.lines", "file is damaged"),
        (str(tmp_path / "absent.lines"), "no such file or folder; check the path"),
    ]


async def test_file_that_grew_is_read_from_the_last_checkpoint(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2))
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_files(libraries, file)
        write_lines(file, *notes(1, 2, 3))
        grown = await import_files(libraries, file)
        other = await import_files(libraries, file, owner="ben")
    assert grown.kinds == {"notes": OutcomeCounts(new=1)}
    assert other.kinds == {"notes": OutcomeCounts(new=3)}


async def test_dry_run_reads_everything_and_writes_nothing(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2), chat(1, 3))
    progress = ImportProgress()
    summary = await run_import(None, list(discover([file], import_limits(SMALL), [LINES])), SMALL, progress)
    assert summary.kinds == {
        "notes": OutcomeCounts(new=2),
        "chats": OutcomeCounts(new=1),
        "messages": OutcomeCounts(new=3),
    }
    assert (progress.items, progress.bytes_read, progress.bytes_total) == (6, file.stat().st_size, file.stat().st_size)


async def test_cancelled_import_keeps_whole_batches_and_is_completed_by_the_next(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(*range(50)))
    importer = SignallingImporter(20)
    async with open_library_fixture(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        discovered = DiscoveredFile(file, "a.lines", importer, 1)
        importing = asyncio.create_task(run_import(ada, [discovered], SMALL, ImportProgress()))
        await importer.reached.wait()
        importing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await importing
        imported = (await ada.notes.list(0, 0)).total
        rest = await import_files(libraries, file)
        assert (await ada.notes.list(0, 0)).total == 50
    assert 0 < imported < 50
    assert imported % 3 == 0
    # Reading resumed at the last checkpoint, and items after it were recognized.
    assert rest.kinds["notes"].new == 50 - imported
    assert rest.kinds["notes"].unchanged < imported


async def test_problems_beyond_the_limit_are_counted_and_not_listed(tmp_path: Path) -> None:
    file = tmp_path / "a.lines"
    file.write_bytes(HEADER + b"\n" + b"no line\n" * 20)
    async with open_library_fixture(tmp_path / "data") as libraries:
        summary = await import_files(libraries, file, settings=build_settings(import_problems_max=5))
    assert (summary.failed_items, len(summary.problems)) == (20, 5)


def test_folder_is_searched_and_links_out_of_it_are_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "in", tmp_path / "out"
    for parent in (folder / "sub", folder / ".hidden", outside):
        parent.mkdir(parents=True)
        write_lines(parent / "a.lines", *notes(1))
    (folder / "other.lines").write_bytes(b"something else")
    (folder / "picture.png").write_bytes(HEADER)
    (folder / "link.lines").symlink_to(outside / "a.lines")
    (folder / "near.lines").symlink_to(folder / "sub" / "a.lines")
    (folder / "kept.lines").symlink_to(folder / ".hidden" / "a.lines")
    (folder / "circle").symlink_to(folder)
    results = list(discover([folder], import_limits(SMALL), [LINES]))
    assert [result.name for result in results if isinstance(result, DiscoveredFile)] == [
        "in/kept.lines",
        "in/sub/a.lines",
    ]
    assert results[2:] == [
        IgnoredFiles("file not in lines format (.lines, .png)", 2),
        IgnoredFiles("symbolic link not followed", 3),
    ]


def test_most_confident_importer_reads_unless_one_is_named(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1))
    unsure = UnsureImporter()
    for importers in ([unsure, LINES], [LINES, unsure]):
        [discovered] = discover([file], import_limits(SMALL), importers)
        assert isinstance(discovered, DiscoveredFile)
        assert discovered.importer is LINES
    [named] = discover([file], import_limits(SMALL), [LINES, unsure], "unsure")
    assert isinstance(named, DiscoveredFile)
    assert named.importer is unsure
    with pytest.raises(InvalidParams, match="format: expected one of lines, unsure, got 'pdf'"):
        list(discover([file], import_limits(SMALL), [LINES, unsure], "pdf"))


def test_unsupported_and_oversized_files_are_reported(tmp_path: Path) -> None:
    unknown, large = tmp_path / "a.bin", tmp_path / "b.lines"
    unknown.write_bytes(b"\0")
    large.write_bytes(HEADER + b"x" * 2_000)
    limits = import_limits(Settings(import_max_bytes=1_024))
    problems = list(discover([unknown, large], limits, [LINES]))
    assert [problem.file for problem in problems if isinstance(problem, ImportProblem)] == ["a.bin", "b.lines"]
    assert isinstance(problems[1], ImportProblem)
    assert problems[1].problem == TooLarge("b.lines", 1_024).message


@each_case("limit", [{"batch_max_items": 10}, {"import_batch_chars": 1_024}])
async def test_long_conversation_is_written_in_parts_and_counted_once(tmp_path: Path, limit: dict[str, Any]) -> None:
    file = write_lines(tmp_path / "a.lines", chat(1, 100), chat(2, 0))
    async with open_library_fixture(tmp_path / "data", **limit) as libraries:
        summary = await import_files(libraries, file, settings=build_settings(**limit))
        async with libraries.library("ada") as ada:
            stored = (await ada.chats.messages("c1", 200, 0)).rows
    assert summary.kinds == {"chats": OutcomeCounts(new=2), "messages": OutcomeCounts(new=100)}
    assert [message.position for message in stored] == list(range(100))


class SlowNotes:
    """Times out if it is given more than a few drafts at a time."""

    def __init__(self, notes: Notes, drafts_max: int) -> None:
        self._notes = notes
        self._drafts_max = drafts_max

    async def upsert_many(self, drafts: Sequence[NoteDraft], *, keeps_edits: bool = False) -> Sequence[UpsertResult]:
        if len(drafts) > self._drafts_max:
            raise SourceTimeout("notes", 10)
        return await self._notes.upsert_many(drafts, keeps_edits=keeps_edits)


class SlowLibrary:
    def __init__(self, library: Library, drafts_max: int) -> None:
        self._library = library
        self.notes = SlowNotes(library.notes, drafts_max)

    def collection(self, source: str) -> Any:
        return self.notes if source == "notes" else self._library.collection(source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


async def test_batches_are_split_after_a_timeout(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(*range(20)))
    [discovered] = discover([file], import_limits(Settings()), [LINES])
    assert isinstance(discovered, DiscoveredFile)
    async with open_library_fixture(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        slow: Any = SlowLibrary(ada, 3)
        summary = await run_import(slow, [discovered], Settings(), ImportProgress())
        stuck: Any = SlowLibrary(ada, 0)
        with pytest.raises(SourceTimeout):
            await run_import(stuck, [replace(discovered, has_stable_path=False)], Settings(), ImportProgress())
        assert (await ada.notes.list(0, 0)).total == 20
    assert summary.kinds == {"notes": OutcomeCounts(new=20)}
