"""The headings under which a list of conversations is grouped by date: Today, Yesterday, Previous 7 days, October."""

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import groupby
from typing import TypeVar

from config.times import parse_time

T = TypeVar("T")


def date_group(time: datetime, now: datetime) -> str:
    """Returns the heading of a time, by the days of the time zone of `now`."""
    date, today = time.astimezone(now.tzinfo).date(), now.date()
    days = (today - date).days
    if days <= 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    for limit in (7, 30):
        if days <= limit:
            return f"Previous {limit} days"
    return f"{date:%B}" if date.year == today.year else f"{date:%B} {date.year}"


def group_by_date(rows: Iterable[T], time_of: Callable[[T], str], now: datetime) -> list[tuple[str, list[T]]]:
    """Groups rows that are sorted by time."""
    groups = groupby(rows, lambda row: date_group(parse_time(time_of(row)), now))
    return [(heading, list(members)) for heading, members in groups]
