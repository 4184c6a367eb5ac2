"""Messages between the processes of a deployment. A single process has no peers: nothing is sent, nothing arrives."""

from collections.abc import Callable
from typing import Any, Protocol

PeerHandler = Callable[[Any], object]
# The kind of a message that a process gets from itself after messages of others may have been lost.
RECONNECTED = "reconnected"


class Peers(Protocol):
    id: str

    def handle(self, kind: str, handler: PeerHandler) -> None:
        """Calls the handler with the content of every message of this kind that another process sends."""
        ...

    def publish(self, kind: str, content: Any) -> None:
        """Sends a message to all other processes without waiting. It is lost for a process that is not connected."""
        ...

    async def send(self, peer: str, kind: str, content: Any) -> bool:
        """Sends a message to one process. Returns whether it arrived there."""
        ...

    async def hold(self, name: str, lifetime_s: float) -> None:
        """Makes known that this process has something, such as an open stream, for as long as it is repeated."""
        ...

    async def release(self, name: str) -> None: ...

    async def acquire(self, name: str, lifetime_s: float) -> bool:
        """Takes or extends a lease that one process at a time has. Returns whether this process has it."""
        ...

    async def holder(self, name: str) -> str | None:
        """Returns the process that has it."""
        ...


class NoPeers:
    id = ""

    def handle(self, kind: str, handler: PeerHandler) -> None:
        pass

    def publish(self, kind: str, content: Any) -> None:
        pass

    async def send(self, peer: str, kind: str, content: Any) -> bool:
        return False

    async def hold(self, name: str, lifetime_s: float) -> None:
        pass

    async def release(self, name: str) -> None:
        pass

    async def acquire(self, name: str, lifetime_s: float) -> bool:
        return True

    async def holder(self, name: str) -> str | None:
        return None
