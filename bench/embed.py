"""`make bench-embed`: what the models of semantic search cost.

First the speed of each model alone, in CPU time, which does not depend on how busy the machine is. Then a library of
messages without vectors is opened with the model, and searched until every message has a vector: how long that takes,
how large the vectors are, and how much slower searches are meanwhile. Texts are English, cut to a number of tokens of
MiniLM's tokenizer.
"""

import argparse
import asyncio
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct
from tokenizers import Tokenizer

from bench.library import OWNER, SEED
from bench.local_runtime import LocalRuntime, open_local_runtime
from bench.processes import describe_machine_load
from bench.quality.collection import read_collection
from bench.sources import percentile
from config.settings import Settings
from sources.drafts import ConversationDraft, MessageDraft
from sources.semantic.named_models import MINILM, NAMED_MODELS, find_files, load_model
from sources.semantic.service import SemanticService

MESSAGE_TOKENS = 38
PASSAGE_TOKENS = 94
QUERY_WORDS = 4
MESSAGES_PER_CHAT = 25
TARGET_MESSAGES = 100_000
_PAUSE_S = 0.02
# The first searches load the model and open the library.
_WARM_UP_SEARCHES = 20
_WRITE_DEADLINE_MS = 600_000


class Effort(Struct, frozen=True):
    """`messages` are those of the library that is covered, by model. `quiet_searches` are made when it is."""

    texts: dict[str, int]
    messages: dict[str, int]
    quiet_searches: int


FULL = Effort(texts={"fast": 4_000, "minilm": 400}, messages={"fast": 10_000, "minilm": 2_000}, quiet_searches=300)
QUICK = Effort(texts={"fast": 40, "minilm": 10}, messages={"fast": 100, "minilm": 50}, quiet_searches=20)


class Speed(Struct, frozen=True):
    messages_per_cpu_s: float
    passages_per_cpu_s: float
    query_ms: float


class Coverage(Struct, frozen=True):
    """`seconds` until all messages had vectors. Response times are in milliseconds."""

    messages: int
    seconds: float
    bytes_per_passage: float
    busy_ms: list[float]
    quiet_ms: list[float]

    @property
    def seconds_for_target(self) -> float:
        return self.seconds * TARGET_MESSAGES / self.messages

    @property
    def p99_ratio(self) -> float:
        return percentile(self.busy_ms, 99) / percentile(self.quiet_ms, 99)


class Texts:
    """English texts of a given number of tokens, from the notes of the judged library."""

    def __init__(self) -> None:
        paths = find_files(MINILM, Path())
        assert paths is not None, "the package that carries the weights of minilm is not installed"
        self._tokenizer = Tokenizer.from_file(str(paths.files[1]))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._words = " ".join(note.text for note in read_collection().notes).split()
        self._random = random.Random(SEED)

    def text(self, tokens: int) -> str:
        """Returns a text from a random place, cut after this many tokens."""
        words = self.words(tokens)
        end = self._tokenizer.encode(" ".join(words), add_special_tokens=False).offsets[tokens - 1][1]
        return " ".join(words)[:end]

    def words(self, count: int) -> list[str]:
        start = self._random.randrange(len(self._words) - count)
        return self._words[start : start + count]

    def query(self) -> str:
        return " ".join(self._random.choice(self._words) for _ in range(QUERY_WORDS))


async def measure_speed(model: str, texts: Texts, count: int) -> Speed:
    local = load_model(NAMED_MODELS[model], Path())
    local.embed([texts.text(MESSAGE_TOKENS)])
    messages = _cpu_seconds(local.embed, [texts.text(MESSAGE_TOKENS) for _ in range(count)])
    passages = _cpu_seconds(local.embed, [texts.text(PASSAGE_TOKENS) for _ in range(count)])
    return Speed(count / messages, count / passages, await _query_ms(model, texts, count))


