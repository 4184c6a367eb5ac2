"""`docs/compatibility.md`, written from the manifests: what differs from each design and why, and every promise with
the tests that keep it."""

import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from tests.compatibility import seed_000, seed_001, seed_001_chat, seed_002, seed_003, seed_004
from tests.compatibility.manifest import Promise


class Seed(Struct, frozen=True):
    """A design, what it is called and what its promises are about."""

    title: str
    about: str
    promises: Sequence[Promise]


SEEDS: Mapping[str, Seed] = {
    "000": Seed(
        "Conversation search (Letta)",
        "The tool `conversation_search`, in profile `letta` at `/mcp/letta` and in `full`.",
        seed_000.PROMISES,
    ),
    "001": Seed(
        "Conversation Persistence",
        "The conversations API over REST, the chat that fills it, export and import. See `docs/rest.md` and "
        "`docs/chat.md`.",
        (*seed_001.PROMISES, *seed_001_chat.PROMISES),
    ),
    "002": Seed(
        "Message search",
        "The tool `msg_search`, in profile `bus` at `/mcp/bus` and in `full`; `GET /api/search`, and the bus that "
        "fills it.",
        seed_002.PROMISES,
    ),
    "003": Seed(
        "MCP Context Search and Retrieval (FTS-first), v0.1",
        "Every tool, argument, default and field of the design is there.",
        seed_003.PROMISES,
    ),
    "004": Seed(
        "Layered memory",
        "`search`, `get_observations` and `read` in profile `memory` at `/mcp/memory`; in `full` they are "
        "`memory_search`, `memory_get_observations` and `memory_read`. See `docs/memory.md`.",
        seed_004.PROMISES,
    ),
}

_HEAD = """\
# Compatibility

Florilegium implements published designs, and differs from them where they cannot work, or where a caller would be told
something untrue. This page says where and why, for people who know the designs. Below each table stands everything the
design promises, in our words, with the tests that keep it.

Written by `make docs` from the manifests in `tests/compatibility/`. A promise without a test fails the test suite.
"""


def compatibility_markdown(seeds: Mapping[str, Seed]) -> str:
    return "\n".join([_HEAD, *(line for number, seed in seeds.items() for line in _section(number, seed))])


def _section(number: str, seed: Seed) -> Iterator[str]:
    yield f"## {number}: {seed.title}"
    yield ""
    yield seed.about
    yield ""
    yield from _differences(seed.promises)
    yield "<details>"
    yield f"<summary>All {len(seed.promises)} promises, and the tests that keep them</summary>"
    yield ""
    for promise in seed.promises:
        yield f"- `{promise.id}` {promise.says}"
        yield from (f"  - `{test}`" for test in promise.tests)
    yield ""
    yield "</details>"
    yield ""


def _differences(promises: Sequence[Promise]) -> Iterator[str]:
    differing = [promise for promise in promises if promise.differs is not None]
    if not differing:
        return
    yield "| the design | Florilegium, and why |"
    yield "|---|---|"
    yield from (f"| {_cell(promise.says)} | {_cell(promise.differs or '')} |" for promise in differing)
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(compatibility_markdown(SEEDS))
