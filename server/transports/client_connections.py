"""The open connections of all clients, and what the connections of one user share.

The protocol classes in `bounded_http` and `bounded_websocket` register each connection and add it to the ASGI scope.
Admission assigns it to a user, because only the credential tells who that is.
"""

from collections.abc import Mapping
from typing import Any

from config.paths import UserId
from config.settings import Settings
from server.transports.pace import Pace

_EXTENSION = "florilegium.connection"


class _UserShare:
    """What the connections of one user have in common."""

    def __init__(self, settings: Settings) -> None:
        self.connections = 0
        self.frames = Pace(settings.ws_frames_per_s, settings.ws_frames_burst)


class ClientConnections:
    """All open connections of a server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._users: dict[UserId, _UserShare] = {}

    def open(self) -> "ClientConnection":
        return ClientConnection(self)

    def enter(self, user_id: UserId) -> _UserShare:
        share = self._users.get(user_id)
        if share is None:
            share = self._users[user_id] = _UserShare(self._settings)
        share.connections += 1
        return share

    def leave(self, user_id: UserId) -> None:
        share = self._users[user_id]
        share.connections -= 1
        if not share.connections:
            del self._users[user_id]


class ClientConnection:
    """One TCP connection. A reverse proxy may send requests of several users over it, one after the other."""

    def __init__(self, connections: ClientConnections) -> None:
        self._connections = connections
        self._user_id: UserId | None = None
        self._share: _UserShare | None = None
        # Whether the request that is being answered has arrived completely.
        self.has_whole_request = False

    @property
    def frames(self) -> Pace | None:
        """The rate of the user's WebSocket frames; None before the connection is assigned."""
        return self._share.frames if self._share else None

    def add_to(self, scope: Any) -> None:
        scope["extensions"] = {**scope.get("extensions", {}), _EXTENSION: self}

    def assign(self, user_id: UserId) -> None:
        """Counts the connection for the user whose credential it sent last."""
        if user_id == self._user_id:
            return
        self.close()
        self._share = self._connections.enter(user_id)
        self._user_id = user_id

    def close(self) -> None:
        if self._user_id is not None:
            self._connections.leave(self._user_id)
            self._user_id = self._share = None


def connection_of(scope: Mapping[str, Any]) -> ClientConnection | None:
    """Returns the connection of a request; None if it did not come from a socket of ours."""
    connection: ClientConnection | None = scope.get("extensions", {}).get(_EXTENSION)
    return connection
