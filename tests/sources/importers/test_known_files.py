"""Files that came whole and have not changed are not read again, unless somebody asks for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.settings import Settings
from sources.drafts import NoteDraft
from sources.importers.engine.discovery import find
from sources.importers.engine.import_runner import ImportProgress, ImportSummary, OutcomeCounts, limits_of, run_import
from sources.importers.engine.imported_items import Checkpoint, ImportEvent, ReadPosition
from sources.importers.engine.importer import Importer, ImportLimits, ProgressCallback
from sources.importers.registry import importers
from tests.sources.importers.lines import LINES, Line, write_lines
from tests.sources.storage.library_fixture import LibraryFixture, open_sqlite

SETTINGS = Settings()


class Reader:
    """The format of the other tests without its marks, and the names of the files that it was given to read."""

    def __init__(self) -> None:
        self.read_files: list[str] = []
        self.importer = Importer(
            name="lines", title="", recognizes=LINES.recognizes, read=self._read, suffixes=LINES.suffixes, edition=1
        )

    def _read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        assert mark is None
        self.read_files.append(path.name)
        return (one for one in LINES.read(path, limits, progress, None) if not isinstance(one, Checkpoint))


@pytest.fixture
def reader() -> Reader:
    return Reader()


def notes(*numbers: int) -> list[Line]:
    return [Line(note=NoteDraft(uuid=f"n{number}", title=f"Note {number}")) for number in numbers]


async def take(
    libraries: LibraryFixture,
    importer: Importer,
    path: Path,
    owner: str = "ada",
    *,
    reads_again: bool = False,
    meter: ImportProgress | None = None,
) -> ImportSummary:
    founds = list(find([path], limits_of(SETTINGS), [importer]))
    async with libraries.library(owner) as library:
        return await run_import(library, founds, SETTINGS, meter or ImportProgress(), reads_again=reads_again)


async def test_a_file_that_is_the_same_is_counted_and_not_read(tmp_path: Path, reader: Reader) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2), Line(skip="empty"))
    meter = ImportProgress()
    async with open_sqlite(tmp_path / "data") as libraries:
        await take(libraries, reader.importer, file)
        os.utime(file, (1, 1))
        again = await take(libraries, reader.importer, file, meter=meter)

    assert reader.read_files == ["a.lines"]
    assert again == ImportSummary(files=1, kinds={"notes": OutcomeCounts(unchanged=2)}, skipped={"empty": 1})
    assert (meter.items, meter.bytes_read) == (2, file.stat().st_size)


async def test_what_is_new_in_a_file_comes(tmp_path: Path, reader: Reader) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1, 2))
    async with open_sqlite(tmp_path / "data") as libraries:
        await take(libraries, reader.importer, file)
        write_lines(file, *notes(1, 3))
        changed = await take(libraries, reader.importer, file)
        known = await take(libraries, reader.importer, file)

    assert changed.kinds == {"notes": OutcomeCounts(new=1, unchanged=1)}
    assert known.kinds == {"notes": OutcomeCounts(unchanged=2)}
    assert len(reader.read_files) == 2


async def test_a_file_is_read_again_when_asked_for(tmp_path: Path, reader: Reader) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1))
    async with open_sqlite(tmp_path / "data") as libraries:
        await take(libraries, reader.importer, file)
        async with libraries.library("ada") as ada:
            await ada.notes.purge("n1")
        kept_out = await take(libraries, reader.importer, file)
        brought_back = await take(libraries, reader.importer, file, reads_again=True)

    assert kept_out.kinds == {"notes": OutcomeCounts(unchanged=1)}
    assert brought_back.kinds == {"notes": OutcomeCounts(new=1)}


async def test_a_copy_elsewhere_another_edition_and_another_user_read_it_again(tmp_path: Path, reader: Reader) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1))
    copy = write_lines(tmp_path / "b.lines", *notes(1))
    async with open_sqlite(tmp_path / "data") as libraries:
        await take(libraries, reader.importer, file)
        await take(libraries, reader.importer, copy)
        await take(libraries, replace(reader.importer, edition=2), file)
        other = await take(libraries, reader.importer, file, "ben")

    assert reader.read_files == ["a.lines", "b.lines", "a.lines", "a.lines"]
    assert other.kinds == {"notes": OutcomeCounts(new=1)}


@pytest.mark.parametrize("line", [Line(note=NoteDraft(uuid="n2", title="\0")), Line(end="it ends here")])
async def test_a_file_that_did_not_come_whole_is_read_again(tmp_path: Path, reader: Reader, line: Line) -> None:
    file = write_lines(tmp_path / "a.lines", *notes(1), line)
    async with open_sqlite(tmp_path / "data") as libraries:
        first = await take(libraries, reader.importer, file)
        again = await take(libraries, reader.importer, file)

    assert len(reader.read_files) == 2
    assert first.missing == again.missing == 1
    assert again.problems == first.problems


def test_formats_of_one_file_that_take_long_to_read_are_known_again() -> None:
    known = {importer.name for importer in importers() if importer.edition}
    assert known == {"chatgpt", "claude_ai", "conversations", "documents", "own_export"}
