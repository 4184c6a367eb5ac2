"""The hits of several sources as one list. Pure.

Scores mean the same in every source, so hits are ordered by them. Then hits beyond a few of one conversation or
document, and beyond most of ten of one source, step behind the others, and hits with the same content stand for one
another. None is lost: each keeps a position.
"""

from collections.abc import Hashable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sources.source import Match, Matches

# Scores are told apart in so many steps: a smaller difference is noise of the floating point, not relevance.
_SCORE_STEPS = 10_000
# Hits among which the sources share the places.
_SHARED = 10
# URIs told beside a hit with the same content; a further one is a hit of its own.
ALSO_IN_MAX = 10


class Candidate(Struct, frozen=True):
    """A hit, its source, its rank there, from 0, and the answer it came in."""

    source: str
    match: Match
    rank: int
    answer: Matches


class Entry(Struct, frozen=True):
    """One position of the merged list. An entry that `is_told` is named in the `also_in` of an earlier one."""

    candidate: Candidate
    also_in: tuple[str, ...] = ()
    is_told: bool = False

    @property
    def match(self) -> Match:
        return self.candidate.match


def by_score(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best first; those that are equally good by date."""
    equals: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        equals.setdefault(round(candidate.match.score * _SCORE_STEPS), []).append(candidate)
    ordered: list[Candidate] = []
    for score in sorted(equals, reverse=True):
        ordered += equals[score] if len(equals[score]) == 1 else by_date(equals[score])
    return ordered


def by_date(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Newest first, what has no date last, then by URI."""
    ordered = sorted(candidates, key=lambda candidate: candidate.match.uri)
    return sorted(ordered, key=lambda candidate: candidate.match.last_modified or "", reverse=True)


def spread(candidates: Sequence[Candidate], siblings_max: int) -> list[Candidate]:
    """The same list, but of each item no more than `siblings_max` hits before the others had their turn."""
    met: dict[tuple[str, str | int], int] = {}
    kept: list[Candidate] = []
    later: list[Candidate] = []
    for candidate in candidates:
        parent = (candidate.source, candidate.match.id)
        met[parent] = siblings = met.get(parent, 0) + 1
        (kept if siblings <= siblings_max else later).append(candidate)
    return kept + later


def share(candidates: Sequence[Candidate], source_max: int) -> list[Candidate]:
    """The same list, but of every ten hits no more than `source_max` are of one source while others still have some."""
    ordered: list[Candidate] = []
    waiting = list(candidates)
    while waiting:
        met: dict[str, int] = {}
        taken: list[Candidate] = []
        later: list[Candidate] = []
        for candidate in waiting:
            met[candidate.source] = own = met.get(candidate.source, 0) + 1
            (taken if len(taken) < _SHARED and own <= source_max else later).append(candidate)
        room = _SHARED - len(taken)  # where one source alone is left
        ordered += taken + later[:room]
        waiting = later[room:]
    return ordered


class Fairness(Struct, frozen=True):
    """How many hits of one item, and of one source among ten, keep their rank while others wait."""

    siblings_max: int
    source_max: int

    def order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return share(spread(by_score(candidates), self.siblings_max), self.source_max)


def collapse(candidates: Sequence[Candidate]) -> list[Entry]:
    """The list as entries: of hits with the same content, the first names the others."""
    first: dict[Hashable, int] = {}
    entries: list[Entry] = []
    for position, candidate in enumerate(candidates):
        match = candidate.match
        # A hit that cannot say what it holds is like itself alone.
        content = match.uri if match.content is None else match.content
        at = first.setdefault(content, position)
        if at == position:
            entries.append(Entry(candidate))
        elif len(entries[at].also_in) < ALSO_IN_MAX:
            entries[at] = replace(entries[at], also_in=_with(entries[at], match.uri))
            entries.append(Entry(candidate, is_told=True))
        else:
            first[content] = position
            entries.append(Entry(candidate))
    return entries


def _with(first: Entry, uri: str) -> tuple[str, ...]:
    """A source that names one URI twice has named it once."""
    return first.also_in if uri in (first.match.uri, *first.also_in) else (*first.also_in, uri)
