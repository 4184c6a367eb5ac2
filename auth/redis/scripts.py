"""Lua scripts, each of which Redis runs as one atomic step, and sequences of them, which are one step together."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from auth.redis.protocol import Argument


class RedisScript:
    """`goes_on` is for sequences: a Lua condition of `reply`, the script's reply, on which the next scripts run."""

    def __init__(self, text: str, goes_on: str = "true") -> None:
        self.text = text
        self.goes_on = goes_on
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()  # how EVALSHA names a script


class ScriptRun(NamedTuple):
    """A script with the keys and arguments of one run."""

    script: RedisScript
    keys: tuple[str, ...]
    arguments: tuple[Argument, ...]


_SKIPPED = -1
# The arguments of each script follow the numbers of its keys and arguments.
_SEQUENCE_START = """
local all_keys, all_arguments, replies = KEYS, ARGV, {}
local last_key, last_argument = 0, 0

local function slice(list, last, count) return {unpack(list, last + 1, last + count)} end

local function next_part()
  local keys_count, arguments_count = tonumber(all_arguments[last_argument + 1]), all_arguments[last_argument + 2]
  last_argument = last_argument + 2
  if keys_count < 0 then return end
  local keys = slice(all_keys, last_key, keys_count)
  local arguments = slice(all_arguments, last_argument, arguments_count)
  last_key, last_argument = last_key + keys_count, last_argument + arguments_count
  return keys, arguments
end
"""
_SEQUENCE_PART = """
do
  local KEYS, ARGV = next_part()
  local reply = false
  if KEYS then
    reply = (function() {text} end)() or false
    replies[#replies + 1] = reply
    if not ({goes_on}) then return replies end
  else
    replies[#replies + 1] = reply
  end
end
"""


class ScriptSequence(RedisScript):
    """Scripts that run in this order, until one of them ends the sequence. Its reply is the list of theirs."""

    def __init__(self, *scripts: RedisScript) -> None:
        self._scripts = scripts
        parts = [_SEQUENCE_PART.format(text=script.text, goes_on=script.goes_on) for script in scripts]
        super().__init__("".join((_SEQUENCE_START, *parts, "return replies")))

    def run(self, runs: Sequence[ScriptRun | None]) -> ScriptRun:
        """Returns the run of the whole sequence. A script whose run is None is skipped."""
        keys: list[str] = []
        arguments: list[Argument] = []
        for script, run in zip(self._scripts, runs, strict=True):
            if run is None:
                arguments += (_SKIPPED, 0)
                continue
            assert run.script is script, "runs are in the order of their scripts"
            keys += run.keys
            arguments += (len(run.keys), len(run.arguments), *run.arguments)
        return ScriptRun(self, tuple(keys), tuple(arguments))
