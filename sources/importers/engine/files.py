"""Reads single files: bytes, text or JSON, modification time, and the key by which a later import recognizes them.

Nothing larger than its limit is read, and pipes and devices are never opened.
"""

# About this package: Read first: `files.py`, what importers yield; `discovery.py`, which importer reads which file;
# `import_runner.py`. Containers: `input_file.py` (the file that an importer reads, and the files inside it),
# `archives.py` (zip, tar), `json_stream.py` (JSON larger than memory), `table_reader.py` (SQLite, CSV), `png_texts.py`.
# Values: `values.py` and `chat_messages.py` turn what other programs wrote into drafts. Process:
# `reader_process.py` is the server's side of `../reader.py`, with the messages in `reader_messages.py`. Every size and
# count is limited by `limits.py`: a file of a few megabytes can hold millions of records.

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import file_digest
from pathlib import Path
from typing import IO, Any

from msgspec import UNSET, UnsetType, structs

from config.errors import InvalidParams, TooLarge
from config.times import format_timestamp
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.encodings import DecodedText, detect_encoding
from sources.importers.engine.events import DoubtfulItem
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.values import parse_json

# The longest UTF-8 form of a character.
_BYTES_PER_CHAR = 4
_TEXT_LIMIT = f"{_BYTES_PER_CHAR} for each of item_max_chars"
_BLOCK_BYTES = 1 << 16
# Texts are decoded deep inside an importer. The variable brings their doubts to the batch that is being read, without
# every importer having to pass them on.
_DOUBTS: ContextVar[list[DoubtfulItem] | None] = ContextVar("doubts", default=None)
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_bytes(path: Path, max_bytes: int, limit_name: str = "") -> bytes:
    with open_file(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        # One byte more than allowed was requested, which shows that the file is larger.
        raise TooLarge(printable_name(path.name), max_bytes, limit_name)
    return data


def skip_line(file: IO[bytes]) -> int:
    """Reads to the end of a line, which may be longer than memory permits, and returns the number of bytes."""
    skipped = 0
    while part := file.readline(_BLOCK_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def read_decoded(path: Path, limits: ImportLimits) -> DecodedText:
    """Reads a file that holds the text of one item."""
    return decode_item(read_bytes(path, text_max_bytes(limits), _TEXT_LIMIT), limits)


def read_text(path: Path, limits: ImportLimits) -> str:
    return item_text(read_bytes(path, text_max_bytes(limits), _TEXT_LIMIT), limits)


def read_json(path: Path, limits: ImportLimits) -> Any:
    return parse_json(read_bytes(path, limits.line_max_bytes), limits)


def text_max_bytes(limits: ImportLimits) -> int:
    return limits.item_max_chars * _BYTES_PER_CHAR


def decode(data: bytes, limits: ImportLimits) -> DecodedText:
    """Decodes UTF-8, UTF-16 with a byte order mark, or else a detected encoding, and normalizes line endings to LF.
    Raises InvalidParams for a text with too many lines: parsing a line takes longer than reading it."""
    require_lines(data.count(b"\n"), limits)
    encoding = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        decoded = DecodedText(data.decode(encoding))
    except UnicodeDecodeError:
        decoded = detect_encoding(data)
    if "\0" in decoded.text:
        raise InvalidParams("expected text, got a NUL character")
    return structs.replace(decoded, text=decoded.text.replace("\r\n", "\n").replace("\r", "\n"))


def decode_item(data: bytes, limits: ImportLimits) -> DecodedText:
    """Decodes the text of one item. Raises InvalidParams if it is too long for an item, before it is parsed."""
    decoded = decode(data, limits)
    if len(decoded.text) > limits.item_max_chars:
        raise InvalidParams(
            f"expected at most {limits.item_max_chars} characters (item_max_chars), got {len(decoded.text)}"
        )
    return decoded


def require_lines(count: int, limits: ImportLimits) -> None:
    if count > limits.lines_max:
        raise InvalidParams(f"expected at most {limits.lines_max} lines, got at least {count}")


@contextmanager
def collected_doubts() -> Iterator[list[DoubtfulItem]]:
    """Collects the doubts about texts that are decoded meanwhile, so that every importer reports them."""
    doubts: list[DoubtfulItem] = []
    token = _DOUBTS.set(doubts)
    try:
        yield doubts
    finally:
        _DOUBTS.reset(token)


def decode_text(data: bytes, limits: ImportLimits, location: str = "") -> str:
    """Decodes a text. If its encoding is uncertain, that is reported for `location`, such as an archive entry."""
    return doubted_text(decode(data, limits), location)


def item_text(data: bytes, limits: ImportLimits, location: str = "") -> str:
    """Decodes the text of one item, as `decode_item` does, and reports it if its encoding is uncertain."""
    return doubted_text(decode_item(data, limits), location)


def doubted_text(decoded: DecodedText, location: str = "") -> str:
    """Returns the text, and reports it if its encoding is uncertain."""
    doubts = _DOUBTS.get()
    if doubts is not None:
        doubts += encoding_doubts(location, decoded.encoding, is_doubtful=decoded.is_doubtful)
    return decoded.text


def encoding_metadata(encoding: str) -> dict[str, str]:
    """Returns the metadata of an item whose encoding was detected."""
    return {"encoding": encoding} if encoding else {}


def encoding_doubts(location: str, encoding: str, *, is_doubtful: bool) -> Iterator[DoubtfulItem]:
    """Yields a report if the encoding of a text is uncertain."""
    if is_doubtful:
        yield DoubtfulItem(location, f"encoding: guessed {encoding}; if the text is wrong, convert the file to UTF-8")


def is_text(head: bytes) -> bool:
    """Returns whether a file starts like text: with a UTF-16 byte order mark, or without a NUL."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" not in head


def printable_name(name: str) -> str:
    """Returns a file name as text. Bytes that are not valid UTF-8 are written as \\xff."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def file_key(path: Path, limits: ImportLimits) -> str:
    """Returns what identifies a file that holds one item: its path, because names such as `readme` are not unique. Only
    a digest of the key ends up in an id, so the path is not disclosed. A file without a stable path is identified by
    its content: importing a changed file then creates a second item, but never overwrites an unrelated one."""
    if limits.has_stable_path:
        return printable_name(path.resolve().as_posix())
    with open_file(path) as file:
        return file_digest(file, "sha256").hexdigest()


def describe_read_error(error: OSError) -> str:
    return f"cannot be read: {error.strerror or 'disk error'}"


def file_size(path: Path) -> int:
    """Returns the size in bytes, or 0 if the file has disappeared."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def modified_at(path: Path, limits: ImportLimits) -> str | UnsetType:
    """Returns the modification time, for items without a date of their own. An upload's time is meaningless."""
    if not limits.has_stable_path:
        return UNSET
    return format_timestamp(path.stat().st_mtime)
