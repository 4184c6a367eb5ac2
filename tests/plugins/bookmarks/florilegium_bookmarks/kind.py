"""Bookmarks: pages on the web that a person wants to find again, and how they are read from a file of linkding."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from florilegium.errors import InvalidParams
from florilegium.importers import (
    FailedItem,
    FileProbe,
    ImportedRecord,
    Importer,
    ImportEvent,
    ImportLimits,
    ItemDraft,
    ProgressCallback,
    ReadPosition,
    read_json,
    stable_uuid,
)
from florilegium.kinds import Field, Item, Kind


class Bookmark(Item, frozen=True, kw_only=True):
    title: Annotated[str, Field("Title", is_required=True)]
    url: Annotated[str, Field("Address", is_required=True, is_searched=True, help="Begins with https:// or http://.")]
    description: Annotated[str, Field("Description", is_long=True, is_searched=True, is_embedded=True)] = ""
    quotes: Annotated[tuple[str, ...], Field("Quotes", is_searched=True)] = ()
    author: Annotated[str, Field("Author", is_searched=True, is_author=True)] = ""
    rating: Annotated[int | None, Field("Rating")] = None
    is_unread: Annotated[bool, Field("Unread")] = False


BOOKMARK = Kind(name="bookmark", source="bookmarks", record=Bookmark, content="description")


class LinkdingImporter(Importer):
    """A JSON file with `{"results": [{"url": …, "title": …, "description": …, "tag_names": […], "unread": …}]}`."""

    name = "linkding"
    title = "linkding (bookmarks as JSON)"
    suffixes = (".json",)
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if b'"tag_names"' in probe.head and b'"results"' in probe.head else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        data = read_json(path, limits)
        if not isinstance(data, dict) or not isinstance(data.get("results"), list):
            raise InvalidParams("expected an object with results")
        for number, entry in enumerate(data["results"], 1):
            yield self._read_entry(entry) if isinstance(entry, dict) else FailedItem(f"bookmark {number}", "no object")

    def _read_entry(self, entry: dict[str, Any]) -> ImportEvent:
        url = str(entry.get("url", ""))
        values = {
            "title": entry.get("title") or url,
            "url": url,
            "description": entry.get("description") or "",
            "is_unread": bool(entry.get("unread")),
        }
        tags = [str(tag) for tag in entry.get("tag_names") or ()]
        return ImportedRecord(
            "bookmark", ItemDraft(values=values, tags=tags, uuid=stable_uuid(self.name, "bookmark", url))
        )


IMPORTER = LinkdingImporter()
