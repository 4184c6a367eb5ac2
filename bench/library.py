"""The reference library: as many notes, media, chats, characters and prompts as one busy person has, of invented
prose, written in bulk through the storage contract.

Building the large one takes minutes, so a built library is kept, under a name that changes with everything that decides
its bytes.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.prose import Prose
from bench.reading_desk import open_desk
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Library

OWNER = "reader"
SEED = 20_261_115
_BATCH = 500
_WRITE_DEADLINE_MS = 600_000
_PREFIX = "florilegium-bench-library-"
_STALE_S = 86_400
_ROOT = Path(__file__).parents[1]
# What decides how a given library is written to disk.
_DECIDING = (
    "bench/library.py",
    "bench/prose.py",
    "sources/text/segmentation.py",
    "sources/text/chunking.py",
    "sources/storage",
)


class Sizes(Struct, frozen=True):
    """How many items of how many words."""

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
        """More or fewer items, each as long as before."""
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


async def kept_library(sizes: Sizes, shelf: Path) -> Path:
    """The data directory in which `OWNER` has a library of these sizes; built now unless it is on the shelf."""
    root = shelf / f"{_PREFIX}{_fingerprint(sizes)}"
    if not root.exists():
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=shelf) as name:
            building = Path(name) / "data"
            await build_library(building, sizes)
            building.rename(root)  # whole or not at all: an interrupted run leaves no half library
    return root


def forget_stale_libraries(kept: Collection[Path], shelf: Path, now_s: float) -> None:
    """Delete what earlier versions of the code left on the shelf; the large ones are most of a gigabyte. What is of
    today may be in use by another run."""
    for other in shelf.glob(f"{_PREFIX}*"):
        if other not in kept and now_s - other.stat().st_mtime > _STALE_S:
            shutil.rmtree(other, ignore_errors=True)


def _fingerprint(sizes: Sizes) -> str:
    digest = hashlib.sha256(msgspec.json.encode(sizes))
    for name in _DECIDING:
        deciding = _ROOT / name
        for path in sorted(deciding.rglob("*.py")) if deciding.is_dir() else [deciding]:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


async def build_library(root: Path, sizes: Sizes, owner: str = OWNER) -> None:
    async with (
        open_desk(root, library_deadline_ms=_WRITE_DEADLINE_MS) as desk,
        desk.libraries.library(desk.reader(owner)) as library,
    ):
        await fill(library, sizes, Prose(SEED))


async def fill(library: Library, sizes: Sizes, prose: Prose) -> None:
    for count in _batches(sizes.notes):
        await library.notes.create_many([_note(prose, sizes.note_words) for _ in range(count)])
    for count in _batches(sizes.media):
        await library.media.create_many([_media(prose, sizes.media_words) for _ in range(count)])
    for _ in range(sizes.conversations):
        draft = ConversationDraft(title=prose.title(), tags=prose.tags(), created_at=prose.moment())
        await library.chats.create(
            draft, [_message(prose, sizes, draft, place) for place in range(sizes.messages_each)]
        )
    for count in _batches(sizes.characters):
        await library.characters.create_many([_character(prose) for _ in range(count)])
    for count in _batches(sizes.prompts):
        await library.prompts.create_many([_prompt(prose) for _ in range(count)])


def _batches(count: int) -> Iterator[int]:
    for start in range(0, count, _BATCH):
        yield min(_BATCH, count - start)


def _note(prose: Prose, words: int) -> NoteDraft:
    return NoteDraft(title=prose.title(), content=prose.text(words), tags=prose.tags(), created_at=prose.moment())


def _media(prose: Prose, words: int) -> MediaDraft:
    return MediaDraft(
        title=prose.title(),
        content=prose.text(words),
        media_type="article",
        tags=prose.tags(),
        created_at=prose.moment(),
    )


def _message(prose: Prose, sizes: Sizes, chat: ConversationDraft, place: int) -> MessageDraft:
    role, sender = _SPEAKERS[place % len(_SPEAKERS)]
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
        created_at=prose.moment(),
    )


def _prompt(prose: Prose) -> PromptDraft:
    return PromptDraft(
        name=prose.title(),
        author="Ana",
        details=prose.text(_PROMPT_WORDS),
        system_prompt=prose.text(_PROMPT_WORDS),
        user_prompt=prose.text(_PROMPT_WORDS),
        tags=prose.tags(),
        created_at=prose.moment(),
    )
