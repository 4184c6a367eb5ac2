"""Lua scripts, each of which Redis runs as one atomic step, and sequences of them, which are one step together."""

import hashlib
from functools import lru_cache
from typing import NamedTuple

from auth.redis.protocol import Argument

# The clock of the server, in microseconds.
_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""


class RedisScript:
    """A script can use `now`, the time of the server in microseconds, if `uses_now` is set. `goes_on` is for sequences:
    a Lua condition of `reply`, the script's reply, on which the next scripts run."""

    def __init__(self, body: str, *, uses_now: bool = False, goes_on: str = "true") -> None:
        self.body = body
        self.uses_now = uses_now
        self.goes_on = goes_on
        self.text = f"{_NOW if uses_now else ''}{body}"
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()  # how EVALSHA names a script


# How many runs of each kind are kept: a call needs the same ones several times, and so do the next ones of its session.
RUNS_MAX = 1024
# Runs are kept by what callers send, such as a session id, unless it is longer than any that the server has issued.
CACHED_NAME_MAX_CHARS = 100


class ScriptRun(NamedTuple):
    """A script with the keys and arguments of one run."""

    script: RedisScript
    keys: tuple[str, ...]
    arguments: tuple[Argument, ...]


# The numbers of keys and arguments of each script of a sequence. A script that is skipped has none.
_Shape = tuple[tuple[int, int] | None, ...]
_SEQUENCE_PART = """
do
  local KEYS, ARGV = {{{keys}}}, {{{arguments}}}
  local reply = (function() {body} end)() or false
  replies[{number}] = reply
  if not ({goes_on}) then return replies end
end
"""


class ScriptSequence:
    """Scripts that run in this order, until one of them ends the sequence. Its reply is the list of theirs."""

    def __init__(self, *scripts: RedisScript) -> None:
        self._scripts = scripts
        # One text for each shape: to find its keys and arguments in Lua takes a script longer than most commands.
        self._texts: dict[_Shape, RedisScript] = {}
        self.run = lru_cache(RUNS_MAX)(self._run)

    def _run(self, runs: tuple[ScriptRun | None, ...]) -> ScriptRun:
        """Returns the run of the whole sequence. A script whose run is None is skipped."""
        shape = tuple(None if run is None else (len(run.keys), len(run.arguments)) for run in runs)
        script = self._texts.get(shape)
        if script is None:
            script = self._texts[shape] = self._combine(shape)
        keys = tuple(key for run in runs if run is not None for key in run.keys)
        return ScriptRun(script, keys, tuple(value for run in runs if run is not None for value in run.arguments))

    def _combine(self, shape: _Shape) -> RedisScript:
        parts = ["local replies = {}"]
        last_key = last_argument = 0
        for number, (script, counts) in enumerate(zip(self._scripts, shape, strict=True), 1):
            if counts is None:
                parts.append(f"replies[{number}] = false")
                continue
            part = _SEQUENCE_PART.format(
                keys=_items("KEYS", last_key, counts[0]),
                arguments=_items("ARGV", last_argument, counts[1]),
                body=script.body,
                number=number,
                goes_on=script.goes_on,
            )
            parts.append(part)
            last_key, last_argument = last_key + counts[0], last_argument + counts[1]
        return RedisScript("\n".join((*parts, "return replies")), uses_now=any(s.uses_now for s in self._scripts))


def _items(table: str, last: int, count: int) -> str:
    return ", ".join(f"{table}[{index}]" for index in range(last + 1, last + count + 1))
