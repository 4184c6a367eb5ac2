"""What a call needs of the state between calls, read in one step.

Rate limits, sessions and session states are separate stores. In this process they cost nothing to ask. In Redis each is
a round trip, so what a message will ask for is read together, as soon as the message is known.
"""

from typing import Protocol

from msgspec import Struct

from auth.context import SessionId
from auth.principal import Principal
from sessions.state import SessionHandle


class CallNeeds(Struct, frozen=True, kw_only=True):
    """`session` is a legacy session to find, `tool` the tool that is called, and `state` the session state it uses.
    `can_start_early` says that the tool itself waits for the limits (`Tool.waits_for_limits`)."""

    principal: Principal
    session: SessionId | None = None
    tool: str | None = None
    state: SessionHandle | None = None
    can_start_early: bool = False


class ReadAhead(Protocol):
    def start(self, needs: CallNeeds) -> bool:
        """Takes from the limits of the user and the tool, finds the session and reads its state, until one of them
        refuses. Does not wait: the stores do when the call asks them, and report what failed. Returns whether they have
        something to wait for."""
        ...


class NoReadAhead:
    """For stores in this process."""

    def start(self, needs: CallNeeds) -> bool:
        return False
