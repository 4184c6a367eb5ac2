"""Legacy sessions from `initialize` to their end, with the negotiated version, the profile and the session state.

A session is found only by its owner, and only at an address of its profile.
"""

from collections.abc import Mapping
from typing import Any

from auth.context import Owner, Principal, SessionId
from config.errors import SessionNotFound
from server.protocol.catalog import Profiles
from server.protocol.messages import negotiate
from server.protocol.request_meta import read_initialize_params
from sessions.state import SessionStates, handle_for
from sessions.store import Session, SessionStore, new_session_id

# Methods that change the session itself.
SESSION_METHODS = frozenset(("logging/setLevel", "resources/subscribe", "resources/unsubscribe"))


class LegacySessions:
    """The sessions of one server, over all transports."""

    def __init__(self, store: SessionStore, session_states: SessionStates, profiles: Profiles) -> None:
        self._store = store
        self._session_states = session_states
        self._profiles = profiles

    def __len__(self) -> int:
        return len(self._store)

    async def open(
        self,
        principal: Principal,
        params: Mapping[str, Any],
        address_profile: str | None = None,
        session_id: SessionId | None = None,
    ) -> Session:
        """Opens a session from the parameters of `initialize`.

        `address_profile` is the profile in the address, if any. A `config` in the parameters sets defaults for the
        session's calls, as `session_configure` does. `session_id` is for sessions that a client has named; the default
        is a random one.
        """
        initialize = read_initialize_params(params)
        session = Session(
            id=session_id or new_session_id(),
            owner=principal.owner(),
            version=negotiate(initialize.version),
            client_name=initialize.client.name,
            client_version=initialize.client.version,
            capabilities=initialize.client.capabilities,
            profile=self._profiles.choose(principal, address_profile, initialize.client.name),
        )
        await self._store.create(session)
        if initialize.config:
            handle = handle_for(session.id)
            await self._session_states.get_or_create(handle, session.owner)
            await self._session_states.set_defaults(handle, session.owner, initialize.config)
        return session

    async def find(self, session_id: str, principal: Principal, address_profile: str | None = None) -> Session:
        """Returns the caller's session.

        A credential that is restricted to a profile finds its session at every address. Other callers must use the
        address of the profile with which the session was opened.
        """
        session = await self._store.get(session_id, principal.owner())
        if principal.profile is None and address_profile not in (None, session.profile):
            raise SessionNotFound
        return session

    async def holds(self, session: Session) -> bool:
        return await self._store.holds(session)

    async def save(self, session: Session) -> None:
        """Makes a changed log level or changed subscriptions known to other processes."""
        await self._store.save(session)

    async def end(self, session: Session) -> None:
        """Ends a session and deletes its state.

        A session that expires leaves nothing behind: its state was idle for at least as long and has the same TTL.
        """
        await self._store.end(session)
        await self.delete_state(session.id, session.owner)

    async def delete_state(self, session_id: SessionId, owner: Owner) -> None:
        await self._session_states.delete(handle_for(session_id), owner)
