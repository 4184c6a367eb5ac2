"""Renders messages as one text, or in Letta's JSON."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET

from config.times import parse_time
from server.compat.letta.relevance import fuse, relevance_of
from server.compat.letta.schemas import DEFAULT_LIMIT, LettaRelevance, LettaResponse, LettaResult
from sources.records import Message, MessageHit

NO_MATCHES = "No matching messages."
SEPARATOR = "\n\n---\n\n"

_NO_TIME = "(no time)"
_NO_ROLE = "unknown"
_ID_CHARS = 8
_TIME_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def render_text(hits: Sequence[MessageHit], message_max_chars: int, note: str | None) -> str:
    blocks = [_block(hit, message_max_chars) for hit in hits] or [NO_MATCHES]
    return SEPARATOR.join([*blocks, f"({note})"] if note else blocks)


def letta_response(
    hits: Sequence[MessageHit],
    text: str | None,
    message_max_chars: int,
    note: str | None,
    now: datetime,
    *,
    near: Sequence[MessageHit] = (),
    limit: int = DEFAULT_LIMIT,
) -> LettaResponse:
    """`text` is the text that was searched for, if any. With messages that are near to it in meaning, the result is
    that of a hybrid search."""
    if text and near:
        ranked = [(hit.message, relevance) for hit, relevance in fuse(hits, near, text, limit)]
    else:
        messages = [hit.message for hit in hits]
        ranked = list(zip(messages, relevance_of(messages, text), strict=True))
    results = tuple(_letta_result(message, relevance, message_max_chars, now) for message, relevance in ranked)
    message = f"Showing {len(results)} results:" if results else "No results found."
    return LettaResponse(message=message, results=results, note=note or UNSET)


def _block(hit: MessageHit, message_max_chars: int) -> str:
    message = hit.message
    title = hit.title.strip() or message.conversation_id[:_ID_CHARS]
    minute = message.created_at[:16].replace("T", " ") or _NO_TIME
    return f"[{minute}] {_role(message)} (conv: {title})\n{_content(message, message_max_chars)}"


def _letta_result(message: Message, relevance: LettaRelevance, message_max_chars: int, now: datetime) -> LettaResult:
    created_at = parse_time(message.created_at) if message.created_at else None
    return LettaResult(
        timestamp=created_at.isoformat() if created_at else None,
        time_ago=_time_ago((now - created_at).total_seconds()) if created_at else None,
        role=_role(message),
        relevance=relevance,
        content=_content(message, message_max_chars),
    )


def _time_ago(seconds: float) -> str:
    elapsed = max(0, int(seconds))
    name, unit_s = next((unit for unit in _TIME_UNITS if elapsed >= unit[1]), _TIME_UNITS[-1])
    return f"{elapsed // unit_s}{name} ago"


def _role(message: Message) -> str:
    return message.role.strip() or _NO_ROLE


def _content(message: Message, max_chars: int) -> str:
    text = message.content.strip()
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."
