"""Has a document parsed in a process of its own, which may use so much time and memory and no more.

Whatever happens in there, crashes and endless loops included, comes back as a value or as one error with a sentence.
"""

import subprocess
import sys
from pathlib import Path
from signal import SIGKILL, SIGXCPU, Signals
from typing import Literal

import msgspec

from config.errors import InvalidParams
from sources.importers.engine.importer import ImportLimits
from sources.importers.parsers.prose import Parsed, Refused

Kind = Literal["html", "pdf", "epub", "docx", "pptx"]
# How the process ends when it may not have more.
OUT_OF_MEMORY = 3
_ROOT = Path(__file__).resolve().parents[3]
_MODULE = "sources.importers.parsers"


def parse_confined(path: Path, kind: Kind, limits: ImportLimits) -> Parsed:
    command = [sys.executable, "-P", "-m", _MODULE, kind, str(path.resolve()), msgspec.json.encode(limits).decode()]
    try:
        done = subprocess.run(  # noqa: S603 - our own module, and arguments that no shell reads
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limits.parser_deadline_s,
            # Nothing of our environment, where secrets may be.
            env={"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidParams(
            f"the document: got one that was not read within {limits.parser_deadline_s:g} s, expected it to be"
        ) from error
    return _answer(done, limits)


def _answer(done: "subprocess.CompletedProcess[bytes]", limits: ImportLimits) -> Parsed:
    if done.returncode:
        raise InvalidParams(
            f"the document: got one that {_end(done.returncode, limits)}, expected one that can be read"
        )
    answer = msgspec.json.decode(done.stdout, type=Parsed | Refused)
    if isinstance(answer, Refused):
        raise InvalidParams(answer.problem)
    return answer


def _end(code: int, limits: ImportLimits) -> str:
    if code in (-SIGXCPU, -SIGKILL):
        return f"takes more than {limits.parser_cpu_s} s of processor time"
    if code == OUT_OF_MEMORY:
        return f"takes more than {limits.parser_memory_max_bytes >> 20} MiB of memory"
    if code < 0:
        # pdfium ends like this on what it should not have believed, and also where it gets no more memory.
        return (
            f"made its parser crash ({_signal(-code)}), by damage or by a need for more than "
            f"{limits.parser_memory_max_bytes >> 20} MiB of memory"
        )
    return "is damaged"


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
