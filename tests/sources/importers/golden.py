"""What every sample is read as, one file for each format: `python -m tests.sources.importers.golden` writes them anew.

Look at the difference before you commit it: every line is something that users get.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec.structs import replace

from sources.importers.engine.events import ImportEvent
from sources.importers.registry import FORMATS, all_importers, importer_by_name
from tests.sources.importers.format_samples import SAMPLES
from tests.sources.importers.single_files import LIMITS, in_process, write

FOLDER = Path(__file__).parent / "golden"


def golden_file(format_name: str) -> Path:
    return FOLDER / f"{format_name}.json"


def sample_events(name: str) -> list[dict[str, Any]]:
    """Returns the events of a sample. It is read as an upload, whose ids and times depend on its content only."""
    format_name, data = SAMPLES[name]
    importer = in_process(importer_by_name(format_name, all_importers()))
    limits = replace(LIMITS, has_stable_path=False)
    with TemporaryDirectory() as folder:
        events = list(importer.read(write(Path(folder, name), data), limits, lambda _: None, None))
    return list(map(_as_json, events))


def _as_json(event: ImportEvent) -> dict[str, Any]:
    encoded = msgspec.json.decode(msgspec.json.encode(event))
    # Some events are encoded as lists.
    return {"event": type(event).__name__, "value": encoded}


def format_events(format_name: str) -> dict[str, Any]:
    return {name: sample_events(name) for name, (owner, _) in sorted(SAMPLES.items()) if owner == format_name}


def _lines(format_name: str) -> Iterator[str]:
    yield json.dumps(format_events(format_name), ensure_ascii=False, indent=1, sort_keys=True)
    yield "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in FORMATS:
        golden_file(name).write_text("".join(_lines(name)))
