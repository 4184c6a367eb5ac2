"""A seccomp filter: the kernel refuses the system calls that reading a file never needs.

The filter lists what is refused and not what is allowed, because C libraries and parsers use different calls in each
version. Landlock decides about files; the filter refuses what Landlock does not cover: sockets, new programs and
processes, access to other processes, changes of modes, owners and times, and rarely used parts of the kernel.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

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
