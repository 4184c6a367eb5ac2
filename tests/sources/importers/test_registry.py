"""The table of formats: every importer stands in it, under its own name, and is told in the manual."""

import re
from pathlib import Path

import pytest

from sources.importers import formats
from sources.importers.engine.importer import FileProbe, Importer
from sources.importers.registry import FORMATS, importers

_FOLDER = Path(formats.__file__).parent
_MANUAL = Path(__file__).parents[3] / "docs" / "import.md"


def test_every_importer_has_its_line_and_bears_the_name_of_its_file() -> None:
    written = {path.stem for path in _FOLDER.glob("*.py") if re.search(r"^IMPORTER\b", path.read_text(), re.MULTILINE)}
    assert set(FORMATS) == written
    assert [importer.name for importer in importers()] == list(FORMATS)


@pytest.mark.parametrize("importer", importers(), ids=lambda importer: importer.name)
def test_every_format_is_told_in_the_manual(importer: Importer) -> None:
    assert f"`{importer.name}`" in _MANUAL.read_text()


@pytest.mark.parametrize("importer", importers(), ids=lambda importer: importer.name)
@pytest.mark.parametrize(
    "head", [b"", b"\0", b"\xff\xfe", b"{", b"[" * 60_000, b"PK\x03\x04", b"\x89PNG\r\n", b"%PDF-"]
)
def test_no_importer_stumbles_over_what_is_not_its_own(importer: Importer, head: bytes) -> None:
    for is_folder in (False, True):
        probe = FileProbe(Path("odd"), is_folder=is_folder, head=head, names=("", "..", "a.json"))
        assert 0.0 <= importer.recognizes(probe) <= 1.0
