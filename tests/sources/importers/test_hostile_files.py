"""Hostile files of every format take work proportional to their size. `make bench-hostile` measures large ones."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.batches import limit_events
from sources.importers.engine.file_probe import probe_file
from sources.importers.registry import all_importers, importer_by_name
from tests.sources.importers.format_samples import SAMPLES
from tests.sources.importers.hostile_variants import HostileVariant, hostile_variants
from tests.sources.importers.single_files import LIMITS, in_process, write

pytestmark = pytest.mark.slow("reads hostile files of every format")

SIZE, GROWTH = 500, 4
# Quadratic work would grow by sixteen.
GROWTH_MAX = 8
# Any file may take so many: detecting the encoding of a short text takes up to 50,000, however long the file is.
STEPS_FREE = 60_000
# pdfium is not ours, and damaged files can crash it; its process is limited.
NAMES = [name for name in SAMPLES if not name.endswith(".pdf")]


class StepCounter:
    """Counts the functions that are called while it is active."""

    def __init__(self) -> None:
        self.steps = 0

    def __enter__(self) -> "StepCounter":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        self.steps += event in ("call", "c_call")


def steps_to_read(name: str, data: bytes, folder: Path) -> int:
    """Returns how many functions are called to recognize and read a file, which may be rejected."""
    path = write(folder / name, data)
    importer = in_process(importer_by_name(SAMPLES[name][0], all_importers()))
    with StepCounter() as counter:
        importer.recognizes(probe_file(path, LIMITS))
        try:
            for _ in limit_events(importer.read(path, LIMITS, lambda _: None, None), LIMITS):
                pass
        except (InvalidParams, TooLarge):
            pass
    return counter.steps


def problem_with(name: str, variant: HostileVariant, folder: Path) -> str | None:
    large = steps_to_read(name, variant.build(GROWTH * SIZE), folder)
    if large <= STEPS_FREE:
        return None
    small = steps_to_read(name, variant.build(SIZE), folder)
    if large <= STEPS_FREE + GROWTH_MAX * small:
        return None
    return f"{variant.name}: {small} steps for {SIZE} bytes, {large} for {GROWTH * SIZE}"


@pytest.mark.parametrize("name", NAMES)
def test_work_is_proportional_to_the_size_of_a_hostile_file(tmp_path: Path, name: str) -> None:
    problems = (problem_with(name, variant, tmp_path) for variant in hostile_variants(SAMPLES[name][1]))
    assert [problem for problem in problems if problem] == []
