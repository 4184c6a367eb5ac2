"""Recognizes files of a followed folder that were renamed or moved."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from sources.storage.contract import FollowedFile


class ChangedFile(Struct, frozen=True):
    name: bytes
    path: Path
    signature: str
    fingerprint: str
    is_database: bool
    moved_from: bytes | None = None


def match_moves(
    files: Sequence[ChangedFile], known: Mapping[bytes, FollowedFile], missing: Sequence[bytes]
) -> list[ChangedFile]:
    """A new file with the content of a missing one was renamed or moved. Of several, one with the same base name is
    preferred."""
    candidates: dict[str, list[bytes]] = {}
    for name in sorted(missing):
        if known[name].fingerprint:
            candidates.setdefault(known[name].fingerprint, []).append(name)
    matched = []
    for file in sorted(files, key=lambda file: file.name):
        names = candidates.get(file.fingerprint, []) if file.name not in known else []
        moved_from = min(names, key=lambda name: (_base_name(name) != _base_name(file.name), name), default=None)
        if moved_from is not None:
            names.remove(moved_from)
        matched.append(msgspec.structs.replace(file, moved_from=moved_from))
    return matched


def _base_name(name: bytes) -> bytes:
    return name.rpartition(b"/")[2]
