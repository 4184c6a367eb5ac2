"""Time zones by their IANA name."""

from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

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
