"""Files that were imported completely and have not changed are not read again, unless requested."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import Settings
from sources.drafts import NoteDraft
from sources.importers.engine.discovery import discover
from sources.importers.engine.events import Checkpoint, ImportEvent, ReadPosition
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, ImportProgress, ProgressCallback, import_limits
from sources.importers.engine.summary import ImportSummary, OutcomeCounts
from sources.importers.registry import all_importers
from tests.sources.importers.line_format import Line, LineImporter, write_lines
from tests.sources.storage.library_fixture import LibraryFixture, open_library_fixture

SETTINGS = Settings()


class RecordingImporter(LineImporter):
    """Records which files it reads, and yields no checkpoints."""

    output_version = 1

    def __init__(self) -> None:
        self.files_read: list[str] = []

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        assert position is None
        self.files_read.append(path.name)
        events = super().read(path, limits, progress, None)
        return (event for event in events if not isinstance(event, Checkpoint))


class NewerImporter(RecordingImporter):
    output_version = 2


@pytest.fixture
def importer() -> RecordingImporter:
    return RecordingImporter()


def notes(*numbers: int) -> list[Line]:
    return [Line(note=NoteDraft(uuid=f"n{number}", title=f"Note {number}")) for number in numbers]


async def import_file(
    libraries: LibraryFixture,
    importer: Importer,
    path: Path,
    owner: str = "ada",
    *,
    rereads_unchanged: bool = False,
    progress: ImportProgress | None = None,
) -> ImportSummary:
    results = list(discover([path], import_limits(SETTINGS), [importer]))
    progress = progress or ImportProgress()
    async with libraries.library(owner) as library:
        return await run_import(library, results, SETTINGS, progress, rereads_unchanged=rereads_unchanged)


async def test_unchanged_file_is_counted_and_not_read(tmp_path: Path, importer: RecordingImporter) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2), Line(skip="empty message"))
    progress = ImportProgress()
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_file(libraries, importer, file)
        os.utime(file, (1, 1))
        second = await import_file(libraries, importer, file, progress=progress)

    assert importer.files_read == ["a.lines"]
    assert second == ImportSummary(files=1, kinds={"notes": OutcomeCounts(unchanged=2)}, skipped={"empty message": 1})
    assert (progress.items, progress.bytes_read) == (2, file.stat().st_size)


async def test_changed_file_is_read_again(tmp_path: Path, importer: RecordingImporter) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2))
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_file(libraries, importer, file)
        write_lines(file, *notes(1, 3))
        changed = await import_file(libraries, importer, file)
        unchanged = await import_file(libraries, importer, file)

    assert changed.kinds == {"notes": OutcomeCounts(new=1, unchanged=1)}
    assert unchanged.kinds == {"notes": OutcomeCounts(unchanged=2)}
    assert len(importer.files_read) == 2


async def test_unchanged_file_is_read_again_on_request(tmp_path: Path, importer: RecordingImporter) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1))
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_file(libraries, importer, file)
        async with libraries.library("ada") as ada:
            await ada.notes.purge("n1")
        default = await import_file(libraries, importer, file)
        requested = await import_file(libraries, importer, file, rereads_unchanged=True)

    assert default.kinds == {"notes": OutcomeCounts(unchanged=1)}
    assert requested.kinds == {"notes": OutcomeCounts(new=1)}


async def test_copy_newer_importer_and_other_user_read_the_file_again(
    tmp_path: Path, importer: RecordingImporter
) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1))
    copy = write_lines(tmp_path / "b.lines", *notes(1))
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_file(libraries, importer, file)
        await import_file(libraries, importer, copy)
        newer = NewerImporter()
        await import_file(libraries, newer, file)
        other = await import_file(libraries, importer, file, "ben")

    assert importer.files_read == ["a.lines", "b.lines", "a.lines"]
    assert newer.files_read == ["a.lines"]
    assert other.kinds == {"notes": OutcomeCounts(new=1)}


@pytest.mark.parametrize("line", [Line(note=NoteDraft(uuid="n2", title="\0")), Line(error="file is damaged")])
async def test_incompletely_imported_file_is_read_again(
    tmp_path: Path, importer: RecordingImporter, line: Line
) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1), line)
    async with open_library_fixture(tmp_path / "data") as libraries:
        first = await import_file(libraries, importer, file)
        second = await import_file(libraries, importer, file)

    assert len(importer.files_read) == 2
    assert first.failures == second.failures == 1
    assert second.problems == first.problems


def test_formats_that_skip_unchanged_files() -> None:
    names = {importer.name for importer in all_importers() if importer.output_version}
    assert names >= {"chatgpt", "claude_ai", "conversations", "documents", "own_export"}
    # Databases, files that grow and folders are always read.
    assert not names & {"tldw", "agentkit", "conversation_memory", "open_webui", "claude_code", "codex", "markdown"}
