"""Email: the threads of an mbox file become conversations, a single message (`.eml`) becomes a media item. Attachments
that are documents become media items, too.

An mbox file is read twice, first the headers and then thread by thread, because the messages of a thread are anywhere
in it.
"""

import re
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.policy import Compat32
from email.utils import getaddresses, parsedate_to_datetime
from hashlib import sha256
from io import SEEK_END
from itertools import chain, islice
from typing import IO, Any

from msgspec import UNSET, Struct

from config.errors import InvalidParams, TooLarge
from config.numbers import replace_unstorable
from config.times import format_time
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft
from sources.importers.engine.chat_messages import conversation_parts
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.events import FailedItem, ImportedMedia, SkippedItem, stable_uuid
from sources.importers.engine.files import decode_text, require_lines, skip_line
from sources.importers.engine.importer import Events, FileProbe, ImportLimits, InputFile, ParsingImporter
from sources.importers.engine.limits import ProgressCallback
from sources.importers.engine.values import clean_line, clean_tags, compact_metadata, short_title
from sources.importers.formats.documents import embedded_kind, read_embedded
from sources.importers.parsers.web_page import html_text, python_encoding

# -- messages ----------------------------------------------------------------------------------------------------------
# Parses one email message: its headers, its text and its attachments.

# Parsing takes about a microsecond for a line, times the number of nested parts around it.
_LINE_STEPS_MAX = 10_000_000
_BOUNDARY = re.compile(rb"boundary[ \t]{0,5}=", re.IGNORECASE)
_RAW_HEADER_MAX_CHARS = 10_000
# The decoder of encoded words takes quadratic time, too.
_HEADER_MAX_CHARS = 2_000
_ID = re.compile(r"<([^<>\s]{1,250})>")
_IDS_MAX = 1_000
_PARTS_MAX = 10_000
_ADDRESSES_MAX = 50


