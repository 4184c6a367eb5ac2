"""CPU time until a hostile file is rejected, or read to its end: `python -m bench.hostile_imports`.

Every sample of every format is made hostile in every way that `tests.sources.importers.hostile_variants` knows, at the
size given, and read as the process that reads imported files does, under its limits. Files that contain items are
read at the speed of any other file; the others must be rejected within a second.
"""

import argparse
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from config.settings import Settings
from sources.importers.engine.batches import BatchReader, batch_limits, row_count
from sources.importers.engine.event_limits import limit_events
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


class HostileResult(Struct):
    """`problem` is why the file, or the rest of it, was not read."""

    format: str = ""
    sample: str = ""
    variant: str = ""
    file_bytes: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    probe_s: float = 0.0
    items: int = 0
    reports: int = 0
    problem: str = ""

    @property
    def is_import(self) -> bool:
        """Whether the time was spent on items of the file, at the speed of any import."""
        return self.items > 0 and self.items / self.cpu_s > 2_000

    def as_line(self) -> str:
        outcome = f"{self.items:>9,} items {self.reports:>9,} reports  {self.problem[:90]}"
        name = f"{self.format}: {self.sample}: {self.variant}"
        return f"{self.cpu_s:>6.2f} s {self.wall_s:>6.2f} s {self.probe_s:>5.2f} s {outcome}  {name}"


def _read(result: HostileResult, path: Path) -> None:
    settings = Settings()
    limits = import_limits(settings)
    importer = importer_by_name(result.format, all_importers())
    started, wall_started = _cpu_s(), time.perf_counter()
    probe = probe_file(path, limits)
    for each in all_importers():
        each.recognizes(probe)
    result.probe_s = _cpu_s() - started
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
    result.wall_s = time.perf_counter() - wall_started


def _cpu_s() -> float:
    """Includes the processes that parse documents."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


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
            result.problem, result.cpu_s = "out of memory", _cpu_s()
        except Exception as error:
            result.problem, result.cpu_s = f"ERROR {error!r}", _cpu_s()
        os.write(writing, msgspec.msgpack.encode(result))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(process, 0)
    path.unlink()
    if not data:
        result.problem, result.cpu_s = "ERROR killed", float(_CPU_MAX_S)
        return result
    return msgspec.msgpack.decode(data, type=HostileResult)


def _measurements(format_name: str, size_bytes: int) -> Iterator[HostileResult]:
    with TemporaryDirectory() as folder:
        for sample, (sample_format, data) in SAMPLES.items():
            if sample_format == format_name:
                for variant in hostile_variants(data):
                    yield measure(format_name, sample, variant, size_bytes, Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1)
    parser.add_argument("--formats", nargs="*", default=[])
    arguments = parser.parse_args()
    all_importers()
    for format_name in arguments.formats or sorted({format_name for format_name, _ in SAMPLES.values()}):
        worst = HostileResult()
        for result in _measurements(format_name, int(arguments.megabytes * _MEGABYTE)):
            if result.cpu_s > _CPU_NOTICED_S or result.problem.startswith("ERROR"):
                print(result.as_line(), flush=True)
            if not result.is_import and result.cpu_s > worst.cpu_s:
                worst = result
        print(f"WORST {worst.as_line()}", flush=True)


if __name__ == "__main__":
    main()
