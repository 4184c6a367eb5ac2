"""The principal: who is calling and with which scopes. Built from a verified credential, never from an argument."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, NewType

from msgspec import Struct

from config.errors import Forbidden
from config.paths import UserId

ClientId = NewType("ClientId", str)

READ = "knowledge:read"
WRITE = "knowledge:write"
ADMIN = "admin"
SCOPES: tuple[str, ...] = (READ, WRITE, ADMIN)

Role = Literal["reader", "writer", "admin"]
# The scopes that the credentials of a user with that role can have.
ROLE_SCOPES: Mapping[Role, frozenset[str]] = {
    "reader": frozenset((READ,)),
    "writer": frozenset((READ, WRITE)),
    "admin": frozenset(SCOPES),
}


class Owner(NamedTuple):
    """What a session is bound to. The epoch changes when the user's access is withdrawn, which orphans old sessions."""

    user_id: UserId
    client_id: ClientId
    epoch: int


class Principal(Struct, frozen=True):
    """A verified caller.

    `epoch` increases each time the user's access is withdrawn, so that earlier grants no longer match. `profile`, if
    set, restricts this credential to the tools of that profile, and `sources` to these sources. `signed_in_at` is when
    the person signed in, or when the token was issued; a key has none.
    """

    user_id: UserId
    user_name: str
    client_id: ClientId
    scopes: frozenset[str]
    kind: Literal["jwt", "key", "oauth", "browser", "local"]
    credential_id: str
    epoch: int = 0
    expires_at: float | None = None
    profile: str | None = None
    sources: frozenset[str] | None = None
    signed_in_at: float | None = None

    @property
    def is_for_agents(self) -> bool:
        """Whether the credential belongs to a connected application, or is restricted as those of agents are. It must
        not change the account or the server, or reach files of the server with its user's rights."""
        return self.kind == "oauth" or self.profile is not None or self.sources is not None

    @property
    def key_id(self) -> str | None:
        """The id of the API key that the caller sent, if it was one."""
        return self.credential_id if self.kind == "key" else None

    def permits_source(self, source: str) -> bool:
        return self.sources is None or source in self.sources

    def has_scope(self, scope: str) -> bool:
        return scope in self.scopes

    def require_scope(self, scope: str) -> None:
        """Raises Forbidden if the scope is missing."""
        if scope not in self.scopes:
            raise Forbidden(scope)

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def owner(self) -> Owner:
        return Owner(self.user_id, self.client_id, self.epoch)
