"""What the tests of chat importers share: a read to the end, the files of an export, and files that came to harm."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from config.settings import Settings
from sources.drafts import MessageDraft
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.import_runner import limits_of
from sources.importers.engine.imported_items import FailedItem, ImportedConversation, ImportEvent, SkippedItem
from sources.importers.engine.importer import Importer, ImportLimits

LIMITS = limits_of(Settings())


def read(importer: Importer, path: Path, limits: ImportLimits = LIMITS) -> list[ImportEvent]:
    return list(importer.read(path, limits, lambda _: None, None))


def read_or_refuse(importer: Importer, path: Path, limits: ImportLimits = LIMITS) -> list[ImportEvent]:
    """What a damaged file may do: be read as far as it goes, or be refused."""
    importer.recognizes(probe_file(path, limits))
    try:
        return read(importer, path, limits)
    except (InvalidParams, TooLarge) as error:
        return [FailedItem("the file", error.message)]


def certainty(importer: Importer, path: Path) -> float:
    return importer.recognizes(probe_file(path, LIMITS))


def json_file(path: Path, value: Any) -> Path:
    path.write_bytes(msgspec.json.encode(value))
    return path


def zip_file(path: Path, files: Mapping[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in files.items():
            archive.writestr(name, value if isinstance(value, bytes) else msgspec.json.encode(value))
    return path


def chats(arrivals: list[ImportEvent]) -> list[ImportedConversation]:
    return [one for one in arrivals if isinstance(one, ImportedConversation)]


def said(arrivals: list[ImportEvent]) -> list[MessageDraft]:
    """All messages of all conversations."""
    return [message for chat in chats(arrivals) for message in chat.messages]


def texts(arrivals: list[ImportEvent]) -> list[Any]:
    return [message.content for message in said(arrivals)]


def skipped(arrivals: list[ImportEvent]) -> list[str]:
    return [one.reason for one in arrivals if isinstance(one, SkippedItem)]


def broken(arrivals: list[ImportEvent]) -> list[tuple[str, str]]:
    return [(one.place, one.problem) for one in arrivals if isinstance(one, FailedItem)]


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """The file with some bytes replaced, taken out or put in, and maybe without its end."""
    change = st.tuples(st.integers(0, len(data) - 1), st.sampled_from("rid"), st.binary(min_size=1, max_size=4))
    return st.builds(
        lambda changes, end: _changed(data, changes)[: len(data) if end is None else end],
        st.lists(change, min_size=1, max_size=6),
        st.none() | st.integers(0, len(data)),
    )


def _changed(data: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
    for place, how, new in sorted(changes, reverse=True):
        end = {"r": place + len(new), "i": place, "d": place + len(new)}[how]
        data = data[:place] + (b"" if how == "d" else new) + data[end:]
    return data


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth
