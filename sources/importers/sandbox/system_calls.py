"""Linux system calls that Python does not wrap, through ctypes."""

import ctypes
import os
import sys
from functools import cache
from typing import Any

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
