"""Commands to try on the demo library, each with what it shows. They work as printed."""

import shlex
import shutil
import sys
from pathlib import Path

from sources.demo import demo_uuid

_PROGRAM = "florilegium"
FIRST_QUERY = "why does the dome stick"
_RECORDING = f"media://{demo_uuid('media', 'calibration-evening')}"

# Arguments of `florilegium`, and what they show.
_STEPS = (
    (f'search "{FIRST_QUERY}"', "notes, a film and chats in one ranking"),
    ('search --source media "median of twenty dark frames"', "the minute at which it is spoken"),
    (f"get {_RECORDING} --at 04:12 --max-tokens 600", "that minute, within a token budget"),
    ('search "sender:Pell comet"', "single messages of a conversation"),
    ("search 彗星", "any script; try Objektiv, too"),
)


def tour(options: str) -> str:
    """Returns the commands; `options` are inserted after the name of each."""
    program = program_name()
    lines = []
    for step, description in _STEPS:
        command, _, rest = step.partition(" ")
        lines.append(f"    {program} {command}{options} {rest}\n        {description}")
    return "\n".join(lines)


def program_name() -> str:
    """Returns the program as it can be typed here: `.venv/bin/florilegium` if it is not on the PATH."""
    invoked = sys.argv[0]
    is_on_path = Path(invoked).name != _PROGRAM or shutil.which(_PROGRAM) is not None
    return _PROGRAM if is_on_path else shlex.quote(invoked)
