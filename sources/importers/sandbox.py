"""The sandbox of the processes that read imported files: Landlock, a seccomp filter, namespaces and another user id.

Puts this process into the sandbox, layer by layer. Layers that the kernel lacks are left out and reported:
`python -m sources.importers.sandbox` says which of them work here. A flaw in a parser could otherwise read the files of
every user, because the process would have the rights of the server.
"""

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

# -- system calls ------------------------------------------------------------------------------------------------------
# Linux system calls that Python does not wrap, through ctypes.

_SYSCALL_SUPPORTED = sys.platform == "linux"


def system_call(number: int, *arguments: Any) -> int:
    """Makes a system call with integers, buffers or ctypes structures. Raises OSError if it fails."""
    _require_linux()
    return _checked(_libc().syscall(ctypes.c_long(number), *map(_argument, arguments)))


def prctl(option: int, *arguments: Any) -> int:
    _require_linux()
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_libc().prctl(ctypes.c_int(option), *map(_argument, padded)))


def unshare(flags: int) -> None:
    _require_linux()
    _checked(_libc().unshare(ctypes.c_int(flags)))


def _require_linux() -> None:
    if not _SYSCALL_SUPPORTED:
        raise OSError(f"not available on {sys.platform}")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _argument(value: Any) -> Any:
    # The arguments are variadic: without the type, ctypes would pass an int as 32 bits.
    return ctypes.c_ulong(value) if isinstance(value, int) else value


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


# -- landlock ----------------------------------------------------------------------------------------------------------
# Landlock: the kernel denies this process every file except those listed, and every TCP port.
#
# See landlock(7). Unlike permissions, the rules cannot be lifted again and also apply to root. Rights that an older
# kernel does not know are left out. No version restricts `stat`.

# These numbers are the same on all architectures.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_READ_FILE = 1 << 2
_READ_DIRECTORY = 1 << 3
# The number of file system rights that each version knows, from the first bit on.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_TCP_SINCE = 4
_SCOPES_SINCE = 6


def landlock_version() -> int:
    """Returns the version of the interface. Raises OSError if the kernel has none, or has it switched off."""
    return system_call(_CREATE_RULESET, None, 0, _VERSION_FLAG)


