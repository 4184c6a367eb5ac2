"""The reference library: the notes, media, chats, characters and prompts of a busy person, filled with generated prose.

Building a large library takes minutes, so libraries are cached under a name that changes with what is written to disk.
"""

import hashlib
import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct

from bench.local_runtime import open_local_runtime
from bench.prose import Prose
from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    PromptDraft,
    ThreadDraft,
)
from sources.storage.contract import Library

OWNER = "reader"
SEED = 20_261_115
_BATCH = 500
_WRITE_DEADLINE_MS = 600_000
_PREFIX = "florilegium-bench-library-"
_STALE_S = 86_400
# The share of the reference library that is written to see how libraries are written.
_SAMPLE = 0.001


class Sizes(Struct, frozen=True):
    """The number of items and their length in words."""

    notes: int
    note_words: int
    media: int
    media_words: int
    conversations: int
    messages_each: int
    message_words: int
    characters: int
    prompts: int

    def times(self, factor: float) -> "Sizes":
        """Returns sizes with more or fewer items of the same length."""
        counts = ("notes", "media", "conversations", "characters", "prompts")
        return msgspec.structs.replace(self, **{name: max(1, round(getattr(self, name) * factor)) for name in counts})


REFERENCE = Sizes(
    notes=10_000,
    note_words=150,
    media=2_000,
    media_words=800,
    conversations=1_000,
    messages_each=20,
    message_words=40,
    characters=200,
    prompts=500,
)
_CARD_WORDS = 60
_PROMPT_WORDS = 60
_SPEAKERS = (("user", "Ana"), ("assistant", "Guide"))


async def cached_library(sizes: Sizes, cache_dir: Path) -> Path:
    """Returns a data directory in which `OWNER` has a library of these sizes, building it if it is not cached."""
    root = cache_dir / f"{_PREFIX}{await _fingerprint(sizes)}"
    if not root.exists():
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=cache_dir) as name:
            unfinished = Path(name) / "data"
            await build_library(unfinished, sizes)
            unfinished.rename(root)  # atomic: an interrupted run leaves no partial library
    return root


def delete_stale_libraries(in_use: Collection[Path], cache_dir: Path, now_s: float) -> None:
    """Deletes libraries that earlier versions of the code left in the cache; large ones take most of a gigabyte.

    Libraries of the last day may be in use by another run and are not deleted.
    """
    for other in cache_dir.glob(f"{_PREFIX}*"):
        if other not in in_use and now_s - other.stat().st_mtime > _STALE_S:
            shutil.rmtree(other, ignore_errors=True)


async def _fingerprint(sizes: Sizes) -> str:
    """Digests what is written for a few items: the schema, and every word of the full-text indexes with its places.

    A digest of the code that writes would change with every edit of a search as well, and large libraries would be
    built again for nothing.
    """
    digest = hashlib.sha256(msgspec.json.encode(sizes))
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        await build_library(Path(name), REFERENCE.times(_SAMPLE))
        for path in sorted(Path(name).rglob("*.db")):
            with closing(sqlite3.connect(path)) as database:
                tables = database.execute("SELECT name, sql FROM sqlite_master ORDER BY name, sql").fetchall()
                digest.update(repr((path.name, tables)).encode())
                for table in [name for name, sql in tables if sql and "USING fts5" in sql]:
                    database.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, '{table}', instance)")
                    digest.update(repr(database.execute("SELECT * FROM temp.words").fetchall()).encode())
                    database.execute("DROP TABLE temp.words")
    return digest.hexdigest()[:16]


async def build_library(root: Path, sizes: Sizes, owner: str = OWNER) -> None:
    async with (
        open_local_runtime(root, library_deadline_ms=_WRITE_DEADLINE_MS) as runtime,
        runtime.libraries.library(runtime.context_for(owner)) as library,
    ):
        await fill(library, sizes, Prose(SEED))


async def fill(library: Library, sizes: Sizes, prose: Prose) -> None:
    for count in _batches(sizes.notes):
        await library.notes.create_many([_note(prose, sizes.note_words) for _ in range(count)])
    for count in _batches(sizes.media):
        await library.media.create_many([_media(prose, sizes.media_words) for _ in range(count)])
    for count in _batches(sizes.conversations, _BATCH // (1 + sizes.messages_each)):
        results = await library.chats.upsert_many([_thread(prose, sizes) for _ in range(count)])
        assert all(result.conversation.outcome == "new" for result in results)
    for count in _batches(sizes.characters):
        await library.characters.create_many([_character(prose) for _ in range(count)])
    for count in _batches(sizes.prompts):
        await library.prompts.create_many([_prompt(prose) for _ in range(count)])


def _batches(count: int, batch: int = _BATCH) -> Iterator[int]:
    for start in range(0, count, batch):
        yield min(batch, count - start)


def _note(prose: Prose, words: int) -> NoteDraft:
    return NoteDraft(title=prose.title(), content=prose.text(words), tags=prose.tags(), created_at=prose.time())


def _media(prose: Prose, words: int) -> MediaDraft:
    return MediaDraft(
        title=prose.title(),
        content=prose.text(words),
        media_type="article",
        tags=prose.tags(),
        created_at=prose.time(),
    )


def _thread(prose: Prose, sizes: Sizes) -> ThreadDraft:
    chat = ConversationDraft(uuid=str(uuid4()), title=prose.title(), tags=prose.tags(), created_at=prose.time())
    messages = [
        MessageDraft(
            uuid=str(uuid4()),
            role=role,
            sender=sender,
            content=prose.text(sizes.message_words),
            created_at=chat.created_at,
        )
        for (role, sender), _ in zip(itertools.cycle(_SPEAKERS), range(sizes.messages_each), strict=False)
    ]
    return ThreadDraft(chat, messages)


def _character(prose: Prose) -> CharacterDraft:
    return CharacterDraft(
        name=prose.title(),
        description=prose.text(_CARD_WORDS),
        personality=prose.text(_CARD_WORDS),
        scenario=prose.text(_CARD_WORDS),
        first_message=prose.text(_CARD_WORDS),
        tags=prose.tags(),
        created_at=prose.time(),
    )


def _prompt(prose: Prose) -> PromptDraft:
    return PromptDraft(
        name=prose.title(),
        author="Ana",
        details=prose.text(_PROMPT_WORDS),
        system_prompt=prose.text(_PROMPT_WORDS),
        user_prompt=prose.text(_PROMPT_WORDS),
        tags=prose.tags(),
        created_at=prose.time(),
    )
