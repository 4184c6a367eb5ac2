"""Landlock: the kernel denies this process every file except those listed, and every TCP port.

See landlock(7). Unlike permissions, the rules cannot be lifted again and also apply to root. Rights that an older
kernel does not know are left out. No version restricts `stat`.
"""

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sources.importers.sandbox.system_calls import prctl, system_call

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
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError), _opened(path) as descriptor:
                is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
                rights = _READ_FILE | _READ_DIRECTORY if is_folder else _READ_FILE
                rule = struct.pack("=Qi", rights, descriptor)
                system_call(_ADD_RULE, self._descriptor, _RULE_PATH_BENEATH, rule, 0)

    def enforce(self) -> None:
        """Applies to this thread, and to the threads and processes that it starts."""
        try:
            forbid_new_privileges()
            system_call(_RESTRICT_SELF, self._descriptor, 0)
        finally:
            os.close(self._descriptor)


def forbid_new_privileges() -> None:
    """Makes set-user-id programs powerless, which the kernel requires before a process may restrict itself."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
