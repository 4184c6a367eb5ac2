"""A legacy MCP session: the result of its handshake and the principal it belongs to. It holds no sockets or tasks."""

import secrets
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from auth.context import SessionId
from auth.principal import Owner


def new_session_id() -> SessionId:
    """Returns 256 random bits in visible ASCII (MCP Streamable HTTP, session management)."""
    return SessionId(secrets.token_urlsafe(32))


class Session(Struct, eq=False, weakref=True):
    """Belongs to the principal that created it. Only `used_at`, `log_level` and `subscriptions` change later."""

    id: SessionId
    owner: Owner
    version: str
    client_name: str
    client_version: str
    capabilities: Mapping[str, Any]
    used_at: float = 0.0
    profile: str = "default"
    log_level: str | None = None
    subscriptions: set[str] = field(default_factory=set)
