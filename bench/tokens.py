"""`make bench-tokens`: what a model pays for a research session, with the session's memory and budgets and without.

Two sessions of ten calls over the demo library go through the HTTP door of a server process, and the text that a model
is shown is counted by a real tokenizer. Then every item and transcript is read under several budgets, to see whether an
answer is ever larger than was allowed. The result is of the session whose questions come back to one matter; the other,
and both together, are printed beside it.
"""

import argparse
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.processes import Cores, child, python
from bench.tokens_counting import count_tokens
from bench.wires import MODERN, ToolCall
from config.settings import Settings
from sources.demo import demo_uuid
from sources.demo.collection import Chat, Collection, Media, Note, read_collection

SCRIPT = Path(__file__).with_suffix(".toml")
# The session that the result is about, and the other.
HEADLINE = "one_matter"
SCRIPTS = (HEADLINE, "several_matters")
# What the session with budgets gives each of its reads.
READ_TOKENS = 600
# The seed's page. Ours has as many hits by default, but ends where it has its bytes.
PAGE = 20
BUDGETS = (300, 600, 1_200, 2_400)
MODES = ("snippet", "chunk", "chunk_with_siblings", "full")
FORMATS = ("text", "srt", "vtt", "json")


class BadScript(Exception):
    """The file does not make a session."""


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search; or, with `read`, the reading of an item, which counts if the passage holds what `says` has."""

    query: str
    relevant: tuple[str, ...]
    read: str | None = None
    says: str | None = None

    @property
    def units(self) -> frozenset[str]:
        """What this step is after: items to be found, or a passage to be read."""
        return frozenset(self.relevant if self.says is None else [f"{self.read}: {self.says}"])


class Arm(Struct, frozen=True, kw_only=True):
    """A way to make the same session."""

    title: str
    has_memory: bool
    has_budgets: bool

    def search(self, step: Step, session: str | None) -> ToolCall:
        arguments: dict[str, Any] = {"query": step.query}
        if not self.has_budgets:
            arguments["limit"] = PAGE  # who names a limit gets so many hits, however long
        if not self.has_memory:
            arguments["dedupe"] = "off"
        elif session is not None:
            arguments["session"] = session
        return ToolCall("knowledge_search", arguments)

    def read(self, step: Step) -> ToolCall:
        assert step.read is not None
        uri = uri_of(step.read)
        if not self.has_budgets:
            return ToolCall("knowledge_get", {"uri": uri, "retrieval": {"mode": "full"}})
        narrow = {"mode": "chunk_with_siblings", "max_tokens": READ_TOKENS}
        return ToolCall("knowledge_get", {"uri": uri, "query": step.query, "retrieval": narrow})


BOTH = Arm(title="session and budgets", has_memory=True, has_budgets=True)
NEITHER = Arm(title="neither", has_memory=False, has_budgets=False)
ARMS = (
    BOTH,
    Arm(title="budgets only", has_memory=False, has_budgets=True),
    Arm(title="session only", has_memory=True, has_budgets=False),
    NEITHER,
)


class Session(Struct, frozen=True):
    """What ten answers cost, and which of the wanted units were in them."""

    arm: Arm
    tokens: tuple[int, ...]
    found: frozenset[str]

    @property
    def tokens_per_unit(self) -> float:
        return sum(self.tokens) / len(self.found)


class Comparison(Struct, frozen=True):
    """One script, held in every arm."""

    wanted: frozenset[str]
    sessions: tuple[Session, ...]

    @property
    def ours(self) -> Session:
        return next(session for session in self.sessions if session.arm == BOTH)

    @property
    def plain(self) -> Session:
        return next(session for session in self.sessions if session.arm == NEITHER)

    @property
    def saved(self) -> float:
        return 1 - self.ours.tokens_per_unit / self.plain.tokens_per_unit

    @property
    def recall_ratio(self) -> float:
        return len(self.ours.found) / len(self.plain.found)


class Answer(Struct, frozen=True):
    """`text` is what a model is shown; `content` the same as a value."""

    text: str
    content: Mapping[str, Any]


class Breach(Struct, frozen=True):
    """An answer over its cap."""

    what: str
    cap: int
    got: int
    is_told: bool = False


class Outcome(Struct, frozen=True):
    """`admitted` are the answers that say themselves that their budget is too small for what describes the item."""

    comparisons: Mapping[str, Comparison]
    checks: int
    breaches: tuple[Breach, ...]
    admitted: tuple[Breach, ...] = ()

    def as_line(self) -> str:
        headline = self.comparisons[HEADLINE]
        return (
            f"RESULT saved={headline.saved:.4f} recall_ratio={headline.recall_ratio:.4f} "
            f"cap_violations={len(self.breaches)}"
        )


def pool(comparisons: Mapping[str, Comparison]) -> Comparison:
    """All sessions of an arm as one. What two of them are after is two things to find."""

    def named(script: str, units: frozenset[str]) -> frozenset[str]:
        return frozenset(f"{script}, {unit}" for unit in units)

    held = {name: {session.arm: session for session in one.sessions} for name, one in comparisons.items()}
    arms = next(iter(held.values()))
    return Comparison(
        frozenset().union(*(named(name, one.wanted) for name, one in comparisons.items())),
        tuple(
            Session(
                arm,
                tuple(count for sessions in held.values() for count in sessions[arm].tokens),
                frozenset().union(*(named(name, sessions[arm].found) for name, sessions in held.items())),
            )
            for arm in arms
        ),
    )


# -- the script --------------------------------------------------------------------------------------------------------


def uri_of(name: str) -> str:
    source, _, key = name.partition("/")
    return f"{source}://{demo_uuid(source, key)}"


def names_by_title(demo: Collection) -> dict[tuple[str, str], str]:
    """Items as the script names them. Hits are known by their titles: a number is another in every library."""
    shelves: dict[str, tuple[Note | Media | Chat, ...]] = {
        "notes": demo.notes,
        "media": demo.media,
        "chats": demo.chats,
    }
    return {(source, item.title): f"{source}/{item.key}" for source, items in shelves.items() for item in items}


def read_scripts(path: Path = SCRIPT) -> dict[str, tuple[Step, ...]]:
    try:
        scripts = msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[Step, ...]])
    except (OSError, msgspec.DecodeError) as error:
        raise BadScript(f"{path.name}: {error}") from error
    if set(scripts) != set(SCRIPTS):
        raise BadScript(f"{path.name}: got tables {sorted(scripts)}, expected {sorted(SCRIPTS)}")
    known = set(names_by_title(read_collection()).values())
    for step in (step for steps in scripts.values() for step in steps):
        strange = {*step.relevant, *([step.read] if step.read else [])} - known
        if strange:
            raise BadScript(f"call {step.query!r}: names {sorted(strange)}, which the demo library has not")
        if (step.read is None) != (step.says is None):
            raise BadScript(f"call {step.query!r}: expected `read` and `says` both, or neither")
    return scripts


# -- the server --------------------------------------------------------------------------------------------------------


class Caller:
    """A client of the server, without a credential, as the demo is served."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, call: ToolCall) -> Answer:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call.params(modern=True)}
        headers = {
            "Content-Type": "application/json",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": call.name,
        }
        request = urllib.request.Request(self._url, msgspec.json.encode(message), headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
            result = msgspec.json.decode(response.read())["result"]
        if result.get("isError"):
            raise BadScript(f"{call.name} {call.arguments}: {result['content'][0]['text']}")
        return Answer(result["content"][0]["text"], result["structuredContent"])


@contextmanager
def serving() -> Iterator[Caller]:
    """The program as anybody starts it, on a library of its own and without rate limits."""
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        options = ("--port", "0", "--data-dir", f"{name}/data", "--log-level", "warning")
        unlimited = ("--rate-user-per-minute", "0", "--rate-tool-per-minute", "0")
        command = python("server.cli", "serve", "--demo", *options, *unlimited)
        with child(command, Cores.choose().servers, Path(name) / "server.log") as server:
            yield Caller(server.hear().decode().split()[-1])


# -- the sessions ------------------------------------------------------------------------------------------------------


def compare(caller: Caller, steps: Sequence[Step]) -> Comparison:
    wanted = frozenset(unit for step in steps for unit in step.units)
    return Comparison(wanted, tuple(hold_session(caller, steps, arm, wanted) for arm in ARMS))


def hold_session(caller: Caller, steps: Sequence[Step], arm: Arm, wanted: frozenset[str]) -> Session:
    names = names_by_title(read_collection())
    tokens: list[int] = []
    seen: set[str] = set()
    session: str | None = None
    for step in steps:
        if step.read is None:
            answer = caller.call(arm.search(step, session))
            session = answer.content["session"]
            seen |= {names.get((hit["source"], hit["title"]), "") for hit in answer.content["results"]}
        else:
            answer = caller.call(arm.read(step))
            seen |= step.units if step.says and step.says in answer.content["content"] else set()
        tokens.append(count_tokens(answer.text))
    return Session(arm, tuple(tokens), wanted & seen)


# -- the caps ----------------------------------------------------------------------------------------------------------


def uris_of_all(demo: Collection) -> Iterator[str]:
    yield from (uri_of(f"notes/{item.key}") for item in demo.notes)
    yield from (uri_of(f"media/{item.key}") for item in demo.media)
    yield from (uri_of(f"chats/{item.key}") for item in demo.chats)
    # These are known by number alone, which in a library that holds nothing else counts from 1.
    yield from (f"characters://{number}" for number in range(1, len(demo.characters) + 1))
    yield from (f"prompts://{number}" for number in range(1, len(demo.prompts) + 1))


def uris_of_recordings(demo: Collection) -> Iterator[str]:
    yield from (uri_of(f"media/{item.key}") for item in demo.media if item.segments)


def check_reads(caller: Caller, uris: Sequence[str], budgets: Sequence[int]) -> Iterator[Breach | None]:
    """Each item in each mode under each budget."""
    for uri in uris:
        for mode in MODES:
            for budget in budgets:
                retrieval = {"mode": mode, "max_tokens": budget}
                answer = caller.call(ToolCall("knowledge_get", {"uri": uri, "retrieval": retrieval}))
                got = count_tokens(answer.text)
                is_told = answer.content.get("over_budget", False)
                yield Breach(f"{mode} of {uri}", budget, got, is_told) if got > budget else None


def check_transcripts(caller: Caller, uris: Sequence[str], budgets: Sequence[int]) -> Iterator[Breach | None]:
    for uri in uris:
        for form in FORMATS:
            for budget in budgets:
                arguments = {"media_id": uri.removeprefix("media://"), "format": form, "max_tokens": budget}
                got = count_tokens(caller.call(ToolCall("media_transcript", arguments)).text)
                yield Breach(f"{form} transcript of {uri}", budget, got) if got > budget else None


def check_searches(caller: Caller, queries: Sequence[str]) -> Iterator[Breach | None]:
    settings = Settings()
    widest = {"limit": 100, "snippet_length": 1000}
    for query in queries:
        for arguments, cap in (
            ({}, settings.search_response_default_bytes),
            (widest, settings.search_response_max_bytes),
        ):
            answer = caller.call(ToolCall("knowledge_search", {"query": query, **arguments}))
            got = len(answer.text.encode())
            yield Breach(f"search {query!r} {arguments}", cap, got) if got > cap else None


# -- the run -----------------------------------------------------------------------------------------------------------


def measure(
    scripts: Mapping[str, Sequence[Step]], uris: Sequence[str], recordings: Sequence[str], budgets: Sequence[int]
) -> Outcome:
    with serving() as caller:
        comparisons = {name: compare(caller, steps) for name, steps in scripts.items()}
        queries = [step.query for steps in scripts.values() for step in steps if step.read is None]
        checked = [
            *check_searches(caller, queries),
            *check_reads(caller, uris, budgets),
            *check_transcripts(caller, recordings, budgets),
        ]
    over = [breach for breach in checked if breach is not None]
    breaches, admitted = (tuple(one for one in over if one.is_told == is_told) for is_told in (False, True))
    return Outcome(comparisons, len(checked), breaches, admitted)


def report(outcome: Outcome) -> Iterator[str]:
    for name, compared in outcome.comparisons.items():
        yield from _table(name.replace("_", " "), compared)
    yield from _table("both", pool(outcome.comparisons))
    told = f"{len(outcome.admitted)} more over and saying so"
    yield f"{outcome.checks} answers checked against their caps, {len(outcome.breaches)} over, {told}"
    for breach in sorted(outcome.breaches, key=lambda one: one.got / one.cap, reverse=True)[:5]:
        yield f"  {breach.what}: {breach.got} of {breach.cap}"


def _table(title: str, compared: Comparison) -> Iterator[str]:
    yield f"{f'{title}, {len(compared.wanted)} things to find':<36} {'tokens':>8} {'found':>6} {'tokens each':>12}"
    for session in compared.sessions:
        each = session.tokens_per_unit
        yield f"  {session.arm.title:<34} {sum(session.tokens):>8} {len(session.found):>6} {each:>12.0f}"
    missed = ", ".join(sorted(compared.wanted - compared.ours.found)) or "nothing"
    yield f"  saved {compared.saved:.4f}, recall ratio {compared.recall_ratio:.4f}; the first row missed: {missed}"
    yield ""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.tokens", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check the caps of a few answers only")
    is_quick = parser.parse_args(arguments).quick
    scripts, demo = read_scripts(), read_collection()
    uris, recordings = list(uris_of_all(demo)), list(uris_of_recordings(demo))
    if is_quick:
        outcome = measure(scripts, uris[::10], recordings[:1], BUDGETS[:1])
    else:
        outcome = measure(scripts, uris, recordings, BUDGETS)
    for line in [*report(outcome), outcome.as_line()]:
        print(line)


if __name__ == "__main__":
    main()
