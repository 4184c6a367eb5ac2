"""What `conversation_search` is asked and what it answers: dates, roles and limits read as its clients write them, and
messages as one text or in Letta's JSON. Functions of values; nothing here searches."""

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from config.errors import InvalidParams
from config.numbers import clamp
from config.times import format_time, parse_time
from sources.records import Message, MessageHit

ROLES = ("user", "assistant", "tool")
DEFAULT_LIMIT = 50
NOTHING_FOUND = "No matching messages."
SEPARATOR = "\n\n---\n\n"

_NO_TIME = "(no time)"
_NO_ROLE = "unknown"
_TITLE_CHARS = 8
# Of what was given, so much is said back.
_QUOTED_CHARS = 60
_QUOTED_ROLES = 10
_END_OF_DAY = time(23, 59, 59, 999_000)
_PARTS_OF_NAME = re.compile(r"__|[.:/]")
# Tools of other servers have these names too, so only our own name before them tells them apart.
_ANYBODYS = frozenset(("search", "fetch", "read", "get_observations"))
_OURS = "florilegium"


class Unreadable(InvalidParams):
    """An argument that cannot be read, in the words that clients of the tool know."""


class LettaResult(Struct, frozen=True, kw_only=True):
    timestamp: str | None
    time_ago: str | None
    role: str
    content: str


class LettaAnswer(Struct, frozen=True, kw_only=True):
    """`note` is there only where the list is not what it seems."""

    message: str
    results: tuple[LettaResult, ...]
    note: str | UnsetType = UNSET


# What is asked


def read_limit(value: Any, highest: int) -> int:
    """What is no number is the default; what is too small or too large is moved."""
    try:
        limit = int(value)
    except (TypeError, ValueError, OverflowError):
        limit = DEFAULT_LIMIT
    return clamp(limit, 1, highest)


def read_roles(given: Sequence[str] | str | None) -> tuple[str, ...]:
    """A bare text is one role. No role, or an empty text, is no filter."""
    roles = [given] if isinstance(given, str) else list(given or ())
    roles = [] if roles == [""] else roles
    if wrong := sorted({role for role in roles if role not in ROLES}):
        shown = [role[:_QUOTED_CHARS] for role in wrong[:_QUOTED_ROLES]]
        raise Unreadable(f"Invalid role(s): {shown}. Allowed: {', '.join(ROLES)}.")
    return tuple(dict.fromkeys(roles))


def read_start(text: str | None) -> str | None:
    """The first moment that counts; a day begins with its first."""
    return _read_moment("start_date", text, time.min)


def read_end(text: str | None) -> str | None:
    """The last moment that counts; a day ends with its last."""
    return _read_moment("end_date", text, _END_OF_DAY)


def _read_moment(field: str, text: str | None, of_day: time) -> str | None:
    """In the form in which times are stored. Without an offset a time is UTC."""
    given = (text or "").strip()
    if not given:
        return None
    try:
        return format_time(_day(given, of_day) or parse_time(given))
    except (ValueError, OverflowError) as error:
        raise Unreadable(
            f"Invalid {field} format: {given[:_QUOTED_CHARS]}. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)"
        ) from error


def _day(text: str, of_day: time) -> datetime | None:
    try:
        return datetime.combine(date.fromisoformat(text), of_day, UTC)
    except ValueError:
        return None


# What is no answer


def is_answer(message: Message, own_tools: Collection[str]) -> bool:
    """Whether a message is part of what was said: a branch that nobody followed is not, and neither is what our own
    tools once answered, which holds the words of every earlier search."""
    if message.role != "tool" or not message.tool:
        return message.is_canonical
    return message.is_canonical and not _is_own(message.tool, own_tools)


def _is_own(tool: str, own_tools: Collection[str]) -> bool:
    """Hosts write a tool's name with the server's before it: `mcp__florilegium__search`, `florilegium:search`."""
    dotted, last = tool.replace(".", "_"), _PARTS_OF_NAME.split(tool)[-1]
    if dotted in own_tools and dotted not in _ANYBODYS:
        return True
    return _OURS in tool.lower() if last in _ANYBODYS else last in own_tools


# What is answered


def as_text(hits: Sequence[MessageHit], shown_chars: int, note: str | None) -> str:
    blocks = [_block(hit, shown_chars) for hit in hits] or [NOTHING_FOUND]
    return SEPARATOR.join([*blocks, f"({note})"] if note else blocks)


def _block(hit: MessageHit, shown_chars: int) -> str:
    message = hit.message
    title = hit.title.strip() or message.conversation_id[:_TITLE_CHARS]
    minute = message.created_at[:16].replace("T", " ") or _NO_TIME
    return f"[{minute}] {message.role or _NO_ROLE} (conv: {title})\n{_content(message, shown_chars)}"


def as_letta(hits: Sequence[MessageHit], shown_chars: int, note: str | None, now: datetime) -> LettaAnswer:
    results = tuple(_letta_result(hit.message, shown_chars, now) for hit in hits)
    said = f"Showing {len(results)} results:" if results else "No results found."
    return LettaAnswer(message=said, results=results, note=note or UNSET)


def _letta_result(message: Message, shown_chars: int, now: datetime) -> LettaResult:
    moment = parse_time(message.created_at) if message.created_at else None
    return LettaResult(
        timestamp=moment.isoformat() if moment else None,
        time_ago=_ago((now - moment).total_seconds()) if moment else None,
        role=message.role or _NO_ROLE,
        content=_content(message, shown_chars),
    )


def _ago(seconds: float) -> str:
    minutes = max(0, int(seconds // 60))
    if minutes < 60:
        return f"{minutes}m ago"
    return f"{minutes // 60}h ago" if minutes < 24 * 60 else f"{minutes // (24 * 60)}d ago"


def _content(message: Message, shown_chars: int) -> str:
    text = message.content.strip()
    return text if len(text) <= shown_chars else f"{text[:shown_chars]}..."


Now = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)
