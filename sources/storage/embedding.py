"""Embeds the passages of a library in the background, in batches, with a fair share for each user."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self

from loguru import logger
from msgspec import Struct, structs

from config.errors import FlorilegiumError, QuotaExceeded, SourceTimeout, Unavailable
from config.paths import UserId
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.service import SemanticService
from sources.storage.contract import EmbeddingState
from sources.storage.job_queue import background_jobs
from sources.text.chunking import split_into_chunks

# -- passages ----------------------------------------------------------------------------------------------------------
# Splits the text of an item into the passages that are embedded. Pure functions.
#
# A passage is what a small model reads at once. Each starts with the title of its item, because a part of a long text
# often does not say what it is about.

# About 220 tokens of English. The models read 256, and longer passages mean less precise vectors.
PASSAGE_CHARS = 900
# A text that is only a little longer stays whole.
_WHOLE_MAX_CHARS = 1_200
# Further text of a single item is not embedded: about 900,000 characters.
PASSAGES_MAX = 1_000
_CONTEXT_CHARS = 200
_TITLE_CHARS = 200


class Passage(Struct, frozen=True):
    """The text to embed, and where its own part of the item's text starts and ends."""

    text: str
    start: int
    end: int


def split_text(title: str, text: str) -> list[Passage]:
    """Returns the passages of a text with a title; none if both are blank."""
    head = title.strip()[:_TITLE_CHARS]
    return [Passage(_join(head, text[start:end]), start, end) for start, end in _spans(text) if head or text.strip()]


def split_fields(title: str, fields: Sequence[str]) -> list[Passage]:
    """Returns the passages of several fields, whose offsets count in the fields joined by `join_fields`."""
    return split_text(title, join_fields(fields))


def join_fields(fields: Sequence[str]) -> str:
    """Empty fields are left out."""
    return "\n".join(field for field in fields if field)


def field_at(fields: Sequence[str], offset: int) -> tuple[int, int]:
    """Returns which of the joined fields an offset is in, and the offset there."""
    for index, field in enumerate(fields):
        if field and offset <= len(field):
            return index, max(0, offset)
        offset -= len(field) + 1 if field else 0
    return 0, 0


def split_message(sender: str, content: str, previous: str | None) -> list[Passage]:
    """Returns the passages of a message. The first one starts with the beginning of the message before it, for models
    that need this context to understand short replies."""
    if not content.strip():
        return []
    head = f"{sender}: " if sender else ""
    context = f"{previous[:_CONTEXT_CHARS].strip()} / " if previous and previous.strip() else ""
    return [
        Passage(f"{context if not index else ''}{head}{content[start:end]}", start, end)
        for index, (start, end) in enumerate(_spans(content))
    ]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    if len(text) <= _WHOLE_MAX_CHARS:
        yield 0, len(text)
        return
    # The limit comes first, so that splitting takes bounded time.
    for chunk in split_into_chunks(text[: PASSAGE_CHARS * PASSAGES_MAX], PASSAGE_CHARS, 0):
        yield chunk.start, chunk.end


def _join(title: str, text: str) -> str:
    return f"{title}\n{text}".strip() if title else text


# The size of one batch: what the slowest model embeds in about a second.
BATCH_ROWS = 200
BATCH_CHARS = 30_000


class PassageBatch(Struct, frozen=True, kw_only=True):
    """Rows that need vectors, and their passages. How a row is identified depends on the engine."""

    rows: tuple[Any, ...]
    passages: Mapping[Any, Sequence[Passage]]

    @property
    def texts(self) -> list[str]:
        return [passage.text for passages in self.passages.values() for passage in passages]

    def first_rows(self, passages: int) -> Self:
        """Returns the rows up to the one with which the batch has this many passages."""
        count = 0
        for number, row in enumerate(self.rows[:-1], 1):
            count += len(self.passages.get(row, ()))
            if count >= passages:
                return self.only(self.rows[:number])
        return self

    def only(self, rows: tuple[Any, ...]) -> Self:
        """Returns the batch without its other rows. `rows` are the first ones."""
        passages = {row: self.passages[row] for row in rows if row in self.passages}
        return structs.replace(self, rows=rows, passages=passages)


