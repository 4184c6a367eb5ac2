"""Omnivore's export: a zip with lists of saved pages, their content as HTML, and their highlights as Markdown."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from sources.drafts import MediaDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import FileTree, open_tree
from sources.importers.engine.files import FailedItem, ImportedMedia, item_text, stable_uuid, text_max_bytes
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import compact_metadata, url_or_empty
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    objects,
    parse_json,
    short_title,
    stored_time,
    texts,
    valid_uuid,
)
from sources.importers.parsers.web_page import decode_page, html_text

_LIST = re.compile(r"(?P<folder>(?:.{1,200}/)?)metadata_\d{1,9}_to_\d{1,9}\.json")


class OmnivoreImporter(Importer):
    name = "omnivore"
    title = "Omnivore export (zip)"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        is_archive = probe.is_folder or is_zip(probe.head)
        return 0.9 if is_archive and any(map(_LIST.fullmatch, probe.names)) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_tree(path, limits, progress) as tree:
            lists = [(name, match["folder"]) for name in tree.names if (match := _LIST.fullmatch(name))]
            if not lists:
                raise InvalidParams("not an Omnivore export: metadata_….json is missing")
            for name, folder in lists:
                yield from _read_list(tree, name, folder, limits)

    def reads_from_folder(self, name: str) -> bool:
        # Other files of a folder are reported as not used.
        return bool(_LIST.fullmatch(name)) or name.startswith(("content/", "highlights/"))


IMPORTER = OmnivoreImporter()


def _read_list(tree: FileTree, name: str, folder: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    try:
        pages = parse_json(tree.read(name, limits.line_max_bytes), limits)
        if not isinstance(pages, list):
            raise InvalidParams("expected a list of pages")
    except InvalidParams as error:
        yield FailedItem(name, error.message)
        return
    for number, page in enumerate(objects(pages), 1):
        try:
            yield ImportedMedia(_media_draft(tree, folder, page, limits))
        except InvalidParams as error:
            yield FailedItem(f"{name}, page {number}", error.message)


def _media_draft(tree: FileTree, folder: str, page: Mapping[str, Any], limits: ImportLimits) -> MediaDraft:
    slug, url = clean_line(page.get("slug")), url_or_empty(page.get("url"))
    title = clean_line(page.get("title")) or url or slug
    content = _content(tree, f"{folder}content/{slug}.html", limits) or clean_line(page.get("description"))
    name = f"{folder}highlights/{slug}.md"
    highlights = item_text(tree.read(name, text_max_bytes(limits)), limits, name).strip() if name in tree else ""
    parts = (content, f"## Highlights\n\n{highlights}" if highlights else "")
    return MediaDraft(
        title=short_title(title),
        media_type="article",
        author=short_title(clean_line(page.get("author"))),
        url=url or UNSET,
        content="\n\n".join(part for part in parts if part) or title,
        tags=clean_tags([clean_line(label) for label in texts(page.get("labels"))]),
        metadata=compact_metadata(
            state=clean_line(page.get("state")),
            description=clean_line(page.get("description")),
            published=stored_time(page.get("publishedAt")),
            reading_progress=page.get("readingProgress"),
        ),
        uuid=valid_uuid(page.get("id")) or stable_uuid("omnivore", "media", url or slug),
        created_at=stored_time(page.get("savedAt")) or UNSET,
    )


def _content(tree: FileTree, name: str, limits: ImportLimits) -> str:
    if name not in tree:
        return ""
    try:
        return html_text(decode_page(tree.read(name, limits.line_max_bytes), limits), limits.item_max_chars)
    except TooLarge as error:
        # Of one page: the other pages are still read.
        raise InvalidParams(error.message) from error
