"""Writes notes that were created or edited in the library to their files in a followed folder.

A file is replaced atomically, and only if it is still the one that was read last; otherwise both sides changed, which
is a conflict. Files are never deleted.
"""

import asyncio
import os
import secrets
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from auth.follows import FollowRecord
from config.errors import StorageError
from config.times import format_timestamp
from sources.following.layout import SourceLayout
from sources.following.note_files import file_name, new_file, with_body, with_fields
from sources.following.scan import SourceMissing, file_signature
from sources.import_stamps import has_edits
from sources.importers.engine.confined_files import open_file_in, open_folder, open_parent
from sources.importers.engine.files import decode_text
from sources.importers.engine.front_matter import normalize_keys, split_front_matter
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.markdown_text import remove_code
from sources.importers.formats.markdown import title_and_tags
from sources.records import Note
from sources.storage.contract import FollowedItem, Library

_PAGE = 100
_FILE_MODE = 0o644
_NAMES_MAX = 1_000


class WrittenNotes(Struct, frozen=True):
    """`names` are the files that were written, and must be read again; `pending` those that changed meanwhile. Notes
    that were modified before `until` need not be looked at again."""

    names: list[bytes]
    pending: list[bytes]
    until: str


async def write_notes(
    library: Library, record: FollowRecord, layout: SourceLayout, since: str, limits: ImportLimits
) -> WrittenNotes:
    """Writes the notes that were modified since a time. Those with a conflict are left alone, and so are notes that
    were created before the folder was followed."""
    follow_id, created_since = record.id, format_timestamp(record.created_at)
    names: list[bytes] = []
    pending: list[bytes] = []
    until = since
    async for note in _modified_notes(library, since):
        until = max(until, note.last_modified)
        if not has_edits(note.arrived, note.version):
            continue
        item = FollowedItem("notes", note.uuid, note.uuid)
        name = await library.followed_files.file_of(follow_id, item)
        if name is None and note.arrived is None and note.created_at >= created_since:
            names.append(await asyncio.to_thread(_create, layout.root, note))
        elif name is not None:
            [known] = await library.followed_files.find(follow_id, [name])
            if known.conflicts:
                continue
            is_written = await asyncio.to_thread(_replace, layout.path_of(name), note, known.signature, limits)
            (names if is_written else pending).append(name)
    return WrittenNotes(names, pending, since if pending else until)


async def _modified_notes(library: Library, since: str) -> AsyncIterator[Note]:
    offset = 0
    while rows := (await library.notes.list(_PAGE, offset)).rows:
        for note in rows:
            if note.last_modified < since:
                return
            yield note
        offset += _PAGE


def _create(root: Path, note: Note) -> bytes:
    """Returns the name of the new file. An existing file is never overwritten."""
    try:
        with open_folder(root) as folder, _temporary_file(folder, new_file(note), _FILE_MODE) as temporary:
            for number in range(1, _NAMES_MAX):
                name = f"{file_name(note.title)}{f' {number}' if number > 1 else ''}.md"
                with suppress(FileExistsError):
                    os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                    return os.fsencode(name)
    except OSError as error:
        raise StorageError(f"the note cannot be written to the folder: {error.strerror}") from error
    raise StorageError(f"the folder has {_NAMES_MAX} notes with the same title")


def _replace(path: Path, note: Note, signature: str, limits: ImportLimits) -> bool:
    """Returns False if the file changed since it was read, or is gone. The folder that it is in stays open: if another
    one takes its place, that is not written to."""
    try:
        with open_parent(path) as (folder, name):
            if file_signature(folder, os.fsencode(name)) != signature:
                return False
            with open_file_in(folder, name) as file:
                data, mode = file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = _updated_text(decode_text(data, limits), path.name, note, limits)
            content = text.replace("\n", "\r\n") if b"\r\n" in data else text
            with _temporary_file(folder, content, mode) as temporary:
                if file_signature(folder, os.fsencode(name)) != signature:
                    return False
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except (OSError, SourceMissing):
        return False
    return True


def _updated_text(text: str, name: str, note: Note, limits: ImportLimits) -> str:
    """Writes title and tags to the front matter if the text alone would give the note others."""
    text = with_body(text, note.content)
    front_matter, body = split_front_matter(text, limits.depth_max)
    title, tags = title_and_tags(normalize_keys(front_matter), remove_code(body), name)
    if title != note.title:
        text = with_fields(text, title=note.title)
    if set(tags) != set(note.tags):
        text = with_fields(text, tags=note.tags)
    return text


@contextmanager
def _temporary_file(folder: int, text: str, mode: int) -> Iterator[str]:
    """Returns the name of a file in an open folder, which is removed at the end. The suffix keeps scans from reading
    it."""
    name = f".florilegium-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
    except OSError as error:
        raise StorageError(f"the note cannot be written to the folder: {error.strerror}") from error
    try:
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
