"""The ladder of retrieval modes: snippet, chunk, chunk_with_siblings, full, auto. Pure: passages and a budget in, the
text that fits out.

A budget is hard. It pays for the whole answer, what describes the item included; a passage that is larger than the
budget is cut at a word border and the cut is told. What two neighbouring passages share is not said twice.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from config.numbers import clamp
from config.settings import Settings
from sources.items import Mode, RetrievalOptions
from sources.preferences import Preferences
from sources.reading.cursors import Position
from sources.text.token_estimates import TokenScale
from sources.text.word_boundaries import next_word_start, word_boundary_before

SNIPPET_MAX_CHARS = 1000
# For the sizes of chunks, which are no promise.
CHARS_PER_TOKEN = 4.0
CHARS_PER_TOKEN_MAX = 8.0
CHUNK_TOKENS_MIN = 16
CHUNK_TOKENS_MAX = 4000
WINDOW_MAX = 50
# Of a room too small for its passage, the share that shows what stands before the match.
_LEAD_SHARE = 0.25

Step = Literal["snippet", "chunk", "chunk_with_siblings", "full"]
N = TypeVar("N", int, float)


class Plan(Struct, frozen=True, kw_only=True):
    """A get as it will be carried out: every default filled in, every number in its range."""

    mode: Step
    snippet_length: int
    max_tokens: int
    scale: TokenScale
    chunk_chars: int
    overlap_chars: int
    window: int
    prefer_prechunked: bool

    @property
    def budget(self) -> int:
        return self.scale.budget(self.max_tokens)


def make_plan(
    options: RetrievalOptions | None, preferred: Preferences, settings: Settings, default_mode: Mode = "snippet"
) -> Plan:
    """The caller's options over its preferences over the server's settings. `default_mode` is for a caller without any
    options; options that name no mode ask for a snippet."""
    given = options or RetrievalOptions(mode=default_mode)
    asked = _first(given.max_tokens, preferred.max_tokens)
    mode = _step(given.mode or "snippet", has_budget=asked is not None)
    usual = settings.retrieval_max_tokens if mode == "full" else settings.retrieval_default_tokens
    scale = TokenScale(chars_per_token(given.chars_per_token, preferred))
    per_token = scale.chars_per_token or CHARS_PER_TOKEN
    size = clamp(given.chunk_size_tokens or settings.retrieval_chunk_tokens, CHUNK_TOKENS_MIN, CHUNK_TOKENS_MAX)
    overlap = _first(given.chunk_overlap_tokens, settings.retrieval_chunk_overlap_tokens) or 0
    window = _first(given.sibling_window, preferred.sibling_window, settings.retrieval_sibling_window) or 0
    return Plan(
        mode=mode,
        snippet_length=snippet_length(given.snippet_length, preferred, settings),
        max_tokens=clamp(usual if asked is None else asked, 1, settings.retrieval_max_tokens),
        scale=scale,
        chunk_chars=int(size * per_token),
        overlap_chars=int(clamp(overlap, 0, size // 2) * per_token),
        window=clamp(window, 0, WINDOW_MAX),
        prefer_prechunked=given.prefer_prechunked is not False,
    )


def snippet_length(given: int | None, preferred: Preferences, settings: Settings) -> int:
    wanted = _first(given, preferred.snippet_length)
    return clamp(settings.search_snippet_chars if wanted is None else wanted, 1, SNIPPET_MAX_CHARS)


def chars_per_token(given: float | None, preferred: Preferences) -> float | None:
    """None where nobody says: then tokens are estimated by what the text is made of."""
    wanted = given if given is not None else preferred.chars_per_token
    # A comparison with NaN is false, so it would pass any clamp.
    return None if wanted is None or math.isnan(wanted) else clamp(wanted, 1.0, CHARS_PER_TOKEN_MAX)


def _step(mode: Mode, *, has_budget: bool) -> Step:
    if mode == "auto":
        return "chunk_with_siblings" if has_budget else "snippet"
    return mode


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


class Passage(Struct, frozen=True):
    """A piece of an item in reading order. `offset` is where its text stands in the item's text, or None for one that
    stands alone, as a message does. `about` is told of it among the attachments."""

    index: int
    text: str
    offset: int | None = None
    about: Mapping[str, Any] | None = None

    def place(self, within: int) -> Position:
        """A place in this passage as a place in the item."""
        if self.offset is not None:
            return Position(0, self.offset + within)
        return Position(self.index, within) if within < len(self.text) else Position(self.index + 1, 0)


class Taken(Struct, frozen=True, kw_only=True):
    """What fits, and the place right after it."""

    text: str
    end: Position
    attachments: tuple[Mapping[str, Any], ...] | None = None
    truncated: bool = False


class Room(Struct, frozen=True):
    """What is left of a budget for a text, as the scale weighs."""

    weight: int
    scale: TokenScale = TokenScale()

    @property
    def most_chars(self) -> int:
        return self.scale.max_chars(self.weight)

    def fitting(self, text: str) -> int:
        return self.scale.count_fitting(text, self.weight)

    def cost(self, passage: Passage) -> int:
        return self.scale.weigh(passage.text) + self.cost_about(passage)

    def cost_about(self, passage: Passage) -> int:
        """Of its attachment, the range it names at its widest, in brackets that stand for its comma."""
        if passage.about is None:
            return 0
        return self.scale.weigh_json([{**passage.about, "start": self.most_chars, "end": self.most_chars}])

    def joint_cost(self, before: Passage, after: Passage) -> int:
        separator, shared = _joint(before, after)
        return self.scale.weigh(separator) - self.scale.weigh(after.text[:shared])

    def is_too_small_for(self, passage: Passage) -> bool:
        """Of a very long text no more is weighed than fits."""
        left = self.weight - self.cost_about(passage)
        return left < 0 or self.scale.count_fitting(passage.text, left) < len(passage.text)


def take_around(passages: Sequence[Passage], anchor: int, room: Room, window: int, focus: int = 0) -> Taken:
    """The anchor passage, and its siblings nearest first for as long as they fit; in reading order.

    `passages` is a run without holes and `anchor` a place in it; `focus` is where in the anchor's text the match is,
    so that a cut keeps it. A side ends at the first sibling that does not fit: a hole would read as continuous text.
    """
    if room.is_too_small_for(passages[anchor]):
        return take_part(passages[anchor], room, focus)
    first, last = anchor, anchor
    left = room.weight - room.cost(passages[anchor])
    reach_first, reach_last = max(0, anchor - window), min(len(passages) - 1, anchor + window)
    while first > reach_first or last < reach_last:
        if first > reach_first:
            cost = room.cost(passages[first - 1]) + room.joint_cost(passages[first - 1], passages[first])
            first, left, reach_first = (first - 1, left - cost, reach_first) if cost <= left else (first, left, first)
        if last < reach_last:
            cost = room.cost(passages[last + 1]) + room.joint_cost(passages[last], passages[last + 1])
            last, left, reach_last = (last + 1, left - cost, reach_last) if cost <= left else (last, left, last)
    return join(passages[first : last + 1])


def take_forward(passages: Sequence[Passage], room: Room, skip: int = 0) -> Taken:
    """From the `skip`-th character of the first passage on, as many as fit. Only the first is ever cut."""
    first = passages[0]
    if skip:
        offset = first.offset + skip if first.offset is not None else None
        first = Passage(first.index, first.text[skip:], offset, first.about)
    if room.is_too_small_for(first):
        taken = take_part(first, room)
        # What was skipped belongs to the passage all the same when its end is named.
        shift = skip if first.offset is None else 0
        return replace(taken, end=Position(taken.end.index, taken.end.offset + shift))
    run, left = [first], room.weight - room.cost(first)
    for passage in passages[1:]:
        left -= room.cost(passage) + room.joint_cost(run[-1], passage)
        if left < 0:
            break
        run.append(passage)
    return join(run)


def take_part(passage: Passage, room: Room, focus: int = 0) -> Taken:
    """As much of one passage as fits, around `focus`; nothing where not even one character does. What is told of it is
    left out where it would take more than its text."""
    scale, about = room.scale, room.cost_about(passage)
    if 2 * about > room.weight:
        passage, about = Passage(passage.index, passage.text, passage.offset), 0
    text, left = passage.text, max(0, room.weight - about)
    lead = scale.count_fitting_before(text, int(left * _LEAD_SHARE), focus)
    tail = scale.count_fitting_before(text, left, len(text))
    start = min(next_word_start(text, min(focus - lead, len(text) - tail)), focus)
    end = word_boundary_before(text, start + scale.count_fitting(text, left, start), start)
    return Taken(
        text=passage.text[start:end],
        end=passage.place(end),
        attachments=_attachments([(passage, 0, end - start)]),
        truncated=end - start < len(text),
    )


def join(run: Sequence[Passage]) -> Taken:
    """One text of neighbouring passages; what a passage shares with the one before it is left out."""
    text = run[0].text
    spans = [(run[0], 0, len(text))]
    for before, passage in itertools.pairwise(run):
        separator, shared = _joint(before, passage)
        start = len(text) + len(separator)
        text += separator + passage.text[shared:]
        spans.append((passage, start, len(text)))
    return Taken(text=text, end=run[-1].place(len(run[-1].text)), attachments=_attachments(spans))


def _joint(before: Passage, after: Passage) -> tuple[str, int]:
    """What stands between two neighbours, and how many characters of the second the first has said already.

    Stored chunks come from importers too, so an overlap counts only where the texts really agree.
    """
    if before.offset is None or after.offset is None:
        return "\n\n", 0
    shared = before.offset + len(before.text) - after.offset
    if shared == 0:
        return "", 0
    if 0 < shared < len(after.text) and before.text.endswith(after.text[:shared]):
        return "", shared
    if shared >= len(after.text) and after.text in before.text:
        return "", len(after.text)
    return "\n", 0


def _attachments(spans: Sequence[tuple[Passage, int, int]]) -> tuple[Mapping[str, Any], ...] | None:
    told = tuple({**p.about, "start": start, "end": end} for p, start, end in spans if p.about is not None)
    return told or None