class _ShortHeaders(Compat32):
    """Cuts headers while a message is parsed: splitting the parameters of a header takes quadratic time."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:_RAW_HEADER_MAX_CHARS]


class MailAttachment(Struct, frozen=True):
    name: str
    content_type: str
    data: bytes


class MailMessage(Struct, frozen=True):
    """`key` identifies the message: its Message-ID, or a digest of it if it has none."""

    key: str
    subject: str
    sender: str
    to: str
    cc: str
    date: str | None
    text: str
    attachments: tuple[MailAttachment, ...]
    labels: tuple[str, ...]


_POLICY = _ShortHeaders()


def parse_message(data: bytes, limits: ImportLimits) -> MailMessage:
    lines = data.count(b"\n")
    require_lines(lines, limits)
    # The parser compares each line with the boundaries of all parts around it.
    if lines * len(_BOUNDARY.findall(data)) > _LINE_STEPS_MAX:
        raise InvalidParams("the message has too many parts")
    parts = []
    try:
        message = message_from_bytes(data, policy=_POLICY)
        # The parts that contain no other parts. Those of a forwarded message are included.
        for part in message.walk():
            if not part.is_multipart():
                parts.append(part)
                if len(parts) > _PARTS_MAX:
                    raise InvalidParams(f"the message has more than {_PARTS_MAX} parts")
    except RecursionError as error:
        raise InvalidParams("the message has too many levels of parts") from error
    sender = header_text(message, "From")
    # The names, or the addresses of those without one.
    senders = [name or address for name, address in getaddresses([sender])[:_ADDRESSES_MAX] if name or address]
    attachments = tuple(
        MailAttachment(
            decode_words(part.get_filename() or "") or f"part {number}", part.get_content_type(), _payload(part)
        )
        for number, part in enumerate(parts, 1)
        if not _is_text(part)
    )
    # The plain text. A message has HTML as well, or only HTML, which is then converted.
    texts = [part for part in parts if _is_text(part)]
    plain = [_part_text(part, limits) for part in texts if part.get_content_type() == "text/plain"]
    text = "\n\n".join(stripped for one in plain if (stripped := one.strip()))
    if not text:
        pages = (_part_text(part, limits) for part in texts if part.get_content_type() == "text/html")
        text = "\n\n".join(html_text(page, limits.item_max_chars) for page in pages)
    ids = message_ids(_raw_header(message, "Message-ID"))
    return MailMessage(
        key=ids[0] if ids else sha256(data).hexdigest(),
        subject=header_text(message, "Subject") or "(no subject)",
        sender=", ".join(senders) or sender,
        to=header_text(message, "To"),
        cc=header_text(message, "Cc"),
        date=mail_date(_raw_header(message, "Date")),
        text=replace_unstorable(text).strip(),
        attachments=attachments,
        labels=split_labels(header_text(message, "X-Gmail-Labels")),
    )


def message_ids(header: str) -> list[str]:
    """Returns the ids in a header such as References, in order."""
    return _ID.findall(header[:_RAW_HEADER_MAX_CHARS])[:_IDS_MAX]


def split_labels(labels: str) -> tuple[str, ...]:
    """Splits the labels that Gmail exports."""
    return tuple(label for part in labels.split(",") if (label := part.strip().strip('"')))


def mail_date(text: str) -> str | None:
    try:
        return format_time(parsedate_to_datetime(text[:100]))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def header_text(message: Message, name: str) -> str:
    """Returns a header with its encoded words decoded."""
    return decode_words(_raw_header(message, name))


def decode_words(header: str) -> str:
    unfolded = " ".join(header[:_HEADER_MAX_CHARS].split())
    try:
        parts = decode_header(unfolded)
    except (HeaderParseError, ValueError):
        return clean_line(unfolded)
    words = []
    for part, charset in parts:
        encoding = python_encoding(charset or "utf-8") or "utf-8"
        words.append(part if isinstance(part, str) else part.decode(encoding, "replace"))
    return clean_line("".join(words))


def _raw_header(message: Message, name: str) -> str:
    value = message.get(name, "")
    # Bytes that are not ASCII are represented by surrogates.
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _is_text(part: Message) -> bool:
    is_attached = part.get_content_disposition() == "attachment" or part.get_filename() is not None
    return part.get_content_type() in ("text/plain", "text/html") and not is_attached


def _part_text(part: Message, limits: ImportLimits) -> str:
    data = _payload(part)
    encoding = python_encoding(part.get_content_charset("utf-8"))
    try:
        text = data.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = decode_text(data.replace(b"\0", b""), limits)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _payload(part: Message) -> bytes:
    payload: Any = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


# -- mbox --------------------------------------------------------------------------------------------------------------
# Splits an mbox file into messages and groups these into threads, without holding the messages in memory.

_BLOCK_BYTES = 1 << 20
_FROM = re.compile(rb"\nFrom ")
# The ends of lines before a blank line and its end, without the newline that `_FROM` starts with.
_BLANK_LINES = (b"\n", b"\n\r", b"\n\r\r")
# The longest of these, and all but the last byte of `_FROM`.
_KEPT_BYTES = 8
_HEADER_MAX_BYTES = 1 << 16
_MESSAGES_MAX = 1_000_000
_HEADERS = frozenset([b"message-id", b"references", b"in-reply-to", b"date", b"x-gmail-labels"])
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_UNWANTED_LABELS = frozenset(["Spam", "Trash"])


class MboxEntry(Struct, frozen=True):
    """Where a message is in the file, and what its thread is found by. `thread` is the first message that it refers to,
    or the message itself."""

    start: int
    end: int
    key: str
    thread: str
    date: str
    is_unwanted: bool


def index_mbox(file: IO[bytes], progress: ProgressCallback) -> list[MboxEntry]:
    """Reads the file in large blocks, because it has far more lines than messages."""
    starts = list(islice(_message_starts(file, progress), _MESSAGES_MAX + 1))
    if len(starts) > _MESSAGES_MAX:
        raise InvalidParams(f"mbox has more than {_MESSAGES_MAX} messages")
    ends = [*starts[1:], file.seek(0, SEEK_END)]
    return [_entry_at(file, start, end) for start, end in zip(starts, ends, strict=True)]


def _message_starts(file: IO[bytes], progress: ProgressCallback) -> Iterator[int]:
    """Yields the offset of every line that starts with "From " and is the first one or follows a blank line."""
    # Starts with a blank line before the file, so that its first line is found as any other.
    block, offset = b"\n\n", -2
    while data := file.read(_BLOCK_BYTES):
        block += data
        done = max(0, len(block) - _KEPT_BYTES)
        for match in _FROM.finditer(block):
            if block.endswith(_BLANK_LINES, 0, match.start()):
                yield offset + match.start() + 1
            done = max(done, match.end())
        offset += done
        # Keeps the end of the block, in which a line may start that the next block continues.
        block = block[done:]
        progress((offset + len(block)) // 2)


def _entry_at(file: IO[bytes], start: int, end: int) -> MboxEntry:
    """Returns the message after the line at `start`, which belongs to the file and not to the message."""
    file.seek(start)
    first = start + skip_line(file)
    headers = bytearray()
    while len(headers) <= _HEADER_MAX_BYTES and (line := file.readline(_HEADER_MAX_BYTES)).strip(b"\r\n"):
        headers += line
    # The headers that threads are built from, unfolded (RFC 5322, 2.2.3).
    unfolded = bytes(headers).replace(b"\r\n", b"\n").replace(b"\n ", b" ").replace(b"\n\t", b" ")
    fields: dict[bytes, str] = {}
    for line in unfolded.split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon and name.lower() in _HEADERS:
            fields[name.lower()] = value.strip().decode("utf-8", "replace")
    own = message_ids(fields.get(b"message-id", ""))
    key = own[0] if own else f"{first}"
    references = message_ids(fields.get(b"references", "")) or message_ids(fields.get(b"in-reply-to", ""))
    labels = split_labels(fields.get(b"x-gmail-labels", ""))
    return MboxEntry(
        start=first,
        end=end,
        key=key,
        thread=references[0] if references else key,
        date=mail_date(fields.get(b"date", "")) or "",
        is_unwanted=not _UNWANTED_LABELS.isdisjoint(labels),
    )


def group_threads(entries: list[MboxEntry]) -> dict[str, list[MboxEntry]]:
    """Groups messages by the first message of their thread, in the order in which the threads first occur. Messages of
    a thread are sorted by date."""
    threads_by_key = {entry.key: entry.thread for entry in entries}
    groups: dict[str, list[MboxEntry]] = {}
    roots: dict[str, str] = {}
    for entry in entries:
        # Follows replies to replies, and remembers the result for each of them in `roots`. Messages that refer to each
        # other, which only damaged files contain, end it.
        thread: str = entry.thread
        seen: set[str] = set()
        while thread not in roots and thread not in seen:
            parent = threads_by_key.get(thread, thread)
            if parent == thread:
                break
            seen.add(thread)
            thread = parent
        root = min(seen) if thread in seen else roots.get(thread, thread)
        roots |= dict.fromkeys(seen, root)
        groups.setdefault(root, []).append(entry)
    for group in groups.values():
        group.sort(key=lambda entry: (entry.date, entry.start))
    return groups


def read_entry(file: IO[bytes], entry: MboxEntry, limits: ImportLimits) -> bytes:
    size = entry.end - entry.start
    if size > limits.line_max_bytes:
        raise InvalidParams(f"expected at most {limits.line_max_bytes} bytes, got {size}")
    file.seek(entry.start)
    return _QUOTED_FROM.sub(rb"\1", file.read(size))


# -- importer ----------------------------------------------------------------------------------------------------------

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
        if _MBOX_START.match(probe.head):
            return 0.95
        headers = probe.head.lstrip(b"\r\n").replace(b"\r\n", b"\n").partition(b"\n\n")[0]
        if not _HEADER_NAME.match(headers):
            return 0.0
        names = {name.lower() for name in _HEADER_NAME.findall(headers)}
        # Any text may start with lines such as `From:` and `Date:`, so a file without the suffix needs more of them.
        needed = 1 if probe.suffix == ".eml" else 3
        return 0.9 if names & _ADDRESSES and len(names & _TRANSPORT) >= needed else 0.0

    def read_file(self, file: InputFile) -> Events:
        limits = file.limits
        if file.head(5) == b"From ":
            with open_file(file.path) as mbox:
                entries = index_mbox(mbox, file.progress)
                # Gmail's Takeout says so in the labels.
                yield from (SkippedItem("message in spam or trash") for entry in entries if entry.is_unwanted)
                threads = group_threads([entry for entry in entries if not entry.is_unwanted])
                for thread, group in threads.items():
                    yield from self._read_thread(mbox, thread, group, limits)
                    file.progress((mbox.tell() + group[-1].end) // 2)
        else:
            message = parse_message(file.content(), limits)
            # A Message-ID is globally unique (RFC 5322, 3.6.4), so a message has one id in all exports.
            uuid = stable_uuid("mail", "media", message.key)
            if message.text:
                draft = MediaDraft(
                    title=short_title(message.subject),
                    media_type="email",
                    author=short_title(message.sender),
                    content=message.text,
                    tags=clean_tags(message.labels),
                    metadata=compact_metadata(
                        to=message.to, cc=message.cc, attachments=[attached.name for attached in message.attachments]
                    ),
                    uuid=uuid,
                    created_at=message.date or file.modified_at,
                )
                yield ImportedMedia(draft)
            elif not message.attachments:
                yield SkippedItem("message without text")
            yield from self._read_attachments(message, {"message": uuid}, limits)

    def _read_thread(self, file: IO[bytes], thread: str, entries: list[MboxEntry], limits: ImportLimits) -> Events:
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

    def _read_attachments(self, message: MailMessage, origin: dict[str, str], limits: ImportLimits) -> Events:
        for number, attachment in enumerate(message.attachments, 1):
            kind = embedded_kind(attachment.name, attachment.data)
            if kind is None:
                yield SkippedItem("attachment other than a document")
                continue
            # Attachments of one message may have the same name.
            key = f"{message.key}/{number}/{sha256(attachment.data).hexdigest()}"
            uuid, date = stable_uuid("mail", "media", key), message.date or UNSET
            yield read_embedded(attachment.name, attachment.data, kind, self._parse, limits, uuid, date, **origin)


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
        uuid = stable_uuid("mail", "messages", message.key)
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
