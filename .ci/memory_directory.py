"""Prints a directory whose files are kept in memory, if there is one that is large enough for the tests.

Tests create thousands of small databases, and each commit waits for the disk. What they say about files that survive
killed processes holds in memory too.
"""

import os
import shutil

CANDIDATE = "/dev/shm"  # noqa: S108 - pytest creates a directory of its own in it
BYTES_MIN = 4_000_000_000


def is_suitable(directory: str) -> bool:
    """Whether the tests can write their files there and run programs. Containers often have a small one without."""
    if not os.access(directory, os.W_OK | os.X_OK) or os.statvfs(directory).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(directory).free >= BYTES_MIN


if __name__ == "__main__":
    print(CANDIDATE if is_suitable(CANDIDATE) else "")
