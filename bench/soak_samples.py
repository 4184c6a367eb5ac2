"""Memory, descriptors and threads of a process over time, and whether they grow."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from bench.processes import resident_bytes

# A fitted growth within this share of the first value, or within twice the scatter of the samples, counts as flat.
FLAT_SHARE = 0.10
_SCATTER_FACTOR = 2


class ProcessSample(Struct, frozen=True):
    at_s: float
    resident_mb: float
    descriptors: int
    threads: int


def take_sample(pid: int, at_s: float) -> ProcessSample:
    process = Path(f"/proc/{pid}")
    descriptors, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
    return ProcessSample(at_s, resident_bytes(pid) / 1e6, descriptors, threads)


class Trend(Struct, frozen=True):
    """A line fitted through samples by least squares: its first and last value, and how far the samples scatter."""

    start: float
    end: float
    scatter: float

    @property
    def growth(self) -> float:
        return self.end - self.start

    @property
    def growth_share(self) -> float:
        return self.growth / self.start if self.start else 0.0

    @property
    def is_flat(self) -> bool:
        return self.growth <= max(FLAT_SHARE * self.start, _SCATTER_FACTOR * self.scatter)


def fit(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Fits a line through at least one sample."""
    count = len(times)
    mean_time, mean_value = sum(times) / count, sum(values) / count
    spread = sum((time - mean_time) ** 2 for time in times)
    products = sum((time - mean_time) * (value - mean_value) for time, value in zip(times, values, strict=True))
    slope = products / spread if spread else 0.0

    def at(time: float) -> float:
        return mean_value + slope * (time - mean_time)

    residuals = sum((value - at(time)) ** 2 for time, value in zip(times, values, strict=True))
    return Trend(at(times[0]), at(times[-1]), (residuals / count) ** 0.5)
