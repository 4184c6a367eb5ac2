"""Request-level defaults: the keys of a request's `config` that apply when a call does not set an option itself."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from config.errors import InvalidParams


class RequestDefaults(Struct, frozen=True, kw_only=True):
    """An argument of the call overrides them; they override the server's settings."""

    snippet_length: int | None = None
    max_tokens: int | None = None
    sibling_window: int | None = None
    chars_per_token: float | None = None
    order_by: Literal["relevance", "recent"] | None = None


_UNSET_DEFAULTS = RequestDefaults()


def request_defaults(config: Mapping[str, Any]) -> RequestDefaults:
    """Raises InvalidParams if a known key has a wrong value; ignores unknown keys."""
    if not config:
        return _UNSET_DEFAULTS
    try:
        return msgspec.convert(dict(config), RequestDefaults, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config: {error}") from error
