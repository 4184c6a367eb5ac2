"""Times as text. The stored form is UTC with milliseconds, `2026-11-15T08:30:00.000Z`, and sorts as text."""

import re
import time
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

# Wall-clock time at which the monotonic clock was 0, as it was when the process started.
_MONOTONIC_EPOCH_S = time.time() - time.monotonic()
# The stored form, or the same without milliseconds, as in most files. Newer versions of Python accept the hour 24.
_UTC_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z")


def steady_time() -> float:
    """Returns seconds since 1970 that never jump while the process runs, even if the clock of the system is set."""
    return _MONOTONIC_EPOCH_S + time.monotonic()


def as_utc(time: datetime) -> datetime:
    """Converts to UTC; a time without an offset is taken as UTC."""
    if time.tzinfo is UTC:  # as most times in files, and all that are formatted after parsing
        return time
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def format_time(time: datetime) -> str:
    """Returns the stored form, `2026-11-15T08:30:00.000Z`; a time without an offset is taken as UTC."""
    return as_utc(time).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def format_timestamp(seconds: float) -> str:
    """Returns the stored form of seconds since 1970."""
    return format_time(datetime.fromtimestamp(seconds, UTC))


def format_time_seconds(seconds: float) -> str:
    """Returns seconds since 1970 without fractions, `2026-11-15T08:30:00Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).replace(tzinfo=None).isoformat() + "Z"


def format_time_microseconds(time: datetime) -> str:
    """Returns the form of AgentKit and AgentChatBus, `2026-11-15T08:30:00.000000+00:00`."""
    return as_utc(time).isoformat(timespec="microseconds")


def extend_to_microseconds(time: str) -> str:
    """Converts the stored form to that of AgentKit and AgentChatBus."""
    return f"{time.removesuffix('Z')}000+00:00"


def parse_time(text: str) -> datetime:
    """Parses an ISO 8601 time; without an offset it is taken as UTC. Raises ValueError or OverflowError."""
    return as_utc(datetime.fromisoformat(text))


def normalize_time(text: str) -> str:
    """Converts an ISO 8601 time to the stored form. Raises ValueError or OverflowError."""
    time = datetime.fromisoformat(text)
    # Formatting takes six times as long as parsing, which shows that the day exists.
    if match := _UTC_TIME.fullmatch(text):
        return text if match[1] else f"{text[:-1]}.000Z"
    return format_time(time)


def format_clock(seconds: float) -> str:
    """Returns a position in a recording: 04:12, or 1:04:12 from one hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


# -- time zones --------------------------------------------------------------------------------------------------------
# Time zones by their IANA name.

_NAME_MAX_CHARS = 100


@lru_cache(maxsize=256)
def load_time_zone(name: str) -> tzinfo:
    """Raises ValueError if there is no such time zone. UTC does not need the time zone data of the system."""
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name) if len(name) <= _NAME_MAX_CHARS else _reject(name)
    except (LookupError, OSError, ValueError):
        return _reject(name)


def _reject(name: str) -> tzinfo:
    raise ValueError(f"expected an IANA time zone such as Europe/Berlin, got {name[:60]!r}") from None