class LandlockRules:
    """The rules, before they are in force. A path that does not exist is left out: opening it fails anyway."""

    def __init__(self) -> None:
        version = landlock_version()
        attributes = [(1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1]
        if version >= _TCP_SINCE:
            attributes.append(_TCP_BIND_AND_CONNECT)
        if version >= _SCOPES_SINCE:
            attributes.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
        encoded = struct.pack(f"={len(attributes)}Q", *attributes)
        self._descriptor = system_call(_CREATE_RULESET, encoded, len(encoded), 0)

    def allow_reading(self, paths: Iterable[Path]) -> None:
        """Allows reading files, and folders with everything in them. Symbolic links mean their targets."""
        for path in paths:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            try:
                is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
                rights = _READ_FILE | _READ_DIRECTORY if is_folder else _READ_FILE
                rule = struct.pack("=Qi", rights, descriptor)
                system_call(_ADD_RULE, self._descriptor, _RULE_PATH_BENEATH, rule, 0)
            finally:
                os.close(descriptor)

    def enforce(self) -> str:
        """Applies to this thread, and to the threads and processes that it starts. Returns what is in force."""
        try:
            forbid_new_privileges()
            system_call(_RESTRICT_SELF, self._descriptor, 0)
        finally:
            os.close(self._descriptor)
        return f"Landlock {landlock_version()}"


def forbid_new_privileges() -> None:
    """Makes set-user-id programs powerless, which the kernel requires before a process may restrict itself."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


# -- seccomp -----------------------------------------------------------------------------------------------------------
# The kernel refuses the system calls that reading a file never needs.
#
# The filter lists what is refused and not what is allowed, because C libraries and parsers use different calls in each
# version. Landlock decides about files; the filter refuses what Landlock does not cover: sockets, new programs and
# processes, access to other processes, changes of modes, owners and times, and rarely used parts of the kernel.

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000
# Opcodes of classic BPF: load a word, jump if equal, jump if greater or equal, jump if any bit is set, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# Offsets in `struct seccomp_data`. Arguments have 64 bits, and both architectures store the lower half first.
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENT_OFFSET = 0, 4, 16
_CLONE_THREAD = 0x00010000
# x86-64 kernels also accept the calls of the x32 interface, marked by this bit.
_X32_BIT = 0x40000000


class _Architecture(Struct, frozen=True):
    """The numbers of the system calls that are refused. Those of `clone`, `prlimit64` and `tgkill` depend on the
    arguments."""

    audit_code: int
    clone: int
    prlimit64: int
    tgkill: int
    refused: tuple[int, ...]


# Calls added since Linux 5.1 have the same number everywhere.
_REFUSED_EVERYWHERE = (
    *(424, 434, 438),  # pidfd_send_signal, pidfd_open, pidfd_getfd
    *(425, 426, 427),  # io_uring_setup, io_uring_enter, io_uring_register
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
    *(440, 448, 443),  # process_madvise, process_mrelease, quotactl_fd
    *(452, 463, 466),  # fchmodat2, setxattrat, removexattrat
)
_CLONE3 = 435

_ARCHITECTURES = {
    "x86_64": _Architecture(
        audit_code=0xC000003E,
        clone=56,
        prlimit64=302,
        tgkill=234,
        refused=(
            *(41, 42, 43, 44, 46, 49, 50, 53, 288, 307),  # socket to socketpair, accept4, sendmmsg
            *(57, 58, 59, 322),  # fork, vfork, execve, execveat
            *(62, 200, 129, 297),  # kill, tkill, rt_sigqueueinfo, rt_tgsigqueueinfo
            *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(105, 106, 113, 114, 116, 117, 119, 122, 123, 126),  # setuid to setfsgid, capset
            *(109, 112, 135, 141, 142, 144, 203, 251, 314),  # setpgid, setsid, personality, priorities of processes
            *(90, 91, 92, 93, 94, 260, 268),  # chmod, fchmod, chown, fchown, lchown, fchownat, fchmodat
            *(132, 235, 261, 280),  # utime, utimes, futimesat, utimensat
            *(188, 189, 190, 197, 198, 199),  # setxattr to fremovexattr
            *(133, 259),  # mknod, mknodat
            *(155, 161, 165, 166, 167, 168, 179, 272, 308),  # pivot_root, chroot, mount to quotactl, unshare, setns
            *(163, 164, 169, 170, 171, 172, 173, 103, 227, 159, 305),  # acct, clocks, reboot, host name, ports, syslog
            *(175, 176, 313, 246, 320),  # kernel modules and kexec
            *(29, 30, 64, 68, 240),  # shmget, shmat, semget, msgget, mq_open
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
            *(253, 294, 300),  # inotify_init, inotify_init1, fanotify_init
            *(303, 304, 256, 279),  # file handles, migrate_pages, move_pages
        ),
    ),
    "aarch64": _Architecture(
        audit_code=0xC00000B7,
        clone=220,
        prlimit64=261,
        tgkill=131,
        refused=(
            *(198, 199, 200, 201, 202, 203, 206, 211, 242, 269),  # socket to sendmsg, accept4, sendmmsg
            *(221, 281),  # execve, execveat
            *(129, 130, 138, 240),  # kill, tkill, rt_sigqueueinfo, rt_tgsigqueueinfo
            *(117, 270, 271, 272),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(143, 144, 145, 146, 147, 149, 151, 152, 159, 91),  # setregid to setgroups, capset
            *(154, 157, 92, 140, 118, 119, 122, 30, 274),  # setpgid, setsid, personality, priorities of processes
            *(52, 53, 54, 55),  # fchmod, fchmodat, fchownat, fchown
            88,  # utimensat
            *(5, 6, 7, 14, 15, 16),  # setxattr to fremovexattr
            33,  # mknodat
            *(39, 40, 41, 51, 60, 224, 225, 97, 268),  # umount2 to quotactl, swapon, swapoff, unshare, setns
            *(89, 170, 112, 142, 161, 162, 116, 171, 266),  # acct, clocks, reboot, host name, syslog
            *(104, 105, 106, 273, 294),  # kexec and kernel modules
            *(194, 196, 190, 186, 180),  # shmget, shmat, semget, msgget, mq_open
            *(217, 218, 219),  # add_key, request_key, keyctl
            *(241, 280, 282),  # perf_event_open, bpf, userfaultfd
            *(26, 262),  # inotify_init1, fanotify_init
            *(264, 265, 238, 239),  # file handles, migrate_pages, move_pages
        ),
    ),
}


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jump_true", ctypes.c_ubyte),
        ("jump_false", ctypes.c_ubyte),
        ("operand", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def refuse_system_calls() -> str:
    """Applies the filter to this process permanently. Raises OSError if the kernel or the architecture has none."""
    architecture = _ARCHITECTURES.get(os.uname().machine)
    if architecture is None:
        raise OSError(f"not available on {os.uname().machine}")
    instructions = list(_instructions(architecture, os.getpid()))
    array = (_Instruction * len(instructions))(*instructions)
    forbid_new_privileges()
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_Program(len(instructions), array)))
    return "seccomp"


def _instructions(architecture: _Architecture, pid: int) -> Iterator[_Instruction]:
    refuse = _Instruction(_RETURN, 0, 0, _ERRNO | errno.EPERM)
    yield _Instruction(_LOAD, 0, 0, _ARCHITECTURE_OFFSET)
    yield _Instruction(_EQUAL, 1, 0, architecture.audit_code)
    yield _Instruction(_RETURN, 0, 0, _KILL_PROCESS)
    yield _Instruction(_LOAD, 0, 0, _NUMBER_OFFSET)
    yield _Instruction(_AT_LEAST, 0, 1, _X32_BIT)
    yield refuse
    for number in (*architecture.refused, *_REFUSED_EVERYWHERE):
        yield _Instruction(_EQUAL, 0, 1, number)
        yield refuse
    # The flags of clone3 are behind a pointer. C libraries use clone instead if it does not exist.
    yield _Instruction(_EQUAL, 0, 1, _CLONE3)
    yield _Instruction(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    # Threads, but no processes.
    yield _Instruction(_EQUAL, 0, 4, architecture.clone)
    yield _Instruction(_LOAD, 0, 0, _ARGUMENT_OFFSET)
    yield _Instruction(_ANY_BIT, 1, 0, _CLONE_THREAD)
    yield refuse
    yield _Instruction(_RETURN, 0, 0, _ALLOW)
    # Its own limits and signals, such as that of abort(), but not those of another process.
    for number in (architecture.prlimit64, architecture.tgkill):
        yield _Instruction(_EQUAL, 0, 5, number)
        yield _Instruction(_LOAD, 0, 0, _ARGUMENT_OFFSET)
        yield _Instruction(_EQUAL, 2, 0, 0)
        yield _Instruction(_EQUAL, 1, 0, pid)
        yield refuse
        yield _Instruction(_RETURN, 0, 0, _ALLOW)
    yield _Instruction(_RETURN, 0, 0, _ALLOW)


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
_ROOT = Path(__file__).resolve().parents[2]
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


# -- layers ------------------------------------------------------------------------------------------------------------

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


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(enter_sandbox(())))
