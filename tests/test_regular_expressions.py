"""Every regular expression of the product takes time proportional to the text, whatever the text is.

Times are CPU times and are compared with each other, never with a clock: a text eight times as long may take eight
times as long, and a character at most as long as a few matches of a trivial pattern.
"""

import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.cases import each_case
from tests.regular_expressions import (
    AnyPattern,
    AttackText,
    ProductPattern,
    attack_texts,
    code,
    inner_nodes,
    parser,
    product_patterns,
)
from tests.test_architecture import PACKAGES, ROOT

# On shorter texts, a pattern whose time grows slowly takes hardly more than the pattern that it is compared with.
CHARS, GROWTH = 2_000, 8
# Linear growth is 8 and quadratic growth 64.
GROWTH_MAX = 24
# In matches of a pattern that accepts any character, per character. Most patterns need at most one.
COST_MAX = 8.0
COST_NOTICED = 4.0
CPU_LIMIT_S_PER_CHAR = 0.0005
ROUNDS = 10
PARTS = 4
ANY_CHARACTER = re.compile("(?s).")

pytestmark = pytest.mark.slow("measures every pattern on long texts")


@cache
def patterns() -> list[ProductPattern]:
    return list(product_patterns(ROOT, PACKAGES))


class TookTooLong(Exception):
    """Raised inside a match that exceeds its CPU time; an exponential one would never end."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def cpu_time(pattern: AnyPattern, text: str, *, is_anchored: bool) -> float:
    subject = text if isinstance(pattern.pattern, str) else text.encode("utf-8", "surrogatepass")
    began = time.thread_time()
    if is_anchored:
        pattern.match(subject)  # type: ignore[arg-type]  # the text has the type of the pattern
        pattern.fullmatch(subject)  # type: ignore[arg-type]
    else:
        for _ in pattern.finditer(subject):  # type: ignore[arg-type]
            pass
    return time.thread_time() - began


def reference_time(chars: int) -> float:
    return min(cpu_time(ANY_CHARACTER, "a" * chars, is_anchored=False) for _ in range(3))


def problem_with(product: ProductPattern, attack: AttackText, chars: int, reference_s: float) -> str | None:
    """Returns why a pattern is too slow on a text.

    It is too slow if it is slow in every one of several rounds: on a busy machine, the CPU time of one round can be
    twice that of the next.
    """
    text = attack.of_length(chars)
    if cpu_time(product.pattern, text, is_anchored=product.is_anchored) < COST_NOTICED * reference_s:
        return None
    longer = attack.of_length(chars * GROWTH)
    limit_s = COST_MAX * reference_s * len(longer) / chars
    # A pattern whose time grew too fast from this cost on would exceed the limit, too.
    if cpu_time(product.pattern, longer, is_anchored=product.is_anchored) < limit_s:
        return None
    problem = None
    for _ in range(ROUNDS):
        short_s, long_s = (
            cpu_time(product.pattern, subject, is_anchored=product.is_anchored) for subject in (text, longer)
        )
        cost = long_s / reference_time(len(longer))
        if long_s > GROWTH_MAX * short_s:
            problem = f"{len(longer)} characters take {long_s / short_s:.0f} times as long as {len(text)}"
        elif cost > COST_MAX:
            problem = f"a character takes as long as {cost:.0f} matches"
        else:
            return None
    return problem


def problems_of(product: ProductPattern, chars: int) -> Iterator[str]:
    reference_s, limit_s = reference_time(chars), CPU_LIMIT_S_PER_CHAR * chars
    for attack in attack_texts(product.pattern):
        try:
            with cpu_limit(limit_s):
                problem = problem_with(product, attack, chars, reference_s)
        except TookTooLong:
            problem = f"more than {limit_s} s of CPU time for at most {chars * GROWTH} characters"
        if problem is not None:
            shown = f"{attack.start[:60]!r} + {attack.repeated[:60]!r} * n + {attack.end!r}"
            yield f"{product.name}: {product.pattern.pattern!r} on {shown}: {problem}"


def first_problems(products: list[ProductPattern], chars: int) -> list[str]:
    """One text is enough to reject a pattern, and others could take as long as the limit."""
    problems = (next(problems_of(product, chars), None) for product in products)
    return [problem for problem in problems if problem is not None]


# Several tests, so that processes can share the work.
@pytest.mark.parametrize("part", range(PARTS))
def test_patterns_are_linear_on_long_hostile_text(part: int) -> None:
    assert first_problems(patterns()[part::PARTS], CHARS) == []


def has_lookaround(nodes: Iterable[tuple[Any, Any]], *, is_possessive: bool = False) -> bool:
    """Whether a possessive repetition contains one."""
    return any(
        (is_possessive and operator in (code.ASSERT, code.ASSERT_NOT))
        or any(
            has_lookaround(part, is_possessive=is_possessive or operator is code.POSSESSIVE_REPEAT)
            for part in inner_nodes(operator, argument)
        )
        for operator, argument in nodes
    )


def test_no_possessive_repetition_contains_a_lookaround() -> None:
    """Python before 3.11.5 matches too little with it (gh-106052). An atomic group does the same."""
    assert has_lookaround(parser.parse(r"(?:a(?=b)|b)*+"))
    found = [one for one in patterns() if has_lookaround(parser.parse(one.pattern.pattern, one.pattern.flags))]

    assert [one.name for one in found] == []


@each_case(
    "slow",
    [
        r"\s*(\w+)\s*$",
        r"(a+)+$",
        r"<b>(.*?)</b>",
        r"<v[ \t]+([^<>]{1,200})>",
        r"[.!?]+(?=\s)",
        r"x*y",
    ],
)
def test_the_texts_find_slow_patterns(slow: str) -> None:
    product = ProductPattern("slow", re.compile(slow, re.DOTALL), is_anchored=False)
    # A slow pattern passes if the trivial one takes too long in any round, which happens on a busy machine.
    assert any(next(problems_of(product, CHARS), None) for _ in range(5))


def test_patterns_are_found_wherever_they_are_written() -> None:
    names = {product.name.partition(":")[0] for product in patterns()}
    assert {
        "sources.text.chunking._SENTENCE_END",  # a constant of a module
        "sources.text.segmentation._SPELLINGS",  # in a tuple
        "sources.search.term_matching._SequenceMatcher",  # in a class
        "sources.importers.engine.markdown_text",  # in a call
        "sources.times.attached._patterns",  # compiled from tables
    } <= names
    files = [path for package in PACKAGES for path in Path(ROOT, package).rglob("*.py")]
    using = [path for path in files if "re.compile(" in path.read_text()]
    assert len(using) > 50
