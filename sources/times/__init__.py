"""Times in words: "in August 2023", "letzte Woche", 三日前. Pure functions; the caller passes the current time."""

from sources.times.expressions import TimeMention
from sources.times.ranges import TimeSpan, resolve
from sources.times.reader import asks_for_anything, find_times, read_time

__all__ = ["TimeMention", "TimeSpan", "asks_for_anything", "find_times", "read_time", "resolve"]
