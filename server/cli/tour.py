"""What to try on the demo library: a few commands, each with what it shows. They work as printed."""

import shlex
import shutil
import sys
from pathlib import Path

from sources.demo import demo_uuid

_PROGRAM = "florilegium"
FIRST_QUERY = "why does the dome stick"
_RECORDING = f"media://{demo_uuid('media', 'calibration-evening')}"

# Arguments of `florilegium`, and what comes out.
_STEPS = (
    (f'search "{FIRST_QUERY}"', "notes, a film and chats in one ranking"),
    ('search --source media "median of twenty dark frames"', "the minute at which it is said"),
    (f"get {_RECORDING} --at 04:12 --max-tokens 600", "that minute, within a budget"),
    ('search "sender:Pell comet"', "single turns of a conversation"),
    ("search 彗星", "any script; try Objektiv as well"),
)


def tour(options: str) -> str:
    """`options` are put behind the name of each command."""
    program = program_name()
    lines = []
    for step, shown in _STEPS:
        command, _, rest = step.partition(" ")
        lines.append(f"    {program} {command}{options} {rest}\n        {shown}")
    return "\n".join(lines)


def program_name() -> str:
    """As it can be typed here: `.venv/bin/florilegium`, where a shell would not find it by its name alone."""
    invoked = sys.argv[0]
    is_found = Path(invoked).name != _PROGRAM or shutil.which(_PROGRAM) is not None
    return _PROGRAM if is_found else shlex.quote(invoked)
