"""Renders messages as the content blocks of `msg_list`: a header, the text, and images."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from server.compat.agentchatbus.schemas import BusMessage

ContentBlock = Mapping[str, Any]
_DATA_URL = "data:"
_DEFAULT_IMAGE_TYPE = "image/png"


def text_block(text: str) -> ContentBlock:
    return {"type": "text", "text": text}


def message_blocks(messages: Sequence[BusMessage], *, include_attachments: bool) -> list[ContentBlock]:
    return [block for message in messages for block in _blocks(message, include_attachments)]


def _blocks(message: BusMessage, include_attachments: bool) -> Iterator[ContentBlock]:
    yield text_block(f"[{message.seq}] {message.author_name} ({message.role}) {message.created_at}")
    if message.content:
        yield text_block(message.content)
    if include_attachments:
        yield from filter(None, map(_image_block, _attachments(message)))


def _attachments(message: BusMessage) -> list[Any]:
    """AgentChatBus's clients store images under one of three names, singly or as a list."""
    metadata = msgspec.json.decode(message.metadata, type=dict[str, Any]) if message.metadata else {}
    stored: Any = next((metadata[name] for name in ("attachments", "images", "image") if metadata.get(name)), [])
    return stored if isinstance(stored, list) else [stored]


def _image_block(attachment: Any) -> ContentBlock | None:
    """Returns an image with its data, or the address of an image as text; None for other attachments."""
    if not isinstance(attachment, Mapping):
        return None
    data = _first_text(attachment, "data", "base64", "b64", "data_url")
    media_type = _first_text(attachment, "mimeType", "mime_type")
    if data.startswith(_DATA_URL):
        header, _, data = data.partition(",")
        media_type = media_type or header.removeprefix(_DATA_URL).partition(";")[0]
    is_image = _first_text(attachment, "type", "kind").lower() in ("", "image") if not media_type else True
    if not is_image or not (media_type or _DEFAULT_IMAGE_TYPE).startswith("image/"):
        return None
    if data:
        return {"type": "image", "data": data, "mimeType": media_type or _DEFAULT_IMAGE_TYPE}
    url = _first_text(attachment, "url", "src")
    return text_block(f"[image] {url}") if url else None


def _first_text(attachment: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := attachment.get(name), str) and value), "")
