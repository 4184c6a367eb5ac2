"""The answers of memory tools as Markdown, in the forms that their clients know. Pure: values in, text out."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import UNSET

from server.compat.conversation_memory.errors import NO_CONVERSATIONS, NO_OBSERVATIONS
from server.compat.conversation_memory.rows import ExchangeRow, ObservationRow, Recalled
from server.compat.conversation_memory.transcript import Budget, Said, Transcript, head_of
from sources.items import uri_of
from sources.reading.exchanges import group_turns
from sources.records import Observation
from sources.text.word_boundaries import word_boundary_before

_RULE = "\n\n---\n\n"
_SERVED_BY_TEXT = "*Searched by text: no embedding model is installed.*"


# -- layer 1 -----------------------------------------------------------------------------------------------------------


def recalled_markdown(found: Recalled) -> str:
    notes = [found.note] if found.note is not UNSET else []
    served_by = [_SERVED_BY_TEXT] if found.mode != "text" else []
    if not found.results:
        return "\n\n".join([_nothing(found), *notes, *served_by])
    title = f"## Search Results ({_counted(found.count, found.kind.removesuffix('s'))})"
    rows = [_row(number, row) for number, row in enumerate(found.results, 1)]
    # Rows of observations are short enough to be told apart without a rule, which costs each of them tokens.
    separator = "\n\n" if found.kind == "observations" else _RULE
    return "\n\n".join([*notes, title, separator.join(rows), *served_by])


def _nothing(found: Recalled) -> str:
    match found.kind:
        case "conversations":
            concepts = found.concepts if found.concepts is not UNSET else ()
            return f"{NO_CONVERSATIONS} matching all concepts: {', '.join(concepts)}"
        case "exchanges":
            return f"{NO_OBSERVATIONS} {NO_CONVERSATIONS} either."
        case "observations":
            return NO_OBSERVATIONS


def _row(number: int, row: ObservationRow | ExchangeRow) -> str:
    heading = f"### {number}. [{row.project}] - {row.date}"
    if isinstance(row, ObservationRow):
        # Without labels: they cost as much as what they label, and a row has to be cheap.
        return f"{heading}\n{row.id} {row.type} {row.score:.2f}: {row.title}"
    place = f"**Path:** `{row.path}`\n**Lines:** {row.line_start}-{row.line_end}"
    passage = f"\n\n> {row.snippet}" if row.snippet != row.summary else ""
    return f"{heading}\n{place}\n**Score:** {row.score:.2f}\n\nSummary: {row.summary}{passage}"


# -- layer 2 -----------------------------------------------------------------------------------------------------------


def observations_markdown(observations: Sequence[Observation], budget: Budget) -> str:
    """Each has its share of the budget; of one that is longer the rest is left out, and told."""
    head = f"Retrieved {_counted(len(observations), 'observation')}:\n\n"
    room = budget.room - budget.scale.weigh(head)
    share = room // max(1, len(observations)) - budget.scale.weigh(_RULE + _left_out(10**6))
    return head + _RULE.join(_cut(_observation(one), Budget(budget.scale, share)) for one in observations)


def _cut(text: str, budget: Budget) -> str:
    kept = text[: word_boundary_before(text, budget.scale.count_fitting(text, max(0, budget.room)))]
    return f"{kept}{_left_out(len(text) - len(kept))}" if len(kept) < len(text) else text


def _left_out(chars: int) -> str:
    return f"\n\n*[{chars} more characters do not fit: ask for fewer observations]*"


def _observation(one: Observation) -> str:
    files = dict.fromkeys((*one.files_modified, *one.files_read))
    parts = [
        f"## [{one.project}, {_minute(one.created_at)}] - {one.type}: {one.title}",
        f"**{one.subtitle}**" if one.subtitle else "",
        one.narrative,
        "**Facts:**\n" + "\n".join(f"- {fact}" for fact in one.facts) if one.facts else "",
        f"**Concepts:** {_quoted(one.concepts)}" if one.concepts else "",
        f"**Files:** {_quoted(files)}" if files else "",
        f"**Source:** {_source(one)}",
    ]
    return "\n\n".join(part for part in parts if part)


def _source(one: Observation) -> str:
    """Who says so, and where it can be read."""
    if one.conversation_id is None:
        return one.origin
    path = f"{one.origin} from `{uri_of('chats', one.conversation_id)}`"
    return f"{path}, lines {one.line_start}-{one.line_end or one.line_start}" if one.line_start else path


def _minute(time: str) -> str:
    return f"{time[:10]} {time[11:16]}"


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


# -- layer 3 -----------------------------------------------------------------------------------------------------------

_LABELS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def transcript_markdown(read: Transcript) -> str:
    exchanges = group_turns(read.said, lambda said: said.role == "user")
    body = _RULE.join(f"## Exchange {number}\n\n{_exchange(said)}" for number, said in enumerate(exchanges, 1))
    parts = [_head(read), body or "This conversation has no messages."]
    if read.next_line is not None:
        parts.append(f"---\n\n*The conversation goes on. Read on with startLine {read.next_line}.*")
    return "\n\n".join(parts)


def _head(read: Transcript) -> str:
    head = head_of(read.conversation)
    if not read.said or read.is_whole:
        return head
    return f"{head}\n# Lines: {read.said[0].lines.start}-{read.said[-1].lines.end}"


def _exchange(said: Sequence[Said]) -> str:
    """What one role says in a row stands under one label, but never what is on the path with what is beside it."""
    runs = groupby(said, key=_label)
    return "\n\n".join(f"**{label}:**\n" + "\n\n".join(map(_text, run)) for label, run in runs)


def _label(said: Said) -> str:
    return _LABELS.get(said.role, said.role or "Unknown") + said.branch_label


def _text(said: Said) -> str:
    if not said.left_out_chars:
        return said.text
    told = f"*[{said.left_out_chars} more characters at line {said.lines.start} do not fit]*"
    return f"{said.text}\n{told}" if said.text else told


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
