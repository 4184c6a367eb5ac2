"""Times in words: "in August 2023", "letzte Woche", 三日前. Pure functions; the caller passes the current time."""

from sources.times.ranges import TimeSpan, asks_for_anything, find_times, read_time, resolve
from sources.times.words import RELATIVE_WORDS, TIME_WORDS, TimeMention

__all__ = [
    "RELATIVE_WORDS",
    "TIME_WORDS",
    "TimeMention",
    "TimeSpan",
    "asks_for_anything",
    "find_times",
    "read_time",
    "resolve",
]