def _cpu_seconds(embed: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> float:
    started = time.process_time()
    embed(texts)
    return time.process_time() - started


async def _query_ms(model: str, texts: Texts, count: int) -> float:
    """Returns the CPU time of one query through the service, with its thread and its cache."""
    service = SemanticService(Settings(semantic_model=model, semantic_timeout_ms=60_000))
    await service.embed_query(texts.query())
    started = time.process_time()
    for number in range(count):
        await service.embed_query(f"{texts.query()} {number}")
    elapsed = time.process_time() - started
    await service.close()
    return elapsed / count * 1000


async def measure_coverage(model: str, texts: Texts, messages: int, quiet_searches: int) -> Coverage:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-embed-") as name:
        root = Path(name)
        await _write_messages(root, texts, messages)
        before = _database_bytes(root)
        async with open_local_runtime(root, semantic_model=model, semantic_timeout_ms=60_000) as runtime:
            started = time.perf_counter()
            busy = [response_ms async for response_ms in _search_until_covered(runtime, texts)]
            seconds = time.perf_counter() - started
            quiet = [(await _search(runtime, texts))[0] for _ in range(quiet_searches)]
        size = (_database_bytes(root) - before) / messages
    return Coverage(messages, seconds, size, busy[_WARM_UP_SEARCHES:] or busy, quiet)


async def _search_until_covered(runtime: LocalRuntime, texts: Texts) -> AsyncIterator[float]:
    while True:
        response_ms, semantic = await _search(runtime, texts)
        yield response_ms
        if semantic["status"] == "on":
            return


async def _search(runtime: LocalRuntime, texts: Texts) -> tuple[float, dict[str, Any]]:
    context, query = runtime.context_for(OWNER), texts.query()
    started = time.perf_counter()
    response = await runtime.call(context, "chats_search", query=query)
    elapsed = time.perf_counter() - started
    await asyncio.sleep(_PAUSE_S)
    return elapsed * 1000, response["semantic"]


async def _write_messages(root: Path, texts: Texts, count: int) -> None:
    async with (
        open_local_runtime(root, library_deadline_ms=_WRITE_DEADLINE_MS) as runtime,
        runtime.libraries.library(runtime.context_for(OWNER)) as library,
    ):
        for start in range(0, count, MESSAGES_PER_CHAT):
            drafts = [
                MessageDraft(role="user", sender="Ana", content=texts.text(MESSAGE_TOKENS))
                for _ in range(min(MESSAGES_PER_CHAT, count - start))
            ]
            await library.chats.create(ConversationDraft(title=f"Chat {start}"), drafts)


def _database_bytes(root: Path) -> int:
    total = 0
    for path in root.rglob("chacha.db"):
        with closing(sqlite3.connect(path)) as connection:
            pragmas = ("page_count", "freelist_count", "page_size")
            pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
            total += (pages - free) * size
    return total


def report(speeds: dict[str, Speed], coverages: dict[str, Coverage]) -> Iterator[str]:
    yield describe_machine_load()
    yield ""
    yield f"{'model':<8} {'messages/CPU s':>15} {'passages/CPU s':>15} {'query, CPU ms':>14}"
    for name, speed in speeds.items():
        yield f"{name:<8} {speed.messages_per_cpu_s:>15,.0f} {speed.passages_per_cpu_s:>15,.0f} {speed.query_ms:>14.2f}"
    yield ""
    yield (
        f"{'model':<8} {'messages':>9} {'covered in s':>13} {'100,000 in s':>13} {'bytes/passage':>14} "
        f"{'p50 ms':>13} {'p99 ms':>13}"
    )
    for name, run in coverages.items():
        yield (
            f"{name:<8} {run.messages:>9,} {run.seconds:>13.1f} {run.seconds_for_target:>13.0f} "
            f"{run.bytes_per_passage:>14.0f} {_both(run, 50):>13} {_both(run, 99):>13}"
        )
    yield ""
    yield "100,000 messages: extrapolated. p50 and p99: searches meanwhile / when all messages have vectors."


def _both(run: Coverage, percent: int) -> str:
    return f"{percentile(run.busy_ms, percent):.1f} / {percentile(run.quiet_ms, percent):.1f}"


def result_line(speeds: dict[str, Speed], coverages: dict[str, Coverage]) -> str:
    values = {f"{name}_messages_per_cpu_s": f"{speed.messages_per_cpu_s:.0f}" for name, speed in speeds.items()}
    values |= {f"{name}_query_ms": f"{speed.query_ms:.2f}" for name, speed in speeds.items()}
    values |= {f"cover_100k_s_{name}": f"{run.seconds_for_target:.0f}" for name, run in coverages.items()}
    values |= {f"bytes_per_passage_{name}": f"{run.bytes_per_passage:.0f}" for name, run in coverages.items()}
    values["bytes_per_passage"] = f"{max(run.bytes_per_passage for run in coverages.values()):.0f}"
    values["search_p99_x"] = f"{max(run.p99_ratio for run in coverages.values()):.2f}"
    return " ".join(["RESULT", *(f"{name}={value}" for name, value in values.items())])


async def measure(effort: Effort) -> None:
    texts = Texts()
    speeds = {name: await measure_speed(name, texts, count) for name, count in effort.texts.items()}
    coverages = {
        name: await measure_coverage(name, texts, count, effort.quiet_searches)
        for name, count in effort.messages.items()
    }
    for line in [*report(speeds, coverages), result_line(speeds, coverages)]:
        print(line)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.embed", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="checks that the benchmark works; the figures are meaningless"
    )
    asyncio.run(measure(QUICK if parser.parse_args(arguments).quick else FULL))


if __name__ == "__main__":
    main(sys.argv[1:])
