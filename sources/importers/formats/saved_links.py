"""What people saved to read or while reading. Links become media items: bookmarks of browsers, Pocket, Karakeep and
Omnivore; the pages behind the addresses are not fetched. Highlights of Kindle and Readwise become notes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, Struct, structs

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from sources.drafts import MediaDraft
from sources.importers.engine import values
from sources.importers.engine.events import FailedItem, ImportedMedia, SkippedItem, imported_note, stable_uuid
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.files import decode_text, read_bytes
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.input_file import FileTree
from sources.importers.engine.markdown_text import normalize_keys
from sources.importers.engine.table_reader import first_columns, table_rows
from sources.importers.engine.values import Fields
from sources.importers.parsers.parsed_document import TextBuilder
from sources.importers.parsers.web_page import PageReader, decode_page, html_text, read_page

_FOLDERS_MAX = 50


class SavedLink(Struct, frozen=True):
    url: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    folder: str = ""
    created: str | None = None
    state: str = ""


def read_links(importer: str, links: Iterable[SavedLink]) -> Events:
    """Yields an item for each address. Addresses that are scripts or settings of a browser are skipped, and so are
    repetitions."""
    seen: set[str] = set()
    for link in links:
        url = values.url_or_empty(link.url.strip())
        if not url.startswith(("https://", "http://", "ftp://", "gemini://")):
            yield SkippedItem("bookmark without a web address")
        # The address is the key of the item: a second one would overwrite the first.
        elif url in seen:
            yield SkippedItem("bookmark of an address that is listed twice")
        else:
            seen.add(url)
            title, description = values.clean_line(link.title) or url, link.description.strip()
            # The address is part of the text, so that its words are found.
            text = "\n".join((title, url, "", description) if description else (title, url))
            draft = MediaDraft(
                title=values.short_title(title),
                media_type="bookmark",
                url=url,
                content=replace_unstorable(text).strip(),
                tags=values.clean_tags([values.clean_line(tag) for tag in link.tags]),
                metadata=values.compact_metadata(folder=link.folder, state=link.state),
                uuid=stable_uuid(importer, "media", url),
                created_at=link.created or UNSET,
            )
            yield ImportedMedia(draft)


def _links_in_page(data: bytes, limits: ImportLimits) -> list[SavedLink]:
    reader = read_page(decode_page(data, limits), TextBuilder(limits.item_max_chars), _LinkReader)
    assert isinstance(reader, _LinkReader)
    return reader.finish()


class _LinkReader(PageReader):
    """Collects the links of nested lists; `h1` and `h3` name the list that follows."""

    def __init__(self, text: TextBuilder, depth_max: int) -> None:
        super().__init__(text, depth_max)
        self._links: list[SavedLink] = []
        self._folders: list[str] = []
        self._name = ""
        self._element = ""
        self._parts: list[str] = []
        self._attributes = Fields()

    def finish(self) -> list[SavedLink]:
        self._end_description()
        return self._links

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        super().start(tag, attributes)
        if tag in ("a", "h1", "h3", "dd", "dt", "dl", "ul"):
            self._end_description()
        if tag in ("a", "h1", "h3", "dd"):
            self._element, self._parts = tag, []
            self._attributes = Fields({name.lower(): value for name, value in attributes.items()})
        elif tag in ("dl", "ul"):
            # Deeper folders are left out of the path, whose length would grow with each of them.
            self._folders.append(self._name if len(self._folders) < _FOLDERS_MAX else "")
            self._name = ""

    def end(self, tag: str) -> None:
        super().end(tag)
        if tag == self._element and tag != "dd":
            text = " ".join("".join(self._parts).split())
            if self._element == "a":
                link = SavedLink(
                    url=self._attributes.text("href"),
                    title=text,
                    tags=tuple(self._attributes.text("tags").split(",")),
                    folder="/".join(name for name in self._folders if name),
                    created=values.stored_time(self._attributes.text("add_date", "time_added")),
                )
                self._links.append(link)
            else:
                self._name = values.clean_line(text)
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
            self._links[-1] = structs.replace(self._links[-1], description="".join(self._parts).strip())
        self._element = "" if self._element == "dd" else self._element


# -- bookmarks ---------------------------------------------------------------------------------------------------------
# Bookmarks of browsers: the HTML file that all of them export, the file of Chrome, and the backup of Firefox.

_CHROME_FIELDS = (b'"roots"', b'"bookmark_bar"')
_FIREFOX_FIELDS = (b'"text/x-moz-place-container"', b'"children"')
# Chrome counts microseconds from 1601.
_SECONDS_FROM_1601_TO_1970 = 11_644_473_600
_MICROSECONDS = 1_000_000


class BookmarksImporter(FileImporter):
    name = "bookmarks"
    title = "Browser bookmarks (HTML, Chrome, Firefox)"
    suffixes = (".html", ".htm", ".json", "bookmarks")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_json():
            return 0.95 if probe.is_json(*_CHROME_FIELDS) or probe.is_json(*_FIREFOX_FIELDS) else 0.0
        return 1.0 if probe.is_text and b"<!doctype netscape-bookmark-file-1>" in probe.head[:1024].lower() else 0.0

    def read_file(self, file: InputFile) -> Events:
        data, limits = file.content(), file.limits
        links = _json_links(values.parse_json(data, limits)) if is_json(data[:1024]) else _links_in_page(data, limits)
        yield from read_links("bookmarks", links)


def _json_links(value: object) -> Iterator[SavedLink]:
    bookmarks = Fields.require(value, "not a file of bookmarks")
    is_chrome = isinstance(bookmarks.get("roots"), dict)
    roots = Fields.each(list(bookmarks["roots"].values())) if is_chrome else iter((bookmarks,))
    # The path of every open folder, and its remaining entries.
    # Without recursion: a file may nest folders as deeply as JSON may be nested.
    open_folders = [("", roots)]
    while open_folders:
        path, entries = open_folders[-1]
        for entry in entries:
            if url := values.text_or_empty(entry.get("url") or entry.get("uri")):
                # Chrome writes a text and Firefox a number, both in microseconds.
                chrome, firefox, created = entry.get("date_added"), entry.get("dateAdded"), None
                if isinstance(chrome, str) and chrome.isdigit() and len(chrome) < 20:
                    created = values.stored_time(int(chrome) / _MICROSECONDS - _SECONDS_FROM_1601_TO_1970)
                elif isinstance(firefox, int) and firefox < 1e18:
                    created = values.stored_time(firefox / _MICROSECONDS)
                tags = tuple(entry.text("tags").split(","))
                yield SavedLink(url=url, title=_name(entry), tags=tags, folder=path, created=created)
            if entry.get("children"):
                open_folders.append((f"{path}/{_name(entry)}".strip("/"), entry.objects("children")))
                break
        else:
            open_folders.pop()


def _name(entry: Fields) -> str:
    return values.clean_line(entry.get("name") or entry.get("title"))


# -- Pocket ------------------------------------------------------------------------------------------------------------
# Pocket's export: a CSV file, or the older HTML file.

_COLUMNS = frozenset(["title", "url", "time_added", "tags", "status"])
_TITLE = b"<title>pocket export</title>"


class PocketImporter(FileImporter):
    name = "pocket"
    title = "Pocket export (CSV, HTML)"
    suffixes = (".csv", ".html")

    def recognizes(self, probe: FileProbe) -> float:
        is_pocket = _TITLE in probe.head[:2048].lower() or first_columns(probe.head) >= _COLUMNS
        return 0.95 if is_pocket and probe.is_text else 0.0

    def read_file(self, file: InputFile) -> Events:
        data, limits = file.content(), file.limits
        links: list[SavedLink] = []
        failed: list[FailedItem] = []
        if data.lstrip().startswith(b"<"):
            for link in _links_in_page(data, limits):
                state = "archive" if link.folder == "Read Archive" else "unread"
                links.append(structs.replace(link, description="", folder="", state=state))
        else:
            for location, row in table_rows(decode_text(data, limits)):
                if isinstance(row, str):
                    failed.append(FailedItem(location, row))
                    continue
                tags, created = tuple(row.text("tags").split("|")), row.time("time_added")
                title, state = row.text("title"), row.text("status")
                links.append(SavedLink(url=row.text("url"), title=title, tags=tags, created=created, state=state))
        yield from read_links("pocket", links)
        yield from failed


# -- Karakeep ----------------------------------------------------------------------------------------------------------
# Karakeep's export (formerly Hoarder): links become media, texts become notes.

_FIELDS = (b'"bookmarks"', b'"createdAt"', b'"content"', b'"tags"')


class KarakeepImporter(FileImporter):
    name = "karakeep"
    title = "Karakeep export (JSON)"
    suffixes = (".json",)

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if probe.head.lstrip()[:1] == b"{" and probe.is_json(*_FIELDS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        bookmarks = Fields.of(file.json()).get("bookmarks")
        if not isinstance(bookmarks, list):
            raise InvalidParams("bookmarks: expected a list")
        saved = [(bookmark, bookmark.nested("content")) for bookmark in Fields.each(bookmarks)]
        links = (
            SavedLink(
                url=content.text("url"),
                title=entry.text("title"),
                description=entry.text("note"),
                tags=tuple(entry.texts("tags")),
                created=entry.time("createdAt"),
                state="archived" if entry.get("archived") is True else "",
            )
            for entry, content in saved
            if "url" in content
        )
        yield from read_links("karakeep", links)
        for entry, content in saved:
            if "text" in content:
                title, text = entry.line("title"), content.text("text")
                yield imported_note(
                    stable_uuid("karakeep", "notes", f"{entry.get('createdAt')}/{title}"),
                    title or text or "Untitled",
                    "\n\n".join(filter(None, (text.strip(), entry.text("note").strip()))),
                    tags=[values.clean_line(tag) for tag in entry.texts("tags")],
                    created=entry.time("createdAt"),
                    archived=entry.get("archived") is True,
                )
            elif "url" not in content:
                yield SkippedItem("bookmark of a file")


# -- Omnivore ----------------------------------------------------------------------------------------------------------
# Omnivore's export: a zip with lists of saved pages, their content as HTML, and their highlights as Markdown.

_LIST = re.compile(r"(?P<folder>(?:.{1,200}/)?)metadata_\d{1,9}_to_\d{1,9}\.json")


class OmnivoreImporter(FileImporter):
    name = "omnivore"
    title = "Omnivore export (zip)"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        is_archive = probe.is_folder or probe.is_zip
        return 0.9 if is_archive and any(map(_LIST.fullmatch, probe.names)) else 0.0

    def read_file(self, file: InputFile) -> Events:
        with file.open_tree() as tree:
            lists = [(name, match["folder"]) for name in tree.names if (match := _LIST.fullmatch(name))]
            if not lists:
                raise InvalidParams("not an Omnivore export: metadata_….json is missing")
            for name, folder in lists:
                try:
                    pages = tree.json(name)
                    if not isinstance(pages, list):
                        raise InvalidParams("expected a list of pages")
                except InvalidParams as error:
                    yield FailedItem(name, error.message)
                    continue
                for number, page in enumerate(Fields.each(pages), 1):
                    try:
                        yield ImportedMedia(_omnivore_media_draft(tree, folder, page))
                    except InvalidParams as error:
                        yield FailedItem(f"{name}, page {number}", error.message)
            yield from self.unused_files(len(tree.unread))


def _omnivore_media_draft(tree: FileTree, folder: str, page: Fields) -> MediaDraft:
    slug, url, limits = page.line("slug"), values.url_or_empty(page.get("url")), tree.limits
    title = page.line("title") or url or slug
    name, content = f"{folder}content/{slug}.html", ""
    if name in tree:
        try:
            content = html_text(decode_page(tree.read(name, limits.line_max_bytes), limits), limits.item_max_chars)
        except TooLarge as error:
            # Of one page: the other pages are still read.
            raise InvalidParams(error.message) from error
    name = f"{folder}highlights/{slug}.md"
    highlights = tree.text(name).strip() if name in tree else ""
    parts = (content or page.line("description"), f"## Highlights\n\n{highlights}" if highlights else "")
    return MediaDraft(
        title=values.short_title(title),
        media_type="article",
        author=values.short_title(page.line("author")),
        url=url or UNSET,
        content="\n\n".join(part for part in parts if part) or title,
        tags=values.clean_tags([values.clean_line(label) for label in page.texts("labels")]),
        metadata=values.compact_metadata(
            state=page.line("state"),
            description=page.line("description"),
            published=page.time("publishedAt"),
            reading_progress=page.get("readingProgress"),
        ),
        uuid=values.valid_uuid(page.get("id")) or stable_uuid("omnivore", "media", url or slug),
        created_at=page.time("savedAt") or UNSET,
    )


# -- highlights --------------------------------------------------------------------------------------------------------
# Highlights from books and articles: a note for each, with its highlights in the order of the file.


class Highlight(Struct, frozen=True):
    """`text` is quoted from the book; `note` is what the reader wrote."""

    text: str = ""
    note: str = ""
    location: str = ""
    created: str | None = None
    tags: tuple[str, ...] = ()


def _book_note(
    importer: str, key: str, title: str, author: str, highlights: Sequence[Highlight], tags: Iterable[str] = ()
) -> Events:
    blocks = []
    for highlight in highlights:
        lines = [f"> {line}".rstrip() for line in highlight.text.split("\n")] if highlight.text else []
        lines += [f"Note: {highlight.note}"] if highlight.note else []
        lines += [f"({highlight.location})"] if highlight.location else []
        blocks.append("\n".join(lines))
    yield imported_note(
        stable_uuid(importer, "notes", key),
        title,
        "\n\n".join(blocks),
        tags=[*tags, *(tag for highlight in highlights for tag in highlight.tags)],
        created=min((highlight.created for highlight in highlights if highlight.created), default=None),
        author=author,
        highlights=len(highlights),
    )


# -- Kindle ------------------------------------------------------------------------------------------------------------
# Kindle's `My Clippings.txt`: the highlights and notes of all books on a reader. Every book becomes a note.

_SEPARATOR = "=========="
_START = re.compile(rb"(?:\xef\xbb\xbf)?[^\r\n]{1,1000}\r?\n- [^\r\n]{1,500}\r?\n\r?\n")
_AUTHOR = re.compile(r"\(([^()\n]{1,300})\)\Z")
# How the line about a clipping names a note, in the languages of the reader.
_NOTE_WORDS = re.compile(r"\b(?:note|notiz|nota|notitie|anteckning|заметка)\b|笔记|メモ|메모", re.IGNORECASE)
_DATE_FORMATS = (
    "%A, %B %d, %Y %I:%M:%S %p",
    "%A, %B %d, %Y, %I:%M %p",
    "%A, %d %B %Y %H:%M:%S",
    "%A, %d %B %y %H:%M:%S",
)


class KindleImporter(FileImporter):
    name = "kindle"
    title = "Kindle highlights (My Clippings.txt)"
    suffixes = (".txt",)

    def recognizes(self, probe: FileProbe) -> float:
        is_clippings = not probe.is_folder and _START.match(probe.head) and _SEPARATOR.encode() in probe.head
        return 0.9 if is_clippings else 0.0

    def read_file(self, file: InputFile) -> Events:
        books: dict[str, list[Highlight]] = {}
        for number, clipping in enumerate(decode_text(file.content(), file.limits).split(f"\n{_SEPARATOR}"), 1):
            lines = clipping.strip("\n\ufeff ").split("\n")
            if len(lines) < 2 or not lines[1].startswith("- "):
                if clipping.strip():
                    yield FailedItem(f"clipping {number}", "expected a title and a line about the clipping")
                continue
            text = "\n".join(lines[2:]).strip()
            if not text:
                yield SkippedItem("bookmark without text")
                continue
            *location, added = [part.strip() for part in lines[1].removeprefix("- ").split("|")]
            # Such as `Added on Friday, January 5, 2024 10:30:00 AM`. Dates in other languages are left out.
            created = values.written_date(added.removeprefix("Added on ").strip(), _DATE_FORMATS)
            label = " | ".join(location if created or location else [added])
            is_note = _NOTE_WORDS.search(location[0] if location else added)
            highlight = Highlight("" if is_note else text, text if is_note else "", label, created)
            books.setdefault(values.clean_line(lines[0].lstrip("\ufeff")), []).append(highlight)
        if not books:
            raise InvalidParams("no highlights found")
        for line, highlights in books.items():
            author = _AUTHOR.search(line)
            title = line[: author.start()].strip() if author else line
            yield from _book_note("kindle", line, title or line, author[1] if author else "", highlights)


# -- Readwise ----------------------------------------------------------------------------------------------------------
# Readwise's CSV export: a row for each highlight. Every book or article becomes a note.

_READWISE_COLUMNS = frozenset(["highlight", "book title"])


class ReadwiseImporter(FileImporter):
    name = "readwise"
    title = "Readwise highlights (CSV)"
    suffixes = (".csv",)

    def recognizes(self, probe: FileProbe) -> float:
        return 0.95 if probe.is_text and first_columns(probe.head) >= _READWISE_COLUMNS else 0.0

    def read_file(self, file: InputFile) -> Events:
        data = read_bytes(file.path, file.limits.file_max_bytes)
        # By title and author: the tags of the book, and its highlights.
        books: dict[tuple[str, str], tuple[tuple[str, ...], list[Highlight]]] = {}
        for location, row in table_rows(decode_text(data, file.limits)):
            if isinstance(row, str):
                yield FailedItem(location, row)
                continue
            fields = normalize_keys(row)
            if not (fields.get("highlight") or fields.get("note")):
                yield SkippedItem("highlight without text")
                continue
            title, author = fields.line("book_title") or "Untitled", fields.line("book_author")
            # The rows of a book need not follow each other.
            _, highlights = books.setdefault((title, author), (_split(fields.get("document_tags")), []))
            kind, place = fields.line("location_type"), fields.line("location")
            label = f"{kind} {place}".strip() if place else ""
            created, own_tags = values.stored_date(fields.get("highlighted_at")), _split(fields.get("tags"))
            text, note = fields.text("highlight").strip(), fields.text("note").strip()
            highlights.append(Highlight(text, note, label, created, own_tags))
        if not books:
            raise InvalidParams("no highlights found")
        for (title, author), (tags, highlights) in books.items():
            yield from _book_note("readwise", f"{title}\0{author}", title, author, highlights, tags)


def _split(tags: str | None) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in tags.split(",") if tag.strip()) if tags else ()
