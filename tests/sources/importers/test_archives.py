"""Zip archives: read entry by entry, and rejected if they are unsafe or unpack to too much."""

import io
import stat
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import InvalidParams, TooLarge
from config.settings import Settings
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.discovery import discover
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.limits import import_limits
from sources.importers.engine.summary import ImportProblem
from sources.importers.registry import all_importers
from tests.cases import each_case

LIMITS = import_limits(Settings())


def write_zip(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def test_files_are_read_in_order_and_progress_is_reported(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"b/": b"", "b/one.json": b"[1]", "two.json": b"[2]" * 100_000, "c": b""})
    positions: list[int] = []

    def progress(bytes_read: int) -> None:
        positions.append(bytes_read)

    with open_archive(path, LIMITS, progress) as archive:
        assert archive.names == ("b/one.json", "two.json", "c")
        assert archive.read("b/one.json", 10) == b"[1]"
        assert archive.read("c", 10) == b""
        with archive.open("two.json") as file:
            assert file.read() == b"[2]" * 100_000
        assert archive.size("two.json") == 300_000
    assert 0 < max(positions) <= path.stat().st_size
    assert probe_file(path, LIMITS).names == ("b/one.json", "two.json", "c")


@each_case("name", ["../up.json", "a/../../b", "/etc/passwd", "..\\up", "C:\\x", "a/.."])
def test_archive_with_path_traversal_is_rejected(tmp_path: Path, name: str) -> None:
    path = write_zip(tmp_path / "a.zip", {"fine.json": b"1", name: b"2"})
    with pytest.raises(InvalidParams, match="points outside the archive"), open_archive(path, LIMITS):
        pass
    assert probe_file(path, LIMITS).names == ()
    [problem] = discover([path], LIMITS, all_importers())
    assert isinstance(problem, ImportProblem)
    assert "points outside the archive" in problem.problem


def test_archive_with_a_symbolic_link_is_rejected(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidParams, match="is a symbolic link"), open_archive(tmp_path / "a.zip", LIMITS):
        pass


def test_zip_bomb_is_rejected_early_by_its_ratio(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"bomb": b"\0" * (64 << 20)})
    blocks: list[bytes] = []
    rejected = pytest.raises(InvalidParams, match="more than 200 times its packed size")
    with open_archive(path, LIMITS) as archive, archive.open("bomb") as file, rejected:
        blocks.extend(iter(lambda: file.read(1 << 16), b""))
    assert sum(map(len, blocks)) < 17 << 20


def test_compression_ratio_limit_is_a_setting(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"even": b"\0" * (32 << 20)})
    with open_archive(path, replace(LIMITS, unpacked_ratio_max=100_000)) as archive:
        assert len(archive.read("even", 64 << 20)) == 32 << 20


def test_unpacked_size_is_limited_whatever_the_archive_declares(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"one": bytes(range(256)) * 20, "two": bytes(range(256)) * 20})
    small = replace(LIMITS, unpacked_max_bytes=8_000)
    with open_archive(path, small) as archive:
        assert len(archive.read("one", 10_000)) == 5_120
        with pytest.raises(TooLarge):
            archive.read("two", 10_000)
    with open_archive(path, LIMITS) as archive, pytest.raises(TooLarge):
        archive.read("one", 5_119)


def test_archive_with_too_many_files_is_rejected(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {f"{number}": b"" for number in range(4)})
    few = replace(LIMITS, entries_max=3)
    with pytest.raises(InvalidParams, match="archive: expected at most 3 files, got 4"), open_archive(path, few):
        pass


def test_missing_and_damaged_entries_are_rejected(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"one": b"some text that is long enough to be packed " * 50})
    data = bytearray(path.read_bytes())
    data[45] ^= 0xFF
    path.write_bytes(data)
    with open_archive(path, LIMITS) as archive:
        with pytest.raises(InvalidParams, match="archive: 'two' is missing"):
            archive.read("two", 10)
        with pytest.raises(InvalidParams, match="archive: 'one' is damaged"):
            archive.read("one", 1 << 20)


@given(data=st.data())
def test_damaged_archive_is_rejected_or_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.json", b'{"a": 1}' * 40)
        archive.writestr("two.json", b"[]")
    damaged = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    path.write_bytes(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
    probe_file(path, LIMITS)
    with suppress(InvalidParams, TooLarge), open_archive(path, LIMITS) as opened:
        for name in opened.names:
            opened.read(name, 1 << 20)


def test_zip_is_recognized_by_its_first_bytes() -> None:
    assert is_zip(b"PK\x03\x04rest")
    assert not is_zip(b"PKzip")
