"""Org mode: every `.org` file becomes a note, with its text as written."""

from collections.abc import Iterator
from pathlib import Path

from sources.drafts import NoteDraft
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import (
    ImportedNote,
    file_key,
    file_size,
    is_text,
    modified_at,
    printable_name,
    read_text,
    stable_uuid,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import read_org_header
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, clean_tags, short_title


class OrgImporter(Importer):
    name = "org"
    title = "Org mode"
    suffixes = (".org",)

    def recognizes(self, probe: FileProbe) -> float:
        is_org = not probe.is_folder and probe.path.suffix.lower() in self.suffixes
        return 0.5 if is_org and is_text(probe.head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        text = read_text(path, limits)
        header = read_org_header(text)
        name = printable_name(path.name)
        draft = NoteDraft(
            title=short_title(header.title) or short_title(printable_name(path.stem)),
            content=text.strip("\n"),
            tags=clean_tags(header.tags),
            metadata=compact_metadata(path=name, author=clean_line(header.author)),
            uuid=header.uuid or stable_uuid("org", "notes", file_key(path, limits)),
            created_at=header.created or modified_at(path, limits),
        )
        yield ImportedNote(draft)
        progress(file_size(path))


IMPORTER = OrgImporter()
