"""The content of a ChatGPT message as plain text. Media are replaced by a short description; content of an unknown type
is kept as JSON, so that nothing is lost."""

from collections.abc import Mapping
from typing import Any

from sources.importers.engine.values import clean_line, objects, texts, to_json

_MEDIA_LABELS = {
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
    "real_time_user_audio_video_asset_pointer": "audio and video",
    "video_container_asset_pointer": "video",
}
# The fields with text, by content type.
_TEXT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "code": ("text",),
    "execution_output": ("text",),
    "tether_quote": ("title", "url", "text"),
    "tether_browsing_display": ("result", "summary"),
    "sonic_webpage": ("title", "url", "text"),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
    "reasoning_recap": ("content",),
    "system_error": ("name", "text"),
}


def content_text(content: Mapping[str, Any]) -> str:
    content_type = clean_line(content.get("content_type"))
    if content_type in _TEXT_FIELDS:
        return _join_fields(content, _TEXT_FIELDS[content_type])
    if content_type == "thoughts":
        thoughts = objects(content.get("thoughts"))
        return "\n\n".join(_join_fields(thought, ("summary", "content")) for thought in thoughts)
    if isinstance(content.get("parts"), list):
        return parts_text(content["parts"])
    if isinstance(content.get("text"), str):
        return str(content["text"])
    rest = {name: value for name, value in content.items() if name != "content_type" and value not in (None, "", [])}
    return to_json(rest) if rest else ""


def parts_text(parts: Any) -> str:
    """Joins the parts of a message, which are strings or objects."""
    return "\n".join(text for part in parts if (text := _part_text(part))) if isinstance(parts, list) else ""


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    label = _MEDIA_LABELS.get(clean_line(part.get("content_type")))
    if label is None:
        return to_json(part) if part else ""
    prompt = _nested(part, "metadata", "dalle", "prompt")
    return f"[{label}: {prompt}]" if isinstance(prompt, str) and prompt else f"[{label}]"


def _nested(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _join_fields(content: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return "\n".join(texts([content.get(name) for name in names]))
