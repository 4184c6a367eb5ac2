"""Writes a library into an empty folder: a JSON Lines file for each kind, a Markdown page for each item, and finally
the manifest.

The library is read page by page and stays writable. Each item is consistent; concurrent changes may or may not be
included.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar
from unicodedata import normalize

import msgspec
from msgspec import Struct

from config.errors import Conflict, NotFound, StorageError
from sources import records
from sources.drafts import NoteImage
from sources.exporters import lines
from sources.exporters.lines import FILE_SUFFIX, FORMAT, FORMAT_VERSION, MANIFEST, UNFINISHED_MANIFEST, ExportManifest
from sources.installed import ADDED_KINDS
from sources.kinds import Kind, Record, title_of
from sources.reading.documents import build_document
from sources.saved_searches import SAVED_SEARCHES
from sources.storage.contract import Library
from sources.storage.job_queue import retrieve_exception

# -- pages -------------------------------------------------------------------------------------------------------------
# Items as Markdown pages for people: front matter, then the text. These pages are not imported again.

_NAME_CHARS = 60
_NOT_IN_NAMES = re.compile(r"[\W_]+")


def file_name(title: str, uuid: str) -> str:
    """Returns a name that is valid on every file system. It ends with a hash of the id and is therefore unique."""
    words = _NOT_IN_NAMES.sub("-", normalize("NFC", title)).strip("-").lower()[:_NAME_CHARS].rstrip("-")
    digest = blake2b(uuid.encode(), digest_size=6).hexdigest()
    return f"{words}-{digest}.md" if words else f"{digest}.md"


def item_page(kind: Kind, item: Record) -> Iterator[str]:
    """The texts of an item under headings. Lists, which are long or technical, are in the JSON line only."""
    title = title_of(kind, item)
    names = [field.name for field in kind.fields if field.shape in ("line", "text") and field.name != kind.title]
    yield front_matter(item, title)
    yield build_document(kind.title, title, [(name, getattr(item, name) or "") for name in names]).text + "\n"


def observation_page(observation: records.Observation) -> Iterator[str]:
    yield front_matter(observation, observation.title, type=observation.type, project=observation.project)
    yield f"# {observation.title}\n"
    for text in (observation.subtitle, observation.narrative):
        if text:
            yield f"\n{text}\n"
    for name in ("facts", "concepts", "files_read", "files_modified"):
        if values := getattr(observation, name):
            yield f"\n## {name.replace('_', ' ').capitalize()}\n\n" + "".join(f"- {value}\n" for value in values)


def front_matter(row: Record, title: str, **more_fields: str) -> str:
    """Writes each value as JSON, which is valid YAML."""
    fields: Mapping[str, object] = {
        "title": title,
        "id": row.uuid,
        "created": row.created_at,
        "modified": row.last_modified,
        **{name: value for name, value in more_fields.items() if value},
        **({"tags": row.tags} if row.tags else {}),
    }
    lines = (f"{name}: {msgspec.json.encode(value).decode()}\n" for name, value in fields.items())
    return "".join(("---\n", *lines, "---\n\n"))


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Record)
# The ids of items by source.
Selected = Mapping[str, Sequence[str | int]]

# Rows held in memory at once.
_PAGE_ROWS = 50
_CHUNKS_MAX = 1 << 20
# Exports are private.
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Waits for the thread even if the caller is cancelled, who may then remove what it writes."""
    running = asyncio.create_task(asyncio.to_thread(work, *args, **kwargs))
    # If the wait below is cancelled as well, as when a client disconnects, nothing else retrieves its exception.
    running.add_done_callback(retrieve_exception)
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait((running,))


async def export_library(library: Library, folder: Path, selected: Selected | None = None) -> ExportManifest:
    """Writes in threads, because a library may be large. Raises Conflict if the folder is not empty: nothing is ever
    overwritten. With `selected`, only these items are exported, and nothing that is not an item."""
    try:
        await in_thread(create_empty_folder, folder)
        await in_thread(_write_file, folder / UNFINISHED_MANIFEST, [])
        export = _LibraryExport(library, folder, selected)
        own = {"chats": export.export_chats, "media": export.export_media, "notes": export.export_notes}
        # Characters first: conversations refer to them by the ids that are collected meanwhile.
        for kind in (
            records.CHARACTER,
            records.CONVERSATION,
            records.MEDIA,
            records.NOTE,
            records.OBSERVATION,
            records.PROMPT,
            *ADDED_KINDS,
        ):
            if selected is None or kind.source in selected:
                await (own[kind.source]() if kind.source in own else export.export_items(kind))
        if selected is None and (searches := await library.bookmarks.get(SAVED_SEARCHES)):
            content = msgspec.json.format(searches.encode())
            await in_thread(_write_file, folder / lines.SAVED_SEARCHES_FILE, [content])
        return await in_thread(_write_manifest, folder, export.counts)
    except OSError as error:
        raise StorageError(f"the export cannot be written: {error.strerror or 'disk error'}") from error


def _write_manifest(folder: Path, counts: dict[str, int]) -> ExportManifest:
    digests = {}
    for path in sorted(folder.glob(f"*{FILE_SUFFIX}")):
        with path.open("rb") as file:
            digests[path.name] = file_digest(file, "sha256").hexdigest()
    manifest = ExportManifest(format=FORMAT, format_version=FORMAT_VERSION, counts=counts, sha256=digests)
    unfinished = folder / UNFINISHED_MANIFEST
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="deterministic")))
    # Renaming is atomic, so that a manifest under this name is always complete.
    unfinished.rename(folder / MANIFEST)
    return manifest


