"""Links that people saved, as media items; and the HTML files in which browsers and other programs export them."""

from collections.abc import Iterator, Mapping

from msgspec import UNSET, Struct

from config.numbers import replace_unstorable
from sources.drafts import MediaDraft
from sources.importers.engine.files import FailedItem, ImportedMedia, SkippedItem, stable_uuid
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.table_reader import compact_metadata, url_or_empty
from sources.importers.engine.values import clean_line, clean_tags, short_title
from sources.importers.parsers.parsed_document import TextBuilder
from sources.importers.parsers.web_page import PageReader, read_page

_URL_SCHEMES = ("https://", "http://", "ftp://", "gemini://")
_TIME_ATTRIBUTES = ("add_date", "time_added")
_FOLDERS_MAX = 50


class SavedLink(Struct, frozen=True):
    url: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    folder: str = ""
    created: str | None = None
    state: str = ""


def read_links(importer: str, links: Iterator[SavedLink]) -> Iterator[ImportedMedia | SkippedItem | FailedItem]:
    """Yields an item for each address. Addresses that are scripts or settings of a browser are skipped, and so are
    repetitions."""
    seen: set[str] = set()
    for link in links:
        url = url_or_empty(link.url.strip())
        if not url.startswith(_URL_SCHEMES):
            yield SkippedItem("bookmark without a web address")
        # The address is the key of the item: a second one would overwrite the first.
        elif url in seen:
            yield SkippedItem("bookmark of an address that is listed twice")
        else:
            seen.add(url)
            yield ImportedMedia(_media_draft(importer, url, link))


def _media_draft(importer: str, url: str, link: SavedLink) -> MediaDraft:
    """The address is part of the text, so that its words are found."""
    title = clean_line(link.title) or url
    text = "\n".join(line for line in (title, url, "", link.description.strip()) if line or link.description.strip())
    return MediaDraft(
        title=short_title(title),
        media_type="bookmark",
        url=url,
        content=replace_unstorable(text).strip(),
        tags=clean_tags([clean_line(tag) for tag in link.tags]),
        metadata=compact_metadata(folder=link.folder, state=link.state),
        uuid=stable_uuid(importer, "media", url),
        created_at=link.created or UNSET,
    )


class LinkFile(Struct, frozen=True):
    """A link of an HTML file: its attributes in lower case, and the heading or folders above it."""

    attributes: Mapping[str, str]
    title: str
    folder: str
    description: str

    @property
    def added(self) -> str:
        return next((self.attributes[name] for name in _TIME_ATTRIBUTES if self.attributes.get(name)), "")


def links_in_page(html: str, limits: ImportLimits) -> list[LinkFile]:
    reader = read_page(html, TextBuilder(limits.item_max_chars), _LinkReader)
    assert isinstance(reader, _LinkReader)
    return reader.finish()


class _LinkReader(PageReader):
    """Collects the links of nested lists; `h1` and `h3` name the list that follows."""

    def __init__(self, text: TextBuilder, depth_max: int) -> None:
        super().__init__(text, depth_max)
        self._links: list[LinkFile] = []
        self._folders: list[str] = []
        self._name = ""
        self._element = ""
        self._parts: list[str] = []
        self._attributes: Mapping[str, str] = {}

    def finish(self) -> list[LinkFile]:
        self._end_description()
        return self._links

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        super().start(tag, attributes)
        if tag in ("a", "h1", "h3", "dd", "dt", "dl", "ul"):
            self._end_description()
        if tag in ("a", "h1", "h3", "dd"):
            self._element, self._parts = tag, []
            self._attributes = {name.lower(): value for name, value in attributes.items()}
        elif tag in ("dl", "ul"):
            # Deeper folders are left out of the path, whose length would grow with each of them.
            self._folders.append(self._name if len(self._folders) < _FOLDERS_MAX else "")
            self._name = ""

    def end(self, tag: str) -> None:
        super().end(tag)
        if tag == self._element and tag != "dd":
            text = " ".join("".join(self._parts).split())
            if self._element == "a":
                folder = "/".join(name for name in self._folders if name)
                self._links.append(LinkFile(self._attributes, text, folder, ""))
            else:
                self._name = clean_line(text)
            self._element = ""
        elif tag in ("dl", "ul"):
            self._end_description()
            if self._folders:
                self._folders.pop()

    def data(self, text: str) -> None:
        if self._element:
            self._parts.append(text)

    def _end_description(self) -> None:
        """A description has no end tag and belongs to the link before it."""
        if self._element == "dd" and self._links:
            last = self._links.pop()
            description = "".join(self._parts).strip()
            self._links.append(LinkFile(last.attributes, last.title, last.folder, description))
        self._element = "" if self._element == "dd" else self._element
