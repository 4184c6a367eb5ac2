"""Reading large exports: one file for each format that is read as a stream, through its importer and without a library.

The memory must not depend on the size of the file.
"""

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count, cycle, islice
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from bench.library import SEED
from bench.prose import Prose
from config.settings import Settings
from sources.importers.engine.events import ImportedConversation, ImportedNote
from sources.importers.engine.limits import import_limits
from sources.importers.registry import all_importers, importer_by_name

_MEGABYTE = 1_000_000
_WORDS = 40
# Different texts; more would take longer to generate than the files to read.
_TEXTS = 500
_MESSAGES = 20
_TIME = 1_700_000_000


class ReadResult(Struct, frozen=True):
    """The cost of reading one file. `items` are messages, or notes if the format has no messages."""

    format: str
    file_bytes: int
    items: int
    cpu_s: float
    peak_bytes: int

    @property
    def megabytes_per_s(self) -> float:
        return self.file_bytes / _MEGABYTE / self.cpu_s

    def as_line(self) -> str:
        return (
            f"{self.format:14} {self.file_bytes / _MEGABYTE:>6.0f} MB {self.items:>9,} items "
            f"{self.megabytes_per_s:>6.1f} MB/s {self.peak_bytes / _MEGABYTE:>5.0f} MB peak"
        )


def read_large_file(format_name: str, path: Path) -> ReadResult:
    importer = importer_by_name(format_name, all_importers())
    started, items = time.process_time(), 0
    for event in importer.read(path, import_limits(Settings()), lambda _: None, None):
        if isinstance(event, ImportedConversation):
            items += len(event.messages)
        elif isinstance(event, ImportedNote):
            items += 1
    cpu = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return ReadResult(format_name, path.stat().st_size, items, cpu, peak)


def write_large_file(format_name: str, path: Path, size_bytes: int) -> None:
    before, item, after = LARGE_FORMATS[format_name]
    prose = Prose(SEED)
    texts = cycle([prose.text(_WORDS) for _ in range(_TEXTS)])
    with path.open("wb") as file:
        file.write(before)
        for number in count():
            value = item(texts, number)
            _write_item(file, value, is_first=number == 0, is_lines=not before or isinstance(value, bytes))
            if file.tell() >= size_bytes:
                break
        file.write(after)


def _write_item(file: IO[bytes], value: Any, *, is_first: bool, is_lines: bool) -> None:
    if not is_first:
        file.write(b"\n" if is_lines else b",\n")
    file.write(value if isinstance(value, bytes) else msgspec.json.encode(value))


def _chatgpt(texts: Iterator[str], number: int) -> Any:
    roles = ("user", "assistant")
    mapping: dict[str, Any] = {"root": {"parent": None, "children": ["0"], "message": None}}
    for index, text in enumerate(islice(texts, _MESSAGES)):
        message = {
            "author": {"role": roles[index % 2], "name": None, "metadata": {}},
            "content": {"content_type": "text", "parts": [text]},
            "create_time": _TIME + index,
            "weight": 1.0,
        }
        mapping[str(index)] = {"parent": str(index - 1) if index else "root", "message": message}
    return {"conversation_id": f"c{number}", "title": f"Chat {number}", "create_time": _TIME, "mapping": mapping}


def _claude_ai(texts: Iterator[str], number: int) -> Any:
    senders = ("human", "assistant")
    messages = [
        {
            "uuid": f"{number}-{index}",
            "sender": senders[index % 2],
            "text": text,
            "content": [{"type": "text", "text": text}],
            "created_at": "2025-01-01T00:00:00Z",
        }
        for index, text in enumerate(islice(texts, _MESSAGES))
    ]
    return {"uuid": f"c{number}", "name": f"Chat {number}", "chat_messages": messages}


def _codex(texts: Iterator[str], number: int) -> Any:
    when = "2026-01-01T00:00:00.000Z"
    if number == 0:
        session = {"id": "cccccccc-0000-7000-8000-000000000001", "timestamp": when, "cwd": "/home/user/kettle"}
        return {"timestamp": when, "type": "session_meta", "payload": session}
    role, part = (("user", "input_text"), ("assistant", "output_text"))[number % 2 == 0]
    message = {"type": "message", "role": role, "content": [{"type": part, "text": next(texts)}]}
    return {"timestamp": when, "type": "response_item", "payload": message}