class VectorCoverage(Struct, frozen=True):
    """How many of the rows have vectors."""

    rows: int
    missing: int

    @property
    def share(self) -> float:
        return 1 - min(self.missing, self.rows) / self.rows if self.rows else 1.0

    def __add__(self, other: "VectorCoverage") -> "VectorCoverage":
        return VectorCoverage(self.rows + other.rows, self.missing + other.missing)


# -- embedding ---------------------------------------------------------------------------------------------------------
# Embeds the text of a library, one batch at a time. All state is stored with the vectors, so that nothing but the
# current batch is lost if the process ends.

NOTHING = VectorCoverage(0, 0)


class EmbeddedBatch(Struct, frozen=True):
    """What was done in one turn. `coverage` is that before the turn, `stop` says which quota is reached."""

    passages: int
    coverage: VectorCoverage
    is_done: bool
    stop: str | None = None

    def __add__(self, other: "EmbeddedBatch") -> "EmbeddedBatch":
        return EmbeddedBatch(
            self.passages + other.passages,
            self.coverage + other.coverage,
            self.is_done and other.is_done,
            self.stop or other.stop,
        )


class PendingWork(Struct, frozen=True):
    """What the next turn has to do, in this order: create the tables, embed a batch, drop old vectors or improve how
    vectors are stored."""

    coverage: VectorCoverage
    is_created: bool = True
    batch: PassageBatch | None = None
    needs_cleaning: bool = False


class TextSample(Struct, frozen=True):
    """`model` is the one whose vectors the texts have, if any."""

    model: str | None
    texts: Sequence[str]


class VectorStore(Protocol):
    """Where the vectors of a library, or of a part of it, are stored."""

    async def sample(self) -> TextSample:
        """Returns some texts, by whose languages a model is chosen."""
        ...

    async def find_work(self, model: ModelInfo) -> PendingWork:
        """A batch is claimed: no other process can get it until it is saved or released."""
        ...

    async def release(self) -> None:
        """Gives back the batch that `find_work` returned."""
        ...

    async def create(self, model: ModelInfo) -> None:
        """Creates the tables. If they have vectors of another model, new ones are made for all rows."""
        ...

    async def require_room(self) -> int | None:
        """Returns how many passages the quota allows, or None for any number. Raises QuotaExceeded."""
        ...

    async def save(self, model: ModelInfo, batch: PassageBatch, vectors: list[bytes]) -> int:
        """Stores the vectors of the rows that did not change since the batch was read. Returns their number."""
        ...

    async def clean(self) -> bool:
        """Drops vectors of other models, or does other work that waits until all rows have vectors. Returns whether
        there may be more to do."""
        ...


async def embed_batch(store: VectorStore, semantic: SemanticService) -> EmbeddedBatch:
    """Makes the vectors of the next rows, as far as the quotas of the user allow. No transaction is open while the
    model works. Raises SemanticUnavailable, StorageError or Unavailable."""
    model = semantic.model
    if model is None:
        return EmbeddedBatch(0, NOTHING, is_done=True)
    with background_jobs(is_maintenance=True):
        if len(semantic.choices) > 1:
            sample = await store.sample()
            model = semantic.choose(sample.model, sample.texts)
        work = await store.find_work(model)
        if not work.is_created:
            await store.create(model)
            return EmbeddedBatch(0, work.coverage, is_done=False)
        if work.batch is None:
            is_done = not (work.needs_cleaning and await store.clean())
            return EmbeddedBatch(0, work.coverage, is_done=is_done)
        try:
            room = await store.require_room()
        except QuotaExceeded as error:
            await store.release()
            # The vectors of an older model take the space of those that are to replace them.
            is_done = not await store.clean()
            return EmbeddedBatch(0, work.coverage, is_done=is_done, stop=error.message)
        batch = work.batch if room is None else work.batch.first_rows(room)
        try:
            vectors = await semantic.embed_passages(batch.texts, model)
        except (SemanticUnavailable, asyncio.CancelledError):
            await store.release()
            raise
        saved = await store.save(model, batch, vectors)
    return EmbeddedBatch(saved, work.coverage, is_done=False)


