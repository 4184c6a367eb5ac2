"""The hits of several sources as one list. Pure.

Scores mean the same in every source, so hits are ordered by them. Then hits beyond a few of one conversation or
document step behind the others, and hits with the same content stand for one another. None is lost: each keeps a
position.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sources.source import Match, Matches

# A difference beyond this is noise of the floating point, not relevance.
_SCORE_DIGITS = 4
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
    return sorted(by_date(candidates), key=lambda candidate: -round(candidate.match.score, _SCORE_DIGITS))


def by_date(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Newest first, what has no date last, then by URI."""
    ordered = sorted(candidates, key=lambda candidate: candidate.match.uri)
    return sorted(ordered, key=lambda candidate: candidate.match.last_modified or "", reverse=True)


def spread(candidates: Sequence[Candidate], siblings_max: int) -> list[Candidate]:
    """The same list, but of each item no more than `siblings_max` hits before the others had their turn."""
    met: Counter[tuple[str, str | int]] = Counter()
    kept: list[Candidate] = []
    later: list[Candidate] = []
    for candidate in candidates:
        parent = (candidate.source, candidate.match.id)
        met[parent] += 1
        (kept if met[parent] <= siblings_max else later).append(candidate)
    return kept + later


def collapse(candidates: Sequence[Candidate]) -> list[Entry]:
    """The list as entries: of hits with the same content, the first names the others."""
    groups: dict[Hashable, list[int]] = {}
    entries: list[Entry] = []
    for position, candidate in enumerate(candidates):
        match = candidate.match
        entries.append(Entry(candidate))
        # A hit that cannot say what it holds is like itself alone.
        content = match.uri if match.content is None else match.content
        group = groups.setdefault(content, [])
        group.append(position)
        if len(group) > ALSO_IN_MAX + 1:
            groups[content] = [group.pop()]
        elif len(group) > 1:
            first = entries[group[0]]
            entries[group[0]] = replace(first, also_in=_with(first, match.uri))
            entries[position] = Entry(candidate, is_told=True)
    return entries


def _with(first: Entry, uri: str) -> tuple[str, ...]:
    """A source that names one URI twice has named it once."""
    return first.also_in if uri in (first.match.uri, *first.also_in) else (*first.also_in, uri)
