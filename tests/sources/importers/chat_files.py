"""Shared by the tests of chat importers: reading a file completely, writing exports, and damaging files."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from config.settings import Settings
from sources.drafts import MessageDraft
from sources.importers.engine.events import FailedItem, ImportedConversation, ImportEvent, SkippedItem
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, import_limits

LIMITS = import_limits(Settings())


def read(importer: Importer, path: Path, limits: ImportLimits = LIMITS) -> list[ImportEvent]:
    return list(importer.read(path, limits, lambda _: None, None))


def read_or_reject(importer: Importer, path: Path, limits: ImportLimits = LIMITS) -> list[ImportEvent]:
    """Reads a damaged file, which may be read as far as possible or rejected; any other error fails the test."""
    importer.recognizes(probe_file(path, limits))
    try:
        return read(importer, path, limits)
    except (InvalidParams, TooLarge) as error:
        return [FailedItem("the file", error.message)]


def confidence(importer: Importer, path: Path) -> float:
    return importer.recognizes(probe_file(path, LIMITS))


def json_file(path: Path, value: Any) -> Path:
    path.write_bytes(msgspec.json.encode(value))
    return path


def zip_file(path: Path, files: Mapping[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in files.items():
            archive.writestr(name, value if isinstance(value, bytes) else msgspec.json.encode(value))
    return path


def imported_conversations(events: list[ImportEvent]) -> list[ImportedConversation]:
    return [event for event in events if isinstance(event, ImportedConversation)]


def imported_messages(events: list[ImportEvent]) -> list[MessageDraft]:
    """Returns the messages of all conversations."""
    return [message for conversation in imported_conversations(events) for message in conversation.messages]


def message_contents(events: list[ImportEvent]) -> list[Any]:
    return [message.content for message in imported_messages(events)]


def skip_reasons(events: list[ImportEvent]) -> list[str]:
    return [event.reason for event in events if isinstance(event, SkippedItem)]


def failures(events: list[ImportEvent]) -> list[tuple[str, str]]:
    return [(event.location, event.problem) for event in events if isinstance(event, FailedItem)]


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """Draws the data with some bytes replaced, removed or inserted, and possibly truncated."""
    change = st.tuples(st.integers(0, len(data) - 1), st.sampled_from("rid"), st.binary(min_size=1, max_size=4))
    return st.builds(
        lambda changes, end: _apply(data, changes)[: len(data) if end is None else end],
        st.lists(change, min_size=1, max_size=6),
        st.none() | st.integers(0, len(data)),
    )


def _apply(data: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
    for offset, kind, new in sorted(changes, reverse=True):
        end = {"r": offset + len(new), "i": offset, "d": offset + len(new)}[kind]
        data = data[:offset] + (b"" if kind == "d" else new) + data[end:]
    return data


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth
