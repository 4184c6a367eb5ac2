"""reStructuredText: every `.rst` file becomes a note, with its text as written. Directives are not executed."""

import re
from collections.abc import Iterator
from itertools import pairwise
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
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, clean_tags, short_title, stored_date

# The title and the fields about the document are at the top.
_HEAD_LINES = 200
_FIELD = re.compile(r":([\w -]{1,40}): ([^\n]{1,1000})")
_TAGS_DIRECTIVE = ".. tags::"
_TAG_FIELDS = ("tags", "keywords")


class RestructuredTextImporter(Importer):
    name = "rst"
    title = "reStructuredText"
    suffixes = (".rst", ".rest")

    def recognizes(self, probe: FileProbe) -> float:
        has_suffix = not probe.is_folder and probe.path.suffix.lower() in self.suffixes
        return 0.5 if has_suffix and is_text(probe.head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        text = read_text(path, limits)
        lines = [line.rstrip() for line in text.split("\n", _HEAD_LINES)[:_HEAD_LINES]]
        fields = {match[1].lower(): match[2] for line in lines if (match := _FIELD.fullmatch(line))}
        # The first line that is underlined with one repeated character, at least as long as the line.
        titles = (
            line.strip()
            for line, below in pairwise(lines)
            if line.strip() and not _is_adornment(line) and _is_adornment(below) and len(below) >= len(line)
        )
        tag_lists = [fields.get(field, "") for field in _TAG_FIELDS]
        tag_lists += [line.removeprefix(_TAGS_DIRECTIVE) for line in lines if line.startswith(_TAGS_DIRECTIVE)]
        draft = NoteDraft(
            title=short_title(next(titles, "")) or short_title(printable_name(path.stem)),
            content=text.strip("\n"),
            tags=clean_tags([tag for tags in tag_lists for tag in tags.split(",")]),
            metadata=compact_metadata(path=printable_name(path.name), author=clean_line(fields.get("author"))),
            uuid=stable_uuid("rst", "notes", file_key(path, limits)),
            created_at=stored_date(fields.get("date")) or modified_at(path, limits),
        )
        yield ImportedNote(draft)
        progress(file_size(path))


IMPORTER = RestructuredTextImporter()


def _is_adornment(line: str) -> bool:
    return len(line) > 1 and len(set(line)) == 1 and not line[0].isalnum() and not line[0].isspace()