class _LibraryExport:
    """The methods named `_write...` run in threads, one at a time."""

    def __init__(self, library: Library, folder: Path, selected: Selected | None) -> None:
        self.counts: dict[str, int] = {}
        self._selected = selected
        self._library = library
        self._folder = folder
        self._character_uuids: dict[int, str] = {}

    async def export_items(self, kind: Kind) -> None:
        """Exports a kind whose items have all their fields in one record."""

        def write(rows: Sequence[Record], file: IO[bytes]) -> None:
            for row in rows:
                if isinstance(row, records.Character):
                    self._character_uuids[row.id] = row.uuid
                page = observation_page(row) if isinstance(row, records.Observation) else item_page(kind, row)
                self._write_line(file, kind.source, lines.item_line(kind, row))
                self._write_page(kind.source, title_of(kind, row), row.uuid, page)

        async with self._open_kind(kind.source) as file:
            async for rows in self._pages(kind.source):
                await in_thread(write, rows, file)

    async def export_notes(self) -> None:
        notes = self._library.notes

        def write(file: IO[bytes], row: records.Note, images: Sequence[NoteImage]) -> None:
            more = {"images": tuple(images)} if images else {}
            self._write_line(file, "notes", lines.item_line(records.NOTE, row, **more))
            self._write_page("notes", row.title, row.uuid, (front_matter(row, row.title), row.content))

        async with self._open_kind("notes") as file:
            async for rows in self._pages("notes"):
                for row in rows:
                    try:
                        images = [await notes.image(row.uuid, name) for name in await notes.image_names(row.uuid)]
                    except NotFound:
                        images = []  # changed since its names were read
                    await in_thread(write, file, row, images)

    async def export_media(self) -> None:
        media = self._library.media

        def write(file: IO[bytes], row: records.MediaItem, content: str, segments: Any, chunks: Any) -> None:
            self._write_line(file, "media", lines.media_line(row, content, segments, chunks))
            head = front_matter(row, row.title, media_type=row.media_type, url=row.url, author=row.author)
            self._write_page("media", row.title, row.uuid, (head, content))

        async with self._open_kind("media") as file:
            async for rows in self._pages("media"):
                for row in rows:
                    try:
                        content = await media.content(row.id)
                        segments = await media.segments(row.id) if row.has_transcript else ()
                        chunks = await media.chunks(row.id, 0, _CHUNKS_MAX)
                    except NotFound:
                        continue  # deleted since the page was read
                    await in_thread(write, file, row, content, segments, chunks)

    async def export_chats(self) -> None:
        self.counts["messages"] = 0
        async with self._open_kind("chats") as file:
            async for uuids in self._chat_ids():
                for uuid in uuids:
                    with suppress(NotFound):  # deleted since its id was read
                        await self._export_chat(file, await self._library.chats.get(uuid))

    async def _export_chat(self, file: IO[bytes], chat: records.Conversation) -> None:
        """Pages by position, so that no message is repeated or missed while others are written or deleted."""
        path = self._page_path("chats", chat.title, chat.uuid)
        character = None if chat.character_id is None else self._character_uuids.get(chat.character_id)

        def write_head(page: IO[bytes]) -> None:
            self._write_line(file, "chats", lines.conversation_line(chat, character))
            page.write(f"{front_matter(chat, chat.title, namespace=chat.namespace)}# {chat.title}\n".encode())

        def write_messages(page: IO[bytes], messages: Sequence[records.Message]) -> None:
            for message in messages:
                self._write_line(file, "messages", lines.message_line(message))
                heading = f"{message.sender}, {message.created_at}{message.labels}"
                page.write(f"\n## {heading}\n\n{message.content}\n".encode())

        with await in_thread(_create_file, path) as page:
            await in_thread(write_head, page)
            position = 0
            while messages := await self._library.chats.messages_around(chat.id, position, 0, _PAGE_ROWS):
                await in_thread(write_messages, page, messages)
                position = messages[-1].position + 1

    # -- reading -------------------------------------------------------------------------------------------------------
    async def _pages(self, source: str) -> AsyncIterator[Sequence[Any]]:
        collection = self._library.collection(source)
        if self._selected is not None:
            for item_id in self._selected.get(source, ()):
                with suppress(NotFound):  # deleted since it was selected
                    yield [await collection.get(item_id)]
            return
        last = ""
        while rows := await collection.list_after(last, _PAGE_ROWS):
            yield rows
            last = rows[-1].uuid

    async def _chat_ids(self) -> AsyncIterator[Sequence[str]]:
        if self._selected is not None:
            yield [str(item_id) for item_id in self._selected.get("chats", ())]
            return
        last = ""
        while uuids := await self._library.chats.ids(last, _PAGE_ROWS):
            yield uuids
            last = uuids[-1]

    # -- writing -------------------------------------------------------------------------------------------------------
    def _write_line(self, file: IO[bytes], kind: str, line: Struct | Mapping[str, Any]) -> None:
        file.write(lines.encode(line))
        self.counts[kind] += 1

    @asynccontextmanager
    async def _open_kind(self, kind: str) -> AsyncIterator[IO[bytes]]:
        """Opens the file and folder of a kind, and removes them if they stay empty: an empty file is not valid JSON."""
        self.counts[kind] = 0
        folder, path = self._folder / kind, self._folder / f"{kind}{FILE_SUFFIX}"
        folder.mkdir(_FOLDER_MODE)
        with _create_file(path) as file:
            yield file
        if not self.counts[kind]:
            path.unlink()
            folder.rmdir()

    def _write_page(self, kind: str, title: str, uuid: str, texts: Iterable[str]) -> None:
        _write_file(self._page_path(kind, title, uuid), (text.encode() for text in texts))

    def _page_path(self, kind: str, title: str, uuid: str) -> Path:
        return self._folder / kind / file_name(title, uuid)


def create_empty_folder(folder: Path) -> None:
    folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Conflict(f"folder {folder.name!r} is not empty; choose another one, because files are never overwritten")


def _write_file(path: Path, parts: Iterable[bytes]) -> None:
    with _create_file(path) as file:
        file.writelines(parts)


def _create_file(path: Path) -> IO[bytes]:
    """Creates a file that only its owner can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "wb")
