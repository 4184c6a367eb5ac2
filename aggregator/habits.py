"""How a call is carried out where it does not say: what the session was told, else what the request prefers, else the
server's settings."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import InvalidParams
from sources.preferences import Preferences

Dedupe = Literal["hide", "demote", "off"]


class Habits(Preferences, frozen=True, kw_only=True):
    """Soft defaults of a search of all sources."""

    dedupe: Dedupe | None = None


def with_habits(context: RequestContext, defaults: Mapping[str, Any]) -> RequestContext:
    """The context in which the session's defaults stand before the request's own."""
    return replace(context, config={**context.config, **defaults}) if defaults else context


def habits_of(context: RequestContext) -> Habits:
    try:
        return msgspec.convert(dict(context.config), Habits, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config: {error}") from error
