"""Times as people say them: "3 hours ago", "12 Mar 2024"."""

from datetime import datetime

from config.times import parse_time

_UNITS = (("minute", 60), ("hour", 3600), ("day", 86400))
_DAYS_MAX = 7


def relative_time(time: str, now: datetime) -> str:
    """Returns how long ago a time in the stored form was, or its date if that is more than a week. Text that is not a
    time is returned as it is."""
    try:
        moment = parse_time(time)
    except (ValueError, OverflowError):
        return time
    seconds = (now - moment).total_seconds()
    if not 0 <= seconds < _DAYS_MAX * 86400:
        return f"{moment.day} {moment:%b} {moment.year}"
    if seconds < 60:
        return "just now"
    unit, size = next((unit, size) for unit, size in reversed(_UNITS) if seconds >= size)
    count = int(seconds // size)
    return f"{count} {unit} ago" if count == 1 else f"{count} {unit}s ago"


def clock_time(milliseconds: int) -> str:
    """Returns a position in a recording, `1:02:03`."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
