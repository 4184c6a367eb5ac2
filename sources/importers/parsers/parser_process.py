"""Parses a document in a subprocess with limits on time and memory.

Whatever happens there, including crashes and endless loops, results in a value or in one error with a message.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGXCPU, Signals
from typing import IO, Literal

import msgspec

from config.errors import InvalidParams
from sources.importers.engine.confined_files import DESCRIPTOR_FOLDER, open_file
from sources.importers.engine.limits import ImportLimits
from sources.importers.parsers.parsed_document import ParsedDocument, ParseFailure
from sources.importers.sandbox.confinement import NO_SANDBOX, NO_SANDBOX_PROBLEM, child_environment

DocumentKind = Literal["html", "pdf", "epub", "docx", "pptx", "xlsx", "odt", "rtf", "csv"]
# A document is a file, or the bytes of one inside another file.
DocumentParser = Callable[[Path | bytes, DocumentKind, ImportLimits], ParsedDocument]
# The exit code of the subprocess after a MemoryError.
OUT_OF_MEMORY = 3
_MODULE = "sources.importers.parsers"


def parse_in_subprocess(
    document: Path | bytes, kind: DocumentKind, limits: ImportLimits, process_group: int | None = None
) -> ParsedDocument:
    """Parses one document. With a process group, killing that group also ends the parser. The file is opened here, so
    that the parser need not open any."""
    with open_file(document) if isinstance(document, Path) else _memory_file(document) as file:
        descriptor = file.fileno()
        path = f"{DESCRIPTOR_FOLDER}{descriptor}"
        command = [sys.executable, "-P", "-m", _MODULE, kind, path, msgspec.json.encode(limits).decode()]
        try:
            process = subprocess.run(  # noqa: S603 - our own module, and arguments that no shell reads
                command,
                pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=limits.parser_deadline_s,
                env=child_environment(),
                process_group=process_group,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InvalidParams(f"parsing took longer than {limits.parser_deadline_s:g} s") from error
        if process.returncode:
            raise InvalidParams(_exit_problem(process.returncode, limits))
        result = msgspec.json.decode(process.stdout, type=ParsedDocument | ParseFailure)
        if isinstance(result, ParseFailure):
            raise InvalidParams(result.problem)
        return result


def _memory_file(content: bytes) -> IO[bytes]:
    """Returns a file without a name. Its content stays in memory where the system supports that."""
    file: IO[bytes]
    if sys.platform == "linux":
        file = os.fdopen(os.memfd_create("document"), "wb")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(content)
    file.flush()
    return file


def _exit_problem(code: int, limits: ImportLimits) -> str:
    if code == NO_SANDBOX:
        return NO_SANDBOX_PROBLEM
    memory = f"{limits.parser_memory_max_bytes >> 20} MiB of memory"
    if code in (-SIGXCPU, -SIGKILL):
        return f"parsing took more than {limits.parser_cpu_s} s of CPU time"
    if code == OUT_OF_MEMORY:
        return f"parsing took more than {memory}"
    if code < 0:
        # pdfium crashes on some malformed input, and also when it cannot allocate memory.
        name = Signals(-code).name if -code in list(Signals) else f"signal {-code}"
        return f"the parser crashed ({name}): the document is damaged, or needs more than {memory}"
    return "the document is damaged"
