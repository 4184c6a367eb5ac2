"""Every sample of every format: recognized by one format only, imported once, private, and safe when damaged."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.settings import Settings
from sources.importers.engine.discovery import DiscoveredFile, discover
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress
from sources.importers.engine.summary import OutcomeCounts
from sources.importers.registry import all_importers, importer_by_name
from tests.cases import each_case
from tests.sources.importers.format_samples import SAMPLES
from tests.sources.importers.single_files import LIMITS, damaged_files, import_here, in_process, read_or_reject, write
from tests.sources.storage.library_fixture import open_library_fixture, total_items
from tests.tiers import examples


def importers_of(folder: Path) -> Mapping[str, str]:
    results = discover([folder], LIMITS, all_importers())
    return {result.path.name: result.importer.name for result in results if isinstance(result, DiscoveredFile)}


@each_case("name", SAMPLES)
def test_sample_is_recognized_by_exactly_one_format(tmp_path: Path, name: str) -> None:
    format_name, data = SAMPLES[name]
    probe = probe_file(write(tmp_path / name, data), LIMITS)

    confidences = {importer.name: importer.recognizes(probe) for importer in all_importers()}

    first, second = sorted(confidences.values(), reverse=True)[:2]
    assert confidences[format_name] == first > second
    # In a folder only files with a suffix of the format are looked at.
    assert importers_of(tmp_path)[name] == format_name


@pytest.mark.slow("imports all samples twice")
async def test_second_import_of_all_samples_changes_nothing(tmp_path: Path) -> None:
    for name, (_, data) in SAMPLES.items():
        write(tmp_path / "samples" / name, data)
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        # In processes, as the product does. Reading in this process gives the same items.
        results = list(discover([tmp_path / "samples"], LIMITS, all_importers()))
        first = await run_import(ada, results, Settings(), ImportProgress())
        second = await import_here(ada, tmp_path / "samples")
        assert await total_items(ben) == 0

    assert [str(problem) for problem in first.problems] == []
    assert first.failures == 0
    assert first.files == len(SAMPLES)
    assert {kind: counts.total for kind, counts in second.kinds.items()} == {
        kind: counts.total for kind, counts in first.kinds.items()
    }
    assert second.kinds == {kind: OutcomeCounts(unchanged=counts.total) for kind, counts in first.kinds.items()}


@each_case("name", SAMPLES)
def test_truncated_sample_is_read_or_rejected(name: str) -> None:
    format_name, data = SAMPLES[name]
    importer = in_process(importer_by_name(format_name, all_importers()))
    for end in (0, 1, len(data) // 3, len(data) // 2, len(data) - 1):
        read_or_reject(importer, name, data[:end])


@settings(max_examples=examples(150))
@given(damaged_files({name: data for name, (_, data) in SAMPLES.items()}))
def test_damaged_sample_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    name, data = sample
    read_or_reject(in_process(importer_by_name(SAMPLES[name][0], all_importers())), name, data)


@given(st.sampled_from(sorted(SAMPLES)), st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(name: str, data: bytes) -> None:
    read_or_reject(in_process(importer_by_name(SAMPLES[name][0], all_importers())), name, data)


@given(st.sampled_from(sorted(SAMPLES)), st.binary(max_size=300))
def test_no_importer_fails_to_probe_any_bytes(name: str, data: bytes) -> None:
    with TemporaryDirectory() as folder:
        probe = probe_file(write(Path(folder, name), SAMPLES[name][1][:100] + data), LIMITS)
        assert all(0.0 <= importer.recognizes(probe) <= 1.0 for importer in all_importers())
