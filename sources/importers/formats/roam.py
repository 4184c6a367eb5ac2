"""Roam Research's JSON export: a list of pages, each an outline of blocks. Every page becomes a note."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import NoteDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.export_files import first_bytes, is_json, read_export
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import ImportedNote, SkippedItem, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import inline_tags, link_targets, remove_code
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    objects,
    parse_json,
    short_title,
    stored_time,
    text_or_empty,
)

_TIME = re.compile(rb'"(?:create|edit)-time"\s{0,9}:')
# A tag of several words.
_WORDS_TAG = re.compile(r"#\[\[([^\[\]\n]{1,100})\]\]")
_HEADING_LEVELS = (1, 2, 3)


class RoamImporter(Importer):
    name = "roam"
    title = "Roam Research export (JSON)"
    suffixes = (".json", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        head = first_bytes(probe, _is_json_name) if is_zip(probe.head) else probe.head
        is_outline = b'"string"' in head and b'"title"' in head and _TIME.search(head)
        return 0.8 if is_json(head) and head.lstrip()[:1] == b"[" and is_outline else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        def read(data: bytes, _: str) -> Iterator[ImportEvent]:
            yield _read_page(parse_json(data, limits))

        yield from read_export(path, limits, progress, _is_json_name, "page", read)


IMPORTER = RoamImporter()


def _is_json_name(name: str) -> bool:
    return name.lower().endswith(".json")


def _read_page(page: Any) -> ImportEvent:
    title = clean_line(page.get("title")) if isinstance(page, dict) else ""
    if not title:
        raise InvalidParams("the page has no title")
    if not page.get("children"):
        return SkippedItem("page without blocks")
    content = "\n".join(_outline(page))
    prose = remove_code(content)
    created, edited = page.get("create-time"), stored_time(page.get("edit-time"))
    note_draft = NoteDraft(
        title=short_title(title),
        content=content,
        tags=clean_tags([*inline_tags(prose), *_WORDS_TAG.findall(prose)]),
        metadata=compact_metadata(links=link_targets(prose), updated=edited),
        # The uid of a daily page is its date, and so the same in every graph.
        uuid=stable_uuid("roam", "notes", f"{page.get('uid') or title}/{created}"),
        created_at=stored_time(created) or edited or UNSET,
        last_modified=edited or UNSET,
    )
    return ImportedNote(note_draft)


def _outline(page: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each block, indented by its level. The lines of one block are kept together."""
    # The remaining blocks of every level.
    levels = [objects(page.get("children"))]
    while levels:
        indent = "  " * (len(levels) - 1)
        for block in levels[-1]:
            heading = block.get("heading")
            mark = "#" * heading + " " if heading in _HEADING_LEVELS else ""
            text = text_or_empty(block.get("string")).replace("\n", f"\n{indent}  ")
            yield f"{indent}- {mark}{text}"
            if block.get("children"):
                levels.append(objects(block["children"]))
                break
        else:
            levels.pop()