# -- embedding scheduler -----------------------------------------------------------------------------------------------
# Embeds the libraries of all users in the background, one batch of each in turn.
#
# A user's turn comes after the library was opened, after writes and imports, and from time to time while it is in use,
# because another process may have written to it. Users without new text cost one short read.

# Writes often come in series. Waiting a moment embeds them together.
_PAUSE_S = 0.2
# How often a library that is in use is checked for text that another process wrote.
_CHECK_S = 60.0
# Users whose last check is remembered. Beyond that all are forgotten, which costs one check each.
_CHECKED_MAX = 10_000
# After a failure, pauses double from the first to the longest.
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0


class EmbeddingScheduler:
    """`take_turn` embeds the next batch of a user's text."""

    def __init__(self, semantic: SemanticService, take_turn: Callable[[UserId], Awaitable[EmbeddedBatch]]) -> None:
        self._semantic = semantic
        self._take_turn = take_turn
        # In the order of their turns, with what was missing at the last one.
        self._waiting: OrderedDict[UserId, VectorCoverage | None] = OrderedDict()
        # Users who wrote since their turn started.
        self._has_new_text: set[UserId] = set()
        self._checked_at: dict[UserId, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_idle = asyncio.Event()
        self._is_closed = False
        self._passages = 0
        self._problem: str | None = None

    def wake(self, user_id: UserId, *, has_new_text: bool) -> None:
        """Gives the user a turn. Without new text, only if the last check was a while ago."""
        if self._semantic.model is None or self._is_closed:
            return
        self._semantic.warm_up()
        if user_id in self._waiting:
            if has_new_text:
                self._has_new_text.add(user_id)
            return
        now = time.monotonic()
        if len(self._checked_at) > _CHECKED_MAX:
            self._checked_at.clear()
        if not has_new_text and now - self._checked_at.get(user_id, float("-inf")) < _CHECK_S:
            return
        self._checked_at[user_id] = now
        self._waiting[user_id] = None
        self._is_idle.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def waiting_users(self) -> list[UserId]:
        return list(self._waiting)

    async def wait_until_idle(self) -> None:
        """Waits until no user has text to embed."""
        while self._waiting:
            await self._is_idle.wait()

    def state(self) -> EmbeddingState:
        coverage = NOTHING
        for known in self._waiting.values():
            coverage += known or NOTHING
        return EmbeddingState(
            is_enabled=self._semantic.model is not None,
            users_waiting=len(self._waiting),
            rows_missing=coverage.missing,
            coverage=coverage.share,
            passages_total=self._passages,
            problem=self._problem,
        )

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        retry_s = _RETRY_FIRST_S
        # Turns in a row that were refused. If all users are, a pause follows.
        refused = 0
        await asyncio.sleep(_PAUSE_S)
        while self._waiting:
            user_id = next(iter(self._waiting))
            self._has_new_text.discard(user_id)
            try:
                turn = await self._take_turn(user_id)
            except SemanticUnavailable as error:
                self._report(error.reason)
                self._waiting.move_to_end(user_id)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _RETRY_MAX_S)
                continue
            except (Unavailable, SourceTimeout):
                # All libraries are in use, another process is writing to this one, or the machine is busy.
                self._waiting.move_to_end(user_id)
                refused += 1
                if refused >= len(self._waiting):
                    refused = 0
                    await asyncio.sleep(_RETRY_FIRST_S)
                continue
            except FlorilegiumError as error:
                # A file that cannot be written to now is tried again when the library is next used.
                self._report(error.message)
                self._forget(user_id)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._problem, retry_s, refused = None, _RETRY_FIRST_S, 0
            self._passages += turn.passages
            if turn.is_done and user_id not in self._has_new_text:
                self._forget(user_id)
            else:
                self._waiting[user_id] = turn.coverage
                self._waiting.move_to_end(user_id)
        self._is_idle.set()

    def _forget(self, user_id: UserId) -> None:
        self._waiting.pop(user_id, None)
        self._has_new_text.discard(user_id)
        if not self._waiting:
            self._is_idle.set()

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("Text cannot be embedded: {}", problem)
        self._problem = problem
