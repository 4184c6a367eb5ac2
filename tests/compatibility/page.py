"""`docs/compatibility.md`, written from the manifests: what differs from each design and why, and every promise with
the tests that keep it."""

import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from tests.compatibility.manifest import Promise
from tests.compatibility.manifests import agentchatbus, agentkit, agentkit_chat, conversation_memory, letta, tldw


class Design(Struct, frozen=True):
    """A design, what it is called and what its promises are about."""

    title: str
    about: str
    promises: Sequence[Promise]


DESIGNS: Mapping[str, Design] = {
    "letta": Design(
        "Conversation search (Letta)",
        "The tool `conversation_search`, in profile `letta` at `/mcp/letta` and in `full`.",
        letta.PROMISES,
    ),
    "agentkit": Design(
        "Conversation Persistence",
        "The conversations API over REST, the chat that fills it, export and import. See `docs/rest.md` and "
        "`docs/chat.md`.",
        (*agentkit.PROMISES, *agentkit_chat.PROMISES),
    ),
    "agentchatbus": Design(
        "Message search",
        "The tool `msg_search`, in profile `bus` at `/mcp/bus` and in `full`; `GET /api/search`, and the bus that "
        "fills it.",
        agentchatbus.PROMISES,
    ),
    "tldw": Design(
        "MCP Context Search and Retrieval (FTS-first), v0.1",
        "Every tool, argument, default and field of the design is there.",
        tldw.PROMISES,
    ),
    "conversation_memory": Design(
        "Layered memory",
        "`search`, `get_observations` and `read` in profile `memory` at `/mcp/memory`; in `full` they are "
        "`memory_search`, `memory_get_observations` and `memory_read`. See `docs/memory.md`.",
        conversation_memory.PROMISES,
    ),
}

_HEAD = """\
# Compatibility

Florilegium implements published designs, and differs from them where they cannot work, or where a caller would be told
something untrue. This page says where and why, for people who know the designs. Below each table stands everything the
design promises, in our words, with the tests that keep it.

Written by `make docs` from the manifests in `tests/compatibility/`. A promise without a test fails the test suite.
"""


def compatibility_markdown(designs: Mapping[str, Design]) -> str:
    return "\n".join([_HEAD, *(line for number, design in designs.items() for line in _section(number, design))])


def _section(number: str, design: Design) -> Iterator[str]:
    yield f"## {number}: {design.title}"
    yield ""
    yield design.about
    yield ""
    yield from _differences(design.promises)
    yield "<details>"
    yield f"<summary>All {len(design.promises)} promises, and the tests that keep them</summary>"
    yield ""
    for promise in design.promises:
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
    sys.stdout.write(compatibility_markdown(DESIGNS))
