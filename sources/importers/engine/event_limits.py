"""Gives up a file that holds little but junk, or a conversation without an end.

A file of a few megabytes can hold millions of records that are not items. Reading them all takes minutes and imports
nothing, so the limits count what an importer yields.
"""

from collections.abc import Generator, Iterator

from config.errors import InvalidParams
from sources.importers.engine.imported_items import (
    Checkpoint,
    DoubtfulItem,
    FailedItem,
    ImportedConversation,
    ImportEvent,
    SkippedItem,
)
from sources.importers.engine.limits import ImportLimits


def require_messages(count: int, limits: ImportLimits) -> None:
    """Raises InvalidParams if a conversation has too many messages. An importer that reads a conversation as a whole
    calls this before it parses the messages."""
    if count > limits.messages_max:
        raise InvalidParams(
            f"expected at most {limits.messages_max} messages in a conversation (import_messages_max), got at least "
            f"{count}"
        )


def limit_events(events: Iterator[ImportEvent], limits: ImportLimits) -> Generator[ImportEvent, None, None]:
    """Passes events on. Raises InvalidParams after too many failed or skipped items, unless more were imported, and at
    a conversation with too many messages."""
    counts = _EventCounts(limits)
    try:
        for event in events:
            counts.add(event)
            yield event
    finally:
        if isinstance(events, Generator):
            events.close()


class _EventCounts:
    def __init__(self, limits: ImportLimits) -> None:
        self._limits = limits
        self._imported = 0
        self._failed = 0
        self._skipped = 0
        self._messages = 0

    def add(self, event: ImportEvent) -> None:
        match event:
            case FailedItem():
                self._failed += 1
                self._require(self._failed, self._limits.failed_max, "failed", "import_failed_max")
            case SkippedItem():
                self._skipped += 1
                self._require(self._skipped, self._limits.skipped_max, "were skipped", "import_skipped_max")
            case ImportedConversation(_, messages, continues):
                self._imported += 1 + len(messages)
                self._messages = len(messages) + (self._messages if continues else 0)
                require_messages(self._messages, self._limits)
            case DoubtfulItem() | Checkpoint():
                pass
            case _:
                self._imported += 1

    def _require(self, count: int, count_max: int, outcome: str, setting: str) -> None:
        if count > max(count_max, self._imported):
            raise InvalidParams(
                f"{count} items {outcome} and {self._imported} were read; the rest of the file was not read ({setting})"
            )
