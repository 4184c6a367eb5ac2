"""Writes a library into an empty folder: a JSON Lines file for each kind, a Markdown page for each item, and finally
the manifest.

The library is read page by page and stays writable. Each item is consistent; concurrent changes may or may not be
included.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from config.errors import Conflict, NotFound, StorageError
from sources.exporters import lines, pages
from sources.exporters.lines import (
    FILES,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    UNFINISHED_MANIFEST,
    ExportLine,
    ExportManifest,
)
from sources.records import Conversation, MediaItem, Record
from sources.storage.contract import Library

R = TypeVar("R", bound=Record)

# Rows held in memory at once.
_PAGE_ROWS = 50
_CHUNKS_MAX = 1 << 20
# Exports are private.
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


async def export_library(library: Library, folder: Path) -> ExportManifest:
    """Raises Conflict if the folder is not empty: nothing is ever overwritten."""
    with _disk_errors():
        _create_folder(folder)
        unfinished = folder / UNFINISHED_MANIFEST
        _write_file(unfinished, [])
        export = _LibraryExport(library, folder)
        await export.export_characters()
        await export.export_chats()
        await export.export_media()
        await export.export_notes()
        await export.export_observations()
        await export.export_prompts()
        manifest = ExportManifest(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            counts=export.counts,
            sha256={name: _digest(path) for name in FILES if (path := folder / name).exists()},
        )
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="deterministic")))
        unfinished.rename(folder / MANIFEST)
    return manifest


class _LibraryExport:
    def __init__(self, library: Library, folder: Path) -> None:
        self.counts: dict[str, int] = {}
        self._library = library
        self._folder = folder
        self._character_uuids: dict[int, str] = {}

    async def export_characters(self) -> None:
        with self._open_kind("characters") as file:
            async for row in _all_rows(self._library.characters.list_after):
                self._character_uuids[row.id] = row.uuid
                self._write_line(file, "characters", lines.character_line(row))
                self._write_page("characters", row.name, row.uuid, pages.character_page(row))

    async def export_notes(self) -> None:
        with self._open_kind("notes") as file:
            async for row in _all_rows(self._library.notes.list_after):
                self._write_line(file, "notes", lines.note_line(row))
                self._write_page("notes", row.title, row.uuid, pages.note_page(row))

    async def export_prompts(self) -> None:
        with self._open_kind("prompts") as file:
            async for row in _all_rows(self._library.prompts.list_after):
                self._write_line(file, "prompts", lines.prompt_line(row))
                self._write_page("prompts", row.name, row.uuid, pages.prompt_page(row))

    async def export_observations(self) -> None:
        with self._open_kind("observations") as file:
            async for row in _all_rows(self._library.observations.list_after):
                self._write_line(file, "observations", lines.observation_line(row))
                self._write_page("observations", row.title, row.uuid, pages.observation_page(row))

    async def export_media(self) -> None:
        with self._open_kind("media") as file:
            async for row in _all_rows(self._library.media.list_after):
                try:
                    await self._export_media_item(file, row)
                except NotFound:
                    continue  # deleted since the page was read

    async def _export_media_item(self, file: IO[bytes], row: MediaItem) -> None:
        content = await self._library.media.content(row.id)
        segments = await self._library.media.segments(row.id) if row.has_transcript else ()
        chunks = await self._library.media.chunks(row.id, 0, _CHUNKS_MAX)
        self._write_line(file, "media", lines.media_line(row, content, segments, chunks))
        self._write_page("media", row.title, row.uuid, pages.media_page(row, content))

    async def export_chats(self) -> None:
        self.counts["messages"] = 0
        with self._open_kind("chats") as file:
            last = ""
            while uuids := await self._library.chats.ids(last, _PAGE_ROWS):
                for uuid in uuids:
                    try:
                        await self._export_chat(file, await self._library.chats.get(uuid))
                    except NotFound:
                        continue  # deleted since its id was read
                last = uuids[-1]

    async def _export_chat(self, file: IO[bytes], chat: Conversation) -> None:
        """Pages by position, so that no message is repeated or missed while others are written or deleted."""
        character = None if chat.character_id is None else self._character_uuids.get(chat.character_id)
        self._write_line(file, "chats", lines.conversation_line(chat, character))
        path = self._page_path("chats", chat.title, chat.uuid)
        with _create_file(path) as page:
            page.write(pages.conversation_head(chat).encode())
            position = 0
            while messages := await self._library.chats.messages_around(chat.id, position, 0, _PAGE_ROWS):
                for message in messages:
                    self._write_line(file, "messages", lines.message_line(message))
                    page.write(pages.message_section(message).encode())
                position = messages[-1].position + 1

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write_line(self, file: IO[bytes], kind: str, line: ExportLine) -> None:
        file.write(lines.encode(line))
        self.counts[kind] += 1

    @contextmanager
    def _open_kind(self, kind: str) -> Iterator[IO[bytes]]:
        """Opens the file and folder of a kind, and removes them if they stay empty: an empty file is not valid JSON."""
        self.counts[kind] = 0
        folder, path = self._folder / kind, self._folder / f"{kind}.jsonl"
        folder.mkdir(_FOLDER_MODE)
        with _create_file(path) as file:
            yield file
        if not self.counts[kind]:
            path.unlink()
            folder.rmdir()

    def _write_page(self, kind: str, title: str, uuid: str, texts: Iterable[str]) -> None:
        _write_file(self._page_path(kind, title, uuid), (text.encode() for text in texts))

    def _page_path(self, kind: str, title: str, uuid: str) -> Path:
        return self._folder / kind / pages.file_name(title, uuid)


async def _all_rows(list_after: Callable[[str, int], Awaitable[Sequence[R]]]) -> AsyncIterator[R]:
    last = ""
    while rows := await list_after(last, _PAGE_ROWS):
        for row in rows:
            yield row
        last = rows[-1].uuid


def _create_folder(folder: Path) -> None:
    folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Conflict(f"folder {folder.name!r} is not empty; choose another one, because files are never overwritten")


def _write_file(path: Path, parts: Iterable[bytes]) -> None:
    with _create_file(path) as file:
        file.writelines(parts)


def _create_file(path: Path) -> IO[bytes]:
    """Creates a file that only its owner can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "wb")


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"the export cannot be written: {error.strerror or 'disk error'}") from error
