"""Which layers of the sandbox are active, and how the server finds out before the first import."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

SandboxMode = Literal["auto", "required", "off"]
LANDLOCK = "Landlock"
SECCOMP = "seccomp"
# The exit code of a process that was to be confined and could not be.
NO_SANDBOX = 4
NO_SANDBOX_PROBLEM = (
    "import_sandbox is required, but this machine does not offer Landlock and seccomp; run `florilegium doctor`"
)
_ROOT = Path(__file__).resolve().parents[3]
_MODULE = "sources.importers.sandbox"
_PROBE_DEADLINE_S = 30


class SandboxReport(Struct, frozen=True):
    """`active` describes each layer in force; `missing` maps the others to the reason."""

    active: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}

    @property
    def is_sufficient(self) -> bool:
        """Whether files, network and processes are out of reach. The other layers are a second line of defence."""
        return LANDLOCK in self.active and SECCOMP in self.active

    def __str__(self) -> str:
        active = ", ".join(self.active.values()) or "nothing"
        missing = ", ".join(f"{name} ({reason})" for name, reason in self.missing.items())
        return f"{active} active; not available: {missing}" if missing else f"{active} active"


def probe_sandbox() -> SandboxReport:
    """Starts a process that confines itself and reports the result. Takes about a tenth of a second."""
    command = [sys.executable, "-P", "-m", _MODULE]
    try:
        output = subprocess.run(  # noqa: S603 - our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_DEADLINE_S,
            env=child_environment(),
            check=True,
        ).stdout
        return msgspec.json.decode(output, type=SandboxReport)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        return SandboxReport(missing={"sandbox": f"the process that tries it failed: {error}"})


def child_environment() -> dict[str, str]:
    """Returns the environment of the processes that read files. That of the server may contain secrets."""
    return {"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
