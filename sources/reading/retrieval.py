"""Retrieval modes (snippet, chunk, chunk_with_siblings, full, auto): selects the text of an item that fits a budget.

The functions are pure. A budget is a hard limit and covers the whole response, including the fields that describe the
item. A passage larger than the budget is cut at a word boundary and the truncation is reported. Text that two adjacent
passages share is returned once.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from config.numbers import clamp
from config.settings import Settings
from sources import items
from sources.reading.cursors import Position
from sources.text.segmentation import next_word_start, word_boundary_before
from sources.text.token_estimates import TokenScale

# Only for the sizes of chunks, which are approximate.
CHARS_PER_TOKEN = 4.0
CHUNK_TOKENS_MIN = 16
CHUNK_TOKENS_MAX = 4000
WINDOW_MAX = 50
# If a passage has to be cut, the share of the budget for the text before the match.
_LEAD_SHARE = 0.25

ResolvedMode = Literal["snippet", "chunk", "chunk_with_siblings", "full"]


class RetrievalPlan(Struct, frozen=True, kw_only=True):
    """The options of a get with every default filled in and every number in range. `has_budget` is whether the caller
    chose `max_tokens`."""

    mode: ResolvedMode
    snippet_length: int
    max_tokens: int
    scale: TokenScale
    chunk_chars: int
    overlap_chars: int
    window: int
    prefer_prechunked: bool
    attachments: bool
    has_budget: bool

    @property
    def budget(self) -> int:
        return self.scale.budget(self.max_tokens)


def plan_retrieval(
    options: items.RetrievalOptions | None,
    defaults: items.RequestDefaults,
    settings: Settings,
    default_mode: items.Mode = "snippet",
) -> RetrievalPlan:
    """Options override request defaults, which override settings. `default_mode` applies without options, or with a
    budget but no mode; other options without a mode mean a snippet, as in tldw."""
    if options is None or (options.mode is None and options.max_tokens is not None):
        options = structs.replace(options or items.RetrievalOptions(), mode=default_mode)
    max_tokens = _first_set(options.max_tokens, defaults.max_tokens)
    has_budget = max_tokens is not None
    mode = options.mode or "snippet"
    if mode == "auto":
        mode = "chunk_with_siblings" if has_budget else "snippet"
    if max_tokens is None:
        max_tokens = settings.retrieval_max_tokens if mode == "full" else settings.retrieval_default_tokens
    scale = TokenScale(items.chars_per_token(options.chars_per_token, defaults))
    per_token = scale.chars_per_token or CHARS_PER_TOKEN
    size = clamp(options.chunk_size_tokens or settings.fixed.retrieval_chunk_tokens, CHUNK_TOKENS_MIN, CHUNK_TOKENS_MAX)
    overlap = _first_set(options.chunk_overlap_tokens, settings.fixed.retrieval_chunk_overlap_tokens) or 0
    window = _first_set(options.sibling_window, defaults.sibling_window, settings.fixed.retrieval_sibling_window) or 0
    return RetrievalPlan(
        mode=mode,
        snippet_length=items.snippet_length(options.snippet_length, defaults, settings),
        max_tokens=clamp(max_tokens, 1, settings.retrieval_max_tokens),
        scale=scale,
        chunk_chars=int(size * per_token),
        overlap_chars=int(clamp(overlap, 0, size // 2) * per_token),
        window=clamp(window, 0, WINDOW_MAX),
        prefer_prechunked=options.prefer_prechunked is not False,
        attachments=options.attachments is True,
        has_budget=has_budget,
    )


def applied_defaults(defaults: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Returns defaults as calls apply them, with numbers clamped to their ranges."""
    ranges = {
        "snippet_length": (1, items.SNIPPET_MAX_CHARS),
        "max_tokens": (1, settings.retrieval_max_tokens),
        "sibling_window": (0, WINDOW_MAX),
        "chars_per_token": (items.CHARS_PER_TOKEN_MIN, items.CHARS_PER_TOKEN_MAX),
        "seen_max": (1, settings.session_seen_max),
    }
    return {name: clamp(value, *ranges[name]) if name in ranges else value for name, value in defaults.items()}


