"""Notion's export as Markdown or HTML: its zip, the zips inside that zip, or the unpacked folder.

Every page becomes a note with the id it has in Notion. Notion writes that id at the end of the file's name.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from uuid import UUID

from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from config.times import format_time
from sources.drafts import NoteDraft
from sources.importers.engine.archives import decode_name, is_visible, is_zip, open_archive
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import ArchiveTree, FileTree, FolderTree
from sources.importers.engine.files import (
    FailedItem,
    ImportedNote,
    SkippedItem,
    decode_text,
    file_key,
    stable_uuid,
    text_max_bytes,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import first_heading, inline_tags, normalize_keys, remove_code
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_tags, short_title, stored_date
from sources.importers.parsers.parsed_document import TextBuilder
from sources.importers.parsers.web_page import decode_page, read_page

_PAGE_SUFFIXES = (".md", ".html")
_TABLE_SUFFIX = ".csv"
_ID = re.compile(r" ?([0-9a-f]{32})(?:_all)?\Z")
_NAME_WITH_ID = re.compile(r"[^/] [0-9a-f]{32}(?:_all)?\.(?:md|html|csv)$")
_PART = re.compile(r"(?:^|/)Export(?:Block)?-[0-9a-f-]{36}(?:-Part-\d{1,4})?\.zip$")
# The lines below the title of a page that is a row of a database.
_PROPERTY = re.compile(r"([^\n:]{1,100}): ([^\n]{0,10000})")
_PROPERTIES_MAX = 200
_TAG_PROPERTIES = ("tags", "tag", "labels", "keywords")
_DATE_PROPERTIES = ("created", "created_time", "date_created", "created_at", "date")
_DATE_FORMATS = ("%B %d, %Y %I:%M %p", "%B %d, %Y %H:%M", "%B %d, %Y", "%Y/%m/%d %H:%M", "%Y/%m/%d")


class NotionImporter(Importer):
    name = "notion"
    title = "Notion export (Markdown or HTML)"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        if not probe.is_folder and not is_zip(probe.head):
            return 0.0
        names = [name for name in probe.names if is_visible(name)]
        if any(map(_PART.search, names)):
            return 0.9
        # A folder of downloads may contain a page, so all pages and tables at its top must be Notion's.
        pages = [name for name in names if name.lower().endswith((*_PAGE_SUFFIXES, _TABLE_SUFFIX))]
        with_id = sum(1 for name in pages if _NAME_WITH_ID.search(name))
        is_export = with_id == len(pages) if probe.is_folder else 2 * with_id >= len(pages)
        return 0.9 if with_id and is_export else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if path.is_dir():
            yield from _read_tree(FolderTree(path, limits, progress), "", limits)
            return
        key = file_key(path, limits)
        with open_archive(path, limits, progress) as archive:
            yield from _read_tree(ArchiveTree(archive), key, limits)
            for name in archive.names:
                if is_visible(name) and name.lower().endswith(".zip"):
                    # One of the zips that Notion packs into the zip it offers for download.
                    try:
                        with archive.open_inner(name) as part:
                            yield from _read_tree(ArchiveTree(part), key, limits)
                    except InvalidParams as error:
                        yield FailedItem(decode_name(name), error.message)
                    except TooLarge as error:
                        advice = "unpack the zip and import this part by itself"
                        yield FailedItem(decode_name(name), f"{error.message}; {advice}")


IMPORTER = NotionImporter()


def _read_tree(tree: FileTree, key: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    # The folders with the rows of databases: next to each is a table with the same name.
    tables = (name.removesuffix(_TABLE_SUFFIX) for name in tree.names if name.lower().endswith(_TABLE_SUFFIX))
    # Only pages of databases have properties; in others, the lines below the title are text.
    databases = frozenset(_without_id(table) for table in tables)
    for name in tree.names:
        path = PurePosixPath(name)
        suffix = path.suffix.lower()
        if suffix in _PAGE_SUFFIXES and path.name != "index.html":
            try:
                yield ImportedNote(_note_draft(tree, name, key, databases, limits))
            except InvalidParams as error:
                yield FailedItem(name, error.message)
        elif suffix == _TABLE_SUFFIX:
            yield SkippedItem("table of a database whose rows are pages")
        elif suffix != ".zip":
            yield SkippedItem("file in the export not containing a page")


def _without_id(name: str) -> str:
    parent, slash, last = name.rpartition("/")
    return parent + slash + _ID.sub("", last)


def _note_draft(tree: FileTree, name: str, key: str, databases: frozenset[str], limits: ImportLimits) -> NoteDraft:
    path = PurePosixPath(name)
    page_id = _ID.search(path.stem)
    data = tree.read(name, text_max_bytes(limits))
    if path.suffix.lower() == ".md":
        text = decode_text(data, limits)
        title = first_heading(remove_code(text))
    else:
        page = read_page(decode_page(data, limits), TextBuilder(limits.item_max_chars))
        title, text = page.title.strip(), page.text.build()
    properties = _properties(text) if _without_id(str(path.parent)) in databases else {}
    fields = normalize_keys(properties)
    # Values of a property may contain spaces, so only commas separate them.
    tags = [word.strip() for field in _TAG_PROPERTIES for word in fields.get(field, "").split(",")]
    dates = (fields[field] for field in _DATE_PROPERTIES if fields.get(field))
    created_at = next((date for value in dates if (date := stored_date(value) or _written_date(value))), None)
    readable_path = "/".join(_without_id(part) for part in path.with_suffix("").parts) + path.suffix
    return NoteDraft(
        title=short_title(title or _ID.sub("", path.stem)),
        content=text.strip("\n"),
        tags=clean_tags([*tags, *inline_tags(remove_code(text))]),
        metadata=compact_metadata(path=readable_path, properties=properties),
        uuid=str(UUID(page_id[1])) if page_id else stable_uuid("notion", "notes", f"{key}/{name}"),
        created_at=created_at or tree.modified_at(name) or UNSET,
    )


def _properties(text: str) -> dict[str, str]:
    """Returns the properties of a row: the lines between the title and the first empty line after them."""
    block = text.lstrip().partition("\n\n")[2].partition("\n\n")[0]
    lines = block.split("\n")[:_PROPERTIES_MAX]
    matches = [_PROPERTY.fullmatch(line) for line in lines]
    return {match[1].strip(): match[2].strip() for match in matches if match} if all(matches) else {}


def _written_date(text: str) -> str | None:
    """Parses a date as Notion writes it, such as `January 5, 2024 3:04 PM`."""
    for date_format in _DATE_FORMATS:
        try:
            return format_time(datetime.strptime(text, date_format).replace(tzinfo=UTC))
        except ValueError:
            continue
    return None
