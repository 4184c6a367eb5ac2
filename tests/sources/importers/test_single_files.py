"""Files of many formats in one folder: imported, searchable, recognized again, and visible to their owner only."""

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import NoteDraft
from sources.importers.engine.importer import Importer
from sources.importers.engine.summary import ImportSummary, OutcomeCounts
from tests.cases import each_case
from tests.sources.importers import test_character_cards, test_markdown, test_prompt_files, test_subtitles
from tests.sources.importers.office_files import PAGE, book, pdf, slides, word
from tests.sources.importers.single_files import (
    SINGLE_FILE_IMPORTERS,
    import_here,
    importer_for,
    read,
    read_draft,
    write,
)
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_library_fixture, titles, total_items

FILES = {
    "notes/tide.md": test_markdown.NOTE.encode(),
    "notes/plain.md": b"About kettles.",
    "prompts/review.md": test_prompt_files.MARKDOWN.encode(),
    "prompts/many.csv": test_prompt_files.CSV.encode(),
    "cards/wren.png": test_character_cards.SAMPLES["v2.png"],
    "talks/talk.vtt": test_subtitles.VTT.encode(),
    "talks/whisper.json": test_subtitles.WHISPER.encode(),
    "shelf/page.html": PAGE.encode(),
    "shelf/a.docx": word(),
    "shelf/a.pptx": slides(),
    "shelf/a.epub": book(),
    "shelf/a.pdf": pdf("Low water."),
    "shelf/a.txt": b"Plain words.",
    "photo.png": test_character_cards.png(),
    "package.json": b'{"name": "x", "version": "1"}',
}

# A file with one item for every format.
SAMPLES = {
    "markdown": ("a.md", b"# A"),
    "prompt_files": ("a.json", json.dumps({"name": "A", "user": "u"}).encode()),
    "character_cards": ("a.json", json.dumps(test_character_cards.V1).encode()),
    "subtitles": ("a.vtt", test_subtitles.VTT.encode()),
    "documents": ("a.txt", b"text"),
}


async def import_paths(libraries: LibraryFixture, owner: str, *paths: Path) -> ImportSummary:
    async with libraries.library(owner) as library:
        return await import_here(library, *paths, importers=SINGLE_FILE_IMPORTERS)


async def test_touched_or_copied_files_do_not_overwrite_edits(tmp_path: Path) -> None:
    folder = tmp_path / "things"
    for name, data in FILES.items():
        write(folder / name, data)
    write(folder / "vault" / "x.md", "Kohlrabi.")
    (folder / "vault" / ".obsidian").mkdir()
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_paths(libraries, "ada", folder / "vault", folder)
        async with libraries.library("ada") as ada:
            [hit] = (await ada.notes.search(make_search("kohlrabi"))).hits
            edited = await ada.notes.update(str(hit.id), NoteDraft(content="Edited here."))
        for path in folder.rglob("*.*"):
            os.utime(path, (1, 1))
        touched = await import_paths(libraries, "ada", folder / "vault", folder)
        copy = shutil.copytree(folder / "vault", tmp_path / "copy" / "vault", copy_function=shutil.copyfile)
        copied = await import_paths(libraries, "ada", Path(copy))
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            assert await ada.notes.get(str(hit.id)) == edited
            assert await total_items(ben) == 0

    assert all(counts == OutcomeCounts(unchanged=counts.total) for counts in touched.kinds.values())
    assert copied.kinds == {"notes": OutcomeCounts(unchanged=1)}


async def test_folder_of_many_formats_is_imported_once(tmp_path: Path) -> None:
    folder = tmp_path / "things"
    for name, data in FILES.items():
        write(folder / name, data)
    async with open_library_fixture(tmp_path / "data") as libraries:
        first = await import_paths(libraries, "ada", folder)
        second = await import_paths(libraries, "ada", folder)
        write(folder / "notes/plain.md", "About teapots.")
        third = await import_paths(libraries, "ada", folder)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            notes, media = (
                await ada.notes.search(make_search("teapots")),
                await ada.media.search(make_search("low water")),
            )
            spoken = (await ada.media.search(make_search('"The tide is out"'))).hits
            assert await total_items(ben) == 0

    assert {kind: counts.new for kind, counts in first.kinds.items()} == {
        "notes": 2,
        "prompts": 3,
        "characters": 1,
        "media": 8,
    }
    assert (first.failures, first.problems) == (0, [])
    assert first.skipped == {"unsupported file (.json, .png)": 2}
    assert all(counts == OutcomeCounts(unchanged=counts.total) for counts in second.kinds.values())
    assert third.kinds["notes"] == OutcomeCounts(updated=1, unchanged=1)
    assert titles(notes) == ["plain"]
    assert {hit.media_type for hit in media.hits} >= {"html", "docx", "epub", "pdf"}
    assert [hit.start_ms for hit in spoken if hit.title == "talk"] == [1_000]


@each_case("importer", SINGLE_FILE_IMPORTERS)
def test_uploaded_file_is_identified_by_its_content(tmp_path: Path, importer: Importer) -> None:
    name, data = SAMPLES[importer.name]
    first, second = (write(tmp_path / folder / name, data) for folder in ("one", "two"))
    os.utime(second, (1, 1))
    other = write(tmp_path / "other" / name, data.replace(b"A", b"B") + b"\n")

    before = read_draft(importer, first, has_stable_path=False)

    assert read_draft(importer, second, has_stable_path=False) == before
    assert before.created_at is UNSET
    assert read_draft(importer, other, has_stable_path=False).uuid != before.uuid
    assert read_draft(importer, first).uuid != read_draft(importer, second).uuid


@each_case("importer", SINGLE_FILE_IMPORTERS)
def test_file_name_that_is_not_valid_text_is_accepted(tmp_path: Path, importer: Importer) -> None:
    name, data = SAMPLES[importer.name]
    path = Path(os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9" + Path(name).suffix.encode()))
    try:
        write(path, data)
    except OSError:
        pytest.skip("this file system does not allow such names")

    item = read_draft(importer, path)

    assert msgspec.json.encode(item)


@each_case(
    ("name", "data", "importer_name"),
    [
        ("a.docx", word(), "documents"),
        ("a.pptx", slides(), "documents"),
        ("a.epub", book(), "documents"),
        ("a.charx", test_character_cards.SAMPLES["v3.charx"], "character_cards"),
        ("a.zip", word(), None),
    ],
)
def test_truncated_archive_is_rejected_by_its_importer(
    tmp_path: Path, name: str, data: bytes, importer_name: str | None
) -> None:
    path = write(tmp_path / name, data[:-60])

    assert importer_for(path) == importer_name
    for importer in SINGLE_FILE_IMPORTERS:
        if importer.name == importer_name:
            with pytest.raises(InvalidParams, match="not a valid zip file"):
                read(importer, path)
