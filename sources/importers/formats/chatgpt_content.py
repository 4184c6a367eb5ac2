"""What a message of ChatGPT says, as plain text: each kind of content by its own fields, media by what they are.

Content of a kind that is not known is kept as JSON, so that nothing is lost.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from sources.importers.engine.threads import line_of


def content_text(content: Mapping[str, Any]) -> str:
    """What a message says, as plain text. Content of a kind that is not known is kept as JSON."""
    reader = _READERS.get(line_of(content.get("content_type")))
    if reader is not None:
        return reader(content)
    if isinstance(content.get("parts"), list):
        return parts_text(content["parts"])
    if isinstance(content.get("text"), str):
        return str(content["text"])
    rest = {name: value for name, value in content.items() if name != "content_type" and value not in (None, "", [])}
    return json_text(rest) if rest else ""


def parts_text(parts: Any) -> str:
    """Of texts and of objects; for media stands what they are."""
    return "\n".join(text for part in parts if (text := _part(part))) if isinstance(parts, list) else ""


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    medium = _MEDIA.get(line_of(part.get("content_type")))
    if medium is None:
        return json_text(part) if part else ""
    prompt = _within(part, "metadata", "dalle", "prompt")
    return f"[{medium}: {prompt}]" if isinstance(prompt, str) and prompt else f"[{medium}]"


def _within(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _fields(*names: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda content: "\n".join(texts([content.get(name) for name in names]))


def _thoughts(content: Mapping[str, Any]) -> str:
    return "\n\n".join(_fields("summary", "content")(one) for one in objects(content.get("thoughts")))


def texts(values: Any) -> Iterator[str]:
    return (value for value in values if isinstance(value, str) and value) if isinstance(values, list) else iter(())


def objects(values: Any) -> Iterator[Mapping[str, Any]]:
    return (value for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_MEDIA = {
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
    "real_time_user_audio_video_asset_pointer": "audio and video",
    "video_container_asset_pointer": "video",
}
_READERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "code": _fields("text"),
    "execution_output": _fields("text"),
    "tether_quote": _fields("title", "url", "text"),
    "tether_browsing_display": _fields("result", "summary"),
    "sonic_webpage": _fields("title", "url", "text"),
    "user_editable_context": _fields("user_profile", "user_instructions"),
    "model_editable_context": _fields("model_set_context"),
    "thoughts": _thoughts,
    "reasoning_recap": _fields("content"),
    "system_error": _fields("name", "text"),
}
