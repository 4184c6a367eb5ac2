"""What a caller prefers when a call says nothing: the safe keys of a request's `config`. Unknown keys are not ours to
judge; a known one with a wrong value is refused, because guessing would be silently wrong.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from config.errors import InvalidParams


class Preferences(Struct, frozen=True, kw_only=True):
    """Soft defaults: an argument beats them, they beat the server's settings."""

    snippet_length: int | None = None
    max_tokens: int | None = None
    sibling_window: int | None = None
    chars_per_token: float | None = None
    order_by: Literal["relevance", "recent"] | None = None


_NONE = Preferences()


def preferences_of(config: Mapping[str, Any]) -> Preferences:
    if not config:
        return _NONE
    try:
        return msgspec.convert(dict(config), Preferences, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config: {error}") from error
