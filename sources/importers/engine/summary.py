"""The result of an import: how many items were new, updated or skipped, and what went wrong where."""

import re
from typing import get_args

from msgspec import Struct

from sources.drafts import UpsertOutcome

OUTCOMES: tuple[UpsertOutcome, ...] = get_args(UpsertOutcome)
# The noun that a count refers to is the last word before one of these.
_AFTER_NOUN = re.compile(r" (?:of|in|from|with|without|not|about|other) | \(|\Z")


class ImportProblem(Struct, frozen=True):
    """A file or item that could not be imported. `location` is empty for a problem with the whole file."""

    file: str
    location: str
    problem: str


class OutcomeCounts(Struct):
    """Items of one kind by outcome. `kept` items are newer in the library than in the file. `deleted` items were
    deleted in the library earlier and stay deleted. Items in `conflict` keep the edits made in the library; only
    followed sources have them."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0
    kept: int = 0
    deleted: int = 0
    conflict: int = 0
    refused: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, outcome) for outcome in OUTCOMES)

    def add(self, outcome: UpsertOutcome, count: int = 1) -> None:
        setattr(self, outcome, getattr(self, outcome) + count)


class ImportSummary(Struct, kw_only=True):
    """`files` were opened; `failed_files` could not be read, or not to the end. `kinds` counts items by kind, with
    messages counted separately from their chats; `failed_items` counts those that could not be imported. `problems`
    holds the first of these failures. `doubtful_items` were imported but may be wrong; `doubts` says why for the first
    of them."""

    files: int = 0
    failed_files: int = 0
    failed_items: int = 0
    doubtful_items: int = 0
    kinds: dict[str, OutcomeCounts] = {}
    skipped: dict[str, int] = {}
    problems: list[ImportProblem] = []
    doubts: list[ImportProblem] = []

    @property
    def failures(self) -> int:
        return self.failed_files + self.failed_items

    @property
    def is_failed(self) -> bool:
        """Whether the import failed as a whole: there was nothing to read, or nothing could be read."""
        if not self.failures:
            return not self.files
        return all(counts.total == counts.refused for counts in self.kinds.values())

    def counts(self, kind: str) -> OutcomeCounts:
        return self.kinds.setdefault(kind, OutcomeCounts())

    def skip(self, reason: str, count: int = 1) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def add(self, other: "ImportSummary") -> None:
        self.files += other.files
        self.failed_files += other.failed_files
        self.failed_items += other.failed_items
        self.doubtful_items += other.doubtful_items
        self.problems += other.problems
        self.doubts += other.doubts
        for reason, count in other.skipped.items():
            self.skip(reason, count)
        for kind, counts in other.kinds.items():
            for outcome in OUTCOMES:
                self.counts(kind).add(outcome, getattr(counts, outcome))


def count_reason(count: int, reason: str) -> str:
    """Formats a skip reason with its count: `1 empty message`, `2,000 messages of a deleted conversation`."""
    if count == 1:
        return f"1 {reason}"
    boundary = _AFTER_NOUN.search(reason)
    end = boundary.start() if boundary else len(reason)
    noun, rest = reason[:end], reason[end:]
    is_regular = not noun.endswith("y") or noun[-2:-1] in "aeiou"
    plural = f"{noun}s" if is_regular else f"{noun.removesuffix('y')}ies"
    return f"{count:,} {plural}{rest}"