def _first_set(*values: int | None) -> int | None:
    for value in values:
        if value is not None:
            return value
    return None


class ItemPassage(Struct, frozen=True):
    """A piece of an item, in reading order. `offset` is its position in the item's text, or None for a standalone piece
    such as a message. `attachment` describes it among the attachments of a response."""

    index: int
    text: str
    offset: int | None = None
    attachment: Mapping[str, Any] | None = None

    def position_at(self, offset: int) -> Position:
        """Converts an offset in this passage to a position in the item."""
        if self.offset is not None:
            return Position(0, self.offset + offset)
        return Position(self.index, offset) if offset < len(self.text) else Position(self.index + 1, 0)


class Excerpt(Struct, frozen=True, kw_only=True):
    """The text that fits the budget, and the position right after it."""

    text: str
    end: Position
    attachments: tuple[Mapping[str, Any], ...] | None = None
    truncated: bool = False


class ContentBudget(Struct, frozen=True):
    """The part of a budget that is left for content and attachments, in units of the scale. Content below
    `text_target` is filled up with part of the next passage."""

    weight: int
    scale: TokenScale = TokenScale()
    text_target: int = 0

    @property
    def max_chars(self) -> int:
        return self.scale.max_chars(self.weight)

    def count_fitting(self, text: str) -> int:
        return self.scale.count_fitting(text, self.weight)

    def cost(self, passage: ItemPassage) -> int:
        return self.scale.weigh(passage.text) + self.attachment_cost(passage)

    def attachment_cost(self, passage: ItemPassage) -> int:
        """Returns an upper bound: the text range is taken at its widest, and the brackets account for the comma."""
        if passage.attachment is None:
            return 0
        return self.scale.weigh_json([{**passage.attachment, "start": self.max_chars, "end": self.max_chars}])

    def join_cost(self, before: ItemPassage, after: ItemPassage) -> int:
        """What the second passage costs in addition to its own text: the separator, minus the shared text."""
        separator, overlap = _separator_and_overlap(before, after)
        return self.scale.weigh(separator) - self.scale.weigh(after.text[:overlap])

    def is_too_small_for(self, passage: ItemPassage) -> bool:
        """Stops weighing a very long text where it no longer fits."""
        left = self.weight - self.attachment_cost(passage)
        return left < 0 or self.scale.count_fitting(passage.text, left) < len(passage.text)


def take_around(
    passages: Sequence[ItemPassage], anchor: int, budget: ContentBudget, window: int, focus: int = 0
) -> Excerpt:
    """The passage at index `anchor` and its siblings, nearest first while they fit, in reading order.

    `passages` have no gaps. `focus` is the offset of the match in the anchor passage; a cut keeps it. Each side ends at
    the first sibling that does not fit, because a gap would read as continuous text.
    """
    if budget.is_too_small_for(passages[anchor]):
        return take_part(passages[anchor], budget, focus)
    first, last = anchor, anchor
    left = budget.weight - budget.cost(passages[anchor])
    first_allowed, last_allowed = max(0, anchor - window), min(len(passages) - 1, anchor + window)
    while first > first_allowed or last < last_allowed:
        if first > first_allowed:
            cost = budget.cost(passages[first - 1]) + budget.join_cost(passages[first - 1], passages[first])
            if cost <= left:
                first, left = first - 1, left - cost
            else:
                first_allowed = first
        if last < last_allowed:
            cost = budget.cost(passages[last + 1]) + budget.join_cost(passages[last], passages[last + 1])
            if cost <= left:
                last, left = last + 1, left - cost
            else:
                last_allowed = last
    return join(passages[first : last + 1])


