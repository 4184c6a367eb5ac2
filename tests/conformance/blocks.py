"""Content blocks, and a shorter way to declare a tool, for the conformance fixtures."""

import base64
import io
import struct
import wave
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from server.protocol.call import Call
from server.protocol.catalog import Tool, ToolResult

Block = dict[str, Any]
Handler = Callable[[Call, Any], Awaitable[ToolResult]]


class NoInput(Struct, forbid_unknown_fields=True):
    """No arguments."""


def tool(name: str, handler: Handler, input_type: type[Any] = NoInput, schema: Mapping[str, Any] | None = None) -> Tool:
    title = name.replace("_", " ").capitalize()
    description = f"{title}, for the conformance suite."
    return Tool(name=name, title=title, description=description, input=input_type, handler=handler, schema=schema)


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def image() -> Block:
    return {"type": "image", "data": red_pixel(), "mimeType": "image/png"}


def audio() -> Block:
    return {"type": "audio", "data": silence(), "mimeType": "audio/wav"}


def embedded(uri: str, mime_type: str, words: str) -> Block:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


def red_pixel() -> str:
    """Returns a PNG of one pixel in base64: signature, header, one unfiltered row, end."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    row = zlib.compress(b"\x00\xff\x00\x00")
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", row) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


def silence() -> str:
    """Returns a WAV of eight silent samples in base64."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 8)
    return base64.b64encode(file.getvalue()).decode()
