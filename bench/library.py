"""The reference library: the notes, media, chats, characters and prompts of a busy person, filled with generated prose.

Building a large library takes minutes, so libraries are cached under a name that changes with everything that affects
their content.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.local_runtime import open_local_runtime
from bench.prose import Prose
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Library

OWNER = "reader"
SEED = 20_261_115
_BATCH = 500
_WRITE_DEADLINE_MS = 600_000
_PREFIX = "florilegium-bench-library-"
_STALE_S = 86_400
_ROOT = Path(__file__).parents[1]
# Files that affect how a library is written to disk.
_FINGERPRINTED_FILES = (
    "bench/library.py",
    "bench/prose.py",
    "sources/text/segmentation.py",
    "sources/text/chunking.py",
    "sources/storage",
)


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
    root = cache_dir / f"{_PREFIX}{_fingerprint(sizes)}"
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


def _fingerprint(sizes: Sizes) -> str:
    digest = hashlib.sha256(msgspec.json.encode(sizes))
    for name in _FINGERPRINTED_FILES:
        entry = _ROOT / name
        for path in sorted(entry.rglob("*.py")) if entry.is_dir() else [entry]:
            digest.update(path.read_bytes())
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
    for _ in range(sizes.conversations):
        draft = ConversationDraft(title=prose.title(), tags=prose.tags(), created_at=prose.time())
        await library.chats.create(
            draft, [_message(prose, sizes, draft, index) for index in range(sizes.messages_each)]
        )
    for count in _batches(sizes.characters):
        await library.characters.create_many([_character(prose) for _ in range(count)])
    for count in _batches(sizes.prompts):
        await library.prompts.create_many([_prompt(prose) for _ in range(count)])


def _batches(count: int) -> Iterator[int]:
    for start in range(0, count, _BATCH):
        yield min(_BATCH, count - start)


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


def _message(prose: Prose, sizes: Sizes, chat: ConversationDraft, index: int) -> MessageDraft:
    role, sender = _SPEAKERS[index % len(_SPEAKERS)]
    content = prose.text(sizes.message_words)
    return MessageDraft(role=role, sender=sender, content=content, created_at=chat.created_at)


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
