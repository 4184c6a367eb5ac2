"""Request-level defaults: the keys of a request's `config` that apply when a call does not set an option itself."""

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any, Literal

import msgspec
from msgspec import Struct

from auth.context import RequestContext
from config.errors import InvalidParams
from config.settings import Settings
from config.time_zones import load_time_zone


class RequestDefaults(Struct, frozen=True, kw_only=True):
    """An argument of the call overrides them; they override the server's settings."""

    snippet_length: int | None = None
    max_tokens: int | None = None
    sibling_window: int | None = None
    chars_per_token: float | None = None
    order_by: Literal["relevance", "recent"] | None = None
    time_zone: str | None = None
    strict: bool | None = None


_UNSET_DEFAULTS = RequestDefaults()


def request_defaults(config: Mapping[str, Any]) -> RequestDefaults:
    """Raises InvalidParams if a known key has a wrong value; ignores unknown keys."""
    if not config:
        return _UNSET_DEFAULTS
    try:
        return msgspec.convert(dict(config), RequestDefaults, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config: {error}") from error


def local_time(context: RequestContext, settings: Settings) -> datetime:
    """Returns when a request was received, in the time zone of its user."""
    name = request_defaults(context.config).time_zone or settings.time_zone
    return context.received_at.astimezone(read_time_zone("config.time_zone", name))


def read_time_zone(field: str, name: str) -> tzinfo:
    try:
        return load_time_zone(name)
    except ValueError as error:
        raise InvalidParams(f"{field}: {error}") from None
