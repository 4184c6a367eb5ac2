"""One legacy MCP session: what its handshake agreed on, and whose it is. It holds no sockets and no tasks."""

import secrets
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from auth.context import SessionId
from auth.principal import ClientId
from config.paths import UserId

Owner = tuple[UserId, ClientId, int]


def new_session_id() -> SessionId:
    """256 random bits in visible ASCII (Streamable HTTP, session management)."""
    return SessionId(secrets.token_urlsafe(32))


class Session(Struct, eq=False, weakref=True):
    """Bound to the principal that made it; `log_level` and `subscriptions` are all that changes later."""

    id: SessionId
    owner: Owner
    version: str
    client_name: str
    client_version: str
    capabilities: Mapping[str, Any]
    used_at: float
    profile: str = "default"
    log_level: str | None = None
    subscriptions: set[str] = field(default_factory=set)
