"""Parses the arguments of `conversation_search` as leniently as Letta's clients write them."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from config.numbers import clamp
from config.settings import Settings
from config.times import format_time, parse_time
from server.compat.letta.errors import InvalidSearchArgument
from server.compat.letta.schemas import DEFAULT_LIMIT, ROLES, ConversationSearch
from sources.storage.contract import MessageSearch

# How much of an invalid value an error message quotes.
_QUOTED_CHARS = 60
_QUOTED_ROLES = 10
_END_OF_DAY = time(23, 59, 59, 999_000)


def parse_arguments(arguments: ConversationSearch, settings: Settings) -> MessageSearch:
    text = (arguments.query or "").strip()
    if len(text) > settings.query_max_chars:
        raise InvalidSearchArgument(f"query: expected at most {settings.query_max_chars} characters, got {len(text)}")
    return MessageSearch(
        text=text or None,
        roles=parse_roles(arguments.roles),
        date_from=parse_start_date(arguments.start_date),
        date_to=parse_end_date(arguments.end_date),
        limit=parse_limit(arguments.limit, settings.conversation_hits_max),
        deadline_ms=settings.search_deadline_ms,
    )


def parse_limit(value: Any, limit_max: int) -> int:
    """Non-numeric values fall back to the default; others are clamped."""
    try:
        limit = int(value)
    except (TypeError, ValueError, OverflowError):
        limit = DEFAULT_LIMIT
    return clamp(limit, 1, limit_max)


def parse_roles(value: Sequence[str] | str | None) -> tuple[str, ...]:
    """A string is a single role. No role, or an empty string, means no filter."""
    roles = [value] if isinstance(value, str) else list(value or ())
    roles = [] if roles == [""] else roles
    if invalid := sorted({role for role in roles if role not in ROLES}):
        quoted = [role[:_QUOTED_CHARS] for role in invalid[:_QUOTED_ROLES]]
        raise InvalidSearchArgument(f"Invalid role(s): {quoted}. Allowed: {', '.join(ROLES)}.")
    return tuple(dict.fromkeys(roles))


def parse_start_date(text: str | None) -> str | None:
    """A date without a time means its first moment."""
    return _parse_date("start_date", text, time.min)


def parse_end_date(text: str | None) -> str | None:
    """A date without a time means its last moment."""
    return _parse_date("end_date", text, _END_OF_DAY)


def _parse_date(field: str, text: str | None, time_of_day: time) -> str | None:
    """Returns the time in the stored format. Times without an offset are UTC."""
    value = (text or "").strip()
    if not value:
        return None
    try:
        return format_time(_parse_day(value, time_of_day) or parse_time(value))
    except (ValueError, OverflowError) as error:
        raise InvalidSearchArgument(
            f"Invalid {field} format: {value[:_QUOTED_CHARS]}. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)"
        ) from error


def _parse_day(text: str, time_of_day: time) -> datetime | None:
    try:
        return datetime.combine(date.fromisoformat(text), time_of_day, UTC)
    except ValueError:
        return None
