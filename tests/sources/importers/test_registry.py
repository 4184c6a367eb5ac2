"""The registry of formats: it lists every importer, and the documentation mentions each."""

import re
from pathlib import Path

import pytest

from sources.importers import formats
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.importer import Importer
from sources.importers.registry import FORMATS, all_importers

_FOLDER = Path(formats.__file__).parent
_DOCUMENTATION = Path(__file__).parents[3] / "docs" / "import.md"


def test_every_module_with_an_importer_is_registered() -> None:
    modules = {
        ".".join(path.relative_to(_FOLDER).with_suffix("").parts)
        for path in _FOLDER.rglob("*.py")
        if re.search(r"^IMPORTER\b", path.read_text(), re.MULTILINE)
    }
    assert set(FORMATS.values()) == modules
    assert [importer.name for importer in all_importers()] == list(FORMATS)


@pytest.mark.parametrize("importer", all_importers(), ids=lambda importer: importer.name)
def test_every_format_is_documented(importer: Importer) -> None:
    assert f"`{importer.name}`" in _DOCUMENTATION.read_text()


@pytest.mark.parametrize("importer", all_importers(), ids=lambda importer: importer.name)
@pytest.mark.parametrize(
    "head", [b"", b"\0", b"\xff\xfe", b"{", b"[" * 60_000, b"PK\x03\x04", b"\x89PNG\r\n", b"%PDF-"]
)
def test_importers_do_not_fail_on_files_of_other_formats(importer: Importer, head: bytes) -> None:
    for is_folder in (False, True):
        probe = FileProbe(Path("odd"), is_folder=is_folder, head=head, names=("", "..", "a.json"))
        assert 0.0 <= importer.recognizes(probe) <= 1.0
