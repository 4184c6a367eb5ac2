"""Legacy sessions from handshake to end: the version and profile agreed on, and the memory that goes with each.

A session is found by its owner alone, and only at an address that leads to its profile.
"""

from collections.abc import Mapping
from typing import Any

from auth.principal import Principal
from config.errors import SessionNotFound
from server.protocol.profiles import Profiles
from server.protocol.request_meta import read_initialize_params
from server.protocol.versions import negotiate
from sessions.session import Session
from sessions.state import SessionStates, handle_for
from sessions.store import InProcessSessionStore


class LegacySessions:
    """The sessions of one server, behind whichever door they were opened."""

    def __init__(self, store: InProcessSessionStore, session_states: SessionStates, profiles: Profiles) -> None:
        self._store = store
        self._session_states = session_states
        self._profiles = profiles

    def __len__(self) -> int:
        return len(self._store)

    async def open(self, principal: Principal, params: Mapping[str, Any], named: str | None = None) -> Session:
        """From the parameters of an `initialize` at an address that may name a profile. A `config` in them is what the
        session's calls go by, as if `session_configure` had said it."""
        handshake = read_initialize_params(params)
        session = self._store.create(
            principal.owner(),
            negotiate(handshake.version),
            handshake.client.name,
            handshake.client.version,
            handshake.client.capabilities,
            self._profiles.choose(principal, named, handshake.client.name),
        )
        if handshake.config:
            handle = handle_for(session.id)
            await self._session_states.get_or_create(handle, session.owner)
            await self._session_states.set_defaults(handle, session.owner, handshake.config)
        return session

    def find(self, session_id: str, principal: Principal, named: str | None = None) -> Session:
        """A caller bound to a profile has it at every address; others come back to the one they opened."""
        session = self._store.get(session_id, principal.owner())
        if principal.profile is None and named not in (None, session.profile):
            raise SessionNotFound
        return session

    def holds(self, session: Session) -> bool:
        return self._store.holds(session)

    async def end(self, session: Session) -> None:
        """What the session remembers ends with it. One that expires needs no ending: its memory has been idle for at
        least as long, and both are given the same time."""
        self._store.end(session)
        await self._session_states.delete(handle_for(session.id), session.owner)
