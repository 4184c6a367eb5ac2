"""Email: the threads of an mbox file become conversations, a single message (`.eml`) becomes a media item.

Attachments that are documents become media items, too.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import IO

from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft
from sources.importers.engine.chat_messages import conversation_parts
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import (
    FailedItem,
    ImportedMedia,
    SkippedItem,
    file_size,
    modified_at,
    read_bytes,
    stable_uuid,
)
from sources.importers.engine.importer import ImportEvent, ImportLimits, ParsingImporter, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_tags, short_title
from sources.importers.formats.embedded_documents import EmbeddedDocument, is_document, read_embedded
from sources.importers.formats.mail.messages import (
    MailMessage,
    MboxEntry,
    group_threads,
    index_mbox,
    parse_message,
    read_entry,
)

_MBOX_START = re.compile(rb"From [^\r\n]{1,300}\d{4}[^\r\n]{0,20}\r?\n[A-Za-z0-9-]{2,60}:")
_HEADER_NAME = re.compile(rb"^([A-Za-z-]{2,40}):", re.MULTILINE)
_ADDRESSES = frozenset([b"from", b"sender", b"return-path", b"to"])
_TRANSPORT = frozenset([b"date", b"message-id", b"mime-version", b"received", b"subject"])
_REPLY = re.compile(r"(?:(?:re|aw|sv|fwd?|wg|tr)(?:\[\d{1,3}\])?:[ \t]*+)+", re.IGNORECASE)


class MailImporter(ParsingImporter):
    name = "mail"
    title = "Email (mbox, eml)"
    suffixes = (".mbox", ".mbx", ".eml", "mbox")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if _MBOX_START.match(probe.head):
            return 0.95
        headers = probe.head.lstrip(b"\r\n").replace(b"\r\n", b"\n").partition(b"\n\n")[0]
        if not _HEADER_NAME.match(headers):
            return 0.0
        names = {name.lower() for name in _HEADER_NAME.findall(headers)}
        # Any text may start with lines such as `From:` and `Date:`, so a file without the suffix needs more of them.
        needed = 1 if probe.path.suffix.lower() == ".eml" else 3
        return 0.9 if names & _ADDRESSES and len(names & _TRANSPORT) >= needed else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_file(path) as file:
            is_mbox = file.read(5) == b"From "
            if is_mbox:
                file.seek(0)
                entries = index_mbox(file, progress)
                # Gmail's Takeout says so in the labels.
                yield from (SkippedItem("message in spam or trash") for entry in entries if entry.is_unwanted)
                threads = group_threads([entry for entry in entries if not entry.is_unwanted])
                for thread, group in threads.items():
                    yield from self._read_thread(file, thread, group, limits)
                    progress((file.tell() + group[-1].end) // 2)
        if not is_mbox:
            message = parse_message(read_bytes(path, limits.line_max_bytes), limits)
            if message.text:
                yield ImportedMedia(_media_draft(message, path, limits))
            elif not message.attachments:
                yield SkippedItem("message without text")
            yield from self._read_attachments(message, {"message": _message_uuid("media", message.key)}, limits)
        progress(file_size(path))

    def _read_thread(
        self, file: IO[bytes], thread: str, entries: list[MboxEntry], limits: ImportLimits
    ) -> Iterator[ImportEvent]:
        """Reads the first message for the title of the conversation. Attachments follow the conversation."""
        uuid = stable_uuid("mail", "chats", thread)
        attachments: list[tuple[MailMessage, str]] = []
        messages = _messages(file, entries, limits)
        first = next(messages, None)
        # The title of the thread is that of the first message that can be read.
        while isinstance(first, FailedItem):
            yield first
            first = next(messages, None)
        if first is None:
            return
        dates = [entry.date for entry in entries if entry.date]
        draft = ConversationDraft(
            uuid=uuid,
            title=short_title(_REPLY.sub("", first.subject, count=1)) or first.subject,
            tags=clean_tags(first.labels),
            metadata={"media_type": "email"},
            created_at=min(dates) if dates else UNSET,
            last_modified=max(dates) if dates else UNSET,
        )
        yield from conversation_parts(draft, _message_drafts(chain((first,), messages), attachments))
        for message, message_uuid in attachments:
            yield from self._read_attachments(message, {"conversation": uuid, "message": message_uuid}, limits)

    def _read_attachments(
        self, message: MailMessage, origin: dict[str, str], limits: ImportLimits
    ) -> Iterator[ImportEvent]:
        for number, attachment in enumerate(message.attachments, 1):
            if not is_document(attachment.name, attachment.data):
                yield SkippedItem("attachment other than a document")
                continue
            # Attachments of one message may have the same name.
            key = f"{message.key}/{number}/{sha256(attachment.data).hexdigest()}"
            created_at = message.date or UNSET
            document = EmbeddedDocument(attachment.name, attachment.data, "mail", key, dict(origin), created_at)
            yield read_embedded(document, self._parse, limits)


IMPORTER = MailImporter()


def _messages(file: IO[bytes], entries: list[MboxEntry], limits: ImportLimits) -> Iterator[MailMessage | FailedItem]:
    """Yields the messages of a thread. A message that is in the file twice is yielded once."""
    seen: set[str] = set()
    for entry in entries:
        if entry.key in seen:
            continue
        seen.add(entry.key)
        try:
            yield parse_message(read_entry(file, entry, limits), limits)
        except (InvalidParams, TooLarge) as error:
            yield FailedItem(f"message at byte {entry.start}", error.message)


def _message_drafts(
    messages: Iterable[MailMessage | FailedItem], attachments: list[tuple[MailMessage, str]]
) -> Iterator[MessageDraft | SkippedItem | FailedItem]:
    """Adds the messages with attachments to `attachments`."""
    for message in messages:
        if isinstance(message, FailedItem):
            yield message
            continue
        uuid = _message_uuid("messages", message.key)
        if message.attachments:
            attachments.append((message, uuid))
        elif not message.text:
            yield SkippedItem("message without text")
            continue
        yield MessageDraft(
            uuid=uuid,
            role="user",
            sender=short_title(message.sender),
            content=message.text or f"[{', '.join(file.name for file in message.attachments)}]",
            attachments=[
                {"name": file.name, "type": file.content_type, "bytes": len(file.data)} for file in message.attachments
            ],
            metadata=compact_metadata(subject=message.subject, to=message.to, cc=message.cc),
            created_at=message.date or UNSET,
        )


def _media_draft(message: MailMessage, path: Path, limits: ImportLimits) -> MediaDraft:
    return MediaDraft(
        title=short_title(message.subject),
        media_type="email",
        author=short_title(message.sender),
        content=message.text,
        tags=clean_tags(message.labels),
        metadata=compact_metadata(
            to=message.to, cc=message.cc, attachments=[attachment.name for attachment in message.attachments]
        ),
        uuid=_message_uuid("media", message.key),
        created_at=message.date or modified_at(path, limits),
    )


def _message_uuid(kind: str, key: str) -> str:
    # A Message-ID is globally unique (RFC 5322, 3.6.4), so a message has one id in all exports.
    return stable_uuid("mail", kind, key)
