"""Writes one library into an empty folder: a file of lines for each kind, a page of Markdown for each item, and at last
the manifest.

It reads page by page while others write: each item is whole, and what is written meanwhile may or may not be in it.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from config.errors import Conflict, NotFound, StorageError
from sources.exporters import lines, pages
from sources.exporters.lines import FILES, FORMAT, FORMAT_VERSION, MANIFEST, Line, Manifest
from sources.records import Conversation, MediaItem, Record
from sources.storage.contract import Library

R = TypeVar("R", bound=Record)

# Rows held in memory at once.
_PAGE_ROWS = 50
_CHUNKS_AT_ONCE = 1 << 20
# What is in it is private.
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


class Told(Protocol):
    """Told how many items were written so far."""

    def __call__(self, items: int) -> None: ...


async def export_library(library: Library, folder: Path, told: Told = lambda items: None) -> Manifest:
    """`Conflict` where the folder holds something: nothing is ever overwritten."""
    with _disk_errors():
        _prepare(folder)
        export = _Export(library, folder, told)
        await export.characters()
        await export.chats()
        await export.media()
        await export.notes()
        await export.observations()
        await export.prompts()
        manifest = Manifest(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            counts=export.counts,
            sha256={name: _digest(path) for name in FILES if (path := folder / name).exists()},
        )
        _write(folder / MANIFEST, [msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"))])
    return manifest


class _Export:
    def __init__(self, library: Library, folder: Path, told: Told) -> None:
        self.counts: dict[str, int] = {}
        self._library = library
        self._folder = folder
        self._told = told
        self._characters: dict[int, str] = {}

    async def characters(self) -> None:
        with self._opened("characters") as file:
            async for row in _all(self._library.characters.list_after):
                self._characters[row.id] = row.uuid
                self._item(file, "characters", lines.character_line(row))
                self._page("characters", row.name, row.uuid, pages.character_page(row))

    async def notes(self) -> None:
        with self._opened("notes") as file:
            async for row in _all(self._library.notes.list_after):
                self._item(file, "notes", lines.note_line(row))
                self._page("notes", row.title, row.uuid, pages.note_page(row))

    async def prompts(self) -> None:
        with self._opened("prompts") as file:
            async for row in _all(self._library.prompts.list_after):
                self._item(file, "prompts", lines.prompt_line(row))
                self._page("prompts", row.name, row.uuid, pages.prompt_page(row))

    async def observations(self) -> None:
        with self._opened("observations") as file:
            async for row in _all(self._library.observations.list_after):
                self._item(file, "observations", lines.observation_line(row))
                self._page("observations", row.title, row.uuid, pages.observation_page(row))

    async def media(self) -> None:
        with self._opened("media") as file:
            async for row in _all(self._library.media.list_after):
                try:
                    await self._media_item(file, row)
                except NotFound:
                    continue  # deleted since the page was read

    async def _media_item(self, file: IO[bytes], row: MediaItem) -> None:
        content = await self._library.media.content(row.id)
        segments = await self._library.media.segments(row.id) if row.has_transcript else ()
        chunks = await self._library.media.chunks(row.id, 0, _CHUNKS_AT_ONCE)
        self._item(file, "media", lines.media_line(row, content, segments, chunks))
        self._page("media", row.title, row.uuid, pages.media_page(row, content))

    async def chats(self) -> None:
        self.counts["messages"] = 0
        with self._opened("chats") as file:
            last = ""
            while found := await self._library.chats.ids(last, _PAGE_ROWS):
                for uuid in found:
                    try:
                        await self._chat(file, await self._library.chats.get(uuid))
                    except NotFound:
                        continue  # deleted since its id was read
                last = found[-1]

    async def _chat(self, file: IO[bytes], chat: Conversation) -> None:
        """A message keeps its position, so that none comes twice or is left out while others are written or deleted."""
        character = None if chat.character_id is None else self._characters.get(chat.character_id)
        self._item(file, "chats", lines.conversation_line(chat, character))
        path = self._path("chats", chat.title, chat.uuid)
        with _created(path) as page:
            page.write(pages.conversation_head(chat).encode())
            position = 0
            while messages := await self._library.chats.messages_around(chat.id, position, 0, _PAGE_ROWS):
                for message in messages:
                    self._item(file, "messages", lines.message_line(message))
                    page.write(pages.message_section(message).encode())
                position = messages[-1].position + 1

    # What is written

    def _item(self, file: IO[bytes], kind: str, line: Line) -> None:
        file.write(lines.encode(line))
        self.counts[kind] += 1
        self._told(sum(self.counts.values()))

    @contextmanager
    def _opened(self, kind: str) -> Iterator[IO[bytes]]:
        """A kind of which there is nothing has no file: an empty one would be no JSON."""
        self.counts[kind] = 0
        folder, path = self._folder / kind, self._folder / f"{kind}.jsonl"
        folder.mkdir(_FOLDER_MODE)
        with _created(path) as file:
            yield file
        if not self.counts[kind]:
            path.unlink()
            folder.rmdir()

    def _page(self, kind: str, title: str, uuid: str, texts: Iterable[str]) -> None:
        _write(self._path(kind, title, uuid), (text.encode() for text in texts))

    def _path(self, kind: str, title: str, uuid: str) -> Path:
        return self._folder / kind / pages.file_name(title, uuid)


async def _all(list_after: Callable[[str, int], Awaitable[Sequence[R]]]) -> AsyncIterator[R]:
    last = ""
    while rows := await list_after(last, _PAGE_ROWS):
        for row in rows:
            yield row
        last = rows[-1].uuid


def _prepare(folder: Path) -> None:
    folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Conflict(f"the folder {folder.name!r} is not empty: nothing is ever overwritten; choose another")


def _write(path: Path, parts: Iterable[bytes]) -> None:
    with _created(path) as file:
        file.writelines(parts)


def _created(path: Path) -> IO[bytes]:
    """A new file, which nobody else may read."""
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
        raise StorageError(f"the export cannot be written: {error.strerror or 'the disk failed'}") from error
