"""The registry of formats: it lists every importer, and the documentation mentions each."""

import json
import subprocess
import sys
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any

from sources.importers import formats
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.importer import Importer
from sources.importers.registry import FORMATS, all_importers
from tests.cases import each_case
from tests.sources.importers import test_format_samples, test_golden, test_hostile_files
from tests.sources.importers.format_samples import SAMPLES
from tests.sources.importers.golden import FOLDER, golden_file

_FOLDER = Path(formats.__file__).parent
_DOCUMENTATION = Path(__file__).parents[3] / "docs" / "import.md"
SAMPLE_TESTS: tuple[Any, ...] = (
    test_format_samples.test_sample_is_recognized_by_exactly_one_format,
    test_format_samples.test_truncated_sample_is_read_or_rejected,
    test_golden.test_sample_is_read_as_its_golden_file_says,
    test_hostile_files.test_work_is_proportional_to_the_size_of_a_hostile_file,
)


def test_every_importer_is_registered() -> None:
    modules = [import_module(f"{formats.__name__}.{path.stem}") for path in _FOLDER.glob("*.py")]
    classes = {
        f"{value.__module__.rpartition('.')[2]}.{value.__name__}"
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Importer) and not isabstract(value)
    }
    assert set(FORMATS.values()) == classes
    assert [importer.name for importer in all_importers()] == list(FORMATS)


@each_case("importer", all_importers())
def test_every_format_is_documented(importer: Importer) -> None:
    assert f"`{importer.name}`" in _DOCUMENTATION.read_text()


def test_every_format_has_samples() -> None:
    """The tests with samples are those of recognition, a golden file, a second import, hostile files, and files that
    are truncated or damaged at random."""
    assert {format_name for format_name, _ in SAMPLES.values()} == set(FORMATS)


def test_every_format_has_a_golden_file_for_its_samples() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FORMATS)
    for format_name in FORMATS:
        names = {name for name, (owner, _) in SAMPLES.items() if owner == format_name}
        assert set(json.loads(golden_file(format_name).read_text())) == names


@each_case("test", SAMPLE_TESTS)
def test_every_sample_is_tested(test: Any) -> None:
    """A test that left out some samples would leave out a format."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    names = {name for mark in marks for name in mark.args[1]} | {
        case["name"] for case in getattr(test, "cases", list)()
    }
    assert names >= set(SAMPLES) - {"a.pdf"}


@each_case("importer", all_importers())
@each_case("head", [b"", b"\0", b"\xff\xfe", b"{", b"[" * 60_000, b"PK\x03\x04", b"\x89PNG\r\n", b"%PDF-"])
def test_importers_do_not_fail_on_files_of_other_formats(importer: Importer, head: bytes) -> None:
    for is_folder in (False, True):
        probe = FileProbe(Path("odd"), is_folder=is_folder, head=head, names=("", "..", "a.json"))
        assert 0.0 <= importer.recognizes(probe) <= 1.0


def test_import_loads_only_the_formats_of_its_files(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text("# Tides\n\nlow water")
    script = f"""
import asyncio, sys
from pathlib import Path
from config.settings import Settings
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.reader_process import find_files

async def main():
    files = await find_files([Path({str(note)!r})], import_limits(Settings()), None)
    return await run_import(None, files, Settings(), ImportProgress())

print(asyncio.run(main()).kinds["notes"].new, *(name for name in sys.modules if name.startswith({formats.__name__!r})))
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    new, *modules = output.split()
    assert new == "1"
    assert f"{formats.__name__}.markdown" in modules
    assert f"{formats.__name__}.zotero" not in modules
