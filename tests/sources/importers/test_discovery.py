"""What is found in a folder: what a format knows, what is broken and told, and what is of no format and counted."""

from pathlib import Path
from zlib import crc32

import pytest

from config.settings import Settings
from sources.importers.engine.discovery import find
from sources.importers.engine.import_runner import (
    DiscoveryResult,
    IgnoredFiles,
    ImportProblem,
    ImportProgress,
    ImportSummary,
    limits_of,
    run_import,
)
from sources.importers.engine.importer import DiscoveredFile
from sources.importers.registry import importers
from tests.sources.importers.chat_reading import zip_file
from tests.sources.importers.single_files import write

SETTINGS = Settings()
CONVERSATION = {"id": "c", "title": "Tea", "mapping": {}, "current_node": ""}
LOREBOOK = '{"entries": {"0": {"key": ["tea"], "comment": "steep"}}}'


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + crc32(kind + data).to_bytes(4, "big")


PICTURE = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes(13)) + chunk(b"IDAT", b"pixels") + chunk(b"IEND")


def found_in(*paths: Path, format_name: str | None = None) -> list[DiscoveryResult]:
    return list(find(paths, limits_of(SETTINGS), importers(), format_name))


def told_in(folder: Path) -> dict[str, str]:
    return {one.file: one.problem for one in found_in(folder) if isinstance(one, ImportProblem)}


async def rehearsed(*paths: Path, settings: Settings = SETTINGS) -> ImportSummary:
    founds = list(find(paths, limits_of(settings), importers()))
    return await run_import(None, founds, settings, ImportProgress())


def whole_zip(path: Path) -> bytes:
    return zip_file(path, {"conversations.json": [CONVERSATION] * 40, "user.json": {}}).read_bytes()


async def test_a_broken_file_in_a_folder_is_told_and_the_others_come(tmp_path: Path) -> None:
    data = whole_zip(tmp_path / "whole.zip")
    write(tmp_path / "dl" / "chatgpt.zip", data[: len(data) // 2])
    write(tmp_path / "dl" / "Tea.md", "# Tea")

    summary = await rehearsed(tmp_path / "dl")

    assert summary.kinds["notes"].new == 1
    assert (summary.unread, [problem.file for problem in summary.problems]) == (1, ["dl/chatgpt.zip"])
    assert summary.skipped == {}


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("empty.zip", b"", "expected a zip"),
        ("song.zip", b"ID3\3\0\0\0", "expected a zip"),
        ("letter.docx", b"\0garbage", "expected a zip"),
        ("half.png", PICTURE[:40], "expected all of it"),
        ("odd.png", b"\0garbage", "expected a PNG"),
        ("half.json", b'{"a": [1, 2', "JSON: got something that is not whole"),
        ("deep.json", b"[" * 100_000, "JSON: got something that is not whole"),
        ("half.jsonl", b'{"a": \n{"b": 1}\n', "JSON: got something that is not whole"),
        ("half.db", b"SQLite format 3\0garbage", "expected a whole file"),
        ("odd.pdf", b"garbage", "expected a PDF"),
        ("odd.md", b"\0garbage", "expected text"),
    ],
)
def test_a_file_that_is_not_what_it_calls_itself_is_told(tmp_path: Path, name: str, content: bytes, cause: str) -> None:
    path = write(tmp_path / "folder" / "sub" / name, content)
    assert cause in told_in(tmp_path / "folder")[f"folder/sub/{name}"]
    [alone] = found_in(path)
    assert isinstance(alone, ImportProblem)


async def test_files_of_no_format_are_counted_by_their_endings(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in ("a.mp3", "b.MP3", "c.mp3", "sheet.xlsx", "LICENSE", "Thumbs.db"):
        write(folder / name, b"\0\1")
    write(folder / "lore.json", LOREBOOK)
    write(folder / "photo.png", PICTURE)
    write(folder / ".git" / "objects" / "aa.zip", b"broken")
    zip_file(folder / "photos.zip", {"a.jpg": b"\0"})

    assert found_in(folder) == [
        IgnoredFiles("files of no known format (.mp3, no ending, .db, .json, .png, .zip, …)", 9)
    ]
    summary = await rehearsed(folder)
    assert (summary.files, summary.missing, list(summary.skipped.values())) == (0, 0, [9])


def test_one_file_is_counted_as_one(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "a.mp3", b"\0")
    assert found_in(tmp_path / "folder") == [IgnoredFiles("file of no known format (.mp3)", 1)]


def test_with_a_format_asked_for_the_others_are_counted_as_others(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "Tea.md", "# Tea")
    write(tmp_path / "folder" / "odd.pdf", b"garbage")
    note, others = found_in(tmp_path / "folder", format_name="markdown")
    assert isinstance(note, DiscoveredFile)
    assert others == IgnoredFiles("file of another format than markdown (.pdf)", 1)


async def test_of_very_many_broken_files_some_are_told_and_all_are_counted(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / "folder" / f"{number}.json", "{")
    summary = await rehearsed(tmp_path / "folder", settings=Settings(import_problems_max=5))
    assert (summary.unread, len(summary.problems)) == (30, 5)


async def test_what_lies_beside_an_unpacked_export_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "dl"
    write(folder / "conversations.json", "[]")
    for name in ("user.json", "chat.html", "Tea.md", "sub/conversations.json"):
        write(folder / name, "{}")
    summary = await rehearsed(folder)
    assert summary.missing == 0
    assert summary.skipped == {"files of the folder that chatgpt does not read (.json, .md, .html)": 4}


async def test_a_vault_counts_its_other_files_as_its_own(tmp_path: Path) -> None:
    (tmp_path / "vault" / ".obsidian").mkdir(parents=True)
    write(tmp_path / "vault" / "Tea.md", "# Tea")
    write(tmp_path / "vault" / "half.zip", b"PK\3\4")
    summary = await rehearsed(tmp_path / "vault")
    assert summary.skipped == {"a file of the vault that is no note": 1}
    assert summary.missing == 0
