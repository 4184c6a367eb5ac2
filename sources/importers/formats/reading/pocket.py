"""Pocket's export: a CSV file, or the older HTML file."""

from collections.abc import Iterator
from pathlib import Path

from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, decode_text, is_text, read_bytes
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import first_columns, table_rows
from sources.importers.engine.values import stored_time
from sources.importers.formats.reading.saved_links import SavedLink, links_in_page, read_links
from sources.importers.parsers.web_page import decode_page

_COLUMNS = frozenset(["title", "url", "time_added", "tags", "status"])
_TITLE = b"<title>pocket export</title>"


class PocketImporter(Importer):
    name = "pocket"
    title = "Pocket export (CSV, HTML)"
    suffixes = (".csv", ".html")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder or not is_text(probe.head):
            return 0.0
        is_pocket = _TITLE in probe.head[:2048].lower() or first_columns(probe.head) >= _COLUMNS
        return 0.95 if is_pocket else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        data = read_bytes(path, limits.line_max_bytes)
        if data.lstrip().startswith(b"<"):
            links = (
                SavedLink(
                    url=link.attributes.get("href", ""),
                    title=link.title,
                    tags=tuple(link.attributes.get("tags", "").split(",")),
                    created=stored_time(link.added),
                    state="archive" if link.folder == "Read Archive" else "unread",
                )
                for link in links_in_page(decode_page(data, limits), limits)
            )
            yield from read_links("pocket", links)
        else:
            failed: list[FailedItem] = []
            yield from read_links("pocket", _table_links(decode_text(data, limits), failed))
            yield from failed
        progress(len(data))


IMPORTER = PocketImporter()


def _table_links(text: str, failed: list[FailedItem]) -> Iterator[SavedLink]:
    """Yields the links of a table, and adds the rows that are none to `failed`."""
    for location, row in table_rows(text):
        if isinstance(row, str):
            failed.append(FailedItem(location, row))
            continue
        yield SavedLink(
            url=row.get("url", ""),
            title=row.get("title", ""),
            tags=tuple(row.get("tags", "").split("|")),
            created=stored_time(row.get("time_added")),
            state=row.get("status", ""),
        )
