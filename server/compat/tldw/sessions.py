"""Sessions of tldw's clients: optional, opened without a handshake, and named by the client if it likes."""

import hashlib

from auth.context import Owner, SessionId
from config.errors import InvalidRequest, SessionNotFound
from server.admission import AdmittedRequest, IncomingRequest
from server.protocol.legacy_sessions import LegacySessions
from server.protocol.request_meta import with_handshake_defaults
from server.transports.headers import SESSION, query_value
from sessions.store import Session

# Clients that cannot set headers, such as browsers for a WebSocket, use the query string.
_PARAMETERS = ("mcp-session-id", "mcp_session_id")
_ID_MAX_CHARS = 200


class TldwSessions:
    def __init__(self, sessions: LegacySessions) -> None:
        self._sessions = sessions

    async def initialize(self, request: AdmittedRequest, name: str | None, params: dict[str, object]) -> Session:
        session_id = None if name is None else _id_for(name, request.principal.owner())
        return await self._sessions.open(
            request.principal, with_handshake_defaults(params), request.profile, session_id=session_id
        )

    async def find_or_open(self, request: AdmittedRequest, name: str) -> Session:
        return await self._find(request, name) or await self.initialize(request, name, {})

    async def end(self, request: AdmittedRequest, name: str) -> None:
        """Ends the session if it exists. Opening one in order to end it could evict another, or fail at the limit."""
        session = await self._find(request, name)
        if session is not None:
            await self._sessions.end(session)

    async def _find(self, request: AdmittedRequest, name: str) -> Session | None:
        """Returns the session with this id: one that `initialize` returned, or one that the client has named."""
        for session_id in (name, _id_for(name, request.principal.owner())):
            try:
                return await self._sessions.find(session_id, request.principal, request.profile)
            except SessionNotFound:
                continue
        return None


def session_name(incoming: IncomingRequest) -> str | None:
    """Returns the session id of a request, from the header or the query string.

    An id in the query string is no credential: `_id_for` binds it to the caller.
    """
    values = [incoming.headers.get(SESSION), *(query_value(incoming.query, name) for name in _PARAMETERS)]
    name = next((value for value in values if value), None)
    if name is not None and len(name) > _ID_MAX_CHARS:
        raise InvalidRequest(f"mcp-session-id: expected at most {_ID_MAX_CHARS} characters, got {len(name)}")
    return name


def _id_for(name: str, owner: Owner) -> SessionId:
    """Returns the id under which a named session is stored. It depends on the owner, so that two users or clients who
    choose the same name have different sessions."""
    text = "\0".join((owner.user_id, owner.client_id, str(owner.epoch), name))
    return SessionId(hashlib.sha256(text.encode()).hexdigest())
