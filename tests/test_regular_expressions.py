"""Every regular expression of the product takes time proportional to the text, whatever the text is.

Times are CPU times and are compared with each other, never with a clock: a text eight times as long may take eight
times as long, and a character at most as long as a few matches of a trivial pattern.
"""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.regular_expressions import AnyPattern, AttackText, ProductPattern, attack_texts, product_patterns
from tests.test_architecture import PACKAGES, ROOT

CHARS, GROWTH = 2_000, 8
# Linear growth is 8 and quadratic growth 64.
GROWTH_MAX = 24
# In matches of a pattern that accepts any character, per character. Most patterns need at most one.
COST_MAX = 8.0
COST_NOTICED = 4.0
CPU_LIMIT_S = 1.0
ANY_CHARACTER = re.compile("(?s).")

PATTERNS = list(product_patterns(ROOT, PACKAGES))


class TookTooLong(Exception):
    """Raised inside a match that exceeds its CPU time; an exponential one would never end."""


@contextmanager
def cpu_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
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


def problem_with(product: ProductPattern, attack: AttackText, reference_s: float) -> str | None:
    """Returns why a pattern is too slow on a text. One slow measurement is repeated before it counts."""
    text = attack.of_length(CHARS)
    if cpu_time(product.pattern, text, is_anchored=product.is_anchored) < COST_NOTICED * reference_s:
        return None
    longer = attack.of_length(CHARS * GROWTH)
    limit_s = COST_MAX * reference_s * len(longer) / CHARS
    # A pattern whose time grew too fast from this cost on would exceed the limit, too.
    if cpu_time(product.pattern, longer, is_anchored=product.is_anchored) < limit_s:
        return None
    short_s, long_s = (
        min(cpu_time(product.pattern, subject, is_anchored=product.is_anchored) for _ in range(3))
        for subject in (text, longer)
    )
    if long_s > GROWTH_MAX * short_s:
        return f"{len(longer)} characters take {long_s / short_s:.0f} times as long as {len(text)}"
    cost = long_s / reference_time(len(longer))
    return f"a character takes as long as {cost:.0f} matches" if cost > COST_MAX else None


@pytest.mark.parametrize("product", PATTERNS, ids=lambda product: product.name)
def test_a_pattern_is_linear_on_hostile_text(product: ProductPattern) -> None:
    reference_s = reference_time(CHARS)
    for attack in attack_texts(product.pattern):
        shown = f"{attack.start[:60]!r} + {attack.repeated[:60]!r} * n + {attack.end!r}"
        try:
            with cpu_limit():
                problem = problem_with(product, attack, reference_s)
        except TookTooLong:
            problem = f"more than {CPU_LIMIT_S} s of CPU time for at most {CHARS * GROWTH} characters"
        assert problem is None, f"{product.pattern.pattern!r} on {shown}: {problem}"


@pytest.mark.parametrize(
    "slow", [r"\s*(\w+)\s*$", r"(a+)+$", r"<b>(.*?)</b>", r"<v[ \t]+([^<>]{1,200})>", r"[.!?]+(?=\s)", r"x*y"]
)
def test_the_texts_find_slow_patterns(slow: str) -> None:
    product = ProductPattern("slow", re.compile(slow, re.DOTALL), is_anchored=False)
    with pytest.raises(AssertionError):
        test_a_pattern_is_linear_on_hostile_text(product)


def test_patterns_are_found_wherever_they_are_written() -> None:
    names = {product.name.partition(":")[0] for product in PATTERNS}
    assert {
        "sources.text.excerpts._SENTENCE_END",  # a constant of a module
        "sources.text.identifiers._SPELLINGS",  # in a tuple
        "sources.search.term_matching._SequenceMatcher",  # in a class
        "sources.importers.engine.front_matter",  # in a call
    } <= names
    files = [path for package in PACKAGES for path in Path(ROOT, package).rglob("*.py")]
    using = [path for path in files if "re.compile(" in path.read_text()]
    assert len(using) > 50
