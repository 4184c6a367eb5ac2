"""Zips as importers read them: entry by entry, and none that lies, leads out of itself or blows up."""

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
from sources.importers.engine.discovery import find
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.import_runner import ImportProblem, limits_of
from sources.importers.registry import importers

LIMITS = limits_of(Settings())


def packed(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries.items():
            made.writestr(name, content)
    return path


def test_files_are_read_in_their_order_and_progress_is_told(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"b/": b"", "b/one.json": b"[1]", "two.json": b"[2]" * 100_000})
    moved: list[int] = []

    def progress(bytes_read: int) -> None:
        moved.append(bytes_read)

    with open_archive(path, LIMITS, progress) as archive:
        assert archive.names == ("b/one.json", "two.json")
        assert archive.read("b/one.json", 10) == b"[1]"
        with archive.open("two.json") as file:
            assert file.read() == b"[2]" * 100_000
        assert archive.size("two.json") == 300_000
    assert 0 < max(moved) <= path.stat().st_size
    assert probe_file(path, LIMITS).names == ("b/one.json", "two.json")


@pytest.mark.parametrize("name", ["../up.json", "a/../../b", "/etc/passwd", "..\\up", "C:\\x", "a/.."])
def test_an_archive_with_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / "a.zip", {"fine.json": b"1", name: b"2"})
    with pytest.raises(InvalidParams, match="expected names inside of it"), open_archive(path, LIMITS):
        pass
    assert probe_file(path, LIMITS).names == ()
    [problem] = find([path], LIMITS, importers())
    assert isinstance(problem, ImportProblem)
    assert "expected names inside of it" in problem.problem


def test_an_archive_with_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidParams, match="a symbolic link"), open_archive(tmp_path / "a.zip", LIMITS):
        pass


def test_a_bomb_is_refused_by_its_ratio_long_before_its_end(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"bomb": b"\0" * (64 << 20)})
    pieces: list[bytes] = []
    refused = pytest.raises(InvalidParams, match="200 times its packed size")
    with open_archive(path, LIMITS) as archive, archive.open("bomb") as file, refused:
        pieces.extend(iter(lambda: file.read(1 << 16), b""))
    assert sum(map(len, pieces)) < 17 << 20


def test_how_well_a_file_may_be_packed_is_a_setting(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"even": b"\0" * (32 << 20)})
    with open_archive(path, replace(LIMITS, unpacked_ratio_max=100_000)) as archive:
        assert len(archive.read("even", 64 << 20)) == 32 << 20


def test_what_unpacks_to_more_than_the_limit_is_refused_whatever_it_declares(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"one": bytes(range(256)) * 20, "two": bytes(range(256)) * 20})
    small = replace(LIMITS, unpacked_max_bytes=8_000)
    with open_archive(path, small) as archive:
        assert len(archive.read("one", 10_000)) == 5_120
        with pytest.raises(TooLarge):
            archive.read("two", 10_000)
    with open_archive(path, LIMITS) as archive, pytest.raises(TooLarge):
        archive.read("one", 5_119)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {f"{number}": b"" for number in range(4)})
    few = replace(LIMITS, entries_max=3)
    with pytest.raises(InvalidParams, match="got 4 files, expected at most 3"), open_archive(path, few):
        pass


def test_an_absent_file_and_a_damaged_one_are_told(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"one": b"some text that is long enough to be packed " * 50})
    data = bytearray(path.read_bytes())
    data[45] ^= 0xFF
    path.write_bytes(data)
    with open_archive(path, LIMITS) as archive:
        with pytest.raises(InvalidParams, match="got no 'two'"):
            archive.read("two", 10)
        with pytest.raises(InvalidParams, match="'one' in the archive: got damaged data"):
            archive.read("one", 1 << 20)


@given(data=st.data())
def test_damaged_zips_are_refused_with_a_sentence_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("one.json", b'{"a": 1}' * 40)
        made.writestr("two.json", b"[]")
    whole = bytearray(sink.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    path.write_bytes(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    probe_file(path, LIMITS)
    with suppress(InvalidParams, TooLarge), open_archive(path, LIMITS) as archive:
        for name in archive.names:
            archive.read(name, 1 << 20)


def test_a_zip_is_known_by_its_first_bytes() -> None:
    assert is_zip(b"PK\x03\x04rest")
    assert not is_zip(b"PKzip")
