"""A seccomp filter: the kernel refuses the system calls that reading a file never needs.

The filter lists what is refused and not what is allowed, because C libraries and parsers use different calls in each
version. Landlock decides about files; the filter refuses what Landlock does not cover: sockets, new programs and
processes, access to other processes, changes of modes, owners and times, and rarely used parts of the kernel.
"""

import ctypes
import errno
import os
from collections.abc import Iterator

from msgspec import Struct

from sources.importers.sandbox.landlock import forbid_new_privileges
from sources.importers.sandbox.system_calls import prctl

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
