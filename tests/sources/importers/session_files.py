"""Files of agents' sessions for tests: lines of JSON, as the agents write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sources.drafts import ObservationDraft
from sources.importers.engine.imported_items import Checkpoint, ImportedObservation, ImportEvent, ReadPosition
from sources.importers.engine.importer import Importer, ImportLimits
from tests.sources.importers.chat_reading import LIMITS

Line = Mapping[str, Any]


def write_session(path: Path, *lines: Line | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(*lines))
    return path


def encoded(*lines: Line | bytes) -> bytes:
    """A line that is given as bytes stands there as it is."""
    return b"".join(line if isinstance(line, bytes) else msgspec.json.encode(line) + b"\n" for line in lines)


def read_from(
    importer: Importer, path: Path, mark: ReadPosition | None, limits: ImportLimits = LIMITS
) -> list[ImportEvent]:
    return list(importer.read(path, limits, lambda _: None, mark))


def reached(arrivals: list[ImportEvent]) -> ReadPosition | None:
    """The last mark."""
    marks = [one.mark for one in arrivals if isinstance(one, Checkpoint)]
    return marks[-1] if marks else None


def observed(arrivals: list[ImportEvent]) -> list[ObservationDraft]:
    return [one.draft for one in arrivals if isinstance(one, ImportedObservation)]
