"""`make bench-tokens`: the tokens that a research session costs a model, with and without session state and budgets.

Two sessions of ten calls over the demo library are sent over HTTP to a server process, and the text that a model sees
is counted by a real tokenizer. Then every item and transcript is read under several budgets, to check that no response
exceeds its budget. The result is that of the session about one topic; the other one, and both together, are also
printed. `page_tokens` is the median size of a page of ten hits, for the queries of both sessions and the titles of all
notes, media and chats.
"""

import argparse
import statistics
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.processes import Cores, child, python
from bench.request_templates import MODERN, ToolCall, bearer
from bench.startup import announced_mcp_url
from bench.tokenizer import count_tokens
from config.settings import Settings
from sources.demo import DemoCollection, DemoConversation, DemoMedia, DemoNote, demo_uuid, read_demo

SCRIPT = Path(__file__).with_suffix(".toml")
# The session used for the result, and the other one.
HEADLINE = "one_topic"
SCRIPTS = (HEADLINE, "several_topics")
# The budget of each read in sessions with budgets.
READ_TOKENS = 600
# tldw's page size. Ours is the same by default, but limited in bytes.
PAGE = 20
# The budget of each search in sessions with budgets, in hits.
SHORT_PAGE = 8
# The number of hits on the pages that are measured.
PAGE_HITS = 10
BUDGETS = (300, 600, 1_200, 2_400)
MODES = ("snippet", "chunk", "chunk_with_siblings", "full")
FORMATS = ("text", "srt", "vtt", "json")


class InvalidScript(Exception):
    """The file is not a valid script."""


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search, or with `read` the reading of an item, which succeeds if the passage contains `says`."""

    query: str
    relevant: tuple[str, ...]
    read: str | None = None
    says: str | None = None

    @property
    def targets(self) -> frozenset[str]:
        """What this step should find: items, or a passage."""
        return frozenset(self.relevant if self.says is None else [f"{self.read}: {self.says}"])


class Variant(Struct, frozen=True, kw_only=True):
    """A way to run the same session."""

    title: str
    has_session: bool
    has_budgets: bool

    def search(self, step: Step, session: str | None) -> ToolCall:
        # An explicit limit disables the default response size.
        arguments: dict[str, Any] = {"query": step.query, "limit": SHORT_PAGE if self.has_budgets else PAGE}
        if not self.has_session:
            arguments["dedupe"] = "off"
        elif session is not None:
            arguments["session"] = session
        return ToolCall("knowledge_search", arguments)

    def read(self, step: Step) -> ToolCall:
        assert step.read is not None
        uri = uri_of(step.read)
        if not self.has_budgets:
            return ToolCall("knowledge_get", {"uri": uri, "retrieval": {"mode": "full"}})
        retrieval = {"mode": "chunk_with_siblings", "max_tokens": READ_TOKENS}
        return ToolCall("knowledge_get", {"uri": uri, "query": step.query, "retrieval": retrieval})


BOTH = Variant(title="session and budgets", has_session=True, has_budgets=True)
NEITHER = Variant(title="neither", has_session=False, has_budgets=False)
VARIANTS = (
    BOTH,
    Variant(title="budgets only", has_session=False, has_budgets=True),
    Variant(title="session only", has_session=True, has_budgets=False),
    NEITHER,
)


class Session(Struct, frozen=True):
    """The tokens of ten responses, and the targets that were in them."""

    variant: Variant
    tokens: tuple[int, ...]
    hits: frozenset[str]

    @property
    def tokens_per_target(self) -> float:
        return sum(self.tokens) / len(self.hits)


class Comparison(Struct, frozen=True):
    """One script, run in every variant."""

    targets: frozenset[str]
    sessions: tuple[Session, ...]

    @property
    def ours(self) -> Session:
        return next(session for session in self.sessions if session.variant == BOTH)

    @property
    def baseline(self) -> Session:
        return next(session for session in self.sessions if session.variant == NEITHER)

    @property
    def saved(self) -> float:
        return 1 - self.ours.tokens_per_target / self.baseline.tokens_per_target

    @property
    def recall_ratio(self) -> float:
        return len(self.ours.hits) / len(self.baseline.hits)


class ToolResponse(Struct, frozen=True):
    """`text` is what a model sees, `content` the same as structured content."""

    text: str
    content: Mapping[str, Any]


class CapViolation(Struct, frozen=True):
    """A response over its cap."""

    what: str
    cap: int
    got: int
    is_declared: bool = False


class Outcome(Struct, frozen=True):
    """`declared` are responses that report themselves that the budget is too small even for the item's description."""

    comparisons: Mapping[str, Comparison]
    page_tokens: float
    checks: int
    violations: tuple[CapViolation, ...]
    declared: tuple[CapViolation, ...] = ()

    def as_line(self) -> str:
        headline = self.comparisons[HEADLINE]
        return (
            f"RESULT saved={headline.saved:.4f} recall_ratio={headline.recall_ratio:.4f} "
            f"cap_violations={len(self.violations)} page_tokens={self.page_tokens:.0f}"
        )


