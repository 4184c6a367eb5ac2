"""Read files of a format. `sources.importers.engine.importer` describes what an `Importer` does; `ImportedRecord` is an
item of a declared kind, with the values of its fields by name.

Files are read in a process without network and with access to the files of the import only. Therefore the module of an
importer must not import `florilegium.sources` or other modules that need the server; put it into a module of its own.
"""

from sources.drafts import ItemDraft
from sources.importers.engine.events import (
    DoubtfulItem,
    FailedItem,
    ImportedNote,
    ImportedRecord,
    ImportEvent,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import file_key, modified_at, read_json, read_text
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, ProgressCallback

__all__ = [
    "DoubtfulItem",
    "FailedItem",
    "FileProbe",
    "ImportEvent",
    "ImportLimits",
    "ImportedNote",
    "ImportedRecord",
    "Importer",
    "ItemDraft",
    "ProgressCallback",
    "ReadPosition",
    "SkippedItem",
    "file_key",
    "modified_at",
    "read_json",
    "read_text",
    "stable_uuid",
]
