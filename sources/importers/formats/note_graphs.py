"""Notes that link to each other, as files or outlines: Notion, Logseq, Roam Research and Bear."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote
from uuid import UUID

from msgspec.structs import replace

from config.errors import InvalidParams, TooLarge
from sources.importers.engine import markdown_text, values
from sources.importers.engine.archives import decode_name, is_visible
from sources.importers.engine.events import FailedItem, ImportEvent, SkippedItem, imported_note, stable_uuid
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.files import decode_text, printable_name, text_max_bytes
from sources.importers.engine.importer import Events, ExportImporter, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.input_file import ArchiveTree, FileTree, FolderTree
from sources.importers.engine.values import Fields
from sources.importers.parsers.parsed_document import TextBuilder
from sources.importers.parsers.web_page import decode_page, read_page

# -- Notion ------------------------------------------------------------------------------------------------------------
# Notion's export as Markdown or HTML: its zip, the zips inside that zip, or the unpacked folder.
#
# Every page becomes a note with the id it has in Notion. Notion writes that id at the end of the file's name.

_PAGE_SUFFIXES = (".md", ".html")
_TABLE_SUFFIX = ".csv"
_ID = re.compile(r" ?([0-9a-f]{32})(?:_all)?\Z")
_NAME_WITH_ID = re.compile(r"[^/] [0-9a-f]{32}(?:_all)?\.(?:md|html|csv)$")
_PART = re.compile(r"(?:^|/)Export(?:Block)?-[0-9a-f-]{36}(?:-Part-\d{1,4})?\.zip$")
# The lines below the title of a page that is a row of a database.
_NOTION_PROPERTY = re.compile(r"([^\n:]{1,100}): ([^\n]{0,10000})")
_NOTION_PROPERTIES_MAX = 200
_TAG_PROPERTIES = ("tags", "tag", "labels", "keywords")
_DATE_PROPERTIES = ("created", "created_time", "date_created", "created_at", "date")
# Such as `January 5, 2024 3:04 PM`.
_DATE_FORMATS = ("%B %d, %Y %I:%M %p", "%B %d, %Y %H:%M", "%B %d, %Y", "%Y/%m/%d %H:%M", "%Y/%m/%d")


class NotionImporter(FileImporter):
    name = "notion"
    title = "Notion export (Markdown or HTML)"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        if not probe.is_folder and not probe.is_zip:
            return 0.0
        names = [name for name in probe.names if is_visible(name)]
        if any(map(_PART.search, names)):
            return 0.9
        # A folder of downloads may contain a page, so all pages and tables at its top must be Notion's.
        pages = [name for name in names if name.lower().endswith((*_PAGE_SUFFIXES, _TABLE_SUFFIX))]
        with_id = sum(1 for name in pages if _NAME_WITH_ID.search(name))
        is_export = with_id == len(pages) if probe.is_folder else 2 * with_id >= len(pages)
        return 0.9 if with_id and is_export else 0.0

    def read_file(self, file: InputFile) -> Events:
        if file.is_folder:
            yield from _read_notion_tree(FolderTree(file), "")
            return
        key = file.key
        with file.open_archive() as archive:
            yield from _read_notion_tree(ArchiveTree(archive), key)
            for name in archive.names:
                if is_visible(name) and name.lower().endswith(".zip"):
                    # One of the zips that Notion packs into the zip it offers for download.
                    try:
                        with archive.open_inner(name) as part:
                            yield from _read_notion_tree(ArchiveTree(part), key)
                    except InvalidParams as error:
                        yield FailedItem(decode_name(name), error.message)
                    except TooLarge as error:
                        advice = "unpack the zip and import this part by itself"
                        yield FailedItem(decode_name(name), f"{error.message}; {advice}")


def _read_notion_tree(tree: FileTree, key: str) -> Events:
    # The folders with the rows of databases: next to each is a table with the same name.
    tables = (name.removesuffix(_TABLE_SUFFIX) for name in tree.names if name.lower().endswith(_TABLE_SUFFIX))
    # Only pages of databases have properties; in others, the lines below the title are text.
    databases = frozenset(_without_id(table) for table in tables)
    yield from tree.read_each(lambda name: _notion_note(tree, name, key, databases))


def _without_id(name: str) -> str:
    parent, slash, last = name.rpartition("/")
    return parent + slash + _ID.sub("", last)


def _notion_note(tree: FileTree, name: str, key: str, databases: frozenset[str]) -> ImportEvent | None:
    path, limits = PurePosixPath(name), tree.limits
    suffix = path.suffix.lower()
    if suffix == _TABLE_SUFFIX:
        return SkippedItem("table of a database whose rows are pages")
    if suffix not in _PAGE_SUFFIXES or path.name == "index.html":
        # A part of the export is read by itself.
        return None if suffix == ".zip" else SkippedItem("file in the export not containing a page")
    page_id = _ID.search(path.stem)
    data = tree.read(name, text_max_bytes(limits))
    if suffix == ".md":
        text = decode_text(data, limits)
        title = markdown_text.first_heading(markdown_text.remove_code(text))
    else:
        page = read_page(decode_page(data, limits), TextBuilder(limits.item_max_chars))
        title, text = page.title.strip(), page.text.build()
    properties: dict[str, str] = {}
    if _without_id(str(path.parent)) in databases:
        # The properties of a row: the lines between the title and the first empty line after them.
        block = text.lstrip().partition("\n\n")[2].partition("\n\n")[0]
        matches = [_NOTION_PROPERTY.fullmatch(line) for line in block.split("\n")[:_NOTION_PROPERTIES_MAX]]
        if all(matches):
            properties = {match[1].strip(): match[2].strip() for match in matches if match}
    fields = markdown_text.normalize_keys(properties)
    # Values of a property may contain spaces, so only commas separate them.
    tags = [word.strip() for field in _TAG_PROPERTIES for word in fields.get(field, "").split(",")]
    dates = (fields[field] for field in _DATE_PROPERTIES if fields.get(field))
    created_at = next(
        (date for value in dates if (date := values.stored_date(value) or values.written_date(value, _DATE_FORMATS))),
        None,
    )
    readable_path = "/".join(_without_id(part) for part in path.with_suffix("").parts) + path.suffix
    return imported_note(
        str(UUID(page_id[1])) if page_id else stable_uuid("notion", "notes", f"{key}/{name}"),
        title or _ID.sub("", path.stem),
        text.strip("\n"),
        tags=[*tags, *markdown_text.inline_tags(markdown_text.remove_code(text))],
        created=created_at or tree.modified_at(name),
        path=readable_path,
        properties=properties,
    )


# -- Logseq ------------------------------------------------------------------------------------------------------------
# A Logseq graph: the folder with `logseq/config.edn`, or a zip of it. Every page and journal becomes a note.

_SETTINGS = "logseq/config.edn"
_NOTE_FOLDERS = ("pages", "journals")
_JOURNAL = re.compile(r"(\d{4})[_-](\d\d)[_-](\d\d)")
_LOGSEQ_PROPERTY = re.compile(r"[ \t]*+(?:- )?([\w./-]{1,60})::([^\n]{0,2000})")
_LOGSEQ_PROPERTIES_MAX = 100
# A tag of several words, in Logseq and in Roam.
_WORDS_TAG = re.compile(r"#\[\[([^\[\]\n]{1,100})\]\]")


class LogseqImporter(FileImporter):
    name = "logseq"
    title = "Logseq graph (a folder, or a zip of it)"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            has_notes = any(name in probe.names for name in _NOTE_FOLDERS)
            return 0.95 if has_notes and (probe.path / "logseq" / "config.edn").is_file() else 0.0
        return 0.9 if probe.is_zip and _graph_folder(probe.names) is not None else 0.0

    def read_file(self, file: InputFile) -> Events:
        path = file.path
        with file.open_tree() as tree:
            folder = _graph_folder(tree.names)
            if folder is None:
                raise InvalidParams("not a Logseq graph: logseq/config.edn is missing")
            # Journals have the same names in every graph, so the graph's own name is part of their ids. A graph that is
            # not in a folder of the archive has the name of the archive.
            in_archive = PurePosixPath(folder).name or file.stem
            graph = printable_name(path.resolve().name) if file.is_folder else in_archive
            yield from tree.read_each(lambda name: _logseq_note(tree, name, folder, graph))


def _graph_folder(names: Sequence[str]) -> str | None:
    """Returns the folder of the graph, with a trailing slash unless it is the top."""
    folders = [name.removesuffix(_SETTINGS) for name in names if f"/{name}".endswith(f"/{_SETTINGS}")]
    return min(folders, key=len, default=None)


def _logseq_note(tree: FileTree, name: str, folder: str, graph: str) -> ImportEvent:
    path = PurePosixPath(name.removeprefix(folder))
    is_page = name.startswith(folder) and path.parts[0] in _NOTE_FOLDERS and path.suffix.lower() in (".md", ".org")
    if not is_page:
        return SkippedItem("file in the graph not containing a page")
    text = tree.text(name)
    # A page is named like its file, in which a slash is written as three underscores or in percent notation. A journal
    # is named like its day.
    journal = _JOURNAL.fullmatch(path.stem) if path.parts[0] == "journals" else None
    day = "-".join(journal.groups()) if journal else ""
    page_name = day or values.short_title(unquote(path.stem.replace("___", "/")))
    if not text.strip("\n"):
        return SkippedItem("empty page")
    tags: Sequence[str]
    properties: dict[str, str] = {}
    links: Sequence[str] = ()
    if path.suffix.lower() == ".org":
        header = markdown_text.read_org_header(text)
        title, tags = header.title, header.tags
    else:
        # The properties of the page: the lines with `::` at its top.
        for line in text.lstrip("\n").split("\n", _LOGSEQ_PROPERTIES_MAX)[:_LOGSEQ_PROPERTIES_MAX]:
            match = _LOGSEQ_PROPERTY.fullmatch(line.rstrip())
            if match is None:
                break
            properties[match[1].lower()] = match[2].strip()
        title, listed = properties.get("title", ""), properties.get("tags", "").split(",")
        prose = markdown_text.remove_code(text)
        links = markdown_text.link_targets(prose)
        tags = [tag.strip().removeprefix("#").removeprefix("[[").removesuffix("]]") for tag in listed]
        tags = [*tags, *markdown_text.inline_tags(prose), *_WORDS_TAG.findall(prose)]
    return imported_note(
        stable_uuid("logseq", "notes", f"{graph}/{path}"),
        title.strip() or page_name,
        text.strip("\n"),
        tags=tags,
        created=(values.stored_date(day) if day else None) or tree.modified_at(name),
        path=str(path),
        links=links or None,
        properties=properties,
    )


# -- Roam Research -----------------------------------------------------------------------------------------------------
# Roam Research's JSON export: a list of pages, each an outline of blocks. Every page becomes a note.

_TIME = re.compile(rb'"(?:create|edit)-time"\s{0,9}:')


class RoamImporter(ExportImporter):
    name = "roam"
    title = "Roam Research export (JSON)"
    noun = "page"

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.first_bytes(self.is_export_file)
        return 0.8 if head.lstrip()[:1] == b"[" and is_json(head, b'"string"', b'"title"', _TIME) else 0.0

    def is_export_file(self, name: str) -> bool:
        return name.lower().endswith(".json")

    def read_object(self, data: bytes, location: str, limits: ImportLimits) -> Events:
        page = Fields.of(values.parse_json(data, limits))
        title, created, edited = page.line("title"), page.get("create-time"), page.time("edit-time")
        if not title:
            raise InvalidParams("the page has no title")
        if not page.get("children"):
            yield SkippedItem("page without blocks")
            return
        content = "\n".join(_outline(page))
        prose = markdown_text.remove_code(content)
        yield imported_note(
            # The uid of a daily page is its date, and so the same in every graph.
            stable_uuid("roam", "notes", f"{page.get('uid') or title}/{created}"),
            title,
            content,
            tags=[*markdown_text.inline_tags(prose), *_WORDS_TAG.findall(prose)],
            created=values.stored_time(created) or edited,
            modified=edited,
            links=markdown_text.link_targets(prose),
        )


def _outline(page: Fields) -> Iterator[str]:
    """Yields a line for each block, indented by its level. The lines of one block are kept together."""
    # The remaining blocks of every level.
    levels = [page.objects("children")]
    while levels:
        indent = "  " * (len(levels) - 1)
        for block in levels[-1]:
            heading = block.get("heading")
            mark = "#" * heading + " " if heading in (1, 2, 3) else ""
            text = block.text("string").replace("\n", f"\n{indent}  ")
            yield f"{indent}- {mark}{text}"
            if block.get("children"):
                levels.append(block.objects("children"))
                break
        else:
            levels.pop()


# -- Bear --------------------------------------------------------------------------------------------------------------
# Bear's backups (`.bear2bk`, `.bearbk`) and TextBundles: a folder or zip per note, with `text.md` and `info.json`.

_TEXTS = ("text.md", "text.markdown", "text.txt")
_INFO = "info.json"
_BUNDLE_SUFFIX = ".textbundle"
# A tag of several words ends with # too.
_BEAR_WORDS_TAG = re.compile(r"(?<![^\s])#([^\s#/][^#\n]{0,98}[^\s#])#")


class BearImporter(FileImporter):
    name = "bear"
    title = "Bear backup, TextBundle, TextPack"
    suffixes = (".bear2bk", ".bearbk", ".textpack", ".zip", ".md", ".markdown", ".txt")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            is_bundle = _INFO in probe.names and any(name.lower() in _TEXTS for name in probe.names)
            return 0.9 if is_bundle and probe.suffix == _BUNDLE_SUFFIX else 0.0
        if probe.is_zip:
            return 0.9 if any(_bundles(probe.names)) else 0.0
        # A bundle inside a folder that is imported file by file.
        is_in_bundle = probe.path.parent.suffix.lower() == _BUNDLE_SUFFIX
        return 0.9 if is_in_bundle and probe.path.name.lower() in _TEXTS else 0.0

    def read_file(self, file: InputFile) -> Events:
        if not file.is_zip:
            folder = file.path if file.is_folder else file.path.parent
            # A folder has no content to hash, but an uploaded one is always a zip.
            key = str(folder.resolve()) if file.limits.has_stable_path else ""
            yield from _read_bear_tree(FolderTree(replace(file, path=folder)), key)
            return
        with file.open_tree() as tree:
            yield from _read_bear_tree(tree, file.key)


def _bundles(names: Sequence[str]) -> Iterator[str]:
    """Yields the texts of the bundles, which are next to their `info.json`."""
    known = frozenset(names)
    for name in names:
        folder, slash, text = name.rpartition("/")
        if text.lower() in _TEXTS and f"{folder}{slash}{_INFO}" in known:
            yield name


def _read_bear_tree(tree: FileTree, key: str) -> Events:
    texts = frozenset(_bundles(tree.names))
    yield from tree.read_each(lambda name: _bear_note(tree, name, key, texts))


def _bear_note(tree: FileTree, name: str, key: str, texts: frozenset[str]) -> ImportEvent | None:
    if name not in texts:
        # The info of a bundle is read with its text.
        return None if name.endswith(_INFO) else SkippedItem("attachment")
    folder, limits = name.rpartition("/")[0], tree.limits
    text = tree.text(name).strip("\n")
    info = tree.read(f"{folder}/{_INFO}".lstrip("/"), limits.line_max_bytes).decode("utf-8", "replace")
    bear = Fields.of(values.json_or_none(info, limits)).nested("net.shinyfrog.bear")
    if bear.get("trashed") in (1, True):
        return SkippedItem("note in the trash")
    if not text:
        return SkippedItem("empty note")
    prose = markdown_text.remove_code(text)
    bundle_name = folder.rpartition("/")[2].removesuffix(_BUNDLE_SUFFIX)
    return imported_note(
        # Older versions of Bear add digits to the UUID.
        values.valid_uuid(bear.text("uniqueIdentifier")[:36]) or stable_uuid("bear", "notes", f"{key}/{folder}"),
        markdown_text.first_heading(prose) or bundle_name or text.partition("\n")[0],
        text,
        tags=[*_BEAR_WORDS_TAG.findall(prose), *markdown_text.inline_tags(_BEAR_WORDS_TAG.sub(" ", prose))],
        created=bear.time("creationDate"),
        modified=bear.time("modificationDate"),
        path=folder,
        links=markdown_text.link_targets(prose),
        pinned=bear.get("pinned") in (1, True),
        archived=bear.get("archived") in (1, True),
    )
