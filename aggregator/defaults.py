"""How a call is carried out where it does not say: what the session was told, else what the request prefers, else the
server's settings. A caller's `config` can hold nothing but these habits: no credential, no user, no path."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec.structs import fields, replace

from auth.context import RequestContext
from config.errors import InvalidParams, SessionNotFound
from sessions.state import SessionHandle, SessionStates, handle_for
from sources.preferences import Preferences

Dedupe = Literal["hide", "demote", "off"]
# Names of what must never travel in a config, which ends in addresses, histories and proxies' logs.
_SECRET = re.compile(
    r"token(?!s)|secret|passw|api.?key|credential|auth|bearer|cookie|user|tenant|owner|path|db|dsn|jwt"
)


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


async def session_context(
    session_states: SessionStates, context: RequestContext, named: str | None = None
) -> RequestContext:
    """The context of a call of a session, which it names or which its connection is. Nothing is made here: a session
    that remembers nothing leaves the context as it is."""
    owner = context.principal.owner()
    if named is not None:
        return with_habits(context, (await session_states.get(SessionHandle(named), owner)).defaults)
    if context.session is None:
        return context
    try:
        state = await session_states.get(handle_for(context.session), owner)
    except SessionNotFound:
        return context
    return with_habits(context, state.defaults)


def read_config(given: Any) -> Mapping[str, Any]:
    """The config of a request or a handshake. A key or a type we do not know is refused; a number out of range is moved
    to the nearest that is allowed, where it is used."""
    if not isinstance(given, Mapping):
        raise InvalidParams(f"config: got {type(given).__name__}, expected an object with any of {_KNOWN}")
    read = {key: _value(key, value) for key, value in given.items()}
    return MappingProxyType({key: value for key, value in read.items() if value is not None})


_TYPES = {field.name: field.type for field in fields(Habits)}
_KNOWN = ", ".join(_TYPES)


def _value(key: str, value: Any) -> Any:
    if key not in _TYPES:
        if _SECRET.search(key.lower()):
            raise InvalidParams(
                f"config: {key[:60]!r} is never read from a config, which carries no credential and names no user; "
                f"expected any of {_KNOWN}"
            )
        raise InvalidParams(f"config: unknown key {key[:60]!r}; expected any of {_KNOWN}")
    try:
        return msgspec.convert(value, _TYPES[key])
    except msgspec.ValidationError as error:
        raise InvalidParams(f"config.{key}: {error}") from error
