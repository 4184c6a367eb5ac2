"""Namespaces without network, another user id, and no capabilities that are not needed for reading files."""

import ctypes
import os
import struct

from sources.importers.sandbox.system_calls import prctl, system_call, unshare

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
    permitted = _permitted()
    return next((1 << bit for bit in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE) if permitted >> bit & 1), 0)


def _permitted() -> int:
    """Returns the permitted capabilities as a bit mask."""
    data = ctypes.create_string_buffer(24)
    system_call(_capability_calls()[0], _header(), data)
    _, low, _, _, high, _ = struct.unpack("=6I", data.raw)
    return int(low) | int(high) << 32


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
