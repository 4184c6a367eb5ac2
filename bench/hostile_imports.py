"""CPU time until a hostile file is refused, or read to its end: `python -m bench.hostile_imports`.

Every sample of every format is made hostile in every way that `tests.sources.importers.hostile_variants` knows, at the
size given, and read as the process that reads imported files does, under its limits. A file is refused if it is given
up, or if nothing in it is an item. Files that contain items are accepted and read at the speed of any other file.

For each format, the slowest file of both kinds is printed as the row of a Markdown table. Files that take more than a
second, need more than 200 bytes of memory per byte, or fail with an error that is not a message are listed on stderr.
"""

import argparse
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from config.settings import Settings
from sources.importers.engine.batches import BatchReader, batch_limits, limit_events, row_count
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.limits import import_limits
from sources.importers.registry import all_importers, importer_by_name
from tests.sources.importers.format_samples import SAMPLES
from tests.sources.importers.hostile_variants import HostileVariant, hostile_variants

_MEGABYTE = 1_000_000
# Items that are read for so long show the speed of the import.
_CPU_STOP_S = 2.0
_CPU_MAX_S = 60
_CPU_NOTICED_S = 1.0
_MEMORY_NOTICED_RATIO = 200
# Small files need some memory whatever they contain.
_MEMORY_FREE_BYTES = 50 * _MEGABYTE
_ERROR = "ERROR"
_NAME_CHARS = 70


class HostileResult(Struct):
    """`problem` is why the file, or the rest of it, was not read. `memory_bytes` is the peak during the import."""

    format: str = ""
    sample: str = ""
    variant: str = ""
    file_bytes: int = 0
    cpu_s: float = 0.0
    items: int = 0
    reports: int = 0
    memory_bytes: int = 0
    problem: str = ""

    @property
    def is_refused(self) -> bool:
        return bool(self.problem) or not self.items

    @property
    def is_noticed(self) -> bool:
        needs_memory = self.memory_bytes > _MEMORY_FREE_BYTES + _MEMORY_NOTICED_RATIO * self.file_bytes
        return self.cpu_s > _CPU_NOTICED_S or needs_memory or self.problem.startswith(_ERROR)

    def as_line(self) -> str:
        counts = f"{self.items:>9,} items {self.reports:>9,} reports {self.memory_bytes // _MEGABYTE:>5} MB"
        return f"{self.cpu_s:>6.2f} s {counts}  {self.format}: {self.sample}: {self.variant}  {self.problem[:120]}"

    def as_cells(self) -> str:
        if not self.sample:
            return "| | "
        name = f"{self.sample}: {self.variant}".replace("|", "\\|")[:_NAME_CHARS]
        return f"| {name} | {self.cpu_s:.2f} s"


def _read(result: HostileResult, path: Path) -> None:
    settings = Settings()
    limits = import_limits(settings)
    importer = importer_by_name(result.format, all_importers())
    started, memory = _cpu_s(), _peak_bytes()
    probe = probe_file(path, limits)
    for each in all_importers():
        each.recognizes(probe)
    events = importer.read(path, limits, lambda _: None, None)
    reader = BatchReader(limit_events(events, limits), batch_limits(settings))
    is_last = False
    while not is_last and _cpu_s() - started < _CPU_STOP_S:
        batch = reader.next_batch()
        result.items += sum(row_count(item) for items in batch.items.values() for item in items)
        result.reports += len(batch.reports)
        result.problem = batch.failure
        is_last = batch.is_last
    result.cpu_s = _cpu_s() - started
    result.memory_bytes = _peak_bytes() - memory


def _cpu_s() -> float:
    """Includes the processes that parse documents."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(format_name: str, sample: str, variant: HostileVariant, size_bytes: int, folder: Path) -> HostileResult:
    """Reads the file in a process of its own, because a failure must not end the measurement."""
    path = folder / sample
    path.write_bytes(variant.build(size_bytes))
    result = HostileResult(format_name, sample, variant.name, path.stat().st_size)
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_MAX_S, _CPU_MAX_S))
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        try:
            _read(result, path)
        except MemoryError:
            result.problem, result.cpu_s = f"{_ERROR} out of memory", _cpu_s()
        except Exception as error:
            result.problem, result.cpu_s = f"{_ERROR} {error!r}", _cpu_s()
        os.write(writing, msgspec.msgpack.encode(result))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(process, 0)
    path.unlink()
    if not data:
        result.problem, result.cpu_s = f"{_ERROR} killed", float(_CPU_MAX_S)
        return result
    return msgspec.msgpack.decode(data, type=HostileResult)


def _measurements(format_name: str, size_bytes: int) -> Iterator[HostileResult]:
    with TemporaryDirectory() as folder:
        for sample, (sample_format, data) in SAMPLES.items():
            if sample_format == format_name:
                for variant in hostile_variants(data):
                    yield measure(format_name, sample, variant, size_bytes, Path(folder))


class FormatResult(Struct):
    """The slowest files of a format."""

    format: str
    refused: HostileResult
    accepted: HostileResult

    def as_row(self) -> str:
        speed = f", {self.accepted.items:,} items |" if self.accepted.sample else "|"
        return f"| `{self.format}` {self.refused.as_cells()} {self.accepted.as_cells()}{speed}"


def _measure_format(format_name: str, size_bytes: int) -> FormatResult:
    slowest = FormatResult(format_name, HostileResult(), HostileResult())
    for result in _measurements(format_name, size_bytes):
        if result.is_noticed:
            print(result.as_line(), file=sys.stderr)
        if result.is_refused and result.cpu_s > slowest.refused.cpu_s:
            slowest.refused = result
        elif not result.is_refused and result.cpu_s > slowest.accepted.cpu_s:
            slowest.accepted = result
    return slowest


def _result_line(results: Sequence[FormatResult]) -> str:
    figures = list[str]()
    for kind, slowest in (
        ("refused", [result.refused for result in results]),
        ("accepted", [result.accepted for result in results]),
    ):
        worst = max(slowest, key=lambda result: result.cpu_s)
        above = sum(result.cpu_s > _CPU_NOTICED_S for result in slowest)
        figures.append(f"{kind}_max_s={worst.cpu_s:.2f} {kind}_slowest={worst.format} {kind}_formats_above_1s={above}")
    return f"RESULT {' '.join(figures)} formats={len(results)} cpu_total_s={_cpu_s():.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1, help="the size of each file (default: 1)")
    known = sorted({format_name for format_name, _ in SAMPLES.values()})
    parser.add_argument("--formats", nargs="+", choices=known, default=known, help="measure only these formats")
    arguments = parser.parse_args()
    all_importers()
    formats = arguments.formats
    print("| format | slowest refused file | CPU time | slowest accepted file | CPU time |")
    print("|---|---|---|---|---|")
    results = list[FormatResult]()
    for format_name in formats:
        results.append(_measure_format(format_name, int(arguments.megabytes * _MEGABYTE)))
        print(results[-1].as_row(), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(_result_line(results))


if __name__ == "__main__":
    main()
