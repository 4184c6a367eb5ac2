"""What a call needs of the state between calls, read in one step before the call starts.

Rate limits, sessions and session states are separate stores. In this process they cost nothing to ask. In Redis each is
a round trip, so what a message will ask for is read together, as soon as the message is known.
"""

from typing import Protocol

from msgspec import Struct

from auth.context import SessionId
from auth.principal import Principal
from sessions.state import SessionHandle


class CallNeeds(Struct, frozen=True, kw_only=True):
    """`session` is a legacy session to find, `tool` the tool that is called, and `state` the session state it uses."""

    principal: Principal
    session: SessionId | None = None
    tool: str | None = None
    state: SessionHandle | None = None


class ReadAhead(Protocol):
    async def read(self, needs: CallNeeds) -> None:
        """Takes from the limits of the user and the tool, finds the session and reads its state, until one of them
        refuses. The stores then answer the call from what was read. Raises nothing: the stores report what failed."""
        ...


class NoReadAhead:
    """For stores in this process."""

    async def read(self, needs: CallNeeds) -> None:
        return
