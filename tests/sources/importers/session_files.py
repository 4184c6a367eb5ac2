"""Session files of coding agents for tests: lines of JSON, as the agents write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sources.drafts import ObservationDraft
from sources.importers.engine.events import Checkpoint, ImportedObservation, ImportEvent, ReadPosition
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits
from tests.sources.importers.chat_files import LIMITS

SessionRecord = Mapping[str, Any]


def write_session(path: Path, *lines: SessionRecord | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_lines(*lines))
    return path


def encode_lines(*lines: SessionRecord | bytes) -> bytes:
    """Bytes are used unchanged."""
    return b"".join(line if isinstance(line, bytes) else msgspec.json.encode(line) + b"\n" for line in lines)


def read_from(
    importer: Importer, path: Path, position: ReadPosition | None, limits: ImportLimits = LIMITS
) -> list[ImportEvent]:
    return list(importer.read(path, limits, lambda _: None, position))


def last_position(events: list[ImportEvent]) -> ReadPosition | None:
    positions = [event.position for event in events if isinstance(event, Checkpoint)]
    return positions[-1] if positions else None


def imported_observations(events: list[ImportEvent]) -> list[ObservationDraft]:
    return [event.draft for event in events if isinstance(event, ImportedObservation)]