def _evernote(texts: Iterator[str], number: int) -> bytes:
    return (
        f"<note><title>Tides {number}</title><created>20240105T103000Z</created>"
        f"<content><![CDATA[<en-note><div>{next(texts)}</div></en-note>]]></content></note>"
    ).encode()


def _grok(texts: Iterator[str], number: int) -> Any:
    senders = ("human", "ASSISTANT")
    responses = [
        {"response": {"_id": f"{number}-{index}", "sender": senders[index % 2], "message": text, "create_time": _TIME}}
        for index, text in enumerate(islice(texts, _MESSAGES))
    ]
    return {"conversation": {"id": f"c{number}", "title": f"Chat {number}"}, "responses": responses}


def _deepseek(texts: Iterator[str], number: int) -> Any:
    kinds = ("REQUEST", "RESPONSE")
    mapping: dict[str, Any] = {"root": {"parent": None, "message": None}}
    for index, text in enumerate(islice(texts, _MESSAGES)):
        fragments = [{"type": kinds[index % 2], "content": text}]
        mapping[str(index + 1)] = {"parent": str(index or "root"), "message": {"fragments": fragments}}
    return {"id": f"c{number}", "title": f"Chat {number}", "inserted_at": "2025-01-01T00:00:00Z", "mapping": mapping}


def _gemini(texts: Iterator[str], number: int) -> Any:
    time_text = f"2024-01-01T00:00:00.{number % 1000:03}Z"
    answer = [{"html": f"<p>{next(texts)}</p>"}]
    return {"header": "Gemini Apps", "title": f"Prompted {number}", "time": time_text, "safeHtmlItem": answer}


def _telegram(texts: Iterator[str], number: int) -> Any:
    when = str(_TIME + number)
    return {"id": number, "type": "message", "date_unixtime": when, "from": "Mara", "text": next(texts)}


def _discord(texts: Iterator[str], number: int) -> Any:
    author = {"id": "1", "name": "mara"}
    when = "2024-01-01T00:00:00+00:00"
    return {"id": str(number), "type": "Default", "timestamp": when, "content": next(texts), "author": author}


def _message_lists(texts: Iterator[str], number: int) -> Any:
    roles = ("user", "assistant")
    return {
        "messages": [{"role": roles[index % 2], "content": text} for index, text in enumerate(islice(texts, _MESSAGES))]
    }


def _claude_code(texts: Iterator[str], number: int) -> Any:
    return {
        "type": "user" if number % 2 == 0 else "assistant",
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number else None,
        "sessionId": "0b0e7a52-5a2e-4b3c-9d0a-1f2e3d4c5b6a",
        "cwd": "/home/user/kettle",
        "version": "2.0",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "message": {"role": "user" if number % 2 == 0 else "assistant", "content": next(texts)},
    }


def _mail(texts: Iterator[str], number: int) -> bytes:
    return (
        f"From mara@example.com Mon Jan  1 00:00:00 2024\n"
        f"From: Mara <mara@example.com>\nTo: Ben <ben@example.com>\nSubject: Tides {number // _MESSAGES}\n"
        f"Date: Mon, 01 Jan 2024 00:00:00 +0000\nMessage-ID: <{number}@example.com>\n"
        + (f"In-Reply-To: <{number - 1}@example.com>\n" if number % _MESSAGES else "")
        + f"\n{next(texts)}\n"
    ).encode()


# The bytes before the items, an item, and the bytes after them. Without the former, each item is on lines of its own.
LARGE_FORMATS: Mapping[str, tuple[bytes, Callable[[Iterator[str], int], Any], bytes]] = {
    "chatgpt": (b"[", _chatgpt, b"]"),
    "claude_ai": (b"[", _claude_ai, b"]"),
    "grok": (b'{"conversations":[', _grok, b"]}"),
    "deepseek": (b"[", _deepseek, b"]"),
    "gemini": (b"[", _gemini, b"]"),
    "telegram": (b'{"name":"Mara","type":"personal_chat","id":1,"messages":[', _telegram, b"]}"),
    "discord": (b'{"guild":{"id":"1"},"channel":{"id":"2","name":"tides"},"messages":[', _discord, b"]}"),
    "message_lists": (b"", _message_lists, b""),
    "claude_code": (b"", _claude_code, b""),
    "codex": (b"", _codex, b""),
    "evernote": (b'<?xml version="1.0" encoding="UTF-8"?><en-export>', _evernote, b"</en-export>"),
    "mail": (b"", _mail, b"\n"),
}