def pool(comparisons: Mapping[str, Comparison]) -> Comparison:
    """Combines the sessions of each variant. A target of two scripts counts twice."""

    def prefixed(script: str, targets: frozenset[str]) -> frozenset[str]:
        return frozenset(f"{script}, {target}" for target in targets)

    sessions_by_script = {
        name: {session.variant: session for session in one.sessions} for name, one in comparisons.items()
    }
    variants = next(iter(sessions_by_script.values()))
    return Comparison(
        frozenset().union(*(prefixed(name, one.targets) for name, one in comparisons.items())),
        tuple(
            Session(
                variant,
                tuple(count for sessions in sessions_by_script.values() for count in sessions[variant].tokens),
                frozenset().union(
                    *(prefixed(name, sessions[variant].hits) for name, sessions in sessions_by_script.items())
                ),
            )
            for variant in variants
        ),
    )


# -- the script --------------------------------------------------------------------------------------------------------


def uri_of(name: str) -> str:
    source, _, key = name.partition("/")
    return f"{source}://{demo_uuid(source, key)}"


def names_by_title(demo: DemoCollection) -> dict[tuple[str, str], str]:
    """Maps titles to the names used in scripts. Hits are identified by title, because ids differ between libraries."""
    items_by_source: dict[str, tuple[DemoNote | DemoMedia | DemoConversation, ...]] = {
        "notes": demo.notes,
        "media": demo.media,
        "chats": demo.chats,
    }
    return {(source, item.title): f"{source}/{item.key}" for source, items in items_by_source.items() for item in items}


def read_scripts(path: Path = SCRIPT) -> dict[str, tuple[Step, ...]]:
    try:
        scripts = msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[Step, ...]])
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidScript(f"{path.name}: {error}") from error
    if set(scripts) != set(SCRIPTS):
        raise InvalidScript(f"{path.name}: expected tables {sorted(SCRIPTS)}, got {sorted(scripts)}")
    known = set(names_by_title(read_demo()).values())
    for step in (step for steps in scripts.values() for step in steps):
        unknown = {*step.relevant, *([step.read] if step.read else [])} - known
        if unknown:
            raise InvalidScript(f"call {step.query!r}: unknown items {sorted(unknown)}")
        if (step.read is None) != (step.says is None):
            raise InvalidScript(f"call {step.query!r}: expected both `read` and `says`, or neither")
    return scripts


# -- the server --------------------------------------------------------------------------------------------------------


