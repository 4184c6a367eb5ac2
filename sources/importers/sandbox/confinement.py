"""Puts this process into the sandbox, layer by layer. Layers that the kernel lacks are left out and reported."""

# About this package: `confinement.py` enters the layers one by one and reports which are missing; `seccomp.py` has the
# system calls. A flaw in a parser could otherwise read the files of every user, because the process would have the
# rights of the server.

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from sources.importers.sandbox.seccomp import LandlockRules, prctl, refuse_system_calls, system_call, unshare

# -- report ------------------------------------------------------------------------------------------------------------
# Which layers of the sandbox are active, and how the server finds out before the first import.

SandboxMode = Literal["auto", "required", "off"]
LANDLOCK = "Landlock"
SECCOMP = "seccomp"
# The exit code of a process that was to be confined and could not be.
NO_SANDBOX = 4
NO_SANDBOX_PROBLEM = (
    "import_sandbox is required, but this machine does not offer Landlock and seccomp; run `florilegium doctor`"
)
_ROOT = Path(__file__).resolve().parents[3]
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

    def judge(self, mode: SandboxMode) -> tuple[Literal["ok", "warn", "fail"], str]:
        """Says whether imports are safe with this setting of `import_sandbox`."""
        if mode == "off":
            return "warn", "switched off: a flaw in a parser could read every user's files"
        if self.is_sufficient:
            return "ok", str(self)
        if mode == "required":
            return "fail", f"{self}; imports are refused, because import_sandbox is required"
        return "warn", f"{self}; a flaw in a parser could read every user's files"


def probe_sandbox() -> SandboxReport:
    """Starts a process that confines itself and reports the result. Takes about a tenth of a second."""
    command = [sys.executable, "-P", "-m", "sources.importers.sandbox"]
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


# -- privileges --------------------------------------------------------------------------------------------------------
# Namespaces without network, another user id, and no capabilities that are not needed for reading files.

_NEW_USER = 0x10000000
_NEW_NETWORK_IPC_AND_HOST_NAME = 0x40000000 | 0x08000000 | 0x04000000
_PR_SET_KEEPCAPS = 8
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2
# By the kernel's convention the user that owns nothing.
_NOBODY = 65_534
_CAPABILITY_CALLS = {"x86_64": (125, 126), "aarch64": (90, 91)}


def leave_network() -> str:
    """Moves this process into a network namespace without any interface, and returns the names of the new namespaces.
    An ordinary user may do so inside a new user namespace only."""
    if os.geteuid() == 0:
        unshare(_NEW_NETWORK_IPC_AND_HOST_NAME)
        return "network namespace"
    unshare(_NEW_USER | _NEW_NETWORK_IPC_AND_HOST_NAME)
    return "user and network namespaces"


def change_user() -> str:
    """Becomes the user `nobody`, if this process runs as root. It can still read root's files, which Landlock limits to
    those of the import, but it cannot signal, trace or inspect the processes of other users. Raises OSError if this
    process is not root or lacks a capability that the change needs."""
    if os.geteuid() != 0:
        raise PermissionError("requires root")
    reading = _reading_capability()
    if not reading:
        raise PermissionError("requires the capability DAC_READ_SEARCH or DAC_OVERRIDE")
    prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _set_capabilities(reading)
    return f"user id {_NOBODY}"


def drop_capabilities() -> str:
    """Gives up all capabilities but that of reading files, including those that a new user namespace comes with."""
    _set_capabilities(_reading_capability())
    return "reduced capabilities"


def _reading_capability() -> int:
    """Returns the weakest permitted capability that opens files of other users, as a bit mask; 0 if there is none."""
    # The permitted capabilities as a bit mask.
    data = ctypes.create_string_buffer(24)
    system_call(_capability_calls()[0], _header(), data)
    _, low, _, _, high, _ = struct.unpack("=6I", data.raw)
    permitted = int(low) | int(high) << 32
    return next((1 << bit for bit in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE) if permitted >> bit & 1), 0)


def _set_capabilities(mask: int) -> None:
    low, high = mask & 0xFFFFFFFF, mask >> 32
    system_call(_capability_calls()[1], _header(), struct.pack("=6I", low, low, 0, high, high, 0))


def _header() -> "ctypes.Array[ctypes.c_char]":
    return ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))


def _capability_calls() -> tuple[int, int]:
    """Returns the numbers of capget and capset."""
    try:
        return _CAPABILITY_CALLS[os.uname().machine]
    except KeyError as error:
        raise OSError(f"not available on {os.uname().machine}") from error


Result = TypeVar("Result")
_OWN_PACKAGES = (_ROOT / "config", _ROOT / "florilegium", _ROOT / "sources")
_SYSTEM_FILES = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache"),
    *("/usr/share/zoneinfo", "/etc/localtime", "/dev/null", "/dev/urandom"),
)


def confine(paths: Iterable[Path], mode: SandboxMode) -> None:
    """Enters the sandbox as the setting `import_sandbox` requires. Exits if that is impossible."""
    if mode == "off":
        return
    report = enter_sandbox(paths)
    if mode == "required" and not report.is_sufficient:
        sys.stderr.write(f"import_sandbox is required, but {report}\n")
        sys.exit(NO_SANDBOX)


def enter_sandbox(paths: Iterable[Path]) -> SandboxReport:
    """Confines this process permanently to reading the paths and the files of Python itself. The process must have one
    thread, because some layers apply to the calling thread only."""
    layers = _Layers()
    # The files are opened first, while this user may still open them.
    rules = layers.attempt(LANDLOCK, lambda: _landlock_rules(paths))
    layers.add("namespaces", leave_network)
    layers.add("user id", change_user)
    if "user id" not in layers.active:
        layers.add("capabilities", drop_capabilities)
    if rules is not None:
        layers.add(LANDLOCK, rules.enforce)
    layers.add(SECCOMP, refuse_system_calls)
    return SandboxReport(layers.active, layers.missing)


class _Layers:
    """Collects which layers work, and why the others do not."""

    def __init__(self) -> None:
        self.active: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def add(self, name: str, start: Callable[[], str]) -> None:
        description = self.attempt(name, start)
        if description is not None:
            self.active[name] = description

    def attempt(self, name: str, start: Callable[[], Result]) -> Result | None:
        try:
            return start()
        except OSError as error:
            self.missing[name] = (error.strerror or str(error)).lower()
            return None


def _landlock_rules(paths: Iterable[Path]) -> LandlockRules:
    # The folders of Python's modules, which are loaded when a format needs them. Of the folder with our own packages
    # only these are included, because it may also contain a data directory, unless we are installed, next to the
    # packages that the parsers need.
    folders = [Path(entry).resolve() for entry in sys.path if entry]
    modules = (folder for folder in folders if folder != _ROOT or folder.name in ("site-packages", "dist-packages"))
    rules = LandlockRules()
    rules.allow_reading((*paths, *modules, *_OWN_PACKAGES, *map(Path, _SYSTEM_FILES)))
    return rules
