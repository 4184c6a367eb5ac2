"""Groups what an importer yields into batches, each small enough for one transaction."""

from collections.abc import Generator, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from config.errors import FlorilegiumError, InvalidParams
from config.settings import Settings
from sources.drafts import ItemDraft
from sources.importers.engine.events import (
    Checkpoint,
    DoubtfulItem,
    FailedItem,
    ImportedConversation,
    ImportedItem,
    ImportedMedia,
    ImportedNote,
    ImportEvent,
    ImportReport,
    ItemKind,
    ReadPosition,
    SkippedItem,
    kind_of,
)
from sources.importers.engine.files import collected_doubts, describe_read_error
from sources.importers.engine.limits import ImportLimits


# One transaction takes about a tenth of a second, and searches of the same library wait for it.
class BatchLimits(Struct, frozen=True):
    """The maximum number of rows and characters written in one transaction."""

    rows: int
    chars: int


def batch_limits(settings: Settings) -> BatchLimits:
    # A conversation that starts in a nearly full batch can double its size.
    rows = max(1, min(settings.fixed.import_batch_items, settings.batch_max_items // 2))
    return BatchLimits(rows=rows, chars=settings.fixed.import_batch_chars)


class Batch(Struct):
    """Items to write in one transaction, and reports that came between them. `position` is the last checkpoint.
    `failure` says why the rest of the file could not be read."""

    items: dict[ItemKind, list[ImportedItem]] = {}
    reports: list[ImportReport] = []
    position: ReadPosition | None = None
    is_last: bool = False
    failure: str = ""


class BatchReader:
    """Reads one file batch by batch. Calls may come from different threads, one after the other."""

    def __init__(self, events: Iterator[ImportEvent], limits: BatchLimits) -> None:
        self._limits = limits
        # Importers yield conversations of any length, and a transaction has a limit.
        self._events = _split_long_conversations(events, limits)

    def next_batch(self) -> Batch:
        batch, rows, chars = Batch(is_last=True), 0, 0
        with collected_doubts() as doubts:
            try:
                for event in self._events:
                    if isinstance(event, ImportReport):
                        batch.reports.append(event)
                        rows += 1
                    elif isinstance(event, Checkpoint):
                        batch.position = event.position
                    else:
                        batch.items.setdefault(kind_of(event), []).append(event)
                        rows += row_count(event)
                        chars += _char_count(event)
                    if rows >= self._limits.rows or chars >= self._limits.chars:
                        batch.is_last = False
                        break
            # The items that were read before a failure are still written.
            except FlorilegiumError as error:
                batch.failure = error.message
            except OSError as error:
                batch.failure = describe_read_error(error)
        batch.reports += doubts
        return batch

    def stop(self) -> None:
        """A thread cannot be stopped: a batch in progress is read to its end."""

    def close(self) -> None:
        """Closes the importer's generator, and with it the file."""
        self._events.close()


def row_count(item: ImportedItem) -> int:
    return 1 + len(item.messages) if isinstance(item, ImportedConversation) else 1


def _split_long_conversations(events: Iterator[ImportEvent], limits: BatchLimits) -> Generator[ImportEvent, None, None]:
    """Splits conversations that are too long for one transaction into parts."""
    try:
        for event in events:
            if not isinstance(event, ImportedConversation) or not event.messages:
                yield event
                continue
            # Each part repeats the conversation, so that it can be written without the parts before it.
            messages, continues, first, chars = event.messages, event.continues, 0, 0
            for index, message in enumerate(messages):
                chars += _length(message.content)
                if index > first and (index - first >= limits.rows or chars > limits.chars):
                    yield ImportedConversation(event.draft, messages[first:index], continues)
                    continues, first, chars = True, index, _length(message.content)
            yield ImportedConversation(event.draft, messages[first:], continues)
    finally:
        if isinstance(events, Generator):
            events.close()


def _char_count(item: ImportedItem) -> int:
    """Counts the texts of an item, which are most of what is written."""
    if isinstance(item, ImportedConversation):
        return sum(_length(message.content) for message in item.messages)
    draft: Any = item.draft
    fields = draft.values.values() if isinstance(draft, ItemDraft) else msgspec.structs.astuple(draft)
    count = sum([len(value) for value in fields if isinstance(value, str)])
    if isinstance(item, ImportedNote):
        count += sum(len(image.data) for image in item.images or ())
    elif isinstance(item, ImportedMedia) and item.draft.segments is not UNSET:
        count += sum(len(segment.text) for segment in item.draft.segments)
    return count


def _length(text: Any) -> int:
    return len(text) if isinstance(text, str) else 0


# -- event limits ------------------------------------------------------------------------------------------------------
# Gives up a file that holds little but junk, or a conversation without an end.
#
# A file of a few megabytes can hold millions of records that are not items. Reading them all takes minutes and imports
# nothing, so the limits count what an importer yields.


def require_messages(count: int, limits: ImportLimits) -> None:
    """Raises InvalidParams if a conversation has too many messages. An importer that reads a conversation as a whole
    calls this before it parses the messages."""
    if count > limits.messages_max:
        raise InvalidParams(f"expected at most {limits.messages_max} messages in a conversation, got at least {count}")


def limit_events(events: Iterator[ImportEvent], limits: ImportLimits) -> Generator[ImportEvent, None, None]:
    """Passes events on. Raises InvalidParams after too many failed or skipped items, unless more were imported, and at
    a conversation with too many messages."""
    imported = failed = skipped = messages = 0
    try:
        for event in events:
            match event:
                case FailedItem():
                    failed += 1
                    _require_fewer(failed, limits.failed_max, imported, "failed")
                case SkippedItem():
                    skipped += 1
                    _require_fewer(skipped, limits.skipped_max, imported, "were skipped")
                case ImportedConversation(_, part, continues):
                    imported += 1 + len(part)
                    # Counted across the parts of a conversation, which may come in several events.
                    messages = len(part) + (messages if continues else 0)
                    require_messages(messages, limits)
                case DoubtfulItem() | Checkpoint():
                    pass
                case _:
                    imported += 1
            yield event
    finally:
        if isinstance(events, Generator):
            events.close()


def _require_fewer(count: int, count_max: int, imported: int, outcome: str) -> None:
    # A large export may have many skipped messages next to those that are imported.
    if count > max(count_max, imported):
        raise InvalidParams(f"{count} items {outcome} and {imported} were read; the rest of the file was not read")
