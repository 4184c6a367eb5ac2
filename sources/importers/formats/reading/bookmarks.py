"""Bookmarks of browsers: the HTML file that all of them export, the file of Chrome, and the backup of Firefox."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.engine.export_files import is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import read_bytes
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.values import clean_line, objects, parse_json, stored_time, text_or_empty
from sources.importers.formats.reading.saved_links import SavedLink, links_in_page, read_links
from sources.importers.parsers.web_page import decode_page

_MARK = b"<!doctype netscape-bookmark-file-1>"
_CHROME_FIELDS = (b'"roots"', b'"bookmark_bar"')
_FIREFOX_FIELDS = (b'"text/x-moz-place-container"', b'"children"')
# Chrome counts microseconds from 1601.
_SECONDS_FROM_1601_TO_1970 = 11_644_473_600
_MICROSECONDS = 1_000_000


class BookmarksImporter(Importer):
    name = "bookmarks"
    title = "Browser bookmarks (HTML, Chrome, Firefox)"
    suffixes = (".html", ".htm", ".json", "bookmarks")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if is_json(probe.head):
            is_backup = any(
                all(field in probe.head for field in fields) for fields in (_CHROME_FIELDS, _FIREFOX_FIELDS)
            )
            return 0.95 if is_backup else 0.0
        return 1.0 if _MARK in probe.head[:1024].lower() else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        data = read_bytes(path, limits.line_max_bytes)
        links: Iterator[SavedLink]
        if is_json(data[:1024]):
            links = _json_links(parse_json(data, limits))
        else:
            links = (
                SavedLink(
                    url=link.attributes.get("href", ""),
                    title=link.title,
                    description=link.description,
                    tags=tuple(link.attributes.get("tags", "").split(",")),
                    folder=link.folder,
                    created=stored_time(link.added),
                )
                for link in links_in_page(decode_page(data, limits), limits)
            )
        yield from read_links("bookmarks", links)
        progress(len(data))


IMPORTER = BookmarksImporter()


def _json_links(value: Any) -> Iterator[SavedLink]:
    if not isinstance(value, Mapping):
        raise InvalidParams("not a file of bookmarks")
    roots = value.get("roots")
    folders = [root for root in roots.values() if isinstance(root, Mapping)] if isinstance(roots, Mapping) else [value]
    # The path of every open folder, and its remaining entries.
    # Without recursion: a file may nest folders as deeply as JSON may be nested.
    open_folders = [("", iter(folders))]
    while open_folders:
        path, entries = open_folders[-1]
        for entry in entries:
            if url := text_or_empty(entry.get("url") or entry.get("uri")):
                tags = tuple(text_or_empty(entry.get("tags")).split(","))
                yield SavedLink(url=url, title=_name(entry), tags=tags, folder=path, created=_added_at(entry))
            if entry.get("children"):
                open_folders.append((f"{path}/{_name(entry)}".strip("/"), objects(entry["children"])))
                break
        else:
            open_folders.pop()


def _name(entry: Mapping[str, Any]) -> str:
    return clean_line(entry.get("name") or entry.get("title"))


def _added_at(entry: Mapping[str, Any]) -> str | None:
    """Chrome writes a text and Firefox a number, both in microseconds."""
    chrome, firefox = entry.get("date_added"), entry.get("dateAdded")
    if isinstance(chrome, str) and chrome.isdigit() and len(chrome) < 20:
        return stored_time(int(chrome) / _MICROSECONDS - _SECONDS_FROM_1601_TO_1970)
    return stored_time(firefox / _MICROSECONDS) if isinstance(firefox, int) and firefox < 1e18 else None