def take_forward(passages: Sequence[ItemPassage], budget: ContentBudget, skip: int = 0) -> Excerpt:
    """As many passages as fit, without the first `skip` characters of the first one. The next one is cut if the others
    are less than the budget's `text_target`."""
    first = passages[0]
    if skip:
        offset = first.offset + skip if first.offset is not None else None
        first = ItemPassage(first.index, first.text[skip:], offset, first.attachment)
    if budget.is_too_small_for(first):
        excerpt = take_part(first, budget)
        # In a standalone passage the end counts from its beginning, so add the skipped characters.
        shift = skip if first.offset is None else 0
        return structs.replace(excerpt, end=Position(excerpt.end.index, excerpt.end.offset + shift))
    run, left = [first], budget.weight - budget.cost(first)
    text_weight = budget.scale.weigh(first.text)
    for passage in passages[1:]:
        cost = budget.cost(passage) + budget.join_cost(run[-1], passage)
        if cost > left:
            if text_weight >= budget.text_target:
                return join(run)
            # The run and the beginning of the passage after it.
            separator, overlap = _separator_and_overlap(run[-1], passage)
            joined = join(run)
            part = take_part(passage, structs.replace(budget, weight=left - budget.scale.weigh(separator)))
            text = part.text[overlap:]
            if not text:
                return joined
            start = len(joined.text) + len(separator)
            attachments = [{**one, "start": start, "end": start + len(text)} for one in part.attachments or ()]
            return Excerpt(
                text=joined.text + separator + text,
                end=part.end,
                attachments=(*(joined.attachments or ()), *attachments) or None,
                truncated=True,
            )
        run.append(passage)
        left -= cost
        text_weight += budget.scale.weigh(passage.text)
    return join(run)


def take_part(passage: ItemPassage, budget: ContentBudget, focus: int = 0) -> Excerpt:
    """As much of one passage as fits, around `focus`; empty if not even one character fits. The attachment is dropped
    if it would take more than half of the budget."""
    scale, attachment_cost = budget.scale, budget.attachment_cost(passage)
    if 2 * attachment_cost > budget.weight:
        passage, attachment_cost = ItemPassage(passage.index, passage.text, passage.offset), 0
    text, left = passage.text, max(0, budget.weight - attachment_cost)
    lead = scale.count_fitting_before(text, int(left * _LEAD_SHARE), focus)
    tail = scale.count_fitting_before(text, left, len(text))
    start = min(next_word_start(text, min(focus - lead, len(text) - tail)), focus)
    end = word_boundary_before(text, start + scale.count_fitting(text, left, start), start)
    return Excerpt(
        text=passage.text[start:end],
        end=passage.position_at(end),
        attachments=_attachments([(passage, 0, end - start)]),
        truncated=end - start < len(text),
    )


def join(run: Sequence[ItemPassage]) -> Excerpt:
    """Joins adjacent passages into one text without repeating the text they share."""
    text = run[0].text
    spans = [(run[0], 0, len(text))]
    for before, passage in itertools.pairwise(run):
        separator, overlap = _separator_and_overlap(before, passage)
        start = len(text) + len(separator)
        text += separator + passage.text[overlap:]
        spans.append((passage, start, len(text)))
    return Excerpt(text=text, end=run[-1].position_at(len(run[-1].text)), attachments=_attachments(spans))


def _separator_and_overlap(before: ItemPassage, after: ItemPassage) -> tuple[str, int]:
    """The separator between two adjacent passages, and how many characters of the second repeat the first.

    Importers store chunks too, so an overlap counts only if the texts really agree.
    """
    if before.offset is None or after.offset is None:
        return "\n\n", 0
    overlap = before.offset + len(before.text) - after.offset
    if overlap == 0:
        return "", 0
    if 0 < overlap < len(after.text) and before.text.endswith(after.text[:overlap]):
        return "", overlap
    if overlap >= len(after.text) and after.text in before.text:
        return "", len(after.text)
    return "\n", 0


def _attachments(spans: Sequence[tuple[ItemPassage, int, int]]) -> tuple[Mapping[str, Any], ...] | None:
    """The attachments of passages, each with the range of its passage in the joined text."""
    attachments = [{**p.attachment, "start": start, "end": end} for p, start, end in spans if p.attachment is not None]
    return tuple(attachments) or None
