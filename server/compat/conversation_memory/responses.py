"""Renders the results of the memory tools as Markdown, in conversation-memory's formats."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import UNSET

from server.compat.conversation_memory.arguments import ExchangeRow, MemoryResults, ObservationRow
from server.compat.conversation_memory.transcript import (
    NO_CONVERSATIONS,
    NO_OBSERVATIONS,
    ConversationTranscript,
    TextBudget,
    TranscriptMessage,
    transcript_heading,
)
from server.compat.meaning_note import meaning_note
from sources.items import uri_of
from sources.reading.exchanges import group_turns
from sources.records import Observation
from sources.text.segmentation import word_boundary_before

_RULE = "\n\n---\n\n"
_ROLE_LABELS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


# Layer 1


def render_results(results: MemoryResults) -> str:
    notes = [results.note] if results.note is not UNSET else []
    meaning = meaning_note(results.semantic) if results.semantic is not UNSET else None
    meaning_notes = [f"*{meaning}*"] if meaning else []
    if not results.results:
        nothing = NO_OBSERVATIONS
        if results.kind == "conversations":
            concepts = results.concepts if results.concepts is not UNSET else ()
            nothing = f"{NO_CONVERSATIONS} matching all concepts: {', '.join(concepts)}"
        elif results.kind == "exchanges":
            nothing = f"{NO_OBSERVATIONS} {NO_CONVERSATIONS} either."
        return "\n\n".join([nothing, *notes, *meaning_notes])
    heading = f"## Search Results ({_count(results.count, results.kind.removesuffix('s'))})"
    rows = [_render_row(number, row) for number, row in enumerate(results.results, 1)]
    # Rows of observations are short enough to be told apart without a rule, which would cost tokens for each.
    separator = "\n\n" if results.kind == "observations" else _RULE
    return "\n\n".join([*notes, heading, separator.join(rows), *meaning_notes])


def _render_row(number: int, row: ObservationRow | ExchangeRow) -> str:
    heading = f"### {number}. [{row.project}] - {row.date}"
    if isinstance(row, ObservationRow):
        # Without labels, which would cost as many tokens as the values: a row has to be cheap.
        return f"{heading}\n{row.id} {row.type} {row.score:.2f}: {row.title}"
    location = f"**Path:** `{row.path}`\n**Lines:** {row.line_start}-{row.line_end}"
    snippet = f"\n\n> {row.snippet}" if row.snippet != row.summary else ""
    return f"{heading}\n{location}\n**Score:** {row.score:.2f}\n\nSummary: {row.summary}{snippet}"


# Layer 2


def render_observations(observations: Sequence[Observation], budget: TextBudget) -> str:
    """Gives each observation an equal share of the budget; longer ones are truncated, with a notice."""
    heading = f"Retrieved {_count(len(observations), 'observation')}:\n\n"
    room = budget.room - budget.scale.weigh(heading)
    share = room // max(1, len(observations)) - budget.scale.weigh(_RULE + _omission(10**6))
    rendered = []
    for observation in observations:
        text = _render_observation(observation)
        beginning = text[: word_boundary_before(text, budget.scale.count_fitting(text, max(0, share)))]
        omitted_chars = len(text) - len(beginning)
        rendered.append(f"{beginning}{_omission(omitted_chars)}" if omitted_chars else text)
    return heading + _RULE.join(rendered)


def _omission(chars: int) -> str:
    return f"\n\n*[{chars} more characters omitted: request fewer observations]*"


def _render_observation(observation: Observation) -> str:
    files = dict.fromkeys((*observation.files_modified, *observation.files_read))
    time = f"{observation.created_at[:10]} {observation.created_at[11:16]}"
    # Who recorded the observation, and the conversation it comes from.
    source: str = observation.origin
    if observation.conversation_id is not None:
        source += f" from `{uri_of('chats', observation.conversation_id)}`"
        if observation.line_start:
            source += f", lines {observation.line_start}-{observation.line_end or observation.line_start}"
    parts = [
        f"## [{observation.project}, {time}] - {observation.type}: {observation.title}",
        f"**{observation.subtitle}**" if observation.subtitle else "",
        observation.narrative,
        "**Facts:**\n" + "\n".join(f"- {fact}" for fact in observation.facts) if observation.facts else "",
        f"**Concepts:** {_code_spans(observation.concepts)}" if observation.concepts else "",
        f"**Files:** {_code_spans(files)}" if files else "",
        f"**Source:** {source}",
    ]
    return "\n\n".join(part for part in parts if part)


def _code_spans(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


# Layer 3


def render_transcript(transcript: ConversationTranscript) -> str:
    heading, messages = transcript_heading(transcript.conversation), transcript.messages
    if messages and not transcript.is_whole:
        heading += f"\n# Lines: {messages[0].lines.start}-{messages[-1].lines.end}"
    exchanges = []
    for number, exchange in enumerate(group_turns(messages, lambda message: message.role == "user"), 1):
        # Consecutive messages of a role have one label, separately for the main and alternate branches.
        turns = [
            f"**{label}:**\n" + "\n\n".join(map(_render_message, group))
            for label, group in groupby(exchange, key=_label)
        ]
        exchanges.append("\n\n".join([f"## Exchange {number}", *turns]))
    parts = [heading, _RULE.join(exchanges) or "This conversation has no messages."]
    if transcript.next_line is not None:
        parts.append(f"---\n\n*The conversation continues. Read on with startLine {transcript.next_line}.*")
    return "\n\n".join(parts)


def _label(message: TranscriptMessage) -> str:
    return _ROLE_LABELS.get(message.role, message.role or "Unknown") + message.branch_label


def _render_message(message: TranscriptMessage) -> str:
    if not message.omitted_chars:
        return message.text
    omission = f"*[{message.omitted_chars} more characters at line {message.lines.start} omitted]*"
    return f"{message.text}\n{omission}" if message.text else omission


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
