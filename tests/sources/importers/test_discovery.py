"""Which files of a folder are imported, which are reported as damaged, and which are counted as ignored."""

from pathlib import Path
from zlib import crc32

from config.settings import Settings
from sources.importers.engine.discovery import DiscoveredFile, DiscoveryResult, IgnoredFiles, discover
from sources.importers.engine.limits import import_limits
from sources.importers.engine.summary import ImportProblem, ImportSummary
from sources.importers.registry import all_importers
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.sources.importers.chat_files import zip_file
from tests.sources.importers.single_files import import_here, write

SETTINGS = Settings()
CONVERSATION = {"id": "c", "title": "Tea", "mapping": {}, "current_node": ""}
LOREBOOK = '{"entries": {"0": {"key": ["tea"], "comment": "steep"}}}'


def png_chunk(kind: bytes, data: bytes = b"") -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + crc32(kind + data).to_bytes(4, "big")


PNG = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", bytes(13)) + png_chunk(b"IDAT", b"pixels") + png_chunk(b"IEND")


def discover_all(*paths: Path, format_name: str | None = None) -> list[DiscoveryResult]:
    return list(discover(paths, import_limits(SETTINGS), all_importers(), format_name))


def problems_in(folder: Path) -> dict[str, str]:
    return {result.file: result.problem for result in discover_all(folder) if isinstance(result, ImportProblem)}


async def dry_run(*paths: Path, settings: Settings = SETTINGS) -> ImportSummary:
    return await import_here(None, *paths, settings=settings)


async def test_damaged_file_in_a_folder_is_reported_and_the_others_are_imported(tmp_path: Path) -> None:
    data = zip_file(tmp_path / "a.zip", {"conversations.json": [CONVERSATION] * 40, "user.json": {}}).read_bytes()
    write(tmp_path / "dl" / "chatgpt.zip", data[: len(data) // 2])
    write(tmp_path / "dl" / "Tea.md", "# Tea")

    summary = await dry_run(tmp_path / "dl")

    assert summary.kinds["notes"].new == 1
    assert (summary.failed_files, [problem.file for problem in summary.problems]) == (1, ["dl/chatgpt.zip"])
    assert summary.skipped == {}


@each_case(
    ("name", "content", "problem"),
    [
        ("empty.zip", b"", "archive: not a valid zip file"),
        ("song.zip", b"ID3\3\0\0\0", "archive: not a valid zip file"),
        ("letter.docx", b"\0garbage", "archive: not a valid zip file"),
        ("sheet.xlsx", b"\0garbage", "archive: not a valid zip file"),
        ("half.png", PNG[:40], "PNG is truncated"),
        ("odd.png", b"\0garbage", "not a PNG file"),
        ("half.json", b'{"a": [1, 2', "JSON is malformed or truncated"),
        ("deep.json", b"[" * 100_000, "JSON is malformed or truncated"),
        ("half.jsonl", b'{"a": \n{"b": 1}\n', "JSON is malformed or truncated"),
        ("half.db", b"SQLite format 3\0garbage", "database cannot be read by SQLite"),
        ("odd.pdf", b"garbage", "not a PDF file"),
        ("odd.md", b"\0garbage", "expected text, got a NUL character"),
    ],
)
def test_file_whose_content_does_not_match_its_suffix_is_reported(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    path = write(tmp_path / "folder" / "sub" / name, content)
    assert problem in problems_in(tmp_path / "folder")[f"folder/sub/{name}"]
    [alone] = discover_all(path)
    assert isinstance(alone, ImportProblem)


@each_case(
    ("name", "content"),
    [
        ("photo.png", b"\xff\xd8\xff\xe0\0\x10JFIF"),
        ("photo.png", b"\0\0\0\x18ftypheic"),
        ("tsconfig.json", b'{\n  // strict\n  "a": "http://x", /* b */\n  "c": [1, 2,],\n}'),
        ("settings.json", b'{"a": "/*", "b": "//",}'),
    ],
)
def test_intact_file_of_another_kind_is_ignored(tmp_path: Path, name: str, content: bytes) -> None:
    write(tmp_path / "folder" / name, content)
    assert discover_all(tmp_path / "folder") == [IgnoredFiles(f"unsupported file ({Path(name).suffix})", 1)]


def test_json_that_contains_html_is_not_a_page(tmp_path: Path) -> None:
    for name in ("a.json", "a.jsonl", "saved.html"):
        write(tmp_path / "folder" / name, b'{"html": "<html><body>Hello</body></html>"}\n')
    assert discover_all(tmp_path / "folder") == [IgnoredFiles("unsupported file (.json, .jsonl, .html)", 3)]


def test_missing_file_and_unsupported_format_say_what_to_do(tmp_path: Path) -> None:
    missing, unsupported = discover_all(tmp_path / "nope", write(tmp_path / "a.mp3", b"\0\1"))
    assert missing == ImportProblem(str(tmp_path / "nope"), "", "no such file or folder; check the path")
    assert isinstance(unsupported, ImportProblem)
    assert unsupported.problem.startswith("unsupported format; if it has one of these formats, name that format: own_")
    assert all(importer.name in unsupported.problem for importer in all_importers())


async def test_unsupported_files_are_counted_with_their_suffixes(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in ("a.mp3", "b.MP3", "c.mp3", "sheet.numbers", "LICENSE", "Thumbs.db"):
        write(folder / name, b"\0\1")
    write(folder / "lore.json", LOREBOOK)
    write(folder / "photo.png", PNG)
    write(folder / ".git" / "objects" / "aa.zip", b"broken")
    zip_file(folder / "photos.zip", {"a.jpg": b"\0"})

    assert discover_all(folder) == [IgnoredFiles("unsupported file (.mp3, no suffix, .db, .json, .png, .zip, …)", 9)]
    summary = await dry_run(folder)
    assert (summary.files, summary.failures, list(summary.skipped.values())) == (0, 0, [9])


def test_single_unsupported_file_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "a.mp3", b"\0")
    assert discover_all(tmp_path / "folder") == [IgnoredFiles("unsupported file (.mp3)", 1)]


def test_with_a_named_format_files_of_other_formats_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "Tea.md", "# Tea")
    write(tmp_path / "folder" / "odd.pdf", b"garbage")
    note, others = discover_all(tmp_path / "folder", format_name="markdown")
    assert isinstance(note, DiscoveredFile)
    assert others == IgnoredFiles("file not in markdown format (.pdf)", 1)


async def test_all_damaged_files_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / "folder" / f"{number}.json", "{")
    summary = await dry_run(tmp_path / "folder", settings=build_settings(import_problems_max=5))
    assert (summary.failed_files, len(summary.problems)) == (30, 5)


async def test_files_next_to_an_unpacked_export_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "dl"
    write(folder / "conversations.json", "[]")
    for name in ("user.json", "chat.html", "Tea.md", "sub/conversations.json"):
        write(folder / name, "{}")
    summary = await dry_run(folder)
    assert summary.failures == 0
    assert summary.skipped == {"file not used by chatgpt (.json, .md, .html)": 4}


async def test_vault_reports_its_other_files_itself(tmp_path: Path) -> None:
    (tmp_path / "vault" / ".obsidian").mkdir(parents=True)
    write(tmp_path / "vault" / "Tea.md", "# Tea")
    write(tmp_path / "vault" / "half.zip", b"PK\3\4")
    summary = await dry_run(tmp_path / "vault")
    assert summary.skipped == {"file in the vault not containing a note": 1}
    assert summary.failures == 0
