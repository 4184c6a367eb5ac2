"""`make bench-console`: how soon the console shows the first result of a search, compared with the API call beneath it.

A real Chromium types a query into the search page of a server that runs as deployed. The time starts when the debounce
after the last keystroke ends, and stops when the first result of this query is in the page. For each query the page
also calls `POST /api/v1/search` with the same arguments; page and API take turns to be the first, because the second
finds more in caches. Both times are measured by the page itself.
"""

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, convert

from bench.library import Sizes, cached_library, delete_stale_libraries
from bench.processes import Cores, describe_machine_load
from bench.search import mixed_queries, start_server
from bench.sources import percentile
from server.console import pages
from server.console.search_page import SearchForm
from tests.browser.driver import BrowserDriver

# 100,000 items of a person who writes many short ones.
FULL_SIZES = Sizes(
    notes=80_000,
    note_words=60,
    media=5_000,
    media_words=300,
    conversations=10_000,
    messages_each=4,
    message_words=30,
    characters=1_000,
    prompts=4_000,
)


class Effort(Struct, frozen=True):
    """A library, and the number of queries after some for warm-up."""

    sizes: Sizes
    queries: int
    warmup: int


FULL = Effort(FULL_SIZES, queries=60, warmup=12)
QUICK = Effort(FULL_SIZES.times(0.001), queries=4, warmup=2)


class ConsoleSample(Struct, frozen=True):
    """One query: milliseconds until the page shows the first result, and until the API has answered."""

    first_result_ms: float
    api_ms: float


class ConsoleOutcome(Struct, frozen=True):
    samples: tuple[ConsoleSample, ...]

    @property
    def first_result_ms(self) -> float:
        return statistics.median(sample.first_result_ms for sample in self.samples)

    @property
    def api_ms(self) -> float:
        return statistics.median(sample.api_ms for sample in self.samples)

    def report(self) -> list[str]:
        lines = [f"{'milliseconds, ' + str(len(self.samples)) + ' queries':<40} {'median':>8} {'p95':>8} {'max':>8}"]
        for title, field in (("first result on the page", "first_result_ms"), ("POST /api/v1/search", "api_ms")):
            values = [getattr(sample, field) for sample in self.samples]
            median, p95 = statistics.median(values), percentile(values, 95)
            lines.append(f"{title:<40} {median:8.1f} {p95:8.1f} {max(values):8.1f}")
        return lines

    def as_line(self) -> str:
        ratio = self.first_result_ms / self.api_ms
        return f"RESULT first_result_ms={self.first_result_ms:.1f} api_ms={self.api_ms:.1f} ratio={ratio:.2f}"


def debounce_ms() -> int:
    """Returns how long the page waits after a keystroke, as its script says."""
    found = re.search(r"DEBOUNCE_MS = (\d+)", pages.asset_files()["search.js"].decode())
    assert found is not None, "search.js has no DEBOUNCE_MS"
    return int(found[1])


def measure(effort: Effort, cores: Cores, cache_dir: Path) -> ConsoleOutcome:
    library = asyncio.run(cached_library(effort.sizes, cache_dir))
    delete_stale_libraries([library], cache_dir, time.time())
    queries = mixed_queries("console", effort.warmup + effort.queries)
    arguments = {"limit": 20, "snippet_length": 320, "dedupe": "off", "explain": True}
    assert all(getattr(SearchForm(q="x").request(), name) == value for name, value in arguments.items())
    with start_server(library, 1, cores) as server:
        with suppress(PermissionError):  # containers may forbid it; the figures are then a little noisier
            os.sched_setaffinity(0, cores.others)
        browser = BrowserDriver()
        try:
            samples = browser.run(
                "speed.mjs",
                "searches",
                url=server.announcement.url,
                values={"queries": queries, "debounceMs": debounce_ms(), "arguments": arguments},
                extraHTTPHeaders={"Authorization": f"Bearer {server.announcement.accounts[0].token}"},
            )
        finally:
            browser.close()
    return ConsoleOutcome(tuple(convert(samples[effort.warmup :], list[ConsoleSample])))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.console", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use a tiny library: checks that the benchmark works, the figures are meaningless",
    )
    is_quick = parser.parse_args(arguments).quick
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as scratch:
        cache_dir = Path(scratch) if is_quick else Path(tempfile.gettempdir())
        outcome = measure(QUICK if is_quick else FULL, Cores.choose(), cache_dir)
    for line in (describe_machine_load(), *outcome.report(), outcome.as_line()):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