class DemoClient:
    """A client of a server. The demo server requires no credential."""

    def __init__(self, url: str, credential: str | None = None) -> None:
        self._url = url
        self._credential = credential

    def call(self, call: ToolCall) -> ToolResponse:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call.params(modern=True)}
        headers = {
            "Content-Type": "application/json",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": call.name,
            **bearer(self._credential),
        }
        request = urllib.request.Request(self._url, msgspec.json.encode(message), headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
            result = msgspec.json.decode(response.read())["result"]
        if result.get("isError"):
            raise InvalidScript(f"{call.name} {call.arguments}: {result['content'][0]['text']}")
        return ToolResponse(result["content"][0]["text"], result["structuredContent"])


@contextmanager
def start_server() -> Iterator[DemoClient]:
    """Starts the command with an empty data directory and without rate limits."""
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        options = ("--port", "0", "--data-dir", f"{name}/data", "--log-level", "warning")
        unlimited = ("--rate-user-per-minute", "0", "--rate-tool-per-minute", "0", "--semantic-model", "auto")
        command = python("server.cli", "serve", "--demo", *options, *unlimited)
        with child(command, Cores.choose().servers, Path(name) / "server.log") as server:
            yield DemoClient(announced_mcp_url(server))


# -- the sessions ------------------------------------------------------------------------------------------------------


def compare(client: DemoClient, steps: Sequence[Step]) -> Comparison:
    targets = frozenset(target for step in steps for target in step.targets)
    return Comparison(targets, tuple(run_session(client, steps, variant, targets) for variant in VARIANTS))


def run_session(client: DemoClient, steps: Sequence[Step], variant: Variant, targets: frozenset[str]) -> Session:
    names = names_by_title(read_demo())
    tokens: list[int] = []
    seen: set[str] = set()
    session: str | None = None
    for step in steps:
        if step.read is None:
            response = client.call(variant.search(step, session))
            session = response.content["session"]
            seen |= {names.get((hit["source"], hit["title"]), "") for hit in response.content["results"]}
        else:
            response = client.call(variant.read(step))
            seen |= step.targets if step.says and step.says in response.content["content"] else set()
        tokens.append(count_tokens(response.text))
    return Session(variant, tuple(tokens), targets & seen)


# -- the pages ---------------------------------------------------------------------------------------------------------


def measure_pages(client: DemoClient, queries: Sequence[str]) -> float:
    """Returns the median tokens of a page of ten hits with default options."""
    pages = [
        client.call(ToolCall("knowledge_search", {"query": query, "limit": PAGE_HITS, "dedupe": "off"}))
        for query in queries
    ]
    full_pages = [page for page in pages if len(page.content["results"]) == PAGE_HITS]
    return statistics.median(count_tokens(page.text) for page in full_pages)


# -- the caps ----------------------------------------------------------------------------------------------------------


def uris_of_all(demo: DemoCollection) -> Iterator[str]:
    yield from (uri_of(f"notes/{item.key}") for item in demo.notes)
    yield from (uri_of(f"media/{item.key}") for item in demo.media)
    yield from (uri_of(f"chats/{item.key}") for item in demo.chats)
    # Characters and prompts have numeric ids, which start at 1 in an otherwise empty library.
    yield from (f"characters://{number}" for number in range(1, len(demo.characters) + 1))
    yield from (f"prompts://{number}" for number in range(1, len(demo.prompts) + 1))


def uris_of_recordings(demo: DemoCollection) -> Iterator[str]:
    yield from (uri_of(f"media/{item.key}") for item in demo.media if item.segments)


def check_reads(client: DemoClient, uris: Sequence[str], budgets: Sequence[int]) -> Iterator[CapViolation | None]:
    """Reads each item in each mode with each budget."""
    for uri in uris:
        for mode in MODES:
            for budget in budgets:
                retrieval = {"mode": mode, "max_tokens": budget}
                response = client.call(ToolCall("knowledge_get", {"uri": uri, "retrieval": retrieval}))
                got = count_tokens(response.text)
                is_declared = response.content.get("over_budget", False)
                yield CapViolation(f"{mode} of {uri}", budget, got, is_declared) if got > budget else None


def check_transcripts(client: DemoClient, uris: Sequence[str], budgets: Sequence[int]) -> Iterator[CapViolation | None]:
    for uri in uris:
        for format_name in FORMATS:
            for budget in budgets:
                arguments = {"media_id": uri.removeprefix("media://"), "format": format_name, "max_tokens": budget}
                got = count_tokens(client.call(ToolCall("media_transcript", arguments)).text)
                yield CapViolation(f"{format_name} transcript of {uri}", budget, got) if got > budget else None


def check_searches(client: DemoClient, queries: Sequence[str]) -> Iterator[CapViolation | None]:
    settings = Settings()
    widest = {"limit": 100, "snippet_length": 1000}
    for query in queries:
        for arguments, cap in (
            ({}, settings.fixed.search_response_default_bytes),
            (widest, settings.search_response_max_bytes),
        ):
            response = client.call(ToolCall("knowledge_search", {"query": query, **arguments}))
            got = len(response.text.encode())
            yield CapViolation(f"search {query!r} {arguments}", cap, got) if got > cap else None


# -- the run -----------------------------------------------------------------------------------------------------------


def measure(
    scripts: Mapping[str, Sequence[Step]], uris: Sequence[str], recordings: Sequence[str], budgets: Sequence[int]
) -> Outcome:
    with start_server() as client:
        comparisons = {name: compare(client, steps) for name, steps in scripts.items()}
        queries = [step.query for steps in scripts.values() for step in steps if step.read is None]
        page_tokens = measure_pages(client, [*queries, *(title for _, title in names_by_title(read_demo()))])
        checked = [
            *check_searches(client, queries),
            *check_reads(client, uris, budgets),
            *check_transcripts(client, recordings, budgets),
        ]
    over = [violation for violation in checked if violation is not None]
    violations, declared = (
        tuple(one for one in over if one.is_declared == is_declared) for is_declared in (False, True)
    )
    return Outcome(comparisons, page_tokens, len(checked), violations, declared)


def report(outcome: Outcome) -> Iterator[str]:
    for name, comparison in outcome.comparisons.items():
        yield from _table(name.replace("_", " "), comparison)
    yield from _table("both", pool(outcome.comparisons))
    yield f"a page of {PAGE_HITS} hits has {outcome.page_tokens:.0f} tokens (median)"
    declared = f"{len(outcome.declared)} over and declared"
    yield f"{outcome.checks} responses checked against their caps: {len(outcome.violations)} over, {declared}"
    for violation in sorted(outcome.violations, key=lambda one: one.got / one.cap, reverse=True)[:5]:
        yield f"  {violation.what}: {violation.got} of {violation.cap}"


def _table(title: str, comparison: Comparison) -> Iterator[str]:
    yield f"{f'{title}, {len(comparison.targets)} targets':<36} {'tokens':>8} {'found':>6} {'tokens each':>12}"
    for session in comparison.sessions:
        each = session.tokens_per_target
        yield f"  {session.variant.title:<34} {sum(session.tokens):>8} {len(session.hits):>6} {each:>12.0f}"
    missed = ", ".join(sorted(comparison.targets - comparison.ours.hits)) or "nothing"
    yield f"  saved {comparison.saved:.4f}, recall ratio {comparison.recall_ratio:.4f}; first row missed: {missed}"
    yield ""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.tokens", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check the caps of only a few responses")
    is_quick = parser.parse_args(arguments).quick
    scripts, demo = read_scripts(), read_demo()
    uris, recordings = list(uris_of_all(demo)), list(uris_of_recordings(demo))
    if is_quick:
        outcome = measure(scripts, uris[::10], recordings[:1], BUDGETS[:1])
    else:
        outcome = measure(scripts, uris, recordings, BUDGETS)
    for line in [*report(outcome), outcome.as_line()]:
        print(line)


if __name__ == "__main__":
    main()
