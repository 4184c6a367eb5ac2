"""Caps in the help of arguments, so that a model need not find them by trial.

Fixed caps are part of the declarations; those that are settings are added here.
"""

from collections.abc import Mapping
from typing import Any

from config.settings import Settings


def with_caps(schema: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Adds the caps from the settings to the descriptions of a tool's arguments. Changes the schema in place."""
    _add_caps(
        schema,
        {
            "max_tokens": f"1..{settings.retrieval_max_tokens}",
            "page_size": f"1..{settings.message_page_max}",
            "deadline_ms": f"1..{settings.fanout_deadline_ms}",
        },
    )
    return schema


def _add_caps(schema: Mapping[str, Any], caps: Mapping[str, str]) -> None:
    for name, declared in schema.get("properties", {}).items():
        if name in caps:
            declared["description"] = f"{declared['description'].removesuffix('.')}, {caps[name]}."
        _add_caps(declared, caps)
